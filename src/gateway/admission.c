/*
 * Theory of operation. Money is taken first, in the mapping that gateways share, and then what the
 * ledger has settled is read: whatever another request takes or settles meanwhile is seen in one of
 * the two, since a request gives back what it holds after its row is settled. Only keys with a
 * limit in dollars pay for the read.
 */
#include "gateway/admission.h"

#include "api/tools.h"
#include "base/id.h"
#include "gateway/internal.h"
#include "tool/tool.h"

#include <limits.h>
#include <stdlib.h>

/* ---- tools ---- */

/* Which of those that can be disabled an entry is; false: none. */
static bool tool_of(const struct tool_entry *t, enum config_tool *ret)
{
	if (t->kind == TOOL_SERVER && t->tool != NULL)
		return config_tool_find(str_of(t->tool->name), ret);
	/* Ours by name, though the client would run it. */
	if (str_starts(t->type, "openrouter:") || str_starts(t->type, "brig:"))
		return config_tool_find(t->type, ret);
	if (t->kind != TOOL_NATIVE)
		return false;
	if (str_is(t->type, "shell")) {
		*ret = CONFIG_TOOL_SHELL;
		return true;
	}
	*ret = CONFIG_TOOL_CODE;
	return tools_executes_code(t->type) || str_is(t->type, "codeExecution") ||
	       str_is(t->type, "code_execution");
}

int admission_tools(const struct config_key *key, const struct conversation *c, struct error *err)
{
	char param[40];
	enum config_tool tool;

	for (size_t i = 0; i < c->n_tools && key->disabled_tools != 0; i++) {
		const struct tool_entry *t = &c->tools[i];

		if (!tool_of(t, &tool) || !(key->disabled_tools & (1u << tool)))
			continue;
		str_format(param, sizeof(param), "tools[%zu]", i);
		error_param(err, ERR_PERMISSION, param, "The tool '%s' is disabled for this key.",
		        config_tool_name(tool));
		if (err != NULL)
			str_copy(err->type, sizeof(err->type), STR("server_tool_disabled"));
		return -ERR_PERMISSION;
	}
	return 0;
}

/* ---- prices ---- */

static bool has_price(const struct provider_target *t)
{
	for (size_t i = 0; i < t->config->n_prices; i++)
		if (strcmp(t->config->prices[i].model, t->model) == 0)
			return true;
	return t->config->dialect == DIALECT_SCRIPT;
}

int admission_priced(const struct config_key *key, const struct route *route, struct error *err)
{
	for (size_t i = 0; i < route->n && key->has_limit; i++) {
		const struct provider_target *t = &route->targets[i];

		if (has_price(t))
			continue;
		error_param(err, ERR_PERMISSION, "model",
		        "This key has a limit in dollars, and the server has no price for "
		        "'%s/%.200s'.",
		        t->config->name, t->model);
		if (err != NULL)
			str_copy(err->type, sizeof(err->type), STR("model_not_priced"));
		return -ERR_PERMISSION;
	}
	return 0;
}

/* ---- limits ---- */

struct admission {
	struct gateway *g;
	const struct config_key *key;
	struct record_hold hold;
	struct money others; /* what others held before */
	struct money settled;
	int64_t now_ms;
	admission_fn then;
	void *ctx;
	struct error err;
};

static void read_work(void *arg)
{
	struct admission *a = arg;
	int64_t from;
	char hash[65];

	a->now_ms = clock_wall_ms();
	from = key_limits_first_day(a->key->limit_reset, a->now_ms);
	id_hex(a->key->hash, sizeof(a->key->hash), hash);
	store_key_spent(a->g->reader, str_of(hash), &from, 1, &a->settled.pico, &a->err);
}

/* "12.5 dollars, monthly," */
static void limit_write(struct buf *out, const struct config_key *key)
{
	const char *reset = config_reset_name(key->limit_reset);

	money_write(out, key->limit);
	buf_puts(out, " dollars");
	if (reset != NULL)
		buf_printf(out, ", %s,", reset);
}

static void decide(struct admission *a)
{
	_cleanup_buf_ struct buf limit = BUF_INIT(64);
	int64_t ends = key_limits_ends_ms(a->key->limit_reset, a->now_ms);

	if (money_add(a->settled, a->others).pico < a->key->limit.pico)
		return;
	limit_write(&limit, a->key);
	if (a->settled.pico < a->key->limit.pico) {
		error_set(&a->err, ERR_RATE,
		        "What is left of this key's limit of %s may be spent by those of its "
		        "requests that are running.",
		        buf_cstr(&limit));
		a->err.retry_after_ms = 1000;
		return;
	}
	error_set(&a->err, ERR_PERMISSION, "This key's limit of %s is spent.", buf_cstr(&limit));
	a->err.http_status = 402;
	if (ends != INT64_MAX)
		a->err.retry_after_ms =
		        ends - a->now_ms < INT_MAX ? (int)(ends - a->now_ms) : INT_MAX;
}

static void give_back(struct admission *a)
{
	key_limits_give(
	        &a->g->shared->key_limits, a->g->options->index, &a->hold, (struct money){0});
}

static void read_done(void *arg)
{
	struct admission *a = arg;

	if (a->err.code == 0)
		decide(a);
	else
		error_set(&a->err, ERR_UNAVAILABLE,
		        "What this key has spent could not be read: try later.");
	if (a->err.code != 0)
		give_back(a);
	a->then(a->ctx, &a->hold, a->err.code != 0 ? &a->err : NULL);
	free(a);
}

void admission_ask(struct gateway *g, const struct config_key *key, struct money cost,
        bool container, admission_fn then, void *ctx)
{
	struct admission now = {.g = g, .key = key, .then = then, .ctx = ctx}, *later;

	if (key_limits_take(&g->shared->key_limits, key, g->options->index, cost, container,
	            &now.hold, &now.others, &now.err) < 0) {
		then(ctx, &now.hold, &now.err);
		return;
	}
	if (!key->has_limit) {
		then(ctx, &now.hold, NULL);
		return;
	}
	later = mem_alloc(sizeof(*later));
	*later = now;
	if (pool_run(g->pool, read_work, read_done, later))
		return;
	free(later);
	give_back(&now);
	gateway_busy(&now.err);
	then(ctx, &now.hold, &now.err);
}
