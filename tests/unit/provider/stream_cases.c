#include "stream_cases.h"

struct feeding {
	size_t first; /* bytes of the first piece */
	size_t rest;  /* of each further one; 0: all */
};

static void run(const struct provider *by, struct dump *d, struct str body, struct feeding how,
        bool is_json, bool cut)
{
	struct str type = is_json ? STR("application/json") : STR("text/event-stream");
	struct provider_parser *p = by->open(NULL, type);
	struct error err = {0};
	size_t at = 0, n = how.first;

	dump_init(d);
	while (at < body.n) {
		char *piece;

		n = n > body.n - at ? body.n - at : n;
		/* A copy of exactly this size, so that a reader that looks further is noticed. */
		piece = malloc(n ? n : 1);
		memcpy(piece, body.p + at, n);
		assert_int_equal(by->feed(p, piece, n, dump_event, d), 0);
		free(piece);
		at += n;
		n = how.rest ? how.rest : body.n;
	}
	error_set(&err, ERR_UPSTREAM, "the connection was cut");
	assert_int_equal(by->end(p, cut ? &err : NULL, dump_event, d), 0);
	assert_int_equal(by->end(p, NULL, dump_event, d), 0); /* no second end */
	assert_true(d->over);
	by->close(p);
}

static char *with_line_ends(struct str body, const char *end, size_t *ret_len)
{
	struct buf b = BUF_INIT((size_t)64 << 20);

	for (size_t i = 0; i < body.n; i++)
		if (body.p[i] == '\n')
			buf_puts(&b, end);
		else
			buf_putc(&b, body.p[i]);
	return buf_steal(&b, ret_len);
}

static void same(const char *name, const char *how, const struct dump *want, struct dump *got)
{
	if (want->text.len != got->text.len ||
	        memcmp(buf_cstr(&want->text), buf_cstr(&got->text), want->text.len) != 0)
		fail_msg("%s, %s:\n--- whole\n%s\n--- got\n%s", name, how, buf_cstr(&want->text),
		        buf_cstr(&got->text));
	dump_free(got);
}

static void check_case(const struct provider *by, const char *dir, const char *name, bool is_json)
{
	char path[512];
	size_t n, other_len;
	struct dump whole, d;
	struct str body;
	char *data, *other;
	bool cut = strstr(name, ".cut.") != NULL;
	size_t stem = strlen(name) - (is_json ? 5 : 4);

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	data = file_read(path, &n);
	body = (struct str){data, n};
	run(by, &whole, body, (struct feeding){n, 0}, is_json, cut);
	snprintf(path, sizeof(path), "%s/%.*s.events", dir, (int)stem, name);
	file_expect(path, (struct str){whole.text.data, whole.text.len});

	run(by, &d, body, (struct feeding){1, 1}, is_json, cut);
	same(name, "one byte at a time", &whole, &d);
	for (size_t i = 1; i < n; i++) {
		run(by, &d, body, (struct feeding){i, 0}, is_json, cut);
		same(name, "in two pieces", &whole, &d);
	}
	for (int i = 0; i < 2 && !is_json; i++) {
		other = with_line_ends(body, i ? "\r" : "\r\n", &other_len);
		run(by, &d, (struct str){other, other_len}, (struct feeding){other_len, 0}, false,
		        cut);
		same(name, i ? "CR" : "CRLF", &whole, &d);
		run(by, &d, (struct str){other, other_len}, (struct feeding){1, 1}, false, cut);
		same(name, i ? "CR, one byte at a time" : "CRLF, one byte at a time", &whole, &d);
		free(other);
	}
	dump_free(&whole);
	free(data);
}

void stream_cases_check(const struct provider *by, const char *dir, const char *suffix)
{
	char **names = folder_list(dir, suffix);

	for (char **n = names; *n; n++)
		check_case(by, dir, *n, strcmp(suffix, ".json") == 0);
	folder_list_free(names);
}
