/*
 * Counting. See metrics.h.
 *
 * What a turn or an exec was is counted from its record, once, when its row is in the ledger: so
 * that the figures and the rows cannot tell two stories.
 */
#include "gateway/metrics.h"

#include "gateway/exec.h"
#include "gateway/internal.h"
#include "gateway/ledger.h"
#include "gateway/turn_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_S 1
#define MS     UINT64_C(1000000)

const uint64_t metrics_bounds_ns[METRICS_BUCKETS] = {1 * MS, 2 * MS + MS / 2, 5 * MS, 10 * MS,
        25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS, 1000 * MS, 2500 * MS, 5000 * MS, 10000 * MS,
        30000 * MS, 60000 * MS, 300000 * MS};

static void observe(struct metrics_histogram *h, uint64_t ns)
{
	size_t i = 0;

	while (i < METRICS_BUCKETS && ns > metrics_bounds_ns[i])
		i++;
	metric_add(&h->in[i], 1);
	metric_add(&h->sum_ns, ns);
}

/* From wall-clock times of a record; 0 is one that did not come. Clocks may be set back. */
static void observe_ms(struct metrics_histogram *h, int64_t from, int64_t to)
{
	if (from > 0 && to > 0)
		observe(h, to > from ? (uint64_t)(to - from) * MS : 0);
}

/* ---- what a record says ---- */

static size_t api_of(const struct record *r)
{
	static const char *const names[] = {[METRICS_RESPONSES] = "responses",
	        [METRICS_COMPACT] = "responses/compact",
	        [METRICS_MESSAGES] = "messages",
	        [METRICS_GEMINI] = "gemini",
	        [METRICS_CHAT] = "chat"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (str_is(str_of(r->api), names[i]))
			return i;
	return METRICS_OTHER_API;
}

static size_t provider_of(const struct gateway *g, const char *name)
{
	if (name == NULL || name[0] == 0)
		return METRICS_NO_PROVIDER;
	for (size_t i = 0; i < g->config->n_providers && i < METRICS_PROVIDERS; i++)
		if (strcmp(g->config->providers[i].name, name) == 0)
			return i;
	return METRICS_OTHER;
}

static bool was_blocked(const struct record *r)
{
	for (size_t i = 0; i < r->n_hits; i++)
		if (r->status == 403 && str_is(str_of(r->hits[i].action), "block"))
			return true;
	return false;
}

static enum metrics_outcome outcome_of(const struct record *r)
{
	if (r->cancelled)
		return METRICS_CANCELED;
	if (r->n_attempts == 0 && r->n_runs == 0 && r->status >= 400) {
		if (was_blocked(r))
			return METRICS_BLOCKED;
		return r->status == 402 || r->status == 429 ? METRICS_LIMITED : METRICS_REFUSED;
	}
	if (r->error != NULL || r->status >= 400)
		return METRICS_FAILED;
	if (r->finish != NULL && strcmp(r->finish, "stop") != 0 &&
	        strcmp(r->finish, "tool_calls") != 0)
		return METRICS_INCOMPLETE;
	return METRICS_COMPLETED;
}

static void count_command(struct metrics_shared *m, const struct record_command *c)
{
	enum metrics_command how = c->timed_out        ? METRICS_TIMEOUT
	                           : c->signal != NULL ? METRICS_SIGNAL
	                           : c->exit_code != 0 ? METRICS_NONZERO
	                                               : METRICS_ZERO;

	metric_add(&m->commands[how], 1);
	observe_ms(&m->command, c->begin_ms, c->end_ms);
}

static void count_run(struct metrics_shared *m, const struct record_run *run, bool exec)
{
	static const char prefix[] = "openrouter:";
	const char *tool = run->tool != NULL ? run->tool : "";
	enum metrics_outcome how = METRICS_INCOMPLETE;
	enum metrics_tool which = METRICS_OTHER_TOOL;

	for (size_t i = 0; i < run->n_commands; i++)
		count_command(m, &run->commands[i]);
	if (exec)
		return;
	if (strncmp(tool, prefix, sizeof(prefix) - 1) == 0)
		tool += sizeof(prefix) - 1;
	if (strcmp(tool, "shell") == 0)
		which = METRICS_SHELL;
	else if (strcmp(tool, "bash") == 0)
		which = METRICS_BASH;
	if (str_is(str_of(run->status), "completed"))
		how = METRICS_COMPLETED;
	else if (str_is(str_of(run->status), "failed"))
		how = METRICS_FAILED;
	metric_add(&m->tool_runs[which][how], 1);
}

static void count_attempt(struct gateway *g, const struct record_attempt *a)
{
	struct metrics_shared *m = &g->shared->metrics;
	size_t provider = provider_of(g, a->provider);
	enum metrics_failure how = a->status == 0     ? METRICS_NO_ANSWER
	                           : a->status == 429 ? METRICS_RATE
	                           : a->status >= 500 ? METRICS_5XX
	                           : a->status >= 300 ? METRICS_4XX
	                                              : METRICS_BROKEN;

	metric_add(&m->attempts[provider], 1);
	if (a->error != NULL)
		metric_add(&m->failures[provider][how], 1);
	observe_ms(&m->upstream[provider], a->begin_ms, a->first_ms);
}

static void count_hits(struct metrics_shared *m, const struct record *r)
{
	for (size_t i = 0; i < r->n_hits; i++) {
		struct str action = str_of(r->hits[i].action);

		metric_add(&m->hits[str_is(action, "block")    ? METRICS_BLOCK
		                    : str_is(action, "redact") ? METRICS_REDACT
		                                               : METRICS_FLAG],
		        1);
	}
}

static void count_price(struct metrics_shared *m, const struct record *r, size_t provider)
{
	const struct record_tokens *t = &r->tokens;

	metric_add(&m->tokens[provider][METRICS_INPUT], t->input);
	metric_add(&m->tokens[provider][METRICS_CACHED], t->cached);
	metric_add(&m->tokens[provider][METRICS_CACHE_WRITE], t->cache_write);
	metric_add(&m->tokens[provider][METRICS_OUTPUT], t->output);
	metric_add(&m->tokens[provider][METRICS_REASONING], t->reasoning);
	metric_add(&m->estimated, t->estimated);
	metric_add(&m->input_pico[provider], (uint64_t)r->input_cost.pico);
	metric_add(&m->output_pico[provider], (uint64_t)r->output_cost.pico);
	metric_add(&m->sandbox_pico, (uint64_t)r->sandbox_cost.pico);
	metric_add(&m->sandbox_ms, r->sandbox_ms);
}

void metrics_record(struct gateway *g, const struct record *r)
{
	struct metrics_shared *m = &g->shared->metrics;
	bool exec = str_is(str_of(r->api), "exec");
	size_t api = api_of(r), provider = provider_of(g, r->provider);

	for (size_t i = 0; i < r->n_runs; i++)
		count_run(m, &r->runs[i], exec);
	for (size_t i = 0; i < r->n_attempts; i++)
		count_attempt(g, &r->attempts[i]);
	count_hits(m, r);
	count_price(m, r, provider);
	if (exec) {
		metric_add(&m->execs[outcome_of(r)], 1);
		observe_ms(&m->exec, r->begin_ms, r->end_ms);
		return;
	}
	metric_add(&m->turns[api][provider][outcome_of(r)], 1);
	observe_ms(&m->turn[api], r->begin_ms, r->end_ms);
	observe_ms(&m->first_byte[api], r->begin_ms, r->first_ms);
}

/* ---- what no record says ---- */

void metrics_claim(struct gateway *g, bool claimed, int how, uint64_t waited_ns)
{
	struct metrics_shared *m = &g->shared->metrics;
	enum metrics_claim which = !claimed             ? METRICS_CLAIM_FAILED
	                           : how == SUP_CREATED ? METRICS_CREATED
	                           : how == SUP_WOKEN   ? METRICS_WOKEN
	                                                : METRICS_WAS_LIVE;

	metric_add(&m->claims[which], 1);
	observe(&m->claim[which], waited_ns);
}

void metrics_egress(struct gateway *g, bool allowed, uint64_t n, uint64_t in, uint64_t out)
{
	struct metrics_shared *m = &g->shared->metrics;

	metric_add(allowed ? &m->egress_allowed : &m->egress_denied, n);
	metric_add(&m->egress_in, in);
	metric_add(&m->egress_out, out);
}

void metrics_request(struct gateway *g, int status, uint64_t begun_ns, bool generation)
{
	struct metrics_shared *m = &g->shared->metrics;

	metric_add(&m->http[status / 100 < 6 ? status / 100 : 5], 1);
	if (begun_ns > 0)
		observe(&m->request[generation ? METRICS_GENERATION : METRICS_OTHER_KIND],
		        clock_mono_ns() - begun_ns);
}

/* ---- how this gateway stands ---- */

struct metrics {
	struct gateway *g;
	struct event *timer;
	uint64_t start_ms, node_ms; /* node_ms 0: the supervisor has not answered yet */
	bool asking;
	struct sup_node node;
};

static uint64_t resident_bytes(void)
{
	char text[128];
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
	char *second;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	second = strchr(text, ' ');
	return second != NULL ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void put(metric *m, uint64_t v)
{
	atomic_store_explicit(m, v, memory_order_relaxed);
}

static uint64_t count_turns(const struct gateway *g)
{
	uint64_t n = 0;

	for (const struct turn_run *t = g->turns; t != NULL; t = t->next)
		n += !t->done;
	return n;
}

static uint64_t count_fetches(const struct gateway *g)
{
	uint64_t n = 0;

	for (const struct turn_run *t = g->turns; t != NULL; t = t->next)
		n += t->up.link != NULL;
	return n;
}

void metrics_look(struct gateway *g)
{
	struct metrics_gateway *at = &g->shared->metrics.gateways[g->options->index];

	put(&at->connections, http_server_connections(g->server));
	put(&at->exchanges, http_server_open_exchanges(g->server));
	put(&at->websockets, websockets_open(g));
	put(&at->turns, count_turns(g));
	put(&at->fetches, count_fetches(g));
	put(&at->execs, exec_running(g));
	put(&at->pool, pool_queued(g->pool));
	put(&at->ledger, ledger_waiting(g->ledger));
	put(&at->supervisor, container_client_waiting(g->containers));
	put(&at->resident, resident_bytes());
	put(&at->at_ms, clock_mono_ms());
}

static void on_node(void *ctx, const struct sup_node *node, const struct error *err)
{
	struct metrics *m = ctx;

	m->asking = false;
	if (node == NULL)
		return;
	m->node = *node;
	m->node_ms = clock_mono_ms();
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	struct metrics *m = arg;

	metrics_look(m->g);
	if (m->asking || m->g->options->sup_fd < 0)
		return;
	m->asking = true;
	container_ask_node(m->g->containers, on_node, m);
}

struct metrics *metrics_start(struct gateway *g)
{
	static const struct timeval every = {LOOK_S, 0};
	struct metrics *m = mem_alloc(sizeof(*m));

	if (g->options->index >= METRICS_GATEWAYS)
		BUG("a gateway of number %u", g->options->index);
	m->g = g;
	m->start_ms = clock_mono_ms();
	m->timer = event_new(g->base, -1, EV_PERSIST, on_time, m);
	if (m->timer == NULL || event_add(m->timer, &every) < 0)
		BUG("no memory for an event");
	metric_add(&g->shared->metrics.starts, 1);
	on_time(-1, 0, m);
	return m;
}

struct metrics *metrics_free(struct metrics *m)
{
	if (m == NULL)
		return NULL;
	put(&m->g->shared->metrics.gateways[m->g->options->index].at_ms, 0);
	event_free(m->timer);
	free(m);
	return NULL;
}

const struct sup_node *metrics_node(const struct metrics *m, uint64_t *ret_age_ms)
{
	*ret_age_ms = clock_mono_ms() - (m->node_ms > 0 ? m->node_ms : m->start_ms);
	return m->node_ms > 0 ? &m->node : NULL;
}
