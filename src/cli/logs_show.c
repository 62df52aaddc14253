/* Records of requests as text. See logs.h. */
#include "cli/logs.h"

#include "base/clock.h"

#include <stdio.h>

enum { INDENT = 4 };

static void put_char(unsigned char c)
{
	putchar(c < 0x20 || c == 0x7f ? '?' : c);
}

static void put_text(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		put_char((unsigned char)s.p[i]);
}

static void put_pair(const char *name, const struct json *value)
{
	struct str s = json_str(value);

	if (s.n == 0)
		return;
	printf("%-12s", name);
	put_text(s);
	putchar('\n');
}

/* In a column: the end of what is too long shows most. */
static void put_column(struct str s, size_t width)
{
	size_t from = s.n > width - 1 ? s.n - (width - 1) : 0, n = 0;

	/* Not from the middle of a character. */
	while (from > 0 && from < s.n && ((unsigned char)s.p[from] & 0xc0) == 0x80)
		from++;
	for (size_t i = from; i < s.n; i++) {
		put_char((unsigned char)s.p[i]);
		n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
	}
	for (; n < width; n++)
		putchar(' ');
}

static void put_time(const struct json *ms)
{
	int64_t at = 0;
	char date[32] = "";

	json_i64(ms, &at);
	clock_iso8601(at, date);
	date[10] = ' ';
	printf("%.19s", date);
}

/* Raw numbers: prices are exact, and stay so. */
static struct str number(const struct json *v)
{
	return json_is(v, JSON_NUMBER) ? json_raw(v) : STR("-");
}

static void put_seconds(const struct json *ms)
{
	int64_t n = 0;

	if (json_i64(ms, &n))
		printf("%9.3f", (double)n / 1000);
	else
		printf("%9s", "-");
}

void logs_show_head(void)
{
	printf("%-21s%-30s%-10s%-26s%7s%9s%9s%9s  %s\n", "BEGAN (UTC)", "ID", "API", "MODEL",
	        "STATUS", "SECONDS", "IN", "OUT", "COST");
}

void logs_show_row(const struct json *row)
{
	struct str in = number(json_get(row, "tokens_prompt"));
	struct str out = number(json_get(row, "tokens_completion"));
	struct str status = number(json_get(row, "status"));
	struct str cost = number(json_get(row, "total_cost"));
	struct str model = json_str(json_get(row, "model"));
	struct str ledger = json_str(json_get(row, "ledger_status"));

	if (model.n == 0)
		model = json_str(json_get(row, "requested_model"));
	if (str_is(ledger, "open"))
		status = STR("open");
	else if (json_bool(json_get(row, "cancelled")))
		status = STR("gone");
	else if (str_is(ledger, "recovered"))
		status = STR("crashed");
	put_time(json_get(row, "created_at_ms"));
	fputs("  ", stdout);
	put_column(json_str(json_get(row, "id")), 30);
	put_column(json_str(json_get(row, "api_type")), 10);
	put_column(model.n > 0 ? model : STR("-"), 26);
	printf("%7.*s", (int)status.n, status.p);
	put_seconds(json_get(row, "generation_time"));
	printf("%9.*s%9.*s  %.*s\n", (int)in.n, in.p, (int)out.n, out.p, (int)cost.n, cost.p);
}

/* ---- one ---- */

/* Text of several lines, each behind a margin. */
static void put_block(struct str s)
{
	bool begin = true;

	for (size_t i = 0; i < s.n; i++) {
		if (begin)
			printf("%*s", INDENT, "");
		begin = s.p[i] == '\n';
		if (s.p[i] == '\n' || s.p[i] == '\t')
			putchar(s.p[i]);
		else
			put_char((unsigned char)s.p[i]);
	}
	if (!begin)
		putchar('\n');
}

static void show_command(const struct json *c)
{
	const struct json *outcome = json_get(c, "outcome");
	struct str line = json_str(json_get(c, "command")), code;
	struct str signal = json_str(json_get(outcome, "signal"));

	puts(line.n > 0 ? "  $" : "  $ (not stored)");
	put_block(line);
	put_block(json_str(json_get(c, "stdout")));
	put_block(json_str(json_get(c, "stderr")));
	printf("%*s", INDENT, "");
	code = number(json_get(outcome, "exit_code"));
	if (str_is(json_str(json_get(outcome, "type")), "timeout"))
		fputs("[timeout", stdout);
	else
		printf("[exit %.*s", (int)code.n, code.p);
	if (signal.n > 0) {
		fputs(", ", stdout);
		put_text(signal);
	}
	fputs(",", stdout);
	put_seconds(json_get(c, "duration_ms"));
	puts(" s]");
}

static void show_network(const struct json *network)
{
	struct str allowed = number(json_get(network, "allowed"));
	struct str denied = number(json_get(network, "denied")), more;

	if (str_is(allowed, "0") && str_is(denied, "0"))
		return;
	printf("%*snetwork: %.*s allowed, %.*s denied\n", INDENT, "", (int)allowed.n, allowed.p,
	        (int)denied.n, denied.p);
	for (const struct json *h = json_first(json_get(network, "hosts")); h; h = json_next(h)) {
		struct str count = number(json_get(h, "count"));
		struct str reason = json_str(json_get(h, "reason"));

		printf("%*s  ", INDENT, "");
		put_text(json_str(json_get(h, "verdict")));
		putchar(' ');
		put_text(json_str(json_get(h, "host")));
		printf(" x%.*s%s", (int)count.n, count.p, reason.n > 0 ? ": " : "");
		put_text(reason);
		putchar('\n');
	}
	more = number(json_get(network, "more"));
	if (json_first(json_get(network, "hosts")) != NULL && !str_is(more, "0"))
		printf("%*s  and %.*s more\n", INDENT, "", (int)more.n, more.p);
}

static void show_run(const struct json *run)
{
	struct str error = json_str(json_get(run, "error"));

	putchar('\n');
	put_time(json_get(run, "started_at_ms"));
	fputs("  ", stdout);
	put_text(json_str(json_get(run, "tool")));
	fputs(" in ", stdout);
	put_text(json_str(json_get(run, "container_id")));
	fputs(": ", stdout);
	put_text(json_str(json_get(run, "status")));
	put_seconds(json_get(run, "duration_ms"));
	puts(" s");
	if (error.n > 0)
		put_block(error);
	show_network(json_get(run, "network"));
	for (const struct json *c = json_first(json_get(run, "commands")); c; c = json_next(c))
		show_command(c);
}

static void show_attempt(const struct json *a)
{
	struct str status = number(json_get(a, "status"));
	struct str error = json_str(json_get(a, "error"));

	putchar('\n');
	put_time(json_get(a, "started_at_ms"));
	fputs("  ", stdout);
	put_text(json_str(json_get(a, "provider_name")));
	fputs(": ", stdout);
	put_text(json_str(json_get(a, "model")));
	printf(", HTTP %.*s", (int)status.n, status.p);
	put_seconds(json_get(a, "generation_time"));
	puts(" s");
	if (error.n > 0)
		put_block(error);
}

static void show_hit(const struct json *h)
{
	fputs("\nguardrail   ", stdout);
	put_text(json_str(json_get(h, "guardrail")));
	fputs(": ", stdout);
	put_text(json_str(json_get(h, "rule")));
	fputs(" → ", stdout);
	put_text(json_str(json_get(h, "action")));
	puts(json_bool(json_get(h, "false_positive")) ? " (marked as a false positive)" : "");
}

void logs_show_one(const struct json *record, const struct json *runs)
{
	static const struct {
		const char *name, *key;
	} texts[] = {{"id", "id"}, {"ledger", "ledger_status"}, {"api", "api_type"},
	        {"model", "model"}, {"asked for", "requested_model"}, {"provider", "provider_name"},
	        {"session", "session_id"}, {"user", "user"}, {"container", "container_id"},
	        {"finish", "finish_reason"}};
	static const struct {
		const char *name, *key;
	} numbers[] = {{"status", "status"}, {"tokens in", "tokens_prompt"},
	        {"tokens out", "tokens_completion"}, {"cost", "total_cost"},
	        {"of sandbox", "server_tool_cost"}};

	fputs("began       ", stdout);
	put_time(json_get(record, "created_at_ms"));
	fputs(" UTC, took ", stdout);
	put_seconds(json_get(record, "generation_time"));
	puts(" s");
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		put_pair(texts[i].name, json_get(record, texts[i].key));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct str n = number(json_get(record, numbers[i].key));

		printf("%-12s%.*s%s\n", numbers[i].name, (int)n.n, n.p, i >= 3 ? " dollars" : "");
	}
	put_pair("error", json_get(record, "error"));
	for (const struct json *h = json_first(json_get(record, "guardrail_hits")); h;
	        h = json_next(h))
		show_hit(h);
	for (const struct json *a = json_first(json_get(record, "provider_responses")); a;
	        a = json_next(a))
		show_attempt(a);
	for (const struct json *r = json_first(runs); r; r = json_next(r))
		show_run(r);
}
