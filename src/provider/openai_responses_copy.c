/* JSON that goes through unread, in one canonical spelling: see openai_responses.h. */
#include "provider/openai_responses.h"

void openai_responses_copy(struct json_writer *w, struct str value)
{
	struct buf copy _cleanup_buf_ = BUF_INIT(value.n * 6 + 64);

	if (json_compact(value, &copy) < 0)
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
