#include "unit.h"

#include "egress/hello.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"

#include <string.h>

/* A hello with that server name, in records of at most `record` bytes of it. */
static void build(struct buf *out, const char *name, size_t record, size_t padding)
{
	_cleanup_(buf_free) struct buf m = BUF_INIT(1 << 20);
	size_t n = strlen(name), extensions = 9 + n + 4 + padding,
	       body = 34 + 1 + 4 + 2 + 2 + extensions;

	buf_putc(&m, 1);
	for (int shift = 16; shift >= 0; shift -= 8)
		buf_putc(&m, (char)(body >> shift));
	buf_append(&m, "\x03\x03", 2);
	for (int i = 0; i < 32; i++)
		buf_putc(&m, 'r');
	buf_append(&m, "\0\0\x02\x13\x01\x01\0", 7);
	buf_putc(&m, (char)(extensions >> 8));
	buf_putc(&m, (char)extensions);
	buf_append(&m, "\0\x15", 2);
	buf_putc(&m, (char)(padding >> 8));
	buf_putc(&m, (char)padding);
	for (size_t i = 0; i < padding; i++)
		buf_putc(&m, 0);
	buf_append(&m, "\0\0", 2);
	buf_putc(&m, (char)((n + 5) >> 8));
	buf_putc(&m, (char)(n + 5));
	buf_putc(&m, (char)((n + 3) >> 8));
	buf_putc(&m, (char)(n + 3));
	buf_putc(&m, 0);
	buf_putc(&m, (char)(n >> 8));
	buf_putc(&m, (char)n);
	buf_puts(&m, name);
	for (size_t at = 0; at < m.len; at += record) {
		size_t piece = m.len - at < record ? m.len - at : record;

		buf_append(out, "\x16\x03\x01", 3);
		buf_putc(out, (char)(piece >> 8));
		buf_putc(out, (char)piece);
		buf_append(out, m.data + at, piece);
	}
}

static int feed(const struct buf *b, size_t n, size_t cut, char name[EGRESS_NAME_MAX + 1])
{
	struct egress_hello h;
	const char *why = NULL;
	int r = 0;

	egress_hello_init(&h);
	for (size_t at = 0; at < n && r == 0; at += cut)
		r = egress_hello_feed(
		        &h, (const uint8_t *)b->data + at, n - at < cut ? n - at : cut, &why);
	assert_true(r >= 0 || why);
	if (name)
		str_copy(name, EGRESS_NAME_MAX + 1, str_of(h.name));
	egress_hello_free(&h);
	return r;
}

static void cuts(void **state)
{
	static const size_t RECORDS[] = {1, 5, 100, 16384};
	char name[EGRESS_NAME_MAX + 1];

	for (size_t i = 0; i < 4; i++) {
		_cleanup_(buf_free) struct buf b = BUF_INIT(1 << 20);

		build(&b, "A.Example.test", RECORDS[i], 40);
		for (size_t cut = 1; cut < b.len; cut = cut * 2 + 1) {
			assert_int_equal(feed(&b, b.len, cut, name), 1);
			assert_string_equal(name, "a.example.test");
		}
		for (size_t n = 0; n < b.len; n++)
			assert_int_equal(feed(&b, n, 7, NULL), 0);
	}
}

static void sizes(void **state)
{
	_cleanup_(buf_free) struct buf b = BUF_INIT(1 << 20);

	build(&b, "a.test", 16384, 60000);
	assert_int_equal(feed(&b, b.len, 4096, NULL), 1);
	buf_reset(&b);
	build(&b, "a.test", 16, 60000); /* as a message it fits, as a stream not */
	assert_int_equal(feed(&b, b.len, 4096, NULL), -1);
}

/* The bound holds to the byte, however the bytes come. */
static void bound(void **state)
{
	static const size_t CUTS[] = {1, 999, 1005, 4096, 1 << 20};
	_cleanup_(buf_free) struct buf b = BUF_INIT(1 << 20);

	build(&b, "a.test", 1000, 64000);
	for (size_t over = 0; over <= 1; over++) {
		size_t padding = 64000 + EGRESS_HELLO_MAX - b.len + over;

		buf_reset(&b);
		build(&b, "a.test", 1000, padding);
		/* A record more than was there costs five bytes more. */
		if (b.len > EGRESS_HELLO_MAX + over) {
			padding -= b.len - EGRESS_HELLO_MAX - over;
			buf_reset(&b);
			build(&b, "a.test", 1000, padding);
		}
		assert_int_equal(b.len, EGRESS_HELLO_MAX + over);
		for (size_t i = 0; i < sizeof(CUTS) / sizeof(CUTS[0]); i++)
			assert_int_equal(feed(&b, b.len, CUTS[i], NULL), over ? -1 : 1);
		buf_reset(&b);
		build(&b, "a.test", 1000, 64000);
	}
}

/* Any byte changed: it is read or refused, and what is read is the name that is there. */
static void damaged(void **state)
{
	_cleanup_(buf_free) struct buf b = BUF_INIT(1 << 20);
	struct unit_random r = {3};

	build(&b, "a.test", 50, 10);
	for (int i = 0; i < 20000; i++) {
		size_t at = unit_below(&r, b.len);
		char kept = b.data[at];

		b.data[at] = (char)unit_next(&r);
		feed(&b, b.len, 1 + unit_below(&r, 30), NULL);
		b.data[at] = kept;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(cuts), cmocka_unit_test(sizes),
	        cmocka_unit_test(bound), cmocka_unit_test(damaged)};

	return UNIT_RUN(tests);
}
