/* What a turn has used: tokens over all its replies, and sandbox time. */
#include "turn/internal.h"

/* Starting or waking a container costs at least this much (DESIGN section 8). */
#define STARTED_FLOOR_MS 30000

static void usage_add(struct usage *sum, const struct usage *u)
{
	sum->input += u->input;
	sum->cached += u->cached;
	sum->cache_write += u->cache_write;
	sum->output += u->output;
	sum->reasoning += u->reasoning;
	sum->given |= u->given;
	sum->cost = money_add(sum->cost, u->cost);
	sum->has_cost |= u->has_cost;
}

void accounting_usage(struct turn *t, const struct usage *u)
{
	t->usage_now = *u;
}

void accounting_reply_done(struct turn *t)
{
	usage_add(&t->usage, &t->usage_now);
	t->usage_now = (struct usage){.given = false};
}

void accounting_started(struct turn *t, bool started_container)
{
	if (!t->commands_started)
		t->first_command_ms = t->now_ms;
	t->commands_started = true;
	t->started_container |= started_container;
}

uint64_t turn_sandbox_ms(uint64_t begin_ms, uint64_t end_ms, bool started_container)
{
	/* Begun milliseconds count: 0 would say that nothing ran. */
	uint64_t ms = end_ms > begin_ms ? end_ms - begin_ms : 1;

	return started_container && ms < STARTED_FLOOR_MS ? STARTED_FLOOR_MS : ms;
}

void turn_totals(const struct turn *t, uint64_t now_ms, struct turn_totals *ret)
{
	uint64_t end_ms = t->phase == PHASE_DONE ? t->end_ms : now_ms;

	*ret = (struct turn_totals){
	        .usage = t->usage,
	        .upstream_calls = t->n_upstream,
	        .tool_calls_requested = t->n_requested,
	        .tool_calls_executed = t->n_executed,
	        .commands_started = t->commands_started,
	};
	usage_add(&ret->usage, &t->usage_now);
	if (!t->commands_started)
		return;
	ret->sandbox_ms = turn_sandbox_ms(t->first_command_ms, end_ms, t->started_container);
	ret->sandbox_cost = money_mul(t->o.price_per_second, ret->sandbox_ms, 1000);
}
