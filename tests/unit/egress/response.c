#include "unit.h"

#include "egress/response.h"

#include <string.h>

static const struct {
	const char *bytes;
	bool is_head, websocket;
	enum egress_response_result result;
	long used; /* -1: all */
} CASES[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcX", false, false, EGRESS_RESPONSE_DONE,
                41},
        {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\nX", false, false, EGRESS_RESPONSE_DONE, 35},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nX", true, false, EGRESS_RESPONSE_DONE, 38},
        {"HTTP/1.1 204 \r\n\r\nX", false, false, EGRESS_RESPONSE_DONE, 17},
        {"HTTP/1.1 304 N\r\nContent-Length: 9\r\n\r\nX", false, false, EGRESS_RESPONSE_DONE, 37},
        {"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 \r\n\r\nX", false, false, EGRESS_RESPONSE_DONE, 35},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nX", false, false,
                EGRESS_RESPONSE_DONE, 58},
        {"HTTP/1.1 101 S\r\n\r\nX", false, true, EGRESS_RESPONSE_SWITCHED, 18},
        {"HTTP/1.1 101 S\r\n\r\nX", false, false, EGRESS_RESPONSE_BAD, 18},
        {"HTTP/1.1 200 OK\r\n\r\nall", false, false, EGRESS_RESPONSE_MORE, -1},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nall", false, false,
                EGRESS_RESPONSE_MORE, -1},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nall", false,
                false, EGRESS_RESPONSE_MORE, -1},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nall", false, false,
                EGRESS_RESPONSE_MORE, -1},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\nall", false, false,
                EGRESS_RESPONSE_MORE, -1},
        {"HTTP/1.1 200 OK\nContent-Length: 0\n\nall", false, false, EGRESS_RESPONSE_MORE, -1},
        {"ICY 200 OK\r\n\r\nall", false, false, EGRESS_RESPONSE_MORE, -1},
};

static void framing(void **state)
{
	for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
		size_t n = strlen(CASES[i].bytes),
		       end = CASES[i].used < 0 ? n : (size_t)CASES[i].used;

		for (size_t cut = 1; cut <= n; cut++) {
			struct egress_response r = {0};
			enum egress_response_result result = EGRESS_RESPONSE_MORE;
			size_t at = 0, used;

			egress_response_begin(&r, CASES[i].is_head, CASES[i].websocket);
			assert_false(egress_response_begun(&r));
			while (at < n && result == EGRESS_RESPONSE_MORE) {
				result = egress_response_feed(&r, CASES[i].bytes + at,
				        n - at < cut ? n - at : cut, &used);
				at += used;
			}
			if (result != CASES[i].result || at != end)
				fail_msg("%d after %zu, cut %zu: %s", (int)result, at, cut,
				        CASES[i].bytes);
			egress_response_free(&r);
		}
	}
}

static void large_head(void **state)
{
	struct egress_response r = {0};
	char block[1000];
	size_t used;

	memset(block, 'x', sizeof(block));
	egress_response_begin(&r, false, false);
	egress_response_feed(&r, "HTTP/1.1 200 OK\r\nX: ", 20, &used);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(egress_response_feed(&r, block, sizeof(block), &used),
		        EGRESS_RESPONSE_MORE);
		assert_int_equal(used, sizeof(block));
	}
	assert_int_equal(r.head.len, 0);
	egress_response_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(framing), cmocka_unit_test(large_head)};

	return UNIT_RUN(tests);
}
