/*
 * Traces of finished records for destinations elsewhere: the part without I/O (docs/broadcast.md).
 *
 * A destination is made of its JSON (spec/openrouter.md 7.1) and is immutable: any thread may use
 * it. For records it gives the bytes of one HTTP request, and reads what was answered; sending,
 * keeping and trying again are the caller's. No clock is read: `now_ms` is milliseconds since 1970.
 *
 * All ids in a trace are hashes of the record's id or what the client gave, so that a record sent
 * twice has the same spans, and a receiver can tell.
 */
#ifndef BRIG_TRACE_TRACE_H
#define BRIG_TRACE_TRACE_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "json/json.h"
#include "record/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_PER_TYPE_MAX 5                  /* destinations of one type in one scope */
#define TRACE_BATCH_BYTES  ((size_t)1 << 20)  /* of a request's body, unless one record is larger */
#define TRACE_BODY_MAX     ((size_t)60 << 20) /* of a body, whatever is in it (OTLP: 64 MiB) */
#define TRACE_ANSWER_MAX   ((size_t)64 << 10) /* of an answer is worth reading */

enum trace_type {
	TRACE_OTEL_COLLECTOR,
	TRACE_WEBHOOK,
	TRACE_LANGFUSE,
	TRACE_BRAINTRUST,
	TRACE_ARIZE,
	TRACE_GRAFANA,
	TRACE_S3,
	TRACE_TYPES,
};
const char *trace_type_name(enum trace_type t); /* "otel-collector" */

/* ---- destinations ---- */

struct trace_header {
	char *name, *value;
};

struct trace_filter; /* compiled rules */

struct trace_destination {
	enum trace_type type;
	char *name;
	char *workspace; /* NULL: every one */
	bool enabled;
	bool privacy_mode;                           /* nothing of what was said and run */
	bool with_cost, with_identity, with_context; /* broadcast_generation_… */
	uint32_t sampling_ppm;                       /* 100 … 1,000,000 */
	char **regions;                              /* "global", "europe", "us"; at least one */
	size_t n_regions;
	char **key_hashes; /* lower-case hex; none: every key */
	size_t n_key_hashes;
	char *filter_json; /* as it was given, or NULL */
	struct trace_filter *filter;

	/* The type's config; what it does not have is NULL. Secrets are wiped when it is freed. */
	char *url; /* endpoint, url, baseUrl; no trailing slash */
	char *method;
	char *public_key, *secret_key, *api_key;
	char *project_id, *space_key, *model_id, *instance_id;
	char *bucket, *access_key_id, *session_token, *region, *prefix, *path_template;
	struct trace_header *headers;
	size_t n_headers;
};

/*
 * Reads the object that POST /observability/destinations takes. What is unknown, missing, of the
 * wrong type or beyond its bound is -ERR_INVALID with the path in err->param
 * ("config.endpoint", "filter_rules.groups[0].rules[1].value", ""); a refused pattern has the type
 * "invalid_regex_pattern". Secrets are never part of an error's text. The document may go then.
 */
int trace_destination_parse(
        const struct json *v, struct trace_destination **ret, struct error *err);
struct trace_destination *trace_destination_free(struct trace_destination *d); /* takes NULL */

enum trace_secrets {
	/* For answers: the first 4 and the last 4 characters of a long secret, "***" of another. */
	TRACE_MASKED,
	TRACE_PLAIN, /* for the store: trace_destination_parse() takes it back */
};
/* Writes the members (no braces) from "type" on: all that parse reads, defaults spelled out; no
 * "id", no times. "workspace_id" is left to the caller in TRACE_MASKED. */
void trace_destination_write(
        struct json_writer *w, const struct trace_destination *d, enum trace_secrets secrets);

/*
 * PATCH: members given replace, null clears what may be null, what is not given stays. Members of
 * "config" likewise, one by one; a value that equals the masked form of the secret that is there
 * keeps it. The type and the workspace cannot change. Errors as parse gives them.
 */
int trace_destination_patch(const struct trace_destination *d, const struct json *patch,
        struct trace_destination **ret, struct error *err);

/*
 * Is the record this destination's? By enabled, region, workspace, keys, filter and sampling. A
 * session, or else a trace, is in or out as a whole, the same at every destination with that rate.
 * region: the server's, or NULL ("global"); "eu" counts as "europe". The account is the caller's to
 * compare. Content that is not in the record cannot be filtered by: such a rule sees an absent
 * value.
 */
bool trace_wanted(const struct trace_destination *d, const struct record *r, const char *region);

/* ---- requests ---- */

struct trace_request {
	const char *method; /* "POST", "PUT": static */
	char *url;          /* whole */
	/* Content-Type and what the type needs; no Host, no Content-Length. */
	struct trace_header *headers;
	size_t n_headers;
	struct buf body;
	size_t n_spans;
};
struct trace_request *trace_request_free(struct trace_request *q); /* takes NULL; wipes headers */

/*
 * One request for the first of n (≥ 1) records: as many as stay below max_bytes
 * (TRACE_BATCH_BYTES), at least one; exactly one for S3, whose object is named by the record, so
 * that it replaces itself when sent again. *ret_taken says how many. A record that alone is above
 * TRACE_BODY_MAX goes without its content, and says so. Records have content where it was stored.
 * now_ms is used for the signature of S3 only. region: the server's, or NULL. -ERR_NOMEM.
 */
int trace_request_build(const struct trace_destination *d, const struct record *const *records,
        size_t n, size_t max_bytes, const char *region, int64_t now_ms, struct trace_request **ret,
        size_t *ret_taken, struct error *err);

/* The request of `POST …/{id}/test`: no span in it. */
int trace_request_test(const struct trace_destination *d, int64_t now_ms,
        struct trace_request **ret, struct error *err);
/* Does this status of its answer say that the destination works? 2xx; of a webhook also 400. */
bool trace_test_passed(const struct trace_destination *d, int status);

/* ---- answers ---- */

enum trace_verdict {
	TRACE_DONE,  /* taken; rejected says how many spans were not, which no repetition changes */
	TRACE_RETRY, /* try again: after retry_ms where that is not 0, else by your own back-off */
	TRACE_SPLIT, /* too large: send fewer records; where it was one, drop it */
	TRACE_DROP,  /* refused, and would be again */
};

struct trace_answer {
	enum trace_verdict verdict;
	uint64_t retry_ms; /* at most an hour */
	uint64_t rejected; /* spans, of a partial success */
	char text[256]; /* what the receiver said, for the log; valid UTF-8, no control characters;
	                   or "" */
};

/*
 * status 0: no answer (refused, broken off, timed out): retried. retry_after: the header's value or
 * {NULL,0}, seconds or a date. body: as much of it as was kept.
 */
void trace_answer_read(const struct trace_destination *d, int status, struct str retry_after,
        struct str body, int64_t now_ms, struct trace_answer *ret);

/* ---- trace context ---- */

struct trace_parent {
	char trace_id[33], span_id[17]; /* lower-case hex */
	uint8_t flags;
};
/* The header `traceparent` by W3C Trace Context level 1: version 00 exactly, a later one by its
 * first four fields; false: to be ignored. */
bool trace_parent_read(struct str header, struct trace_parent *ret);
/* "00-…-…-hh" into out. */
void trace_parent_write(const struct trace_parent *p, char out[56]);

/* The ids of a record's root span, as every request above has them. */
void trace_root_ids(const struct record *r, char trace_id[33], char span_id[17]);

#endif
