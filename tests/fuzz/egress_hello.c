/* A TLS hello: read whole, and in pieces that the first byte chooses, it must mean the same. */
#include "base/error.h"
#include "egress/hello.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int feed(struct egress_hello *h, const uint8_t *data, size_t n, size_t cut)
{
	const char *why = NULL;
	int r = 0;

	egress_hello_init(h);
	for (size_t at = 0; at < n && r == 0; at += cut)
		r = egress_hello_feed(h, data + at, n - at < cut ? n - at : cut, &why);
	if (r < 0 && !why)
		BUG("refused without a reason");
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct egress_hello a, b;
	int r;

	if (n < 2)
		return 0;
	r = feed(&a, data + 1, n - 1, n);
	if (feed(&b, data + 1, n - 1, 1 + data[0] % 50) != r)
		BUG("the cut changes a hello");
	if (r == 1 && (a.named != b.named || strcmp(a.name, b.name) != 0))
		BUG("the cut changes the name");
	if (r == 1 && a.named && (a.name[0] == '\0' || strlen(a.name) > EGRESS_NAME_MAX))
		BUG("a name that is none");
	egress_hello_free(&a);
	egress_hello_free(&b);
	return 0;
}
