/*
 * Errors and usage of the Messages API.
 *
 * The envelope {"type":"error","error":{"type","message"}} is one of those that openai_chat_error()
 * reads; what is particular here is that inside a stream the type stands for the status, and that
 * an account without money is a 400.
 */
#include "provider/anthropic.h"
#include "provider/openai_chat.h"
#include "provider/usage.h"

static int status_of(struct str type)
{
	static const struct {
		const char *type;
		int status;
	} types[] = {
	        {"invalid_request_error", 400},
	        {"authentication_error", 401},
	        {"billing_error", 402},
	        {"permission_error", 403},
	        {"not_found_error", 404},
	        {"conflict_error", 409},
	        {"request_too_large", 413},
	        {"rate_limit_error", 429},
	        {"api_error", 500},
	        {"timeout_error", 504},
	        {"overloaded_error", 529},
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (str_is(type, types[i].type))
			return types[i].status;
	return 500;
}

void anthropic_error(int status, struct str body, struct str retry_after, struct error *ret)
{
	if (status == 400 && str_contains(body, "credit balance is too low"))
		status = 402;
	openai_chat_error(status, body, retry_after, ret);
}

void anthropic_error_json(const struct json *root, struct error *ret)
{
	struct str type = json_str(json_get(json_get(root, "error"), "type"));

	anthropic_error(status_of(type), json_raw(root), (struct str){NULL, 0}, ret);
}

/* ---- usage ---- */

void anthropic_usage_read(struct anthropic_usage *u, const struct json *usage)
{
	if (!json_is(usage, JSON_OBJECT))
		return;
	u->given |= usage_read_count(usage, "input_tokens", &u->input);
	u->given |= usage_read_count(usage, "output_tokens", &u->output);
	usage_read_count(usage, "cache_read_input_tokens", &u->cache_read);
	usage_read_count(usage, "cache_creation_input_tokens", &u->cache_write);
	usage_read_count(json_get(usage, "output_tokens_details"), "thinking_tokens", &u->thinking);
}

void anthropic_usage_convert(const struct anthropic_usage *u, struct usage *ret)
{
	*ret = (struct usage){
	        .given = u->given,
	        .input = u->input + u->cache_read + u->cache_write,
	        .cached = u->cache_read,
	        .cache_write = u->cache_write,
	        .output = u->output > u->thinking ? u->output : u->thinking,
	        .reasoning = u->thinking,
	};
}
