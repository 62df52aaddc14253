/*
 * Theory of operation: `until_ms` says all. While it lies ahead, nobody calls. Once it has passed,
 * whoever moves it one rest ahead has the probe; if nothing is heard of the probe (its client left,
 * its gateway died) the next one comes a rest later.
 */
#include "gateway/circuit.h"

bool circuit_allows(
        struct circuit *c, const struct circuit_rule *rule, uint64_t now_ms, uint64_t *ret_wait_ms)
{
	uint64_t until = atomic_load(&c->until_ms);

	if (until == 0 || rule->failures == 0)
		return true;
	if (now_ms >= until &&
	        atomic_compare_exchange_strong(&c->until_ms, &until, now_ms + rule->rest_ms))
		return true;
	/* Either it rests, or another caller was quicker: `until` is then what that one wrote. */
	if (until == 0)
		return true;
	*ret_wait_ms = until > now_ms ? until - now_ms : rule->rest_ms;
	return false;
}

void circuit_answered(struct circuit *c)
{
	/* Nearly always there is nothing to write, and the line stays shared. */
	if (atomic_load(&c->failures) != 0)
		atomic_store(&c->failures, 0);
	if (atomic_load(&c->until_ms) != 0)
		atomic_store(&c->until_ms, 0);
}

void circuit_failed(struct circuit *c, const struct circuit_rule *rule, uint64_t now_ms)
{
	uint32_t before = atomic_load(&c->failures);

	while (before < UINT32_MAX &&
	        !atomic_compare_exchange_weak(&c->failures, &before, before + 1))
		;
	if (rule->failures != 0 && before + UINT64_C(1) >= rule->failures)
		atomic_store(&c->until_ms, now_ms + rule->rest_ms);
}
