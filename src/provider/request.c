#include "provider/request.h"

#include "base/mem.h"

#define ARGUMENTS_MAX ((size_t)256 << 20)

bool request_is_to(const char *base_url, const char *origin)
{
	struct str url = str_of(base_url);
	size_t n = strlen(origin);

	return str_starts(url, origin) && (url.n == n || url.p[n] == '/');
}

char **request_headers(const char *field, const char *api_key)
{
	char **h = mem_array(4, sizeof(*h));
	size_t n = 0, size;

	h[n++] = mem_strdup("Content-Type: application/json");
	h[n++] = mem_strdup("Accept: text/event-stream");
	if (api_key) {
		size = strlen(field) + strlen(api_key) + 1;
		h[n] = mem_alloc(size);
		str_format(h[n], size, "%s%s", field, api_key);
	}
	return h;
}

bool request_is_text(const struct part *p)
{
	return p->type == PART_TEXT || p->type == PART_REFUSAL;
}

bool request_is_attachment(const struct part *p)
{
	return p->type == PART_IMAGE || p->type == PART_FILE || p->type == PART_AUDIO;
}

static int ignore_event(void *ctx, const struct json_event *ev)
{
	return 0;
}

void request_write_arguments(struct json_writer *w, struct str raw)
{
	struct buf wrapped _cleanup_buf_ = BUF_INIT(ARGUMENTS_MAX);
	struct json_writer in;

	if (!str_trim(raw).n) {
		jw_kcstr(w, "arguments", "{}");
		return;
	}
	if (json_read(raw, ignore_event, NULL, NULL) == 0) {
		jw_kstr(w, "arguments", raw);
		return;
	}
	jw_init(&in, &wrapped);
	jw_object(&in);
	jw_kstr(&in, "invalid_arguments", raw);
	jw_end(&in);
	jw_kstr(w, "arguments", (struct str){wrapped.data, wrapped.len});
}

void request_write_name(struct json_writer *w, const struct conversation *c, struct str name,
        const char *set, size_t most)
{
	char safe[REQUEST_NAME_MAX + 1];
	size_t n = 0;

	for (size_t i = 0; i < c->n_tools; i++)
		if (str_eq(c->tools[i].name, name)) {
			jw_kstr(w, "name", name);
			return;
		}
	for (; n < name.n && n < most && n < sizeof(safe) - 1; n++)
		safe[n] = str_in_set((struct str){name.p + n, 1}, set) ? name.p[n] : '_';
	safe[n] = 0;
	jw_kcstr(w, "name", n ? safe : "invalid");
}
