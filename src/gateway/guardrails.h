/*
 * Guardrails in front of a turn (docs/guardrails.md): what a client sends is scanned before anybody
 * else gets it, by the rules that hold for its key (rulebook.h).
 */
#ifndef BRIG_GATEWAY_GUARDRAILS_H
#define BRIG_GATEWAY_GUARDRAILS_H

#include "api/api.h"
#include "config/config.h"
#include "gateway/ruleset.h"
#include "guard/guard.h"
#include "provider/provider.h"
#include "record/record.h"

/* What a scan found; zeroed: there was none. To be cleared. */
struct guardrails_report {
	struct ruleset *set; /* with a reference; NULL: nothing was scanned */
	struct guard_scan scan;
	bool told; /* it asked for openrouter_metadata */
};
void guardrails_report_clear(struct guardrails_report *r);

/*
 * Scans the texts of a request's body, any thread. Where a rule redacts, *body is replaced by one
 * that differs in these strings only, and the place that own points at (NULL, or {NULL,0}: none) is
 * found again in it. -ERR_PERMISSION: a rule blocks; -ERR_UNAVAILABLE: a guardrail cannot be used;
 * -ERR_NOMEM, -ERR_TOO_LARGE. A body that is no JSON is not scanned: no api takes it.
 */
int guardrails_scan(const struct rules *rules, enum dialect speaks, char **body, size_t *body_len, struct str *own, struct guardrails_report *ret,
        struct error *err);

/*
 * Scans the text of a document that goes into a body which was scanned already, as what a user
 * wrote. Where a rule redacts, *ret_changed, and out has the text with placeholders. Errors as
 * there. Any thread.
 */
int guardrails_document(const struct rules *rules, struct str text, struct guardrails_report *ret,
        struct buf *out, bool *ret_changed, struct error *err);

/*
 * Scans what a command has written. True: it is to be replaced by what was appended to out: the
 * text with placeholders, or a notice that stands for all of it where a rule blocks. What was found
 * is added to ret. Any thread.
 */
bool guardrails_tool_output(const struct rules *rules, struct str text,
        struct guardrails_report *ret, struct buf *out);

/* Drops the targets that a guardrail forbids; -ERR_PERMISSION: none is left. */
int guardrails_route(
        const struct rules *rules, struct str asked, struct route *route, struct error *err);

/* Logs what was found, without its text, from hit number `from` on. */
void guardrails_log(const struct guardrails_report *r, const char *id, size_t from);
/* Puts what was found into a record; the texts only where it stores content. */
void guardrails_record(const struct guardrails_report *r, struct record *to);

/* The value of `openrouter_metadata`, raw JSON to free(), for a request that asked for it and where
 * something was found; else NULL. */
char *guardrails_metadata(const struct guardrails_report *r);

/* Did a rule change the body, and none block? */
bool guardrails_redacted(const struct guardrails_report *r);
/* Did a rule block? Then the envelope of the answer, in the shape of who asks, is this one. */
bool guardrails_blocked(const struct guardrails_report *r);
void guardrails_error_body(const struct guardrails_report *r, enum dialect asks, bool under_v1,
        const char *request_id, const struct error *e, struct buf *out);

#endif
