/* JSON that goes through unread, in one canonical spelling: see openai_responses.h. */
#include "provider/openai_responses.h"

#include "base/mem.h"

#include <stdlib.h>

static void write_text(struct json_writer *w, const struct json_event *ev, bool is_key)
{
	char *text = mem_alloc(ev->raw.n);
	struct str s = {text, json_unescape(ev->raw, text)};

	if (is_key)
		jw_key_str(w, s);
	else
		jw_str(w, s);
	free(text);
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
	case JSON_EV_KEY:
		write_text(w, ev, true);
		break;
	case JSON_EV_STRING:
		write_text(w, ev, false);
		break;
	case JSON_EV_NUMBER:
	case JSON_EV_TRUE:
	case JSON_EV_FALSE:
	case JSON_EV_NULL:
		jw_raw(w, ev->raw);
		break;
	}
	return 0;
}

void openai_responses_copy(struct json_writer *w, struct str value)
{
	/* A writer of its own: value may be as deep as any text, and w stands somewhere inside one.
	 */
	struct buf copy _cleanup_buf_ = BUF_INIT(value.n * 6 + 64);
	struct json_writer in;

	jw_init(&in, &copy);
	if (json_read(value, on_event, &in, NULL) < 0 || jw_done(&in) < 0)
		jw_null(w);
	else
		jw_raw(w, (struct str){copy.data, copy.len});
}

bool openai_responses_listed(struct str key, const char *const *list)
{
	for (; *list; list++)
		if (str_is(key, *list))
			return true;
	return false;
}

void openai_responses_copy_members(
        struct json_writer *w, const struct json *object, const char *const *skip)
{
	for (const struct json *v = json_first(object); v; v = json_next(v)) {
		if (openai_responses_listed(json_key(v), skip))
			continue;
		jw_key_str(w, json_key(v));
		openai_responses_copy(w, json_raw(v));
	}
}
