/*
 * Conversation → the body of POST /models/{model}:streamGenerateContent.
 *
 * The parts of the body are written by gemini_contents.c, gemini_tools.c and gemini_settings.c;
 * here they are put together with the path, the headers, and the members that only a Gemini client
 * sends (safetySettings, cachedContent, labels …), which go on as they came.
 */
#include "provider/gemini.h"

#include "provider/request.h"

#define BODY_MAX ((size_t)256 << 20)

/* "gemini-2.5-pro", "models/gemini-3-flash", "tunedModels/mine". */
bool gemini_model_is_new(const char *model)
{
	static const char *const old[] = {
	        "gemini-1", "gemini-2", "gemini-pro-vision", "gemma", "learnlm"};
	const char *slash = strrchr(model, '/');
	struct str name = str_of(slash ? slash + 1 : model);

	for (size_t i = 0; i < sizeof(old) / sizeof(*old); i++)
		if (str_starts(name, old[i]))
			return false;
	return true;
}

struct str gemini_extra(const struct conversation *c, const char *key)
{
	for (size_t i = 0; c->dialect == DIALECT_GEMINI && i < c->n_extra; i++)
		if (str_is(c->extra[i].key, key))
			return c->extra[i].raw;
	return (struct str){NULL, 0};
}

/* Members that the other files have taken into what they write. */
static bool is_merged(struct str key)
{
	return str_is(key, "generationConfig") || str_is(key, "toolConfig");
}

static void write_extra(struct json_writer *w, const struct conversation *c)
{
	for (size_t i = 0; c->dialect == DIALECT_GEMINI && i < c->n_extra; i++) {
		if (is_merged(c->extra[i].key))
			continue;
		jw_key_str(w, c->extra[i].key);
		jw_raw(w, c->extra[i].raw);
	}
}

static int write_body(struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	int r;

	jw_object(w);
	r = gemini_contents_write(w, pc, err);
	if (r == 0)
		r = gemini_tools_write(w, pc, err);
	if (r == 0)
		r = gemini_settings_write(w, pc, err);
	if (r < 0)
		return r;
	write_extra(w, pc->conversation);
	jw_end(w);
	return jw_done(w) < 0 ? error_set(err, ERR_TOO_LARGE,
	                                "the conversation is too large to send to the provider")
	                      : 0;
}

/* ---- path and headers ---- */

static bool is_dots(struct str segment)
{
	return str_is(segment, ".") || str_is(segment, "..");
}

/*
 * The name comes from the client: nothing in it may lead to another path or add a query. Slashes
 * stay, since names have them; a segment of dots would be resolved on the way.
 */
static int write_path(struct buf *out, struct str model, const char *method, struct error *err)
{
	struct str rest = model;

	while (rest.n) {
		const char *slash = memchr(rest.p, '/', rest.n);
		struct str segment = {rest.p, slash ? (size_t)(slash - rest.p) : rest.n};

		if (!segment.n || is_dots(segment)) {
			error_param(err, ERR_NOT_FOUND, "model",
			        "The provider has no model of this name.");
			if (err)
				str_copy(err->type, sizeof(err->type), STR("model_not_found"));
			return -ERR_NOT_FOUND;
		}
		rest.p += segment.n + (slash ? 1 : 0);
		rest.n -= segment.n + (slash ? 1 : 0);
	}
	buf_puts(out, str_starts(model, "models/") || str_starts(model, "tunedModels/")
	                      ? "/"
	                      : "/models/");
	buf_percent(out, model, BUF_UNRESERVED "/");
	buf_puts(out, method);
	return buf_error(out) < 0 ? error_set(err, ERR_TOO_LARGE, "the model's name is too long")
	                          : 0;
}

static const char STREAM[] = ":streamGenerateContent?alt=sse";

int gemini_relay(const struct provider_call *pc, bool streamed, struct provider_request *ret,
        struct error *err)
{
	struct buf path _cleanup_buf_ = BUF_INIT(4096);
	int r = write_path(
	        &path, str_of(pc->target->model), streamed ? STREAM : ":generateContent", err);

	if (r < 0)
		return r;
	ret->path = buf_steal(&path, NULL);
	ret->headers = request_headers("x-goog-api-key: ", pc->target->config->api_key);
	return 0;
}

int gemini_build(const struct provider_call *pc, struct provider_request *ret, struct error *err)
{
	struct buf body _cleanup_buf_ = BUF_INIT(BODY_MAX);
	struct buf path _cleanup_buf_ = BUF_INIT(4096);
	struct json_writer w;
	int r = write_path(&path, str_of(pc->target->model), STREAM, err);

	if (r < 0)
		return r;
	jw_init(&w, &body);
	r = write_body(&w, pc, err);
	if (r < 0)
		return r;
	ret->path = buf_steal(&path, NULL);
	ret->headers = request_headers("x-goog-api-key: ", pc->target->config->api_key);
	ret->body = buf_steal(&body, &ret->body_len);
	return 0;
}
