/* What a file is by its bytes: each kind, in every cut; what is none; and any bytes at all. */
#include "unit.h"

#include "gateway/documents_sniff.h"

#include <stdlib.h>
#include <string.h>

/* Fed in pieces of `piece` bytes; 0: whole. */
static const char *type_of(struct str data, size_t piece)
{
	struct sniff *s = calloc(1, sizeof(*s));
	const char *type;

	piece = piece ? piece : data.n;
	for (size_t i = 0; i < data.n; i += piece)
		documents_sniff_feed(
		        s, (struct str){data.p + i, data.n - i < piece ? data.n - i : piece});
	type = documents_sniff_type(s);
	free(s);
	return type;
}

static void is(struct str data, const char *type)
{
	for (size_t piece = 0; piece < 9; piece++) {
		const char *got = type_of(data, piece);

		if (type == NULL)
			assert_null(got);
		else if (got == NULL)
			fail_msg("%.40s: nothing, not %s (pieces of %zu)", data.p, type, piece);
		else
			assert_string_equal(got, type);
	}
}

#define OFFICE "application/vnd.openxmlformats-officedocument."
#define ENTRY  "PK\3\4______________________\7\0\0\0"

static void test_kinds(void **state)
{
	is(STR("%PDF-2.0"), "application/pdf");
	is(STR("\x89PNG\r\n\x1a\n...."), "image/png");
	is(STR("\xff\xd8\xff\xdb"), "image/jpeg");
	is(STR("GIF87a"), "image/gif");
	is(STR("RIFF____WEBPVP8L"), "image/webp");
	is(STR("RIFF____WAVEfmt "), "audio/wav");
	is(STR("fLaC"), "audio/flac");
	is(STR("OggS\0"), "audio/ogg");
	is(STR("ID3\3"), "audio/mpeg");
	is(STR("\xff\xfb\x90\x64"), "audio/mpeg");
	is(STR("\xff\xf3\x44\xc4"), "audio/mpeg");
	is(STR(ENTRY "word/document.xml"), OFFICE "wordprocessingml.document");
	is(STR(ENTRY "mimetypePPK" ENTRY "xl/workbook.xml"), OFFICE "spreadsheetml.sheet");
	is(STR(ENTRY "[ContPK\3" ENTRY "ppt/x"), OFFICE "presentationml.presentation");
}

static void test_text(void **state)
{
	is(STR("hello"), "text/plain");
	is(STR("\xef\xbb\xbf\xc3\xa9t\xc3\xa9 \xf0\x9f\x98\x80\n"), "text/plain");
	is(STR("{\"a\":[1,2]}"), "application/json");
	is(STR(" \n[]\n"), "application/json");
	is(STR("{\"a\":1}\r\n{\"b\":2}"), "application/x-ndjson");
	is(STR("{\"a\":1}\n{\"b\":"), "text/plain");
	is(STR("{not json}"), "text/plain");
	is(STR("7"), "text/plain");
	is(STR("a,b\n1,2"), "text/csv");
	is(STR("\"x, y\",b\r\n\"1\",2\r\n"), "text/csv");
	is(STR("a,b\n1,2,3\n"), "text/plain");
	is(STR("a,b\n"), "text/plain");
	is(STR("Dear Bob, hello.\nI went, then I left.\n"), "text/plain");
	is(STR("# Title\n\ntext"), "text/markdown");
	is(STR("text\n```\ncode\n```\n"), "text/markdown");
	is(STR("see [this](https://example.com)"), "text/markdown");
	is(STR("#!/bin/sh\n# comment\n\necho\n"), "text/plain");
	is(STR("# comment\nimport os\n"), "text/plain");
}

static void test_none(void **state)
{
	is(STR(""), NULL);
	is(STR("a\0b"), NULL);
	is(STR("caf\xe9"), NULL);
	is(STR("cut \xf0\x9f\x98"), NULL);
	is(STR("\xed\xa0\x80"), NULL);
	is(STR("\xc0\x80"), NULL);
	is(STR("\x7f"
	       "ELF\2\1\1\0"),
	        NULL);
	is(STR("PK\3\4\0\0"), NULL);
	is(STR(ENTRY "wor"), NULL);
	is(STR("RIFF\0___AVI "), NULL);
	is(STR("\xff\xff\xff\xff"), NULL);
	is(STR("\x89PNG"), NULL);
}

/* Longer than the sample: what comes late counts too. */
static void test_long(void **state)
{
	size_t n = SNIFF_SAMPLE * 3;
	char *p = malloc(n);

	memset(p, ' ', n);
	memcpy(p, "[1,", 3);
	p[n - 1] = ']';
	assert_string_equal(type_of((struct str){p, n}, 4096), "application/json");
	assert_string_equal(type_of((struct str){p, n - 1}, 4096), "text/plain");
	p[n - 2] = (char)0xff;
	assert_null(type_of((struct str){p, n}, 1000));
	for (size_t i = 0; i + 12 <= n; i += 12)
		memcpy(p + i, "{\"a\":\"\xc3\xa9\"}\n\n", 12);
	assert_string_equal(type_of((struct str){p, n - n % 12}, 777), "application/x-ndjson");
	memcpy(p, ENTRY, 30);
	memcpy(p + n - 60, ENTRY "xl/a", 34);
	assert_string_equal(type_of((struct str){p, n}, 101), OFFICE "spreadsheetml.sheet");
	free(p);
}

/* Cuts change nothing, whatever the bytes. */
static void test_random(void **state)
{
	static const char *const bits[] = {"PK\3\4", "P", "word/", "\xc3", "\xa9", "{", "}", "\n",
	        ",", "\"", "# ", "RIFF", "WAVE", "\xff", "a", " ", "[", "]", "\xf0\x9f\x98\x80"};
	struct unit_random r = {42};
	char text[200];

	for (int round = 0; round < 3000; round++) {
		size_t n = 0;

		while (n < 150 && unit_below(&r, 20) != 0) {
			const char *bit = bits[unit_below(&r, sizeof(bits) / sizeof(bits[0]))];

			memcpy(text + n, bit, strlen(bit));
			n += strlen(bit);
		}
		const char *whole = type_of((struct str){text, n}, 0);

		for (size_t piece = 1; piece < 6; piece++)
			assert_ptr_equal(type_of((struct str){text, n}, piece), whole);
	}
}

static void test_extensions(void **state)
{
	assert_string_equal(documents_sniff_extension("application/pdf"), "pdf");
	assert_string_equal(documents_sniff_extension(OFFICE "spreadsheetml.sheet"), "xlsx");
	assert_null(documents_sniff_extension("application/octet-stream"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_kinds),
	        cmocka_unit_test(test_text),
	        cmocka_unit_test(test_none),
	        cmocka_unit_test(test_long),
	        cmocka_unit_test(test_random),
	        cmocka_unit_test(test_extensions),
	};

	return UNIT_RUN(tests);
}
