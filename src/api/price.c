/* What a model's tokens cost, exactly: prices are for a million tokens. */
#include "api/api.h"

#include "json/json.h"

static uint64_t beyond(uint64_t all, uint64_t earlier)
{
	return all > earlier ? all - earlier : 0;
}

static struct money price_of(uint64_t tokens, struct money per_million)
{
	return money_mul(per_million, tokens, 1000000);
}

void api_price(const struct api_identity *who, const struct usage *u, struct money *ret_input,
        struct money *ret_output)
{
	uint64_t input = beyond(u->input, who->earlier.input);
	uint64_t cached = beyond(u->cached, who->earlier.cached);

	*ret_input = who->earlier_input;
	*ret_output = who->earlier_output;
	if (!who->has_price)
		return;
	cached = cached < input ? cached : input;
	*ret_input = money_add(*ret_input, price_of(input - cached, who->input_price));
	*ret_input = money_add(*ret_input, price_of(cached, who->cached_price));
	*ret_output = money_add(
	        *ret_output, price_of(beyond(u->output, who->earlier.output), who->output_price));
}

void api_write_cost(struct json_writer *j, const struct api_identity *who,
        const struct turn_totals *totals, const char *input_key, const char *output_key,
        bool has_server_tool)
{
	struct money input, output, model;

	api_price(who, &totals->usage, &input, &output);
	model = money_add(input, output);
	jw_kmoney(j, "cost", money_add(model, totals->sandbox_cost));
	jw_kbool(j, "is_byok", false);
	jw_key(j, "cost_details");
	jw_object(j);
	if (who->has_price)
		jw_kmoney(j, "upstream_inference_cost", model);
	else
		jw_knull(j, "upstream_inference_cost"); /* not known */
	jw_kmoney(j, input_key, input);
	jw_kmoney(j, output_key, output);
	if (totals->commands_started)
		jw_kmoney(j, "server_tool_cost", totals->sandbox_cost);
	jw_end(j);
	if (!has_server_tool)
		return;
	jw_key(j, "server_tool_use_details");
	jw_object(j);
	jw_ki64(j, "tool_calls_requested", totals->tool_calls_requested);
	jw_ki64(j, "tool_calls_executed", totals->tool_calls_executed);
	jw_end(j);
}
