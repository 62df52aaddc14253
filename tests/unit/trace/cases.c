/*
 * Each NAME.json of tests/cases/trace is a destination with records; what goes over the wire must
 * be NAME.out to the byte: method and address, headers, an empty line, the body. A line end stands
 * before each span so that a difference can be read; the version of brig is @VERSION@ there.
 * With --write as the second argument the files are made anew, to be read over and committed.
 */
#include "load.h"
#include "unit.h"

#include "base/mem.h"
#include "trace/trace.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define RECORDS_MAX 16

static const char *folder;
static bool writing;

static void add_replaced(struct buf *out, struct str s, struct str from, const char *to)
{
	for (;;) {
		const char *at = memmem(s.p, s.n, from.p, from.n);

		if (!at)
			break;
		buf_append(out, s.p, (size_t)(at - s.p));
		buf_puts(out, to);
		s = (struct str){at + from.n, s.n - (size_t)(at - s.p) - from.n};
	}
	buf_append(out, s.p, s.n);
}

static void show(struct buf *out, const struct trace_request *q, size_t taken, size_t wanted)
{
	struct buf lines = BUF_INIT((size_t)64 << 20);

	buf_printf(out, "%zu of %zu records, %zu spans\n", taken, wanted, q->n_spans);
	buf_printf(out, "%s %s\n", q->method, q->url);
	for (size_t i = 0; i < q->n_headers; i++)
		buf_printf(out, "%s: %s\n", q->headers[i].name, q->headers[i].value);
	buf_putc(out, '\n');
	add_replaced(&lines, (struct str){q->body.data, q->body.len}, STR("{\"traceId\""),
	        "\n{\"traceId\"");
	add_replaced(out, (struct str){lines.data, lines.len}, STR("\"" BRIG_VERSION "\""),
	        "\"@VERSION@\"");
	buf_putc(out, '\n');
	buf_free(&lines);
}

static void run(struct buf *out, const struct json *v)
{
	struct record *records[RECORDS_MAX];
	const struct record *wanted[RECORDS_MAX];
	struct trace_destination *d = NULL;
	struct trace_request *q = NULL;
	char region[64];
	struct error err = {0};
	int64_t now = 0, max = TRACE_BATCH_BYTES;
	size_t n = 0, n_wanted = 0, taken = 0;

	if (trace_destination_parse(json_get(v, "destination"), &d, &err) < 0)
		fail_msg("%s", err.text);
	str_copy(region, sizeof(region), json_str(json_get(v, "region")));
	json_i64(json_get(v, "now_ms"), &now);
	json_i64(json_get(v, "max_bytes"), &max);
	for (const struct json *c = json_first(json_get(v, "records")); c; c = json_next(c)) {
		assert_true(n < RECORDS_MAX);
		records[n] = load_record(c);
		if (trace_wanted(d, records[n], region[0] ? region : NULL))
			wanted[n_wanted++] = records[n];
		n++;
	}
	if (n == 0 && trace_request_test(d, now, &q, &err) < 0)
		fail_msg("%s", err.text);
	if (n_wanted > 0 && trace_request_build(d, wanted, n_wanted, (size_t)max,
	                            region[0] ? region : NULL, now, &q, &taken, &err) < 0)
		fail_msg("%s", err.text);
	if (q)
		show(out, q, taken, n_wanted);
	else
		buf_puts(out, "nothing\n");
	trace_request_free(q);
	trace_destination_free(d);
	while (n > 0)
		record_free(records[--n]);
}

static void check(const char *name)
{
	_cleanup_free_ char *text = NULL, *expected = NULL;
	_cleanup_json_ struct json_doc *doc = NULL;
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)64 << 20);
	struct error err = {0};
	char file[300];
	size_t n = 0;

	text = load_file(folder, name, &n);
	if (json_parse((struct str){text, n}, (size_t)64 << 20, &doc, &err) < 0)
		fail_msg("%s: %s", name, err.text);
	run(&out, json_root(doc));
	str_format(file, sizeof(file), "%.*s.out", (int)strlen(name) - 5, name);
	if (writing) {
		char path[4096];
		FILE *f;

		str_format(path, sizeof(path), "%s/%s", folder, file);
		f = fopen(path, "we");
		assert_non_null(f);
		assert_int_equal(fwrite(out.data, 1, out.len, f), out.len);
		assert_int_equal(fclose(f), 0);
		return;
	}
	expected = load_file(folder, file, &n);
	if (n != out.len || memcmp(expected, out.data, n) != 0)
		fail_msg("%s differs from what is made now:\n%s", file, out.data);
}

static void test_cases(void **state)
{
	struct dirent *e;
	DIR *d = opendir(folder);
	size_t n = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL) {
		if (!str_ends(str_of(e->d_name), ".json"))
			continue;
		check(e->d_name);
		n++;
	}
	closedir(d);
	assert_true(n > 10);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};

	if (argc < 2)
		return 2;
	folder = argv[1];
	writing = argc > 2 && strcmp(argv[2], "--write") == 0;
	return UNIT_RUN(tests);
}
