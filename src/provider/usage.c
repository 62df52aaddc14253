#include "provider/usage.h"

/* More is nonsense, and would overflow where replies are summed. */
#define COUNT_MAX ((int64_t)1 << 40)

bool usage_read_count(const struct json *object, const char *key, uint64_t *ret)
{
	int64_t v;

	if (!json_i64(json_get(object, key), &v) || v < 0 || v > COUNT_MAX)
		return false;
	*ret = (uint64_t)v;
	return true;
}

void usage_read_cost(const struct json *cost, struct usage *u)
{
	double d;

	if (!json_is(cost, JSON_NUMBER))
		return;
	if (money_parse(json_raw(cost), &u->cost)) {
		u->has_cost = true;
	} else if (json_double(cost, &d) && d >= 0 && d < 1e6) {
		u->cost = (struct money){.pico = (int64_t)(d * 1e12 + 0.5)};
		u->has_cost = true;
	}
}
