/* Base64: the vectors of RFC 4648, section 10, and the form for URLs. */
#include "unit.h"

#include "base/base64.h"
#include "base/error.h"

#include <string.h>

static void test_vectors(void **state)
{
	static const char *const rows[][3] = {{"", "", ""}, {"f", "Zg==", "Zg"},
	        {"fo", "Zm8=", "Zm8"}, {"foo", "Zm9v", "Zm9v"}, {"foob", "Zm9vYg==", "Zm9vYg"},
	        {"fooba", "Zm9vYmE=", "Zm9vYmE"}, {"foobar", "Zm9vYmFy", "Zm9vYmFy"},
	        {"\xfb\xff\xfe", "+//+", "-__-"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf plain = BUF_INIT(64), url = BUF_INIT(64);

		assert_int_equal(base64_append(&plain, rows[i][0], strlen(rows[i][0])), 0);
		assert_int_equal(base64_append_url(&url, rows[i][0], strlen(rows[i][0])), 0);
		assert_string_equal(buf_cstr(&plain), rows[i][1]);
		assert_string_equal(buf_cstr(&url), rows[i][2]);
		buf_reset(&plain);
		assert_true(base64_decode_url(&plain, (struct str){url.data, url.len}));
		assert_string_equal(buf_cstr(&plain), rows[i][0]);
		buf_free(&plain);
		buf_free(&url);
	}
}

static void test_every_byte_there_and_back(void **state)
{
	char bytes[256];

	for (int i = 0; i < 256; i++)
		bytes[i] = (char)i;
	for (size_t n = 0; n <= sizeof(bytes); n++) {
		struct buf text = BUF_INIT(512), back = BUF_INIT(512);

		assert_int_equal(base64_append_url(&text, bytes, n), 0);
		assert_true(base64_decode_url(&back, (struct str){text.data, text.len}));
		assert_int_equal(back.len, n);
		if (n > 0)
			assert_memory_equal(back.data, bytes, n);
		buf_free(&text);
		buf_free(&back);
	}
}

static void test_refused(void **state)
{
	static const char *const rows[] = {"Z", "Zg==", "Zh", "Zm9=", "Zm8v\n", "Zm9vY", "Zm+v",
	        "Zm/v", "Zm 9", "Zm9", "\xc3\xa9", "Z.9v"};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf b = BUF_INIT(64);

		if (base64_decode_url(&b, str_of(rows[i])))
			fail_msg("%s was taken", rows[i]);
		buf_free(&b);
	}
}

static void test_no_room(void **state)
{
	struct buf b = BUF_INIT(7);

	assert_int_equal(base64_append(&b, "four", 4), -ERR_TOO_LARGE);
	buf_free(&b);
	b.max = 2;
	assert_false(base64_decode_url(&b, STR("Zm9v")));
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_vectors),
	        cmocka_unit_test(test_every_byte_there_and_back),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
