/*
 * The record of one request (a generation): what was asked of whom, what ran, what came out, what
 * it cost, what was stopped. The gateway fills one while a turn runs; the store keeps it, the page
 * and the logs show it, traces are made of it. All three must agree to the row, so they have this
 * one source.
 *
 * Plain data. Texts are the record's own (malloc'ed; NULL: not known), raw JSON where the comment
 * says so. Times are milliseconds since 1970 (wall clock); 0: it did not happen. One thread at a
 * time.
 */
#ifndef BRIG_RECORD_RECORD_H
#define BRIG_RECORD_RECORD_H

#include "base/money.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct record_tokens {
	uint64_t input, cached, cache_write, output,
	        reasoning; /* input includes cached, output reasoning */
	bool given;        /* the provider reported them */
	bool estimated; /* counted by us: the provider sent none, or the client went away before it
	                   did */
};

/* One call to a provider, also one that failed and was followed by another. */
struct record_attempt {
	char *provider, *model;
	int status;                         /* HTTP; 0: no answer */
	char *error;                        /* NULL: it was answered */
	int64_t begin_ms, first_ms, end_ms; /* first_ms: the first byte of the reply's text */
	struct record_tokens tokens;
	struct money cost; /* of these tokens, where the record is priced */
	char *finish; /* "stop", "length", "tool_calls", "content_filter"; NULL: it did not end by
	                 itself */
	char *native_finish; /* as the provider said it */
};

/* One command of a tool run. */
struct record_command {
	char *command;   /* content: NULL where it is not stored */
	char *out, *err; /* content, likewise; as the model read it */
	bool out_truncated, err_truncated;
	bool timed_out;
	int exit_code;
	char *signal, *reason;
	int64_t begin_ms, end_ms;
};

/* What egress let through to one host, or refused. Content: none where it is not stored. */
struct record_host {
	char *host; /* a name, or an address that has none */
	bool allowed;
	char *reason;                    /* of the first verdict */
	uint64_t n, bytes_in, bytes_out; /* to the container, from it */
};

/* One call of a server tool; or a direct exec, which then is the record's only one. */
struct record_run {
	char *call_id, *tool; /* "openrouter:shell" */
	char *container_id;
	char *status; /* "completed", "failed", "incomplete" */
	char *error;  /* why it was not run, or how the sandbox failed */
	bool started_container;
	int64_t begin_ms, end_ms;
	struct record_command *commands;
	size_t n_commands;
	/* Verdicts of egress meanwhile, and by host those that came first; read from a store only.
	 */
	uint64_t network_allowed, network_denied;
	struct record_host *hosts;
	size_t n_hosts;
};

/* What a guardrail found. */
struct record_hit {
	char *guardrail, *rule, *pattern;
	char *action;        /* "flag", "redact", "block" */
	char *matched;       /* content: NULL where it is not stored */
	bool false_positive; /* marked by a person later */
};

enum record_state {
	RECORD_OPEN, /* under way: the ledger has its row */
	RECORD_SETTLED,
	RECORD_RECOVERED, /* settled after a crash, at its last heartbeat */
};

/* What a request has taken of its key's limits, until its row is settled (gateway/key_limits.h). */
struct record_hold {
	uint64_t key; /* 0: nothing */
	int64_t dollars, containers;
};

struct record {
	char id[64]; /* "gen-…" */
	enum record_state state;
	char *account, *workspace;
	char *key_hash, *key_name;
	char *api;   /* "responses", "messages", "gemini", "chat", "exec"; "container": kept running
	              */
	char *asked; /* the model as the client named it */
	char *provider, *model; /* who served it in the end */
	char *session_id, *user, *request_id, *user_agent;
	char *container_id;
	char *metadata;    /* raw JSON object, or NULL */
	char *trace;       /* the request's `trace` object, raw JSON, or NULL */
	char *traceparent; /* the header, checked, or NULL */
	bool streamed, cancelled;
	int status;  /* HTTP of the answer */
	char *error; /* NULL: none */
	char *finish, *native_finish;
	int64_t begin_ms, first_ms, end_ms, heartbeat_ms;

	struct record_tokens tokens; /* of all attempts that count */
	struct money input_cost, output_cost, sandbox_cost, total_cost;
	bool priced;         /* the model's price is known */
	uint64_t sandbox_ms; /* billed */

	struct record_attempt *attempts;
	size_t n_attempts;
	struct record_run *runs;
	size_t n_runs;
	struct record_hit *hits;
	size_t n_hits;

	/* Content; NULL where it is not stored. Raw JSON as it came from and went to the client. */
	bool store_content;
	char *request, *answer;

	struct record_hold hold; /* while it runs; not stored */
};

const char *record_state_name(enum record_state s); /* as APIs and traces spell it */

struct record *record_new(void);
struct record *record_free(struct record *r); /* NULL is fine; returns NULL */
/* Appends zeroed rows; pointers to earlier ones may move. */
struct record_attempt *record_add_attempt(struct record *r);
struct record_run *record_add_run(struct record *r);
struct record_command *record_add_command(struct record_run *run);
struct record_host *record_add_host(struct record_run *run);
struct record_hit *record_add_hit(struct record *r);
void record_hit_clear(struct record_hit *h);
/* Sets a text of a record: frees what was there and copies (NULL,0: NULL). */
void record_set(char **member, struct str value);

#endif
