/*
 * The network policy of a container: as requests write it, as its row keeps it, and as egress reads
 * it (proto/egress.h). In between it is one text: "" is disabled, else the JSON object
 * {"type":"allowlist","allowed_domains":[…]} as policy_check() writes it. Pure.
 */
#ifndef BRIG_NETWORK_POLICY_H
#define BRIG_NETWORK_POLICY_H

#include "base/buf.h"
#include "base/error.h"
#include "json/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_DOMAINS_MAX 50
#define POLICY_TEXT_MAX    16384 /* enough for the longest that policy_check() writes */

/* What the operator rules. */
struct policy_rules {
	char *const *allow; /* with n_allow 0: anything */
	size_t n_allow;
	char *const *deny; /* wins over what a request allows */
	size_t n_deny;
	bool allow_private;
};

/* Checks the value of network_policy, which is not absent; path is its own
 * ("tools[0].parameters.environment.network_policy"). Appends the text. ERR_INVALID with the
 * entry's path in err->param. */
int policy_check(const struct json *v, const char *path, struct buf *out, struct error *err);

/* Whether all names of the text lie within what the operator allows; else ERR_INVALID that names
 * the one that does not. */
int policy_within(
        struct str text, const struct policy_rules *rules, const char *path, struct error *err);

/*
 * The lines for egress: the label, then the rules. A name that the operator does not allow any more
 * is left out. ret_hash stands for all but the label, and is the same for the same names in another
 * order; ret_all: the policy is "everything". The text is not "". 0 or -ERR_INVALID for a text that
 * policy_check() did not write.
 */
int policy_lines(struct str text, const struct policy_rules *rules, struct str label,
        struct buf *out, uint8_t ret_hash[16], bool *ret_all);

/* One sentence for each name that admits more than it seems to. Returns how many. */
typedef void (*policy_warning_fn)(void *ctx, const char *sentence);
size_t policy_warnings(struct str text, policy_warning_fn fn, void *ctx);

#endif
