/*
 * A JSON text in the one form that most clients write: no space between tokens, strings escaped as
 * json_write_str() does, numbers and the order of keys as they stand.
 */
#include "json/json.h"

#include <stdlib.h>

static int write_text(struct json_writer *w, const struct json_event *ev)
{
	char *decoded = malloc(ev->raw.n);
	struct str text;

	if (!decoded)
		return -ERR_NOMEM;
	text = (struct str){decoded, json_unescape(ev->raw, decoded)};
	if (ev->type == JSON_EV_KEY)
		jw_key_str(w, text);
	else
		jw_str(w, text);
	free(decoded);
	return 0;
}

static int on_event(void *ctx, const struct json_event *ev)
{
	struct json_writer *w = ctx;

	switch (ev->type) {
	case JSON_EV_OBJECT_BEGIN:
		jw_object(w);
		break;
	case JSON_EV_ARRAY_BEGIN:
		jw_array(w);
		break;
	case JSON_EV_OBJECT_END:
	case JSON_EV_ARRAY_END:
		jw_end(w);
		break;
	case JSON_EV_NUMBER:
	case JSON_EV_TRUE:
	case JSON_EV_FALSE:
	case JSON_EV_NULL:
		jw_raw(w, ev->raw);
		break;
	case JSON_EV_KEY:
	case JSON_EV_STRING:
		return write_text(w, ev);
	}
	return 0;
}

int json_compact(struct str text, struct buf *out)
{
	struct json_writer w;
	size_t len = out->len;
	int rc;

	jw_init(&w, out);
	rc = json_read(text, on_event, &w, NULL);
	if (!rc)
		rc = buf_error(out);
	if (rc && out->len > len)
		out->len = len;
	return rc;
}
