/* The figures as text: Prometheus' exposition format 0.0.4. Each family is one table of ours. */
#include "gateway/metrics.h"

#include "gateway/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#define GONE_MS 10000 /* a gateway that has not said how it stands for so long is not there */

static const char *const api_names[METRICS_APIS] = {
        "responses", "responses_compact", "messages", "gemini", "chat", "other"};
static const char *const outcome_names[METRICS_OUTCOMES] = {
        "completed", "incomplete", "failed", "cancelled", "refused", "limited", "blocked"};
static const char *const tool_names[METRICS_TOOLS] = {"shell", "bash", "other"};
static const char *const command_names[METRICS_COMMANDS] = {"zero", "nonzero", "signal", "timeout"};
static const char *const failure_names[METRICS_FAILURES] = {
        "no_answer", "rate_limited", "4xx", "5xx", "broken"};
static const char *const token_names[METRICS_TOKENS] = {
        "input", "cached", "cache_write", "output", "reasoning"};
static const char *const action_names[METRICS_ACTIONS] = {"flag", "redact", "block"};
static const char *const claim_names[METRICS_CLAIMS] = {"live", "woken", "created", "failed"};
static const char *const kind_names[METRICS_KINDS] = {"generation", "other"};
static const char *const sandbox_names[] = {[SUP_KIND_POOLED] = "pooled",
        [SUP_KIND_STARTING] = "starting",
        [SUP_KIND_RUNNING] = "running",
        [SUP_KIND_FROZEN] = "frozen",
        [SUP_KIND_ENDING] = "ending"};
static const char *const end_names[] = {[SUP_END_IDLE] = "idle",
        [SUP_END_EVICTED] = "evicted",
        [SUP_END_DELETED] = "deleted",
        [SUP_END_INIT_DIED] = "died",
        [SUP_END_ASKED] = "asked"};

struct writer {
	struct gateway *g;
	const struct metrics_shared *m;
	struct buf *out;
};

/* ---- lines ---- */

static void family(struct writer *w, const char *name, const char *type, const char *help)
{
	buf_printf(w->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void counter(struct writer *w, const char *name, const char *help, const metric *m)
{
	family(w, name, "counter", help);
	buf_printf(w->out, "%s %" PRIu64 "\n", name, metric_get(m));
}

static void gauge(struct writer *w, const char *name, const char *help, uint64_t v)
{
	family(w, name, "gauge", help);
	buf_printf(w->out, "%s %" PRIu64 "\n", name, v);
}

/* Counters that differ in one label. */
static void counters(struct writer *w, const char *name, const char *help, const char *label,
        const char *const *words, const metric *m, size_t n)
{
	family(w, name, "counter", help);
	for (size_t i = 0; i < n; i++)
		buf_printf(w->out, "%s{%s=\"%s\"} %" PRIu64 "\n", name, label, words[i],
		        metric_get(&m[i]));
}

/* label="value", the value escaped as the format wants it. */
static void put_label(struct buf *out, const char *label, const char *value)
{
	buf_printf(out, "%s=\"", label);
	for (; *value != 0; value++) {
		if (*value == '\\' || *value == '"')
			buf_putc(out, '\\');
		if (*value == '\n')
			buf_puts(out, "\\n");
		else
			buf_putc(out, *value);
	}
	buf_putc(out, '"');
}

static void put_provider(struct writer *w, size_t i)
{
	put_label(w->out, "provider",
	        i == METRICS_OTHER         ? "_other"
	        : i == METRICS_NO_PROVIDER ? "_none"
	                                   : w->g->config->providers[i].name);
}

/* Is there such a provider? */
static bool is_row(const struct writer *w, size_t i)
{
	return i >= METRICS_PROVIDERS || i < w->g->config->n_providers;
}

static void put_seconds(struct buf *out, uint64_t ns)
{
	buf_printf(out, "%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);
}

/* 10^-12 dollars. */
static void put_dollars(struct buf *out, uint64_t pico)
{
	struct money m = {pico < INT64_MAX ? (int64_t)pico : INT64_MAX};

	money_write(out, m);
}

static void put_bound(struct buf *out, uint64_t ns)
{
	uint64_t ms = ns / 1000000, half = ns % 1000000;

	if (ms < 1000 && ms % 1000 + half > 0)
		buf_printf(out, half > 0 ? "0.%03" PRIu64 "5" : "0.%03" PRIu64, ms);
	else if (ms % 1000 > 0)
		buf_printf(out, "%" PRIu64 ".%" PRIu64, ms / 1000, ms % 1000 / 100);
	else
		buf_u64(out, ms / 1000);
}

/* labels: what stands between the braces, or NULL. Buckets are read once, so that their sum is the
 * count whatever is added meanwhile. */
static void histogram(struct writer *w, const char *name, const struct buf *labels,
        const struct metrics_histogram *h)
{
	const char *own = labels != NULL ? buf_cstr(labels) : "";
	const char *comma = own[0] != 0 ? "," : "";
	const char *open = own[0] != 0 ? "{" : "", *close = own[0] != 0 ? "}" : "";
	uint64_t n = 0, sum = metric_get(&h->sum_ns);

	for (size_t i = 0; i <= METRICS_BUCKETS; i++) {
		n += metric_get(&h->in[i]);
		buf_printf(w->out, "%s_bucket{%s%sle=\"", name, own, comma);
		if (i < METRICS_BUCKETS)
			put_bound(w->out, metrics_bounds_ns[i]);
		else
			buf_puts(w->out, "+Inf");
		buf_printf(w->out, "\"} %" PRIu64 "\n", n);
	}
	buf_printf(w->out, "%s_sum%s%s%s ", name, open, own, close);
	put_seconds(w->out, sum);
	buf_printf(w->out, "\n%s_count%s%s%s %" PRIu64 "\n", name, open, own, close, n);
}

static void histograms(struct writer *w, const char *name, const char *help, const char *label,
        const char *const *words, const struct metrics_histogram *h, size_t n)
{
	family(w, name, "histogram", help);
	for (size_t i = 0; i < n; i++) {
		_cleanup_buf_ struct buf labels = BUF_INIT(256);

		put_label(&labels, label, words[i]);
		histogram(w, name, &labels, &h[i]);
	}
}

static bool is_used(const struct metrics_histogram *h)
{
	for (size_t i = 0; i <= METRICS_BUCKETS; i++)
		if (metric_get(&h->in[i]) > 0)
			return true;
	return false;
}

/* ---- turns ---- */

static void write_turns(struct writer *w)
{
	static const char name[] = "brig_turns_total";

	family(w, name, "counter",
	        "Requests to a model that have ended, one row of the ledger each.");
	for (size_t a = 0; a < METRICS_APIS; a++)
		for (size_t p = 0; p < METRICS_PROVIDER_ROWS; p++)
			for (size_t o = 0; is_row(w, p) && o < METRICS_OUTCOMES; o++) {
				uint64_t n = metric_get(&w->m->turns[a][p][o]);

				if (n == 0)
					continue;
				buf_printf(w->out, "%s{api=\"%s\",", name, api_names[a]);
				put_provider(w, p);
				buf_printf(w->out, ",outcome=\"%s\"} %" PRIu64 "\n",
				        outcome_names[o], n);
			}
	histograms(w, "brig_turn_duration_seconds",
	        "From the head of a request to the end of its turn.", "api", api_names, w->m->turn,
	        METRICS_APIS);
	histograms(w, "brig_turn_first_byte_seconds",
	        "From the head of a request to the first byte of the model's text.", "api",
	        api_names, w->m->first_byte, METRICS_APIS);
	counter(w, "brig_turns_estimated_total", "Turns whose tokens were counted by brig.",
	        &w->m->estimated);
}

static void write_tokens(struct writer *w)
{
	family(w, "brig_tokens_total", "counter",
	        "Tokens; cached and cache_write are part of input, reasoning of output.");
	for (size_t p = 0; p < METRICS_PROVIDER_ROWS; p++)
		for (size_t k = 0; is_row(w, p) && k < METRICS_TOKENS; k++) {
			uint64_t n = metric_get(&w->m->tokens[p][k]);

			if (n == 0)
				continue;
			buf_puts(w->out, "brig_tokens_total{");
			put_provider(w, p);
			buf_printf(w->out, ",kind=\"%s\"} %" PRIu64 "\n", token_names[k], n);
		}
}

static void write_cost(struct writer *w, const char *kind, const metric *pico, size_t p)
{
	uint64_t v = metric_get(pico);

	if (v == 0)
		return;
	buf_puts(w->out, "brig_model_cost_dollars_total{");
	put_provider(w, p);
	buf_printf(w->out, ",kind=\"%s\"} ", kind);
	put_dollars(w->out, v);
	buf_putc(w->out, '\n');
}

static void write_costs(struct writer *w)
{
	family(w, "brig_model_cost_dollars_total", "counter",
	        "What tokens cost, where their price is known.");
	for (size_t p = 0; p < METRICS_PROVIDER_ROWS; p++) {
		if (!is_row(w, p))
			continue;
		write_cost(w, "input", &w->m->input_pico[p], p);
		write_cost(w, "output", &w->m->output_pico[p], p);
	}
	family(w, "brig_sandbox_cost_dollars_total", "counter", "What sandboxes cost.");
	buf_puts(w->out, "brig_sandbox_cost_dollars_total ");
	put_dollars(w->out, metric_get(&w->m->sandbox_pico));
	buf_putc(w->out, '\n');
	family(w, "brig_sandbox_billed_seconds_total", "counter", "Sandbox time that was priced.");
	buf_puts(w->out, "brig_sandbox_billed_seconds_total ");
	put_seconds(w->out, metric_get(&w->m->sandbox_ms) * 1000000);
	buf_putc(w->out, '\n');
}

/* ---- providers ---- */

static void write_attempts(struct writer *w)
{
	family(w, "brig_upstream_attempts_total", "counter",
	        "Calls to a provider, retries among them.");
	for (size_t p = 0; p < METRICS_PROVIDER_ROWS; p++) {
		if (!is_row(w, p) ||
		        (p >= METRICS_PROVIDERS && metric_get(&w->m->attempts[p]) == 0))
			continue;
		buf_puts(w->out, "brig_upstream_attempts_total{");
		put_provider(w, p);
		buf_printf(w->out, "} %" PRIu64 "\n", metric_get(&w->m->attempts[p]));
	}
	family(w, "brig_upstream_failures_total", "counter", "Those of them that failed.");
	for (size_t p = 0; p < METRICS_PROVIDER_ROWS; p++)
		for (size_t f = 0; is_row(w, p) && f < METRICS_FAILURES; f++) {
			uint64_t n = metric_get(&w->m->failures[p][f]);

			if (n == 0)
				continue;
			buf_puts(w->out, "brig_upstream_failures_total{");
			put_provider(w, p);
			buf_printf(w->out, ",reason=\"%s\"} %" PRIu64 "\n", failure_names[f], n);
		}
	family(w, "brig_upstream_first_byte_seconds", "histogram",
	        "From a call to a provider to the first byte of its text.");
	for (size_t p = 0; p < METRICS_PROVIDER_ROWS; p++) {
		if (!is_row(w, p) || !is_used(&w->m->upstream[p]))
			continue;
		_cleanup_buf_ struct buf labels = BUF_INIT(8192);
		struct writer in = {w->g, w->m, &labels};

		put_provider(&in, p);
		histogram(w, "brig_upstream_first_byte_seconds", &labels, &w->m->upstream[p]);
	}
}

static void write_circuits(struct writer *w)
{
	const struct config *c = w->g->config;

	family(w, "brig_upstream_circuit_open", "gauge",
	        "1 while a provider that does not answer is left alone.");
	for (size_t p = 0; p < c->n_providers && p < METRICS_PROVIDERS && p < SHARED_CIRCUITS;
	        p++) {
		const struct circuit *circuit = &w->g->shared->circuits[p];

		buf_puts(w->out, "brig_upstream_circuit_open{");
		put_provider(w, p);
		buf_printf(w->out, "} %d\n",
		        atomic_load_explicit(&circuit->until_ms, memory_order_relaxed) > 0);
	}
}

/* ---- sandboxes ---- */

static void write_tools(struct writer *w)
{
	family(w, "brig_tool_runs_total", "counter", "Calls of server tools in turns.");
	for (size_t t = 0; t < METRICS_TOOLS; t++)
		for (size_t o = 0; o <= METRICS_FAILED; o++)
			buf_printf(w->out,
			        "brig_tool_runs_total{tool=\"%s\",outcome=\"%s\"} %" PRIu64 "\n",
			        tool_names[t], outcome_names[o],
			        metric_get(&w->m->tool_runs[t][o]));
	family(w, "brig_execs_total", "counter", "Commands run over HTTP, without a model.");
	for (size_t o = 0; o < METRICS_OUTCOMES; o++)
		if (o == METRICS_COMPLETED || o == METRICS_FAILED || o == METRICS_CANCELED ||
		        metric_get(&w->m->execs[o]) > 0)
			buf_printf(w->out, "brig_execs_total{outcome=\"%s\"} %" PRIu64 "\n",
			        outcome_names[o], metric_get(&w->m->execs[o]));
	counters(w, "brig_commands_total", "Single commands, of tool calls and of execs.",
	        "outcome", command_names, w->m->commands, METRICS_COMMANDS);
	family(w, "brig_command_duration_seconds", "histogram", "How long commands ran.");
	histogram(w, "brig_command_duration_seconds", NULL, &w->m->command);
	family(w, "brig_exec_duration_seconds", "histogram", "How long execs took.");
	histogram(w, "brig_exec_duration_seconds", NULL, &w->m->exec);
	counters(w, "brig_sandbox_claims_total",
	        "Containers asked for: live already, woken, newly made, or not to be had.", "start",
	        claim_names, w->m->claims, METRICS_CLAIMS);
	histograms(w, "brig_sandbox_claim_seconds", "How long a claim of a container took.",
	        "start", claim_names, w->m->claim, METRICS_CLAIMS);
	counters(w, "brig_guardrail_hits_total", "What guardrails found.", "action", action_names,
	        w->m->hits, METRICS_ACTIONS);
}

static void write_node(struct writer *w)
{
	uint64_t age;
	const struct sup_node *n = metrics_node(w->g->metrics, &age);

	gauge(w, "brig_supervisor_up",
	        "1 where the supervisor answers; 0 too where sandboxes are off.",
	        n != NULL && age < GONE_MS);
	if (n == NULL)
		return;
	family(w, "brig_sandboxes", "gauge", "Sandboxes by what they do.");
	for (size_t i = 0; i < sizeof(sandbox_names) / sizeof(sandbox_names[0]); i++)
		buf_printf(w->out, "brig_sandboxes{state=\"%s\"} %" PRIu32 "\n", sandbox_names[i],
		        n->sandboxes[i]);
	gauge(w, "brig_sandboxes_max", "Most sandboxes at once.", n->live_max);
	gauge(w, "brig_sandbox_pool_size", "How many sandboxes are to be kept ready.",
	        n->pool_size);
	gauge(w, "brig_sandbox_claims_waiting", "Claims that wait for room.", n->waiting);
	family(w, "brig_sandboxes_ended_total", "counter", "Sandboxes that ended, by why.");
	for (size_t i = SUP_END_IDLE; i < sizeof(end_names) / sizeof(end_names[0]); i++)
		buf_printf(w->out, "brig_sandboxes_ended_total{reason=\"%s\"} %" PRIu64 "\n",
		        end_names[i], n->ended[i]);
}

static void write_egress(struct writer *w)
{
	family(w, "brig_egress_verdicts_total", "counter",
	        "Connections and name lookups of containers, let through or not.");
	buf_printf(w->out,
	        "brig_egress_verdicts_total{verdict=\"allow\"} %" PRIu64
	        "\nbrig_egress_verdicts_total{verdict=\"deny\"} %" PRIu64 "\n",
	        metric_get(&w->m->egress_allowed), metric_get(&w->m->egress_denied));
	family(w, "brig_egress_bytes_total", "counter", "Bytes to and from containers.");
	buf_printf(w->out,
	        "brig_egress_bytes_total{direction=\"in\"} %" PRIu64
	        "\nbrig_egress_bytes_total{direction=\"out\"} %" PRIu64 "\n",
	        metric_get(&w->m->egress_in), metric_get(&w->m->egress_out));
}

/* ---- gateways ---- */

static void write_http(struct writer *w)
{
	static const char *const classes[] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};

	counters(w, "brig_http_requests_total",
	        "HTTP requests by the class of their answer; none: the client left before one.",
	        "status", classes, w->m->http, 6);
	histograms(w, "brig_http_request_duration_seconds",
	        "From a request's head to the last byte of its answer; generation: turns and "
	        "execs.",
	        "kind", kind_names, w->m->request, METRICS_KINDS);
}

static bool is_here(const struct metrics_gateway *at, uint64_t now)
{
	uint64_t when = metric_get(&at->at_ms);

	return when > 0 && now - when < GONE_MS;
}

/* The sum over the gateways that are here of the number at this place. */
static uint64_t sum_of(const struct writer *w, size_t at, uint64_t now)
{
	uint64_t n = 0;

	for (size_t i = 0; i < METRICS_GATEWAYS; i++) {
		const struct metrics_gateway *g = &w->m->gateways[i];

		if (is_here(g, now))
			n += metric_get((const metric *)(const void *)((const char *)g + at));
	}
	return n;
}
#define SUM(member) sum_of(w, offsetof(struct metrics_gateway, member), now)

static void write_gateways(struct writer *w)
{
	uint64_t now = clock_mono_ms(), here = 0;

	for (size_t i = 0; i < METRICS_GATEWAYS; i++)
		here += is_here(&w->m->gateways[i], now);
	gauge(w, "brig_gateways", "Gateways of this node that are up.", here);
	counter(w, "brig_gateway_starts_total",
	        "Starts of gateways; more than their number: some died.", &w->m->starts);
	gauge(w, "brig_http_connections", "Connections of clients.", SUM(connections));
	gauge(w, "brig_http_requests_open", "Requests that are not answered yet.", SUM(exchanges));
	gauge(w, "brig_websockets_open", "WebSockets.", SUM(websockets));
	gauge(w, "brig_turns_running", "Turns under way.", SUM(turns));
	gauge(w, "brig_execs_running", "Execs under way.", SUM(execs));
	gauge(w, "brig_upstream_calls_open", "Calls to providers under way.", SUM(fetches));
	family(w, "brig_queue_depth", "gauge",
	        "What waits: for a thread, to be written, for an answer.");
	buf_printf(w->out,
	        "brig_queue_depth{queue=\"pool\"} %" PRIu64
	        "\nbrig_queue_depth{queue=\"ledger\"} %" PRIu64
	        "\nbrig_queue_depth{queue=\"supervisor\"} %" PRIu64 "\n",
	        SUM(pool), SUM(ledger), SUM(supervisor));
	counter(w, "brig_ledger_failures_total", "Writes to the ledger that failed.",
	        &w->m->ledger_failed);
	counter(w, "brig_records_recovered_total",
	        "Records that a crash left open, settled at their last heartbeat.",
	        &w->m->recovered);
	family(w, "brig_gateway_resident_memory_bytes", "gauge", "Memory of each gateway.");
	for (size_t i = 0; i < METRICS_GATEWAYS; i++)
		if (is_here(&w->m->gateways[i], now))
			buf_printf(w->out,
			        "brig_gateway_resident_memory_bytes{gateway=\"%zu\"} %" PRIu64 "\n",
			        i, metric_get(&w->m->gateways[i].resident));
}

static void write_broadcast(struct writer *w)
{
	const char *names[METRICS_DESTINATIONS];

	for (unsigned i = 0; i < METRICS_DESTINATIONS; i++)
		names[i] = trace_type_name((enum trace_type)i);
	counters(w, "brig_broadcast_delivered_total",
	        "Records that a destination has taken, once for each.", "type", names,
	        w->m->broadcast_delivered, METRICS_DESTINATIONS);
	counters(w, "brig_broadcast_dropped_total",
	        "Records that a destination refused, or that waited too long for it.", "type", names,
	        w->m->broadcast_dropped, METRICS_DESTINATIONS);
	counters(w, "brig_broadcast_failed_total",
	        "Requests to destinations that failed and are made again.", "type", names,
	        w->m->broadcast_failed, METRICS_DESTINATIONS);
	family(w, "brig_broadcast_waiting", "gauge",
	        "Records that wait to be sent, once for each destination.");
	for (unsigned i = 0; i < METRICS_DESTINATIONS; i++)
		buf_printf(w->out, "brig_broadcast_waiting{type=\"%s\"} %" PRIu64 "\n", names[i],
		        metric_get(&w->m->broadcast_waiting[i]));
}

static void write_disk(struct writer *w)
{
	struct statvfs st;

	if (statvfs(w->g->options->state_dir, &st) < 0)
		return;
	gauge(w, "brig_disk_free_bytes", "Free for the data folder.",
	        (uint64_t)st.f_bavail * st.f_frsize);
	gauge(w, "brig_disk_size_bytes", "Of the data folder's file system.",
	        (uint64_t)st.f_blocks * st.f_frsize);
}

void metrics_write(struct gateway *g, struct buf *out)
{
	struct writer *w = &(struct writer){g, &g->shared->metrics, out};

	family(w, "brig_build_info", "gauge", "1, with the version of brig.");
	buf_puts(out, "brig_build_info{version=\"" BRIG_VERSION "\"} 1\n");
	write_turns(w);
	write_tokens(w);
	write_costs(w);
	write_attempts(w);
	write_circuits(w);
	write_tools(w);
	write_node(w);
	write_egress(w);
	write_http(w);
	write_gateways(w);
	write_broadcast(w);
	write_disk(w);
}
