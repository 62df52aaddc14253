/*
 * Usage as chat servers report it. Counts become OpenAI's: input holds what was cached, output
 * holds the reasoning.
 */
#include "provider/openai_chat.h"

#include "provider/usage.h"

void openai_chat_usage_read(struct usage *out, const struct json *u)
{
	const struct json *in = json_get(u, "prompt_tokens_details");
	const struct json *od = json_get(u, "completion_tokens_details");
	uint64_t total;

	if (!json_is(u, JSON_OBJECT))
		return;
	out->given |= usage_read_count(u, "prompt_tokens", &out->input);
	out->given |= usage_read_count(u, "completion_tokens", &out->output);
	usage_read_count(u, "prompt_cache_hit_tokens", &out->cached); /* DeepSeek */
	usage_read_count(in, "cached_tokens", &out->cached);
	usage_read_count(in, "cache_write_tokens", &out->cache_write);
	usage_read_count(od, "reasoning_tokens", &out->reasoning);
	usage_read_cost(json_get(u, "cost"), out);
	/* xAI counts reasoning beside the completion, not within it. */
	if (usage_read_count(u, "total_tokens", &total) && out->reasoning &&
	        total == out->input + out->output + out->reasoning)
		out->output += out->reasoning;
	if (out->cached > out->input)
		out->cached = out->input;
	if (out->reasoning > out->output)
		out->output = out->reasoning;
}
