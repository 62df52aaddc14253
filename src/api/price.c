/* What a model's tokens cost, exactly: prices are for a million tokens. */
#include "api/api.h"

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
