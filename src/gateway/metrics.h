/*
 * Figures for Prometheus: what happened on this node since `brig serve` began, and how it stands.
 *
 * What is counted lies in the mapping that the node's gateways share (shared.h), one number each
 * for all of them, so a gateway that dies takes nothing along and whoever is asked answers for the
 * node. All numbers are atomics that are only ever added to, in relaxed order. What stands
 * (connections, queues, memory) each gateway writes to a place of its own once a second; a place
 * that has not been written to for a while belongs to a gateway that is gone, and does not count.
 *
 * Everything that has a name from outside (models, keys, containers) has no place here: labels are
 * one of a few words of ours, or a provider of the configuration.
 */
#ifndef BRIG_GATEWAY_METRICS_H
#define BRIG_GATEWAY_METRICS_H

#include "record/record.h"
#include "trace/trace.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct buf;
struct gateway;
struct http_exchange;

enum {
	METRICS_PROVIDERS = 128, /* by their place in the configuration; further ones are one */
	METRICS_OTHER = METRICS_PROVIDERS,
	METRICS_NO_PROVIDER, /* it ended before one was chosen */
	METRICS_PROVIDER_ROWS,
	METRICS_BUCKETS = 16,
	METRICS_GATEWAYS = 64,
	METRICS_DESTINATIONS = TRACE_TYPES,
};

/* Rows of the tables of words in metrics_write.c. */
enum metrics_api {
	METRICS_RESPONSES,
	METRICS_COMPACT,
	METRICS_MESSAGES,
	METRICS_GEMINI,
	METRICS_CHAT,
	METRICS_OTHER_API,
	METRICS_APIS
};
enum metrics_outcome {
	METRICS_COMPLETED,
	METRICS_INCOMPLETE, /* it ran into a limit of the model or of the request */
	METRICS_FAILED,
	METRICS_CANCELED,
	METRICS_REFUSED, /* before anything was asked of a provider */
	METRICS_LIMITED, /* the same, for a limit: 402 or 429 */
	METRICS_BLOCKED, /* by a guardrail */
	METRICS_OUTCOMES
};
enum metrics_tool { METRICS_SHELL, METRICS_BASH, METRICS_OTHER_TOOL, METRICS_TOOLS };
enum metrics_command {
	METRICS_ZERO,
	METRICS_NONZERO,
	METRICS_SIGNAL,
	METRICS_TIMEOUT,
	METRICS_COMMANDS
};
enum metrics_failure {
	METRICS_NO_ANSWER, /* refused, timed out, or cut off before a status */
	METRICS_RATE,      /* 429 */
	METRICS_4XX,
	METRICS_5XX,
	METRICS_BROKEN, /* a 200 that did not end as it should */
	METRICS_FAILURES
};
enum metrics_token {
	METRICS_INPUT,
	METRICS_CACHED,
	METRICS_CACHE_WRITE,
	METRICS_OUTPUT,
	METRICS_REASONING,
	METRICS_TOKENS
};
enum metrics_action { METRICS_FLAG, METRICS_REDACT, METRICS_BLOCK, METRICS_ACTIONS };
enum metrics_claim {
	METRICS_WAS_LIVE,
	METRICS_WOKEN,
	METRICS_CREATED,
	METRICS_CLAIM_FAILED,
	METRICS_CLAIMS
};
enum metrics_kind { METRICS_GENERATION, METRICS_OTHER_KIND, METRICS_KINDS };

typedef _Atomic uint64_t metric;

struct metrics_histogram {
	metric in[METRICS_BUCKETS + 1]; /* each of its own bucket only; the last: above all */
	metric sum_ns;
};

/* How one gateway stands. */
struct metrics_gateway {
	metric at_ms; /* monotonic: when this was written; 0: never */
	metric connections, exchanges, websockets, turns, execs, fetches;
	metric pool, ledger, supervisor; /* waiting there */
	metric resident;                 /* bytes */
};

/* Part of the shared mapping. */
struct metrics_shared {
	metric turns[METRICS_APIS][METRICS_PROVIDER_ROWS][METRICS_OUTCOMES];
	metric tokens[METRICS_PROVIDER_ROWS][METRICS_TOKENS];
	metric input_pico[METRICS_PROVIDER_ROWS], output_pico[METRICS_PROVIDER_ROWS]; /* dollars */
	metric attempts[METRICS_PROVIDER_ROWS];
	metric failures[METRICS_PROVIDER_ROWS][METRICS_FAILURES];
	metric tool_runs[METRICS_TOOLS][METRICS_OUTCOMES];
	metric execs[METRICS_OUTCOMES];
	metric commands[METRICS_COMMANDS];
	metric hits[METRICS_ACTIONS];
	metric claims[METRICS_CLAIMS];
	metric egress_allowed, egress_denied, egress_in, egress_out;
	metric http[6]; /* by the first digit of the status; 0: the client went before an answer */
	metric sandbox_pico, sandbox_ms;
	metric estimated; /* turns whose tokens were */
	metric starts, recovered, ledger_failed;
	/* Records by the type of their destination; broadcast_failed: requests; broadcast_waiting is
	 * set, not added to. */
	metric broadcast_delivered[METRICS_DESTINATIONS], broadcast_dropped[METRICS_DESTINATIONS];
	metric broadcast_failed[METRICS_DESTINATIONS], broadcast_waiting[METRICS_DESTINATIONS];
	struct metrics_histogram turn[METRICS_APIS], first_byte[METRICS_APIS];
	struct metrics_histogram upstream[METRICS_PROVIDER_ROWS];
	struct metrics_histogram command, exec, request[METRICS_KINDS], claim[METRICS_CLAIMS];
	struct metrics_gateway gateways[METRICS_GATEWAYS];
};

static inline void metric_add(metric *m, uint64_t n)
{
	atomic_fetch_add_explicit(m, n, memory_order_relaxed);
}

static inline uint64_t metric_get(const metric *m)
{
	return atomic_load_explicit(m, memory_order_relaxed);
}

/* ---- counting: metrics.c ---- */

/* A record has ended and its row is written. */
void metrics_record(struct gateway *g, const struct record *r);
void metrics_claim(struct gateway *g, bool claimed, int how, uint64_t waited_ns); /* enum sup_how */
void metrics_egress(struct gateway *g, bool allowed, uint64_t n, uint64_t in, uint64_t out);
/* An exchange is over; or (begun_ns 0) one was refused before it was one. */
void metrics_request(struct gateway *g, int status, uint64_t begun_ns, bool generation);

/* The timer that looks once a second how this gateway stands, and asks the supervisor. */
struct metrics;
struct metrics *metrics_start(struct gateway *g); /* aborts without memory */
struct metrics *metrics_free(struct metrics *m);  /* takes NULL; returns NULL */
void metrics_look(struct gateway *g);             /* now */
/* What the supervisor said last, and how many ms ago; NULL: nothing yet, and ms since the start. */
struct sup_node;
const struct sup_node *metrics_node(const struct metrics *m, uint64_t *ret_age_ms);

/* The upper bounds of histograms, in ns. */
extern const uint64_t metrics_bounds_ns[METRICS_BUCKETS];

/* ---- metrics_write.c ---- */

/* All of it in the text format 0.0.4. */
void metrics_write(struct gateway *g, struct buf *out);

/* ---- health.c: GET /healthz, /readyz and /metrics ---- */

bool health_is_path(struct str path);
/* Does /metrics need an admin key of this client? */
bool health_needs_key(const struct http_exchange *x);
/* may_see: /metrics is for it. Answers, now or later. */
void health_answer(struct gateway *g, struct http_exchange *x, bool may_see);

#endif
