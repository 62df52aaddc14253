#include "cases.h"

/* ---- answers ---- */

struct answer {
	const struct provider *provider;
	struct loaded l;
	const char *name;
	struct str body;
	bool is_json, cut;
};

struct feeding {
	size_t first; /* bytes of the first piece */
	size_t rest;  /* of each further one; 0: all */
};

static void run(struct dump *d, const struct answer *a, struct str body, struct feeding how)
{
	struct str type = a->is_json ? STR("application/json") : STR("text/event-stream");
	const struct provider *p = a->provider;
	struct provider_parser *parser = p->open(a->l.c ? &a->l.pc : NULL, type);
	struct error err = {0};
	size_t at = 0, n = how.first;

	dump_init(d);
	while (at < body.n) {
		char *piece;

		n = n > body.n - at ? body.n - at : n;
		/* A copy of exactly this size, so that a reader that looks further is noticed. */
		piece = malloc(n ? n : 1);
		memcpy(piece, body.p + at, n);
		assert_int_equal(p->feed(parser, piece, n, dump_event, d), 0);
		free(piece);
		at += n;
		n = how.rest ? how.rest : body.n;
	}
	error_set(&err, ERR_UPSTREAM, "the connection was cut");
	assert_int_equal(p->end(parser, a->cut ? &err : NULL, dump_event, d), 0);
	assert_int_equal(p->end(parser, NULL, dump_event, d), 0); /* no second end */
	assert_true(d->over);
	p->close(parser);
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

static void check_feedings(const struct answer *a, const struct dump *whole)
{
	struct dump d;

	run(&d, a, a->body, (struct feeding){1, 1});
	same(a->name, "one byte at a time", whole, &d);
	for (size_t i = 1; i < a->body.n; i++) {
		run(&d, a, a->body, (struct feeding){i, 0});
		same(a->name, "in two pieces", whole, &d);
	}
	for (int i = 0; i < 2 && !a->is_json; i++) {
		size_t n;
		char *other = with_line_ends(a->body, i ? "\r" : "\r\n", &n);

		run(&d, a, (struct str){other, n}, (struct feeding){n, 0});
		same(a->name, i ? "CR" : "CRLF", whole, &d);
		run(&d, a, (struct str){other, n}, (struct feeding){1, 1});
		same(a->name, i ? "CR, one byte at a time" : "CRLF, one byte at a time", whole, &d);
		free(other);
	}
}

static void check_answer(
        const struct provider *p, const char *dir, const char *name, bool is_json, const char *def)
{
	struct answer a = {.provider = p,
	        .name = name,
	        .is_json = is_json,
	        .cut = strstr(name, ".cut.") != NULL};
	int stem = (int)strlen(name) - (is_json ? 5 : 4);
	struct dump whole;
	char path[512];
	char *data;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%.*s.request", dir, stem, name);
	f = fopen(path, "rb");
	if (f) {
		fclose(f);
		load_file(&a.l, path, SIZE_MAX);
	} else if (def) {
		load_text(&a.l, def, SIZE_MAX);
	}
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	data = file_read(path, &a.body.n);
	a.body.p = data;
	run(&whole, &a, a.body, (struct feeding){a.body.n, 0});
	snprintf(path, sizeof(path), "%s/%.*s.events", dir, stem, name);
	file_expect(path, (struct str){whole.text.data, whole.text.len});
	check_feedings(&a, &whole);
	dump_free(&whole);
	load_free(&a.l);
	free(data);
}

void cases_answers(const struct provider *p, const char *dir, const char *suffix, const char *def)
{
	char **names = folder_list(dir, suffix);

	for (char **n = names; *n; n++)
		check_answer(p, dir, *n, strcmp(suffix, ".json") == 0, def);
	folder_list_free(names);
}

void cases_emit_can_stop(const struct provider *p, const char *path, const char *request)
{
	struct loaded l;
	size_t n;
	char *data = file_read(path, &n);

	load_text(&l, request, SIZE_MAX);
	for (int stop = 1; stop < 40; stop++) {
		struct provider_parser *parser = p->open(&l.pc, STR("text/event-stream"));
		struct dump d;
		int r;

		dump_init(&d);
		d.stop_after = stop;
		r = p->feed(parser, data, n, dump_event, &d);
		if (r == 0)
			r = p->end(parser, NULL, dump_event, &d);
		if (d.n_events == stop) {
			assert_int_equal(r, -ERR_CANCELED);
			assert_int_equal(p->feed(parser, data, n, dump_event, &d), 0);
			assert_int_equal(p->end(parser, NULL, dump_event, &d), 0);
			assert_int_equal(d.n_events, stop);
		} else {
			assert_int_equal(r, 0);
		}
		p->close(parser);
		dump_free(&d);
	}
	load_free(&l);
	free(data);
}

/* ---- requests ---- */

static void load_for(struct loaded *l, const struct provider *p, const char *path, size_t n_items)
{
	load_file(l, path, n_items);
	l->target.provider = p;
}

static void check_request(
        const struct provider *p, const char *dir, const char *name, const char *url_path)
{
	struct provider_request req = {0};
	struct error err = {0};
	struct loaded l;
	char path[512], text[1024];
	int r;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	load_for(&l, p, path, SIZE_MAX);
	snprintf(path, sizeof(path), "%s/%.*s.body", dir, (int)strlen(name) - 5, name);
	r = p->build(&l.pc, &req, &err);
	if (r < 0) {
		assert_int_equal(r, -(int)err.code);
		assert_null(req.body);
		snprintf(text, sizeof(text), "error: %d %s: %s\n", error_http_status(&err),
		        err.param, err.text);
		file_expect(path, str_of(text));
	} else {
		struct json_doc *doc = NULL;

		if (json_parse((struct str){req.body, req.body_len}, (size_t)64 << 20, &doc, &err) <
		        0)
			fail_msg("%s: %s\n%s", name, err.text, req.body);
		json_doc_free(doc);
		assert_string_equal(req.path, url_path);
		file_expect(path, (struct str){req.body, req.body_len});
	}
	provider_request_free(&req);
	load_free(&l);
}

void cases_requests(const struct provider *p, const char *dir, const char *path)
{
	char **names = folder_list(dir, ".json");

	for (char **n = names; *n; n++)
		check_request(p, dir, *n, path);
	folder_list_free(names);
}

char *cases_list_of(const struct provider *p, const char *path, size_t n_items, const char *key)
{
	struct provider_request req = {0};
	struct json_doc *doc = NULL;
	struct error err = {0};
	struct loaded l;
	struct str raw;
	char *out;

	load_for(&l, p, path, n_items);
	if (p->build(&l.pc, &req, &err) < 0)
		fail_msg("%s: %s", path, err.text);
	assert_int_equal(
	        json_parse((struct str){req.body, req.body_len}, (size_t)64 << 20, &doc, NULL), 0);
	raw = json_raw(json_get(json_root(doc), key));
	assert_true(raw.n >= 2);
	out = mem_strndup(raw.p, raw.n - 1);
	json_doc_free(doc);
	provider_request_free(&req);
	load_free(&l);
	return out;
}

static size_t common_len(const char *list, const char *end)
{
	size_t n = strlen(list);

	return end && str_ends(str_of(list), end) ? n - strlen(end) : n;
}

void cases_prefixes(const struct provider *p, const char *path, const char *key, const char *end)
{
	struct loaded l;
	char *before = NULL;
	size_t n, open = 0, compared = 0;

	load_for(&l, p, path, SIZE_MAX);
	n = l.c->n_items;
	for (size_t i = 0; i < n; i++) {
		const struct item *it = l.c->items[i];
		bool asks = it->type == ITEM_RESULT ||
		            (it->type == ITEM_MESSAGE && it->role == ROLE_USER);
		char *now;

		open += it->type == ITEM_CALL;
		open -= it->type == ITEM_RESULT;
		if (!asks || open)
			continue;
		now = cases_list_of(p, path, i + 1, key);
		if (before) {
			if (strncmp(before, now, common_len(before, end)) != 0)
				fail_msg("%s, item %zu:\n%s\nis not the beginning of\n%s", path, i,
				        before, now);
			assert_true(strlen(now) > strlen(before));
			compared++;
		}
		free(before);
		before = now;
	}
	assert_true(compared >= 3);
	free(before);
	load_free(&l);
}
