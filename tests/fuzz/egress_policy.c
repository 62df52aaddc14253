/* A policy and, behind a NUL, a name: what may be asked for is decided as by the plain definition.
 */
#include "base/error.h"
#include "base/mem.h"
#include "egress/policy.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Which ends of the pattern can stand before each place of the name: the definition as a table. */
static bool plain(struct str p, struct str n)
{
	bool now[256] = {true}, next[256];

	for (size_t i = 0; i < p.n; i++) {
		memset(next, 0, sizeof(next));
		for (size_t k = 0; k <= n.n; k++) {
			if (p.p[i] == '*')
				next[k] = now[k] || (k > 0 && next[k - 1]);
			else
				next[k] = k > 0 && now[k - 1] && p.p[i] == n.p[k - 1];
		}
		memcpy(now, next, sizeof(now));
	}
	return now[n.n];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data, *nul = n > 0 ? memchr(p, '\0', n) : NULL, *rule;
	struct egress_policy *policy;
	struct str lines, name;
	char plain_name[254];

	if (!nul)
		return 0;
	lines = (struct str){p, (size_t)(nul - p)};
	name = (struct str){nul + 1, n - lines.n - 1};
	policy = egress_policy_parse(lines, NULL);
	if (policy && egress_policy_name(name, plain_name)) {
		bool allowed = egress_policy_allows(policy, str_of(plain_name), &rule);

		if (allowed && rule)
			BUG("allowed and denied");
	}
	if (lines.n > 0 && name.n < 256 && lines.n < 256 &&
	        egress_policy_match(lines, name) != plain(lines, name))
		BUG("another match");
	egress_policy_free(policy);
	return 0;
}
