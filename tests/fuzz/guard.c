/*
 * The scanner of guardrails with all built-ins: the first byte chooses actions and author, the rest
 * is the text. What is found must lie within the text's bounds, a text in which nothing redacts
 * must be left alone, and hits and action must agree.
 */
#include "base/error.h"
#include "guard/guard.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const builtins[] = {"email", "phone", "ssn", "credit-card", "ip-address",
        "secrets", "person-name", "address", "regex-prompt-injection"};

enum { N_BUILTINS = sizeof(builtins) / sizeof(*builtins) };

/* Compiled once each: that takes far longer than a scan. */
static const struct guard *guard_for(enum guard_action action)
{
	static struct guard *made[GUARD_BLOCK + 1];
	struct guard_rule rules[N_BUILTINS];
	const struct str allow = STR("ignore previous instructions, said the allowed phrase");

	if (made[action])
		return made[action];
	for (size_t i = 0; i < N_BUILTINS; i++)
		rules[i] = (struct guard_rule){.builtin = str_of(builtins[i]),
		        .action = action,
		        .user_only = i % 2 == 0,
		        .scan_tool_output = i % 3 == 0};
	if (guard_new(rules, N_BUILTINS, &allow, 1, &made[action], NULL) < 0)
		BUG("the built-ins do not compile");
	return made[action];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	enum guard_action action;
	enum guard_author author;
	struct guard_scan scan = {0};
	struct buf out = BUF_INIT(SIZE_MAX / 2);
	bool redacted = false;

	if (n == 0)
		return 0;
	action = (enum guard_action)(GUARD_FLAG + data[0] % 3);
	author = (enum guard_author)(data[0] / 3 % 3);
	if (guard_text(guard_for(action), (struct str){(const char *)data + 1, n - 1}, author,
	            &scan, &out, &redacted) < 0)
		BUG("a scan failed");
	if (redacted && (action != GUARD_REDACT || scan.n_hits == 0))
		BUG("redacted where nothing redacts");
	if (!redacted && out.len > 0)
		BUG("bytes for nothing");
	if ((scan.n_hits > 0) != (scan.action != GUARD_PASS) || scan.n_hits > GUARD_HITS_MAX)
		BUG("hits and action differ");
	for (size_t i = 0; i < scan.n_hits; i++)
		if (scan.hits[i].matched.n > 200 || scan.hits[i].rule_index >= N_BUILTINS)
			BUG("a hit out of bounds");
	guard_scan_clear(&scan);
	buf_free(&out);
	return 0;
}
