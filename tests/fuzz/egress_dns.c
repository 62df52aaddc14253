/* A container's DNS message: an answer is within its bound, repeats the question, and a name that
 * was read is one that can be asked for. */
#include "base/error.h"
#include "egress/dns.h"
#include "egress/policy.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct egress_dns_question q;
	uint8_t out[EGRESS_DNS_ANSWER_MAX];
	char again[EGRESS_NAME_MAX + 1];
	size_t len;

	if (!egress_dns_read(data, n, &q))
		return 0;
	if (q.end > n)
		BUG("the question ends at %zu of %zu", q.end, n);
	if (q.code == EGRESS_DNS_OK &&
	        (!egress_policy_name(str_of(q.name), again) || strcmp(q.name, again) != 0))
		BUG("a name that is none");
	len = egress_dns_answer(data, &q, q.code, 0xc6121000u, out);
	if (len < 12 || len > sizeof(out) || memcmp(out, data, 2) != 0)
		BUG("%zu bytes", len);
	if (q.end > 0 && memcmp(out + 12, data + 12, q.end - 12) != 0)
		BUG("another question");
	return 0;
}
