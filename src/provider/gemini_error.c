/*
 * What Google says when it refuses. Its envelope is
 * {"error":{"code","message","status","details"}}, sometimes inside an array; the reading, and what
 * of it a client may see, is shared with chat servers. Its own are the details: how long to wait,
 * and a bad key, which is a 400 there.
 */
#include "provider/gemini.h"

#include "provider/openai_chat.h"

#include <stdlib.h>

#define TREE_MAX       ((size_t)8 << 20)
#define BODY_LOOKED_AT ((size_t)64 << 10)
#define RETRY_MAX_S    3600

static const struct json *error_of(const struct json *root)
{
	if (json_is(root, JSON_ARRAY))
		root = json_first(root);
	return json_get(root, "error");
}

/* "34.4s" */
static int delay_ms(struct str s)
{
	char text[32];
	char *end;
	double seconds;

	if (!s.n || !str_ends(s, "s") || !str_copy(text, sizeof(text), s))
		return 0;
	text[s.n - 1] = '\0';
	if (!str_in_set(str_of(text), "0123456789."))
		return 0;
	seconds = strtod(text, &end);
	if (*end || !(seconds > 0))
		return 0;
	return seconds > RETRY_MAX_S ? RETRY_MAX_S * 1000 : (int)(seconds * 1000);
}

static void read_details(const struct json *root, struct error *ret)
{
	const struct json *d = json_first(json_get(error_of(root), "details"));

	for (; d; d = json_next(d)) {
		struct str reason = json_str(json_get(d, "reason"));

		if (str_is(reason, "API_KEY_INVALID") && ret->http_status == 400) {
			*ret = (struct error){.code = ERR_UPSTREAM, .http_status = 502};
			str_copy(ret->type, sizeof(ret->type), STR("provider_authentication"));
			str_copy(ret->text, sizeof(ret->text),
			        STR("the provider refused the key that this server has for it"));
		}
		if (!ret->retry_after_ms)
			ret->retry_after_ms = delay_ms(json_str(json_get(d, "retryDelay")));
	}
}

void gemini_error(int status, struct str body, struct str retry_after, struct error *ret)
{
	struct json_doc *doc _cleanup_json_ = NULL;

	openai_chat_error(status, body, retry_after, ret);
	if (body.n > 0 && body.n <= BODY_LOOKED_AT && json_parse(body, TREE_MAX, &doc, NULL) == 0)
		read_details(json_root(doc), ret);
}

void gemini_error_json(const struct json *root, struct error *ret)
{
	openai_chat_error_json(root, ret);
	read_details(root, ret);
}
