/*
 * The lists as they come:
 *
 *     OpenAI and its kin   GET /models               {data: [{id, created, …}]}, one page
 *                          with what OpenRouter (name, context_length, top_provider) and vLLM
 *                          (max_model_len) add
 *     Anthropic            GET /models?after_id=     {data: [{id, display_name, created_at,
 *                                                    max_input_tokens, max_tokens}], has_more,
 * last_id} Google               GET /models?pageToken=    {models: [{name: "models/…", displayName,
 *                                                    inputTokenLimit, outputTokenLimit}],
 *                                                    nextPageToken}
 */
#include "provider/models.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "json/json.h"

#include <stdlib.h>
#include <time.h>

#define TREE_MAX  ((size_t)64 << 20)
#define AFTER_MAX 1024

/* ---- asking ---- */

static char *header(const char *name, const char *value)
{
	size_t size = strlen(name) + strlen(value) + 3;
	char *h = mem_alloc(size);

	str_format(h, size, "%s: %s", name, value);
	return h;
}

static char *bearer(const char *key)
{
	size_t size = strlen("Authorization: Bearer ") + strlen(key) + 1;
	char *h = mem_alloc(size);

	str_format(h, size, "Authorization: Bearer %s", key);
	return h;
}

static void append_escaped(struct buf *b, struct str s)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		        c == '-' || c == '_' || c == '.') {
			buf_putc(b, (char)c);
			continue;
		}
		buf_putc(b, '%');
		buf_putc(b, digits[c >> 4]);
		buf_putc(b, digits[c & 15]);
	}
}

bool provider_models_request(
        const struct config_provider *p, struct str after, struct provider_request *ret)
{
	struct buf path = BUF_INIT(4 * AFTER_MAX);
	size_t n = 0;

	if (p->dialect == DIALECT_SCRIPT || after.n > AFTER_MAX)
		return false;
	*ret = (struct provider_request){.headers = mem_array(4, sizeof(*ret->headers))};
	ret->headers[n++] = mem_strdup("Accept: application/json");
	buf_puts(&path, "/models");
	if (p->dialect == DIALECT_ANTHROPIC) {
		ret->headers[n++] = mem_strdup("anthropic-version: 2023-06-01");
		buf_puts(&path, after.n ? "?limit=1000&after_id=" : "?limit=1000");
	} else if (p->dialect == DIALECT_GEMINI) {
		buf_puts(&path, after.n ? "?pageSize=1000&pageToken=" : "?pageSize=1000");
	} else {
		after.n = 0;
	}
	append_escaped(&path, after);
	if (p->api_key != NULL)
		ret->headers[n++] =
		        p->dialect == DIALECT_ANTHROPIC ? header("x-api-key", p->api_key)
		        : p->dialect == DIALECT_GEMINI  ? header("x-goog-api-key", p->api_key)
		                                        : bearer(p->api_key);
	ret->path = buf_steal(&path, NULL);
	return true;
}

/* ---- reading ---- */

static uint64_t number_of(const struct json *object, const char *key)
{
	int64_t v;

	return json_i64(json_get(object, key), &v) && v > 0 ? (uint64_t)v : 0;
}

/* "2025-02-19T00:00:00Z" */
static int64_t time_of(struct str s)
{
	char text[40];
	struct tm tm = {0};

	if (!str_copy(text, sizeof(text), s) || strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) == NULL)
		return 0;
	return (int64_t)timegm(&tm);
}

static bool is_name(struct str id)
{
	if (id.n == 0 || id.n > PROVIDER_MODEL_NAME || !utf8_valid(id.p, id.n))
		return false;
	for (size_t i = 0; i < id.n; i++)
		if ((unsigned char)id.p[i] <= ' ' || id.p[i] == 0x7f)
			return false;
	return true;
}

static void read_openai(const struct json *v, struct provider_model *m)
{
	int64_t created;

	m->id = json_str(json_get(v, "id"));
	m->name = json_str(json_get(v, "name"));
	if (json_i64(json_get(v, "created"), &created) && created > 0)
		m->created_s = created;
	m->input_tokens = number_of(v, "context_length");
	if (m->input_tokens == 0)
		m->input_tokens = number_of(v, "max_model_len");
	m->output_tokens = number_of(json_get(v, "top_provider"), "max_completion_tokens");
}

static void read_anthropic(const struct json *v, struct provider_model *m)
{
	m->id = json_str(json_get(v, "id"));
	m->name = json_str(json_get(v, "display_name"));
	m->created_s = time_of(json_str(json_get(v, "created_at")));
	m->input_tokens = number_of(v, "max_input_tokens");
	m->output_tokens = number_of(v, "max_tokens");
}

static void read_gemini(const struct json *v, struct provider_model *m)
{
	m->id = json_str(json_get(v, "name"));
	if (str_starts(m->id, "models/"))
		m->id = (struct str){m->id.p + strlen("models/"), m->id.n - strlen("models/")};
	m->name = json_str(json_get(v, "displayName"));
	m->input_tokens = number_of(v, "inputTokenLimit");
	m->output_tokens = number_of(v, "outputTokenLimit");
}

static struct str next_page(enum dialect d, const struct json *root)
{
	if (d == DIALECT_GEMINI)
		return json_str(json_get(root, "nextPageToken"));
	if (d == DIALECT_ANTHROPIC && json_bool(json_get(root, "has_more")))
		return json_str(json_get(root, "last_id"));
	return (struct str){NULL, 0};
}

int provider_models_read(enum dialect d, struct str body, provider_model_fn fn, void *ctx,
        struct buf *ret_after, struct error *err)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *list, *v;
	struct str after;
	int r = json_parse(body, TREE_MAX, &doc, err);

	if (r < 0)
		return error_prefix(err, "the list of models");
	list = json_get(json_root(doc), d == DIALECT_GEMINI ? "models" : "data");
	if (!json_is(list, JSON_ARRAY))
		return error_set(err, ERR_UPSTREAM, "what should be a list of models is none");
	for (v = json_first(list); v != NULL; v = json_next(v)) {
		struct provider_model m = {0};

		if (d == DIALECT_ANTHROPIC)
			read_anthropic(v, &m);
		else if (d == DIALECT_GEMINI)
			read_gemini(v, &m);
		else
			read_openai(v, &m);
		if (is_name(m.id))
			fn(ctx, &m);
	}
	after = next_page(d, json_root(doc));
	if (after.n > 0 && after.n <= AFTER_MAX)
		buf_append(ret_after, after.p, after.n);
	return 0;
}
