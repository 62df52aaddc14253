/*
 * Bodies of multipart/form-data: what is read and what is refused, each fed whole, byte by byte and
 * in every cut into two, which must not change anything.
 */
#include "unit.h"

#include "base/buf.h"
#include "base/mem.h"
#include "http/multipart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE "multipart/form-data; boundary=xx"

/* Everything that was told, as text: name<filename>(type){content}. */
struct seen {
	struct buf text;
	uint64_t max; /* of every part; 0: as preset */
	const char *refuse;
};

static int on_begin(void *ctx, struct multipart_part *p, struct error *err)
{
	struct seen *s = ctx;

	buf_append(&s->text, p->name.p, p->name.n);
	if (p->filename.p)
		buf_printf(&s->text, "<%.*s>", (int)p->filename.n, p->filename.p);
	if (p->type.p)
		buf_printf(&s->text, "(%.*s)", (int)p->type.n, p->type.p);
	buf_putc(&s->text, '{');
	if (s->max)
		p->max = s->max;
	if (s->refuse && str_is(p->name, s->refuse))
		return error_set(err, ERR_CONFLICT, "not this one");
	return 0;
}

static int on_data(void *ctx, struct str piece, struct error *err)
{
	struct seen *s = ctx;

	(void)err;
	assert_true(piece.n > 0);
	buf_append(&s->text, piece.p, piece.n);
	return 0;
}

static int on_end(void *ctx, struct error *err)
{
	struct seen *s = ctx;

	(void)err;
	buf_putc(&s->text, '}');
	return 0;
}

static struct multipart *reader(const char *type, struct seen *s)
{
	const struct multipart_handler h = {s, on_begin, on_data, on_end};
	struct multipart *m = NULL;
	struct error e;

	buf_init(&s->text, SIZE_MAX / 2);
	if (multipart_new(str_of(type), &h, &m, &e))
		fail_msg("%s: %s", type, e.text);
	return m;
}

/* Feeds in pieces of `first`, then `rest` bytes each. */
static int feed(struct multipart *m, struct str body, size_t first, size_t rest, struct error *e)
{
	size_t at = 0, n = first;
	int r = 0;

	for (; at < body.n && r == 0; at += n, n = rest) {
		/* In memory of its own size, so that reading past it is noticed. */
		char *piece;

		n = n < body.n - at ? n : body.n - at;
		piece = mem_strndup(body.p + at, n);
		r = multipart_feed(m, piece, n, e);
		free(piece);
	}
	if (r == 0)
		r = multipart_finish(m, e);
	else
		assert_int_equal(multipart_finish(m, NULL), r);
	return r;
}

/* want: what is told; NULL: it is refused with code. */
static void check_cut(struct seen s, const char *type, struct str body, size_t first, size_t rest,
        const char *want, int code)
{
	struct multipart *m = reader(type, &s);
	struct error e = {0};
	int r = feed(m, body, first, rest, &e);

	if (r != -code)
		fail_msg("%.*s\ncut at %zu, then %zu: %d %s", (int)body.n, body.p, first, rest, r,
		        e.text);
	if (want)
		assert_string_equal(buf_cstr(&s.text), want);
	else
		assert_int_equal(e.code, code);
	multipart_free(m);
	buf_free(&s.text);
}

static void check_all(struct seen s, const char *type, struct str body, const char *want, int code)
{
	check_cut(s, type, body, body.n, 1, want, code);
	check_cut(s, type, body, 1, 1, want, code);
	check_cut(s, type, body, 3, 7, want, code);
	for (size_t i = 1; i < body.n; i++)
		check_cut(s, type, body, i, body.n, want, code);
}

static void check_good(const char *body, const char *want)
{
	check_all((struct seen){0}, TYPE, str_of(body), want, 0);
}

static void check_bad(const char *body)
{
	check_all((struct seen){0}, TYPE, str_of(body), NULL, ERR_INVALID);
}

#define PART(rest) "--xx\r\nContent-Disposition: form-data; " rest
#define END        "\r\n--xx--\r\n"

static void test_parts(void **state)
{
	check_good("--xx--\r\n", "");
	check_good("--xx--", "");
	check_good("\r\n--xx--", "");
	check_good(PART("name=a\r\n\r\nhello") END, "a{hello}");
	check_good(PART("name=\"a\"\r\n\r\n") END, "a{}");
	check_good(PART("name=\"a\"\r\n\r\n1\r\n") PART(
	                   "name=\"f\"; filename=\"x y.csv\"\r\ncontent-type: text/csv\r\n\r\n2")
	                   END,
	        "a{1}f<x y.csv>(text/csv){2}");
	/* An empty filename is one: a form's file field that was left empty. */
	check_good(PART("name=f; filename=\"\"\r\n\r\n") END, "f<>{}");
	check_good("--xx\r\nX-Other: 1\r\ncontent-disposition:\tFORM-DATA ; NAME=a ; other=b\r\n"
	           "Content-Transfer-Encoding: BINARY\r\n\r\n" END,
	        "a{}");
}

static void test_what_looks_like_a_boundary(void **state)
{
	check_good(PART("name=a\r\n\r\n\r\n-xx\r\n--x\r\r\n--x\r\n--yx-- --xx--xx") END,
	        "a{\r\n-xx\r\n--x\r\r\n--x\r\n--yx-- --xx--xx}");
	check_good(PART("name=a\r\n\r\n\r\r\r\n\r\n\r\n\r\n\n--xx\n") END,
	        "a{\r\r\r\n\r\n\r\n\r\n\n--xx\n}");
	check_good(PART("name=a\r\n\r\n--xx--") END, "a{--xx--}");
}

static void test_every_byte(void **state)
{
	char body[2048], want[1024];
	size_t n = (size_t)snprintf(body, sizeof(body), PART("name=a; filename=b\r\n\r\n")), w;

	w = (size_t)snprintf(want, sizeof(want), "a<b>{");
	for (int round = 0; round < 2; round++)
		for (int c = 0; c < 256; c++)
			body[n++] = want[w++] = (char)(round ? 255 - c : c);
	memcpy(body + n, END, sizeof(END) - 1);
	n += sizeof(END) - 1;
	want[w++] = '}';
	for (size_t cut = 1; cut < n; cut++) {
		struct seen s = {0};
		struct multipart *m = reader(TYPE, &s);
		struct error e;

		assert_int_equal(feed(m, (struct str){body, n}, cut, 11, &e), 0);
		assert_int_equal(s.text.len, w);
		assert_memory_equal(s.text.data, want, w);
		multipart_free(m);
		buf_free(&s.text);
	}
}

static void test_names(void **state)
{
	check_good(PART("name=a; filename=\"a\\\"b\\\\c\\d\"\r\n\r\n") END, "a<a\"b\\c\\d>{}");
	check_good(PART("name=\"%22%0d%0A%41%\"; filename=\"%2\"\r\n\r\n") END, "\"\r\n%41%<%2>{}");
	check_good(
	        PART("name=a; filename=\"\xff\xc3\xa9/..\"\r\n\r\n") END, "a<\xff\xc3\xa9/..>{}");
	check_good(PART("name=a; filename=plain%22\r\n\r\n") END, "a<plain%22>{}");
}

static void test_refused(void **state)
{
	check_bad("");
	check_bad("x--xx--");
	check_bad("\n--xx--");
	check_bad("\r\n\r\n--xx--");
	check_bad("--xy--");
	check_bad("--xx\n");
	check_bad("--xx \r\n");
	check_bad("--xx-\r\n");
	check_bad("--xx--x");
	check_bad("--xx--\r");
	check_bad("--xx--\r\n\r\n");
	check_bad("--xx--\r\n--xx--");
	check_bad("--xx\r\n\r\n" END);
	check_bad("--xx\r\nContent-Type: text/plain\r\n\r\n" END);
	check_bad(PART("name=a\r\n\r\nno end"));
	check_bad(PART("name=a\r\n\r\nno end\r\n--x"));
	check_bad(PART("name=a\r\n\r\nno end\r\n--xx"));
	check_bad(PART("name=a\r\n\r\nno end\r\n--xx-"));
	check_bad(PART("name=a\r\n\r\n\r\n--xxx\r\n") END);
	check_bad(PART("name=a\n\n") END);
	check_bad(PART("name=a\r\r\n\r\n") END);
	check_bad(PART("name=a\r\n b\r\n\r\n") END);
	check_bad(PART("name=a\x01\r\n\r\n") END);
	check_bad(PART("name=\"a\r\n\r\n") END);
	check_bad(PART("name=\"a\\\"\r\n\r\n") END);
	check_bad(PART("name=\"a\"b\r\n\r\n") END);
	check_bad(PART("name=\r\n\r\n") END);
	check_bad(PART("name=\"\"\r\n\r\n") END);
	check_bad(PART("filename=a\r\n\r\n") END);
	check_bad(PART("name=a; name=b\r\n\r\n") END);
	check_bad(PART("name=a; filename=b; filename=c\r\n\r\n") END);
	check_bad(PART("name=a; filename*=UTF-8''b\r\n\r\n") END);
	check_bad(PART("name=a;\r\n\r\n") END);
	check_bad(PART("name\r\n\r\n") END);
	check_bad("--xx\r\nContent-Disposition: attachment; name=a\r\n\r\n" END);
	check_bad("--xx\r\nContent-Disposition: form-data\r\n\r\n" END);
	check_bad("--xx\r\nContent-Disposition : form-data; name=a\r\n\r\n" END);
	check_bad("--xx\r\n: form-data; name=a\r\n\r\n" END);
	check_bad("--xx\r\nContent-Disposition\r\n\r\n" END);
	check_bad(PART("name=a\r\nContent-Disposition: form-data; name=a\r\n\r\n") END);
	check_bad(PART("name=a\r\nContent-Type: a/b\r\nContent-Type: a/b\r\n\r\n") END);
	check_bad(PART("name=a\r\nContent-Type: Multipart/mixed; boundary=q\r\n\r\n") END);
	check_bad(PART("name=a\r\nContent-Transfer-Encoding: base64\r\n\r\n") END);
}

static void test_bounds(void **state)
{
	struct buf b = BUF_INIT(1 << 20);
	char name[MULTIPART_NAME_MAX + 2];

	memset(name, 'n', sizeof(name));
	for (int over = 0; over < 2; over++) {
		const char *want = NULL;
		struct buf w = BUF_INIT(1 << 20);

		buf_reset(&b);
		buf_printf(&b, PART("name=\"%.*s\"\r\n\r\n") END, MULTIPART_NAME_MAX + over, name);
		buf_printf(&w, "%.*s{}", MULTIPART_NAME_MAX, name);
		if (!over)
			want = buf_cstr(&w);
		check_cut((struct seen){0}, TYPE, (struct str){b.data, b.len}, 100, 1000, want,
		        over ? ERR_INVALID : 0);
		buf_free(&w);

		buf_reset(&b); /* headers; what is no header of ours counts too */
		buf_puts(&b, PART("name=a\r\nX: "));
		while (b.len < 6 + MULTIPART_HEADERS_MAX - 4 + (size_t)over)
			buf_putc(&b, 'x');
		buf_puts(&b, "\r\n\r\n" END);
		check_cut((struct seen){0}, TYPE, (struct str){b.data, b.len}, 100, 1000,
		        over ? NULL : "a{}", over ? ERR_INVALID : 0);

		buf_reset(&b);
		for (int i = 0; i < MULTIPART_PARTS_MAX + over; i++)
			buf_puts(&b, PART("name=a\r\n\r\n\r\n"));
		buf_puts(&b, "--xx--");
		check_cut((struct seen){0}, TYPE, (struct str){b.data, b.len}, 100, 1000,
		        over ? NULL : "a{}a{}a{}a{}a{}a{}a{}a{}a{}a{}a{}a{}a{}a{}a{}a{}",
		        over ? ERR_INVALID : 0);
		check_all((struct seen){.max = (uint64_t)(5 - over)}, TYPE,
		        STR(PART("name=a\r\n\r\n12345") END), over ? NULL : "a{12345}",
		        over ? ERR_TOO_LARGE : 0);
	}
	buf_free(&b);
}

static void test_field_is_bounded_and_file_is_not(void **state)
{
	for (int file = 0; file < 2; file++) {
		struct seen s = {0};
		struct multipart *m = reader(TYPE, &s);
		struct str head = file ? STR(PART("name=a; filename=b\r\n\r\n"))
		                       : STR(PART("name=a\r\n\r\n"));
		char block[4096];
		struct error e = {0};
		int r;

		memset(block, '\r', sizeof(block));
		assert_int_equal(multipart_feed(m, head.p, head.n, &e), 0);
		for (int i = 0; i < MULTIPART_FIELD_MAX / 4096; i++)
			assert_int_equal(multipart_feed(m, block, sizeof(block), &e), 0);
		/* One byte is held back yet: it may begin a boundary. */
		r = multipart_feed(m, block, 2, &e);
		assert_int_equal(r, file ? 0 : -ERR_TOO_LARGE);
		if (!file)
			assert_string_equal(e.param, "a");
		multipart_free(m);
		buf_free(&s.text);
	}
}

static void test_handlers_refusal_sticks(void **state)
{
	struct seen s = {.refuse = "b"};
	struct multipart *m = reader(TYPE, &s);
	struct str body = STR(PART("name=a\r\n\r\n1\r\n") PART("name=b\r\n\r\n2") END);
	struct error e = {0};

	assert_int_equal(multipart_feed(m, body.p, body.n, &e), -ERR_CONFLICT);
	assert_string_equal(e.text, "not this one");
	e.code = 0;
	assert_int_equal(multipart_feed(m, "x", 1, &e), -ERR_CONFLICT);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_string_equal(buf_cstr(&s.text), "a{1}b{");
	multipart_free(m);
	buf_free(&s.text);
}

static void test_content_types(void **state)
{
	static const struct {
		const char *type;
		int code;
	} cases[] = {
	        {"multipart/form-data; boundary=xx", 0},
	        {"Multipart/Form-Data;charset=utf-8 ;\tBoundary=\"xx\"", 0},
	        {"multipart/form-data; boundary=\"a b'()+_,-./:=?\"", 0},
	        {"multipart/form-data; boundary="
	         "0123456789012345678901234567890123456789012345678901234567890123456789",
	                0},
	        {"multipart/form-data; boundary="
	         "01234567890123456789012345678901234567890123456789012345678901234567890",
	                ERR_INVALID},
	        {"multipart/form-data", ERR_INVALID},
	        {"multipart/form-data;", ERR_INVALID},
	        {"multipart/form-data; boundary=", ERR_INVALID},
	        {"multipart/form-data; boundary=\"\"", ERR_INVALID},
	        {"multipart/form-data; boundary=\"a \"", ERR_INVALID},
	        {"multipart/form-data; boundary=\"a", ERR_INVALID},
	        {"multipart/form-data; boundary=a/b", ERR_INVALID}, /* needs quotes */
	        {"multipart/form-data; boundary=\"a\\\"b\"", ERR_INVALID},
	        {"multipart/form-data; boundary=a; boundary=a", ERR_INVALID},
	        {"multipart/form-data, boundary=a", ERR_MEDIA},
	        {"multipart/form-data boundary=a", ERR_INVALID},
	        {"multipart/form-database; boundary=a", ERR_MEDIA},
	        {"multipart/mixed; boundary=a", ERR_MEDIA},
	        {"application/json", ERR_MEDIA},
	        {"", ERR_MEDIA},
	};
	const struct multipart_handler h = {NULL, on_begin, on_data, on_end};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct multipart *m = NULL;
		struct error e;
		int r = multipart_new(str_of(cases[i].type), &h, &m, &e);

		if (r != -cases[i].code)
			fail_msg("%s: %d", cases[i].type, r);
		multipart_free(m);
	}
	struct multipart *m = NULL;

	assert_int_equal(multipart_new((struct str){NULL, 0}, &h, &m, NULL), -ERR_MEDIA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_parts),
	        cmocka_unit_test(test_what_looks_like_a_boundary),
	        cmocka_unit_test(test_every_byte),
	        cmocka_unit_test(test_names),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_field_is_bounded_and_file_is_not),
	        cmocka_unit_test(test_handlers_refusal_sticks),
	        cmocka_unit_test(test_content_types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
