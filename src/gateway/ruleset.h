/*
 * All guardrails that may hold in one workspace, compiled together: those of brig.yaml and those of
 * the store. A set is immutable and counted, so that a request keeps what it began with while the
 * rules are changed; any thread.
 *
 * One guard has the rules of all of them, since what one redacts must not hide from another what it
 * would block. Which of them hold for a key is a mask over it: keys cost no compiling.
 */
#ifndef BRIG_GATEWAY_RULESET_H
#define BRIG_GATEWAY_RULESET_H

#include "config/config.h"
#include "gateway/stored_guardrail.h"
#include "guard/guard.h"
#include "store/store.h"

struct ruleset;

/*
 * workspace NULL: that of a key whose workspace has no rules of its own. stored: taken over and
 * cleared; NULL: none. before: an earlier set of the workspace, or NULL; where only assignments
 * differ from it nothing is compiled. Never fails: a stored guardrail that cannot be used refuses
 * the requests that it holds for, and says so. c must outlive the set.
 */
struct ruleset *ruleset_new(const struct config *c, const char *workspace,
        struct store_guardrails_all *stored, const struct ruleset *before);
struct ruleset *ruleset_ref(struct ruleset *s);
struct ruleset *ruleset_unref(struct ruleset *s); /* takes NULL; returns NULL */
/* Why nobody in the workspace can be served; NULL: they can. */
const struct error *ruleset_error(const struct ruleset *s);

/* What holds for one key. */
struct rules {
	struct ruleset *set;
	const struct guard *guard;   /* NULL: nothing is scanned */
	const bool *rules;           /* of the guard, which of them; n of them */
	bool tools;                  /* what tools give is scanned, too */
	const struct error *refused; /* a guardrail of this key cannot be used; NULL */
	const struct config_guardrail **members; /* those that hold */
	size_t n_members;
};
struct rules *ruleset_rules(struct ruleset *s, const uint8_t key_hash[32]); /* holds a reference */
struct rules *ruleset_rules_free(struct rules *r); /* takes NULL; returns NULL */
/* The name of the guardrail that a rule of the guard belongs to. */
const char *ruleset_name_of(const struct ruleset *s, size_t rule);

#endif
