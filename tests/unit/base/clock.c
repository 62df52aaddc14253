#include "unit.h"

#include "base/clock.h"

#include <time.h>

static void monotonic_advances(void **state)
{
	struct timespec nap = {.tv_nsec = 3000000};
	uint64_t ns = clock_mono_ns(), ms = clock_mono_ms();

	assert_true(ms >= ns / 1000000);
	nanosleep(&nap, NULL);
	assert_true(clock_mono_ns() >= ns + 3000000);
	assert_true(clock_mono_ms() >= ms + 2);
}

static void wall_is_the_time_of_day(void **state)
{
	time_t now = time(NULL);

	assert_true(clock_wall_s() >= now && clock_wall_s() <= now + 5);
	assert_true(clock_wall_ms() / 1000 >= now && clock_wall_ms() / 1000 <= now + 5);
}

static void iso8601(void **state)
{
	static const struct {
		int64_t ms;
		const char *text;
	} cases[] = {
	        {0, "1970-01-01T00:00:00.000Z"},
	        {1, "1970-01-01T00:00:00.001Z"},
	        {-1, "1969-12-31T23:59:59.999Z"},
	        {-1000, "1969-12-31T23:59:59.000Z"},
	        {951782400000, "2000-02-29T00:00:00.000Z"},
	        {1795975205123, "2026-11-29T18:00:05.123Z"},
	        {253402300799999, "9999-12-31T23:59:59.999Z"},
	        {253402300800000, "9999-12-31T23:59:59.999Z"},
	        {INT64_MAX, "9999-12-31T23:59:59.999Z"},
	        {-62167219200000, "0000-01-01T00:00:00.000Z"},
	        {INT64_MIN, "0000-01-01T00:00:00.000Z"},
	};
	char out[32];
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		clock_iso8601(cases[i].ms, out);
		assert_string_equal(out, cases[i].text);
	}
}

static void iso8601_is_read(void **state)
{
	static const struct {
		const char *text;
		int64_t ms; /* INT64_MIN: it is none */
	} cases[] = {
	        {"1970-01-01T00:00:00.001Z", 1},
	        {"1970-01-01T00:00:00Z", 0},
	        {"2026-11-29T18:00:05.123Z", 1795975205123},
	        {"2026-11-29T18:00:05.1239999Z", 1795975205123},
	        {"2026-11-29T20:30:05.1+02:30", 1795975205100},
	        {"2026-11-29T13:00:05-05:00", 1795975205000},
	        {"2000-02-29", 951782400000},
	        {"2026-11-29T18:00:05", INT64_MIN},
	        {"2026-11-29 18:00:05Z", INT64_MIN},
	        {"2026-11-29T18:00:05Zulu", INT64_MIN},
	        {"2026-11-29T18:00:05+0200", INT64_MIN},
	        {"2026-11-29T18:00:05+99:00", INT64_MIN},
	        {"2026-13-29", INT64_MIN},
	        {"tomorrow", INT64_MIN},
	        {"", INT64_MIN},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int64_t ms = INT64_MIN;

		assert_int_equal(clock_parse_iso8601(str_of(cases[i].text), &ms),
		        cases[i].ms != INT64_MIN);
		assert_true(ms == cases[i].ms);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(monotonic_advances),
	        cmocka_unit_test(wall_is_the_time_of_day),
	        cmocka_unit_test(iso8601),
	        cmocka_unit_test(iso8601_is_read),
	};

	return UNIT_RUN(tests);
}
