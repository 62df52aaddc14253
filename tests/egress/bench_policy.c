/* Measures what one check of a name against a policy of 50 patterns costs, none of which fits. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "egress/policy.h"

#include <stdio.h>

static void measure(const char *what, const char *pattern, struct str name)
{
	enum { TIMES = 20000 };
	struct buf lines = BUF_INIT(65536);
	struct egress_policy *p;
	struct error err = {0};
	const char *rule;
	uint64_t begin, n = 0;

	buf_puts(&lines, "label x\n");
	for (int i = 0; i < 50; i++)
		buf_printf(&lines, "allow %s%d\n", pattern, i);
	p = egress_policy_parse((struct str){lines.data, lines.len}, &err);
	if (!p)
		BUG("%s", err.text);
	begin = clock_mono_ns();
	for (int i = 0; i < TIMES; i++)
		n += egress_policy_allows(p, name, &rule);
	printf("%-24s %6.2f us a check (%llu allowed)\n", what,
	        (double)(clock_mono_ns() - begin) / 1e3 / TIMES, (unsigned long long)n);
	egress_policy_free(p);
	buf_free(&lines);
}

int main(void)
{
	char worst[254];

	for (size_t i = 0; i < 253; i++)
		worst[i] = 'a';
	worst[253] = '\0';
	measure("exact names", "packages.example.org", STR("files.example.net"));
	measure("*.name", "*.packages.example.org", STR("files.packages.example.net"));
	measure("two stars", "cdn-*.packages.*.org", STR("cdn-7.packages.example.net"));
	measure("worst", "*aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab*",
	        (struct str){worst, 253});
	return 0;
}
