/*
 * What any client says, to any provider: the first byte chooses the API and the model's name, the
 * rest is the body of a request. Where it is taken, each provider's request must be JSON or a
 * refusal in words; and of what Anthropic refuses, the messages must hold nothing.
 */
#include "api/api.h"
#include "base/mem.h"
#include "json/json.h"
#include "provider/provider.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { ROOM = 256 << 20 };

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			BUG("%s", #condition);                                                     \
	} while (0)

/* ---- what Anthropic refuses ---- */

static bool is_type(const struct json *block, const char *type)
{
	return str_is(json_str(json_get(block, "type")), type);
}

static bool says_something(struct str text)
{
	for (size_t i = 0; i < text.n; i++)
		if (!memchr(" \t\r\n", text.p[i], 4))
			return true;
	return false;
}

/* The results that a message begins with are those of the calls before it, in their order. */
static void check_results(const struct json *calls, const struct json *results)
{
	const struct json *r = json_first(results);

	for (const struct json *c = json_first(calls); c; c = json_next(c)) {
		if (!is_type(c, "tool_use"))
			continue;
		MUST(is_type(r, "tool_result"));
		MUST(str_eq(json_str(json_get(r, "tool_use_id")), json_str(json_get(c, "id"))));
		r = json_next(r);
	}
	for (; r; r = json_next(r))
		MUST(!is_type(r, "tool_result"));
}

static void check_block(const struct json *b, bool raw)
{
	MUST(json_is(b, JSON_OBJECT) && (raw || json_str(json_get(b, "type")).n > 0));
	if (is_type(b, "text"))
		MUST(says_something(json_str(json_get(b, "text"))) || raw);
	if (is_type(b, "tool_use")) {
		MUST(json_is(json_get(b, "input"), JSON_OBJECT));
		MUST(json_str(json_get(b, "name")).n > 0);
		MUST(str_in_set(json_str(json_get(b, "id")),
		        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"));
	}
}

/* raw: the client speaks the same dialect, and some blocks are its own. */
static void check_anthropic(const struct json *root, bool raw)
{
	const struct json *before = NULL;

	MUST(json_is(json_get(root, "max_tokens"), JSON_NUMBER));
	for (const struct json *m = json_first(json_get(root, "messages")); m; m = json_next(m)) {
		const struct json *content = json_get(m, "content");
		struct str role = json_str(json_get(m, "role"));

		MUST(json_count(content) > 0);
		MUST(!before || !str_eq(role, json_str(json_get(before, "role"))));
		for (const struct json *b = json_first(content); b; b = json_next(b))
			check_block(b, raw);
		check_results(json_get(before, "content"), content);
		before = m;
	}
	MUST(before);
}

/* ---- building ---- */

static void check_body(
        const struct provider *p, const struct provider_request *r, bool same_dialect)
{
	struct json_doc *doc = NULL;
	struct error err = {0};

	if (json_parse((struct str){r->body, r->body_len}, ROOM, &doc, &err) < 0) {
		/* What is nested as deep as JSON may be is deeper inside of a request. */
		if (!strstr(err.text, "levels of arrays") && !strstr(err.text, "values"))
			BUG("%s: %s", p->name, err.text);
		return;
	}
	if (p->dialect == DIALECT_ANTHROPIC)
		check_anthropic(json_root(doc), same_dialect);
	json_doc_free(doc);
}

static void build(const struct turn_request *t, enum dialect d, const char *model, bool tools_off)
{
	static char name[] = "p", url[] = "http://127.0.0.1/v1";
	const struct config_provider config = {.name = name, .base_url = url};
	struct provider_target target = {provider_for(d), &config, model};
	struct upstream_call call = {.tools_off = tools_off,
	        .choice = t->conversation->choice,
	        .reply = t->conversation->next_reply};
	struct provider_call pc = {
	        .target = &target, .conversation = t->conversation, .call = &call};
	struct provider_request r = {0};
	struct error err = {0};

	if (target.provider->build(&pc, &r, &err) < 0) {
		MUST(err.text[0] && error_http_status(&err) >= 400 && !r.body);
		return;
	}
	MUST(r.path && r.headers && r.headers[0]);
	check_body(target.provider, &r, t->conversation->dialect == d);
	provider_request_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct config config = {
	        .sandbox = true, .limits = {.tool_calls = 30, .commands = 100}};
	static const struct api *const apis[] = {
	        &api_responses, &api_messages, &api_gemini, &api_chat};
	static const char *const models[] = {
	        "claude-haiku-4-5", "claude-opus-4-8", "m", "gemini-3-pro"};
	static const enum dialect dialects[] = {
	        DIALECT_OPENAI_CHAT, DIALECT_OPENAI_RESPONSES, DIALECT_ANTHROPIC, DIALECT_GEMINI};
	struct api_request in = {.config = &config};
	struct turn_request t;
	struct error err = {0};

	if (n < 2)
		return 0;
	in.body = mem_strndup((const char *)data + 1, n - 1);
	in.body_len = n - 1;
	in.path_model = STR("m");
	if (apis[data[0] & 3]->parse(&in, STR("seed"), &t, &err) < 0)
		return 0;
	for (int i = 0; i < 4; i++)
		build(&t, dialects[i], models[data[0] >> 2 & 3], data[0] & 16);
	turn_request_free(&t);
	return 0;
}
