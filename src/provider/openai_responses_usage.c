/* Usage as servers of the Responses dialect report it: input holds what was cached, output holds
 * the reasoning. */
#include "provider/openai_responses.h"

#include "provider/usage.h"

void openai_responses_usage_read(struct usage *out, const struct json *u)
{
	const struct json *in = json_get(u, "input_tokens_details");
	const struct json *of_output = json_get(u, "output_tokens_details");

	if (!json_is(u, JSON_OBJECT))
		return;
	out->given |= usage_read_count(u, "input_tokens", &out->input);
	out->given |= usage_read_count(u, "output_tokens", &out->output);
	usage_read_count(in, "cached_tokens", &out->cached);
	usage_read_count(in, "cache_write_tokens", &out->cache_write);
	usage_read_count(of_output, "reasoning_tokens", &out->reasoning);
	usage_read_cost(json_get(u, "cost"), out);
	if (out->cached > out->input)
		out->cached = out->input;
	if (out->reasoning > out->output)
		out->output = out->reasoning;
}
