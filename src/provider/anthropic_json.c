#include "provider/anthropic.h"

#include "base/mem.h"

#include <stdlib.h>

static struct str unquoted(struct str raw)
{
	return (struct str){raw.p + 1, raw.n - 2};
}

static int copy_string(struct json_writer *w, const struct json_event *ev)
{
	char *text;
	size_t n;

	if (!ev->escaped && ev->type == JSON_EV_STRING) {
		jw_raw(w, ev->raw);
		return 0;
	}
	if (!ev->escaped) {
		jw_key_str(w, unquoted(ev->raw));
		return 0;
	}
	text = malloc(ev->raw.n);
	if (!text)
		return -ERR_NOMEM;
	n = json_unescape(ev->raw, text);
	if (ev->type == JSON_EV_KEY)
		jw_key_str(w, (struct str){text, n});
	else
		jw_str(w, (struct str){text, n});
	free(text);
	return 0;
}

static int copy_event(void *ctx, const struct json_event *ev)
{
	struct json_writer *w = ctx;

	switch (ev->type) {
	case JSON_EV_OBJECT_BEGIN:
		jw_object(w);
		return 0;
	case JSON_EV_ARRAY_BEGIN:
		jw_array(w);
		return 0;
	case JSON_EV_OBJECT_END:
	case JSON_EV_ARRAY_END:
		jw_end(w);
		return 0;
	case JSON_EV_KEY:
	case JSON_EV_STRING:
		return copy_string(w, ev);
	case JSON_EV_NUMBER:
		jw_raw(w, ev->raw);
		return 0;
	case JSON_EV_TRUE:
	case JSON_EV_FALSE:
		jw_bool(w, ev->type == JSON_EV_TRUE);
		return 0;
	case JSON_EV_NULL:
		jw_null(w);
		return 0;
	}
	return 0;
}

int anthropic_json_copy(struct buf *out, struct str raw)
{
	struct json_writer w;
	int r;

	jw_init(&w, out);
	r = json_read(raw, copy_event, &w, NULL);
	return r < 0 ? r : buf_error(out);
}
