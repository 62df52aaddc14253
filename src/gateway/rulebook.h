/*
 * The rules that are in force: those of brig.yaml, and for workspaces that have guardrails or
 * phrases in the store those too. They are compiled when the first request needs them after a
 * change, once in each gateway.
 */
#ifndef BRIG_GATEWAY_RULEBOOK_H
#define BRIG_GATEWAY_RULEBOOK_H

#include "gateway/internal.h"
#include "gateway/ruleset.h"

struct rulebook;

/* Compiles those of g's configuration, reads which workspaces have stored ones, and from then on
 * looks for changes a few times a second. NULL: failed. */
struct rulebook *rulebook_new(struct gateway *g, struct error *err);
/* When no request is left and the pool has ended, before the loop is freed. Takes NULL; returns
 * NULL. */
struct rulebook *rulebook_free(struct rulebook *b);

/* What holds for the key, for ruleset_rules_free(). NULL: it must be read or compiled first, which
 * rulebook_rules() does. Any thread; does not wait for that. */
struct rules *rulebook_peek(struct rulebook *b, const struct config_key *key);
/* Blocks: on the pool. -ERR_UNAVAILABLE and such: the store cannot be read. */
int rulebook_rules(
        struct rulebook *b, const struct config_key *key, struct rules **ret, struct error *err);
/* After a change by this gateway: what requests get from now on are the changed rules; those of the
 * workspace (NULL: of none) are compiled. On the pool. */
int rulebook_refresh(struct rulebook *b, const struct store_scope *changed, struct error *err);
/* How many rules and phrases brig.yaml has for a workspace. */
void rulebook_fixed(const struct rulebook *b, struct str workspace, size_t *ret_rules,
        size_t *ret_phrases);

#endif
