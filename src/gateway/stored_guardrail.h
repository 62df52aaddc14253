/*
 * A guardrail as clients write it and as it is stored: one JSON object (docs/guardrails.md). Any
 * thread.
 */
#ifndef BRIG_GATEWAY_STORED_GUARDRAIL_H
#define BRIG_GATEWAY_STORED_GUARDRAIL_H

#include "config/config.h"
#include "json/json.h"

struct stored_guardrail {
	struct config_guardrail g; /* workspace and allow are never set */
	char *description;         /* NULL: none */
	bool workspace_default;
};

/*
 * Sets the members that the object has; the others stay. Lists are replaced as a whole; null is as
 * if nothing had ever been given. Members that brig cannot enforce are refused unless they ask for
 * nothing; workspace_id is the caller's. -ERR_INVALID with param. Patterns are not compiled.
 */
int stored_guardrail_read(
        struct stored_guardrail *s, const struct json *object, struct error *err);
/*
 * Compiles each pattern. -ERR_INVALID, of type "invalid_regex_pattern", with the place of the first
 * that cannot be used; *ret_pattern is that one, and the guardrail's.
 */
int stored_guardrail_check(
        const struct stored_guardrail *s, struct str *ret_pattern, struct error *err);
/* The same members, into an object that is open. */
void stored_guardrail_write(const struct stored_guardrail *s, struct json_writer *w);
void stored_guardrail_clear(struct stored_guardrail *s);

#endif
