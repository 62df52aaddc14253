/*
 * Conversation → the body of POST /responses.
 *
 * The provider keeps nothing (`store` is false): the whole history goes along each time, and what
 * the model thought goes along encrypted. The answer is always asked for as a stream.
 */
#include "provider/openai_responses.h"

#include "base/mem.h"
#include "provider/request.h"

#define BODY_MAX ((size_t)256 << 20)

struct openai_responses_place openai_responses_place(const struct config_provider *p)
{
	return (struct openai_responses_place){
	        .openai = request_is_to(p->base_url, "https://api.openai.com") ||
	                  str_contains(str_of(p->base_url), ".openai.azure.com/"),
	        .openrouter = request_is_to(p->base_url, "https://openrouter.ai"),
	};
}

static int write_body(struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	int r;

	jw_object(w);
	jw_kcstr(w, "model", pc->target->model);
	r = openai_responses_input_write(w, pc, err);
	if (!r)
		r = openai_responses_tools_write(w, pc, err);
	if (!r)
		r = openai_responses_settings_write(w, pc, err);
	if (r < 0)
		return r;
	jw_kbool(w, "store", false);
	jw_kbool(w, "stream", true);
	jw_end(w);
	return jw_done(w) < 0 ? error_set(err, ERR_TOO_LARGE,
	                                "the conversation is too large to send to the provider")
	                      : 0;
}

int openai_responses_build(
        const struct provider_call *pc, struct provider_request *ret, struct error *err)
{
	struct buf body _cleanup_buf_ = BUF_INIT(BODY_MAX);
	struct json_writer w;
	int r;

	jw_init(&w, &body);
	r = write_body(&w, pc, err);
	if (r < 0)
		return r;
	ret->path = mem_strdup("/responses");
	ret->headers = request_headers("Authorization: Bearer ", pc->target->config->api_key);
	ret->body = buf_steal(&body, &ret->body_len);
	return 0;
}

int openai_responses_relay(const struct provider_call *pc, bool streamed,
        struct provider_request *ret, struct error *err)
{
	ret->path = mem_strdup("/responses");
	ret->headers = request_headers("Authorization: Bearer ", pc->target->config->api_key);
	return 0;
}
