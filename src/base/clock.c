#include "base/clock.h"

#include "base/error.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* Years 0 to 9999: what has four digits. */
#define WALL_MS_LEAST INT64_C(-62167219200000)
#define WALL_MS_MOST  INT64_C(253402300799999)

static struct timespec clock_read(clockid_t id)
{
	struct timespec ts;

	if (clock_gettime(id, &ts) != 0)
		BUG("clock_gettime: %s", strerror(errno));
	return ts;
}

uint64_t clock_mono_ns(void)
{
	struct timespec ts = clock_read(CLOCK_MONOTONIC);

	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ms(void)
{
	return clock_mono_ns() / 1000000U;
}

int64_t clock_wall_s(void)
{
	return clock_read(CLOCK_REALTIME).tv_sec;
}

int64_t clock_wall_ms(void)
{
	struct timespec ts = clock_read(CLOCK_REALTIME);

	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void clock_iso8601(int64_t wall_ms, char out[32])
{
	struct tm tm;
	time_t s;
	int ms;

	if (wall_ms < WALL_MS_LEAST)
		wall_ms = WALL_MS_LEAST;
	if (wall_ms > WALL_MS_MOST)
		wall_ms = WALL_MS_MOST;
	s = wall_ms / 1000;
	ms = (int)(wall_ms % 1000);
	if (ms < 0) {
		ms += 1000;
		s--;
	}
	if (!gmtime_r(&s, &tm))
		BUG("gmtime_r of %lld", (long long)s);
	str_format(out, 32, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900, tm.tm_mon + 1,
	        tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, ms);
}

/* Behind the seconds: ".123", then "Z" or "+02:00". */
static bool parse_rest(const char *p, int64_t *ms)
{
	int64_t unit = 100;
	int sign, hours, minutes;

	if (*p == '.') {
		for (p++; *p >= '0' && *p <= '9'; p++, unit /= 10)
			*ms += (*p - '0') * unit;
	}
	if (strcmp(p, "Z") == 0)
		return true;
	sign = *p == '+' ? 1 : *p == '-' ? -1 : 0;
	if (sign == 0 || strlen(p) != strlen("+02:00") || p[3] != ':' ||
	        !str_in_set((struct str){p + 1, 2}, "0123456789") ||
	        !str_in_set((struct str){p + 4, 2}, "0123456789"))
		return false;
	hours = (p[1] - '0') * 10 + p[2] - '0';
	minutes = (p[4] - '0') * 10 + p[5] - '0';
	*ms -= sign * (int64_t)(hours * 60 + minutes) * 60000;
	return hours < 24 && minutes < 60;
}

bool clock_parse_iso8601(struct str s, int64_t *ret_ms)
{
	char text[48];
	struct tm tm = {0};
	const char *end;
	int64_t ms = 0;

	if (s.n > 40 || !str_copy(text, sizeof(text), s) || strlen(text) != s.n)
		return false;
	end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	if (end == NULL) {
		tm = (struct tm){0};
		end = strptime(text, "%Y-%m-%d", &tm);
		if (end == NULL || *end != 0)
			return false;
	} else if (!parse_rest(end, &ms)) {
		return false;
	}
	*ret_ms = (int64_t)timegm(&tm) * 1000 + ms;
	return true;
}
