/*
 * brig.yaml → checked values (DESIGN section 9). Read-only after config_load; owns all its strings.
 *
 * The parser (libfyaml) runs in a process without privileges. Unknown keys, wrong types and values
 * out of bounds are errors "FILE:LINE:COLUMN: path.to.key: what is wrong".
 */
#ifndef BRIG_CONFIG_CONFIG_H
#define BRIG_CONFIG_CONFIG_H

#include "base/dialect.h"
#include "base/error.h"
#include "base/money.h"
#include "base/str.h"
#include "guard/guard.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_destination; /* trace/trace.h */

/* Which names containers may be allowed to reach; patterns of network/pattern.h. */
struct config_egress {
	char **allow; /* none: any */
	size_t n_allow;
	char **deny; /* wins over everything */
	size_t n_deny;
	bool allow_private; /* names may resolve to private and loopback addresses */
	/* Each for one container; the last three for one of its connections. */
	uint32_t connections, connections_per_second, questions_per_second;
	uint32_t idle_ms, total_ms;
	uint64_t bytes; /* both ways together */
};

/* What disabled_server_tools may name: each with, or without, openrouter: or brig: before it. */
enum config_tool {
	CONFIG_TOOL_SHELL,
	CONFIG_TOOL_BASH,
	CONFIG_TOOL_EXEC, /* direct use: containers made, filled and used without a model */
	CONFIG_TOOL_CODE, /* what providers execute code with: code_interpreter, code_execution … */
	CONFIG_TOOLS,
};
const char *config_tool_name(enum config_tool t); /* "shell" */
bool config_tool_find(struct str name, enum config_tool *ret);

/* When a key's limit in dollars begins anew: at midnight UTC, weeks on Monday. */
enum config_reset {
	CONFIG_RESET_NEVER,
	CONFIG_RESET_DAILY,
	CONFIG_RESET_WEEKLY,
	CONFIG_RESET_MONTHLY,
};
const char *config_reset_name(enum config_reset r); /* "daily"; NULL: never */
bool config_reset_find(struct str name, enum config_reset *ret);

#define CONFIG_KEY_NAME_MAX 100     /* bytes */
#define CONFIG_RATE_MAX     1000000 /* requests per minute */
#define CONFIG_AT_ONCE_MAX  100000  /* containers */
/* What accounts and workspaces are called: 1 to 64 of these. */
#define CONFIG_SCOPE_MAX   64
#define CONFIG_SCOPE_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* Of the file, or of the store (gateway/keys.h). */
struct config_key {
	uint8_t hash[32]; /* SHA-256 of the key; the text is wiped */
	char *account;
	char *workspace;
	char *name;          /* NULL: none */
	char **egress_allow; /* within egress.allow, for this key; none: nothing more */
	size_t n_egress_allow;
	bool admin;
	uint32_t requests_per_minute; /* 0: no limit */
	uint32_t containers;          /* at once; 0: no limit */
	bool has_limit;
	struct money limit; /* that may be spent until limit_reset */
	enum config_reset limit_reset;
	int64_t expires_ms;      /* 0: never */
	uint32_t disabled_tools; /* 1 << enum config_tool */
};

struct config_price {
	char *model;
	struct money input, output, cached; /* for a million tokens */
	bool has_cached;
};

struct config_provider {
	char *name; /* [a-z0-9-]{1,64} */
	enum dialect dialect;
	char *base_url;      /* no trailing slash; NULL for script */
	char *api_key;       /* NULL: none. Secret: wiped at config_free, never logged */
	char **native_tools; /* "shell": OpenAI's own entry is run by the provider; default at
	                        OpenAI's own address */
	size_t n_native_tools;
	bool native_tools_given;
	struct config_price *prices;
	size_t n_prices;
};

struct config_model {
	char *name;
	char **route; /* "provider/model" */
	size_t n_route;
};

struct config_container {
	char *image;                  /* "base" */
	uint32_t memory_mib;          /* 1024 */
	uint32_t *memory_allowed_mib; /* what a request may ask for; default {memory} */
	size_t n_memory_allowed;
	uint32_t cpu_milli;            /* 1000 */
	uint32_t home_mib;             /* 5120 */
	uint32_t scratch_mib;          /* 4096 */
	uint32_t processes;            /* 512 */
	uint32_t live;                 /* 0: from memory */
	uint32_t pool;                 /* 4; 0: none */
	uint64_t sleep_after_ms;       /* 300,000; 0 never */
	uint32_t keep_days;            /* 30 */
	bool durable_power;            /* durability: power (default: crash) */
	bool save_to_blob;             /* saving: blob (default: image) */
	struct money price_per_second; /* 0.0001 */
};

/* A rule as it is written; builtin or pattern. */
struct config_guard_rule {
	char *builtin, *pattern, *label, *placeholder; /* NULL: not given */
	enum guard_action action;
	bool user_only, scan_tool_output;
};

/* Patterns compile, names of built-ins exist; all lists together are within one guard's bounds. */
struct config_guardrail {
	char *name;
	char *workspace; /* NULL: every one */
	struct config_guard_rule *rules;
	size_t n_rules;
	char **allow; /* phrases */
	size_t n_allow;
	char **allowed_models; /* as asked for, as "provider/model" or as "model"; none: any */
	size_t n_allowed_models;
	char **ignored_models;
	size_t n_ignored_models;
	char **allowed_providers; /* none: any */
	size_t n_allowed_providers;
	char **ignored_providers;
	size_t n_ignored_providers;
};
/* For guard_new(); its texts are the rule's. */
struct guard_rule config_guard_rule(const struct config_guard_rule *r);
void config_guardrail_clear(struct config_guardrail *g); /* frees what it points at */

struct config_limits {                   /* DESIGN section 8: what an operator may change */
	uint64_t body_bytes;             /* 67,108,864 */
	uint64_t in_flight_bytes;        /* 1 GiB */
	uint32_t tool_calls;             /* 30; a request can only lower it */
	uint64_t turn_ms;                /* 3,600,000 */
	uint64_t turn_unstreamed_ms;     /* 540,000 */
	uint32_t turn_output_bytes;      /* 16 MiB */
	uint32_t call_output_bytes;      /* 1 MiB */
	uint32_t timeout_ms;             /* 120,000 default of a command */
	uint32_t max_timeout_ms;         /* 300,000 */
	uint32_t output_chars;           /* 16,384 */
	uint32_t max_output_chars;       /* 65,536 */
	uint32_t commands;               /* 100 */
	uint64_t client_stall_ms;        /* 120,000 */
	uint64_t capacity_wait_ms;       /* 10,000 */
	uint64_t keepalive_ms;           /* 10,000 */
	uint64_t websocket_ms;           /* 3,600,000 */
	uint64_t upstream_connect_ms;    /* 10,000 */
	uint64_t upstream_first_byte_ms; /* 600,000 */
	uint64_t upstream_idle_ms;       /* 120,000 */
	uint32_t upstream_retries;       /* 2: of one provider in one call, beyond the first try */
	uint64_t upstream_retry_wait_ms; /* 10,000: that one call may wait for retries */
	uint32_t upstream_failures;      /* 5 in a row, then it is left alone; 0: never */
	uint64_t upstream_rest_ms;       /* 15,000: for so long */
	uint32_t connections;            /* 16,384 */
	uint32_t workspace_live;         /* 0: none of its own */
	uint64_t file_bytes;             /* 100 MiB: one uploaded or promoted file */
	uint64_t workspace_files_bytes;  /* 10 GiB: all documents of a workspace */
	uint64_t response_bytes;         /* 32 MiB: one stored response with its input */
	uint64_t response_events_bytes;  /* 16 MiB: of one that streams in the background */
	uint64_t workspace_responses_bytes;  /* 1 GiB: all stored responses of a workspace */
	uint64_t responses_kept_ms;          /* 30 days */
	uint64_t idempotent_bytes;           /* 16 MiB: one answer kept for its Idempotency-Key */
	uint64_t workspace_idempotent_bytes; /* 256 MiB: all of them of a workspace */
	uint32_t broadcast_rows; /* 100,000: records that may wait for one destination */
};

struct config {
	char *listen_host;    /* "127.0.0.1" */
	uint16_t listen_port; /* 8484; 0 in tests: any free port */
	char *data;
	uint32_t workers; /* 1 … 64 */
	char *region;     /* NULL: none */
	struct config_key *keys;
	size_t n_keys;
	struct config_provider *providers; /* the built-in `brig` (script) is always the last */
	size_t n_providers;
	struct config_model *models;
	size_t n_models;
	bool sandbox;
	struct config_container container;
	struct config_limits limits;
	struct config_egress egress;
	struct config_guardrail *guardrails;
	size_t n_guardrails;
	struct trace_destination **broadcast; /* names differ; at most 5 of a type */
	size_t n_broadcast;
	bool store_content;
	uint32_t log_days; /* logging.keep_days: 90 */
	uint64_t grace_ms; /* 30,000 */
	uint32_t id_base;  /* 1,879,048,192 */
	bool cgroup_v1;    /* `cgroups: v1`: forces the v1 tree on a hybrid host (for tests and for
	                      repair) */
};

/*
 * text: the whole file, or {NULL,0} for no file (then providers come from the environment, DESIGN
 * section 9). name is only for messages. env: looks a variable up (getenv in production). read_file
 * gives the content of an api_key_file (malloc'ed) or NULL; the caller decides which process may
 * read.
 */
struct config_source {
	struct str text;
	const char *name;
	const char *(*env)(void *ctx, const char *name);
	char *(*read_file)(void *ctx, const char *path, struct error *err);
	void *ctx;
};
int config_load(const struct config_source *src, struct config **ret, struct error *err);
struct config *config_free(struct config *c);

/* "127.0.0.1:8484", "[::1]:0", "localhost:8484"; *ret_host is malloc'ed and numeric, without
 * brackets. */
int config_parse_listen(const char *text, char **ret_host, uint16_t *ret_port, struct error *err);

/* The defaults of every number, for docs and --help: writes brig.yaml text with all keys and
 * comments. */
struct buf;
int config_write_example(struct buf *out);

#endif
