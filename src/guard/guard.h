/*
 * Guardrails: rules that flag, redact or block what a client sends (DESIGN, guardrails;
 * spec/openrouter.md 6).
 *
 * A guard is a compiled list of rules with the phrases that are allowed; it is immutable, so any
 * thread may scan with it. Scanning takes linear time in the text for any text and any rules, and
 * makes no I/O.
 *
 * Rules are built-ins by their slug, or patterns of the operator's. A pattern that cannot be
 * bounded (lookaround, backreferences, too large a program) is refused when the guard is made.
 */
#ifndef BRIG_GUARD_GUARD_H
#define BRIG_GUARD_GUARD_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

#define GUARD_PATTERN_MAX 100000 /* bytes */
#define GUARD_RULES_MAX   256
#define GUARD_PHRASES_MAX 200
#define GUARD_PHRASE_MAX  1000 /* bytes */
#define GUARD_LABEL_MAX   100  /* bytes */
#define GUARD_HITS_MAX    64   /* kept of one scan; the action of the others still counts */

/* In order of strength: the strongest of all hits is the scan's. */
enum guard_action { GUARD_PASS, GUARD_FLAG, GUARD_REDACT, GUARD_BLOCK };

/* Who wrote a text. */
enum guard_author { GUARD_USER, GUARD_OTHER, GUARD_TOOL };

struct guard_rule {
	struct str builtin; /* "email", "phone", "ssn", "credit-card", "ip-address", "secrets",
	                       "person-name", "address", "regex-prompt-injection"; or {NULL,0} */
	struct str pattern; /* where there is no builtin */
	struct str label;   /* shown for a pattern; {NULL,0}: "custom" */
	struct str
	        placeholder; /* {NULL,0}: the builtin's own ([EMAIL] …), [REDACTED] for a pattern */
	enum guard_action action;
	bool user_only;        /* scans what users wrote, and no other role */
	bool scan_tool_output; /* scans what tools gave, too; without it never */
};

struct guard;
/*
 * Copies all it needs. -ERR_INVALID with err->param "rules[2].pattern" or "allow[3]"; err->type is
 * "invalid_regex_pattern" where a pattern is refused.
 */
int guard_new(const struct guard_rule *rules, size_t n, const struct str *allow, size_t n_allow,
        struct guard **ret, struct error *err);
struct guard *guard_free(struct guard *g);

/* What was found. Names are static or the guard's; matched is the scan's own. */
struct guard_hit {
	struct str rule;    /* the builtin's slug, or the pattern's label */
	struct str pattern; /* "ignore_previous_instructions"; of a custom pattern: its label */
	struct str matched; /* at most 200 bytes of the text */
	enum guard_action action;
	size_t rule_index;
};

struct guard_scan {
	const bool *only; /* the rules that count, of all the guard's; NULL: all of them */
	enum guard_action action;
	struct guard_hit *hits;
	size_t n_hits, cap_hits;
	size_t more; /* hits beyond GUARD_HITS_MAX */
};

/*
 * Scans one text. Where a rule redacts, the text with placeholders is appended to redacted and
 * *ret_redacted is set; else redacted is left alone. -ERR_NOMEM.
 */
int guard_text(const struct guard *g, struct str text, enum guard_author author,
        struct guard_scan *scan, struct buf *redacted, bool *ret_redacted);
void guard_scan_clear(struct guard_scan *scan);
const char *guard_action_name(enum guard_action a); /* "flag", "redact", "block"; "pass" */
bool guard_action_of(struct str name, enum guard_action *ret);
/* Is there such a builtin? */
bool guard_builtin_known(struct str slug);

#endif
