/*
 * What a container may reach: the lines of proto/egress.h, read and matched. A policy belongs to
 * one container; it is never changed once read. Pure, no I/O.
 */
#ifndef BRIG_EGRESS_POLICY_H
#define BRIG_EGRESS_POLICY_H

#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>

struct egress_policy;

/* The policy that the lines say; NULL with err (ERR_INVALID) where they are not exactly of the form
 * that proto/egress.h gives. */
struct egress_policy *egress_policy_parse(struct str lines, struct error *err);
/* One that allows nothing, with no label: for a container whose lines could not be read. */
struct egress_policy *egress_policy_nothing(void);
struct egress_policy *egress_policy_free(struct egress_policy *p);

struct str egress_policy_label(const struct egress_policy *p);
bool egress_policy_all(const struct egress_policy *p);
bool egress_policy_private(const struct egress_policy *p);

/* Whether a name (lower case, without a trailing dot) is allowed. *ret_rule is the deny pattern
 * that refuses it, or NULL where no pattern allows it. */
bool egress_policy_allows(const struct egress_policy *p, struct str name, const char **ret_rule);

/* `*` is any run of characters, also an empty one; everything else is itself. Linear
 * in time. The pattern is not empty. */
bool egress_policy_match(struct str pattern, struct str name);

/* A name as we compare and keep it: lower case, without one trailing dot. False: not a name that
 * may be asked for (characters, length of a label or of all, or its last label is a number, as in
 * an address). out holds EGRESS_NAME_MAX + 1 bytes. */
bool egress_policy_name(struct str name, char *out);

#endif
