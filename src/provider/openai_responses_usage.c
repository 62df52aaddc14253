/* Usage as servers of the Responses dialect report it: input holds what was cached, output holds
 * the reasoning. */
#include "provider/openai_responses.h"

/* More is nonsense, and would overflow where replies are summed. */
#define COUNT_MAX ((int64_t)1 << 40)

static bool read_count(const struct json *object, const char *key, uint64_t *ret)
{
	int64_t v;

	if (!json_i64(json_get(object, key), &v) || v < 0 || v > COUNT_MAX)
		return false;
	*ret = (uint64_t)v;
	return true;
}

/* Exact where the server wrote a plain decimal; it is for the record only. */
static void read_cost(struct usage *u, const struct json *cost)
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

void openai_responses_usage_read(struct usage *out, const struct json *u)
{
	const struct json *in = json_get(u, "input_tokens_details");
	const struct json *of_output = json_get(u, "output_tokens_details");

	if (!json_is(u, JSON_OBJECT))
		return;
	out->given |= read_count(u, "input_tokens", &out->input);
	out->given |= read_count(u, "output_tokens", &out->output);
	read_count(in, "cached_tokens", &out->cached);
	read_count(in, "cache_write_tokens", &out->cache_write);
	read_count(of_output, "reasoning_tokens", &out->reasoning);
	read_cost(out, json_get(u, "cost"));
	if (out->cached > out->input)
		out->cached = out->input;
	if (out->reasoning > out->output)
		out->output = out->reasoning;
}
