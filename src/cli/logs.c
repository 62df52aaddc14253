/*
 * `brig logs`: what a running server recorded of requests.
 *
 * Theory of operation. A list comes page by page, the newest first. To follow, those that have
 * ended of late are asked for again and again, and each is printed once: which were printed is
 * remembered for OVERLAP_MS, since one that a crash broke off is known to have ended some seconds
 * later. An export is passed through as it comes.
 */
#include "cli/logs.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	ANSWER_MAX = 64 * 1024 * 1024,
	PAGE = 100,
	PAGE_FOLLOWED = 1000,
	LIST_PRESET = 50,
	LIST_MOST = 1000000,
	PATH_SIZE = 16384,
	FOLLOW_MS = 500,
	OVERLAP_MS = 30000,
	PAGES_MAX = 64,
};

struct seen {
	char id[64];
	int64_t ended_ms;
};

struct logs {
	struct client client;
	const char *since, *limit;
	bool json, follow, export, content;
	struct buf filters; /* "&model=…", percent-encoded */
	size_t wanted, n;   /* how many to print, and were printed */
	struct seen *seen;  /* when followed: what was printed, and ended from … on */
	size_t n_seen, cap_seen;
	int64_t from_ms; /* … here; else what --since says */
};

/* ---- the query ---- */

static void add_filter(struct buf *b, const char *name, const char *value)
{
	buf_printf(b, "&%s=", name);
	buf_percent(b, str_of(value), BUF_UNRESERVED);
}

/* "90s", "15m", "6h", "30d": so long ago, as a time. */
static bool since_read(const char *s, int64_t *ret_ms)
{
	static const char units[] = "smhd";
	static const int64_t seconds[] = {1, 60, 3600, 86400};
	size_t n = strlen(s);
	const char *unit = n > 1 ? strchr(units, s[n - 1]) : NULL;
	uint64_t count;

	if (!unit || !str_to_u64((struct str){s, n - 1}, &count) || count > 1000000)
		return false;
	*ret_ms = clock_wall_ms() - (int64_t)count * seconds[unit - units] * 1000;
	return true;
}

/* ---- a list ---- */

static void print_row(struct logs *l, const struct json *row)
{
	struct str raw = json_raw(row);

	if (l->json) {
		printf("%s%.*s%s", l->n && !l->follow ? "," : "", (int)raw.n, raw.p,
		        l->follow ? "\n" : "");
	} else {
		if (l->n == 0)
			logs_show_head();
		logs_show_row(row);
	}
	l->n++;
}

static int fetch(struct logs *l, const char *path, struct buf *answer, struct json_doc **ret,
        struct error *err)
{
	int r = client_fetch(&l->client, "GET", path, (struct str){0}, answer, err);

	if (r < 0)
		return r;
	r = json_parse((struct str){answer->data, answer->len}, 8 * (size_t)ANSWER_MAX, ret, err);
	return r < 0 ? error_prefix(err, "the server's answer") : 0;
}

static int list_page(struct logs *l, char after[64], bool *ret_more, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	_cleanup_buf_ struct buf answer = BUF_INIT(ANSWER_MAX), path = BUF_INIT(PATH_SIZE);
	size_t left = l->wanted - l->n;
	const struct json *list;
	int r;

	buf_printf(&path, "/api/v1/generations?limit=%zu%s", left < PAGE ? left : PAGE,
	        buf_cstr(&l->filters));
	if (after[0])
		add_filter(&path, "after", after);
	r = fetch(l, buf_cstr(&path), &answer, &doc, err);
	if (r < 0)
		return r;
	list = json_root(doc);
	for (const struct json *row = json_first(json_get(list, "data")); row; row = json_next(row))
		print_row(l, row);
	if (!str_copy(after, 64, json_str(json_get(list, "last_id"))))
		return error_set(err, ERR_PROTOCOL, "the server sent an endless id");
	*ret_more = json_bool(json_get(list, "has_more")) && after[0] && l->n < l->wanted;
	return 0;
}

static int list_all(struct logs *l, struct error *err)
{
	char after[64] = "";
	bool more = true;
	int r = 0;

	if (l->json)
		putchar('[');
	while (r == 0 && more)
		r = list_page(l, after, &more, err);
	if (l->json)
		puts("]");
	else if (r == 0 && l->n == 0)
		puts("no requests");
	return r;
}

/* ---- following ---- */

static bool was_seen(const struct logs *l, struct str id)
{
	for (size_t i = l->n_seen; i-- > 0;)
		if (str_is(id, l->seen[i].id))
			return true;
	return false;
}

static void follow_row(struct logs *l, const struct json *row)
{
	struct seen s = {.ended_ms = 0};
	int64_t took = 0;

	if (!str_copy(s.id, sizeof(s.id), json_str(json_get(row, "id"))) ||
	        was_seen(l, str_of(s.id)))
		return;
	json_i64(json_get(row, "created_at_ms"), &s.ended_ms);
	json_i64(json_get(row, "generation_time"), &took);
	s.ended_ms += took;
	print_row(l, row);
	mem_grow(&l->seen, &l->cap_seen, l->n_seen, sizeof(*l->seen));
	l->seen[l->n_seen++] = s;
}

/* The next look begins a while before the last end, and what ended before that is forgotten. */
static void follow_on(struct logs *l)
{
	size_t kept = 0;

	for (size_t i = 0; i < l->n_seen; i++)
		if (l->seen[i].ended_ms - OVERLAP_MS > l->from_ms)
			l->from_ms = l->seen[i].ended_ms - OVERLAP_MS;
	for (size_t i = 0; i < l->n_seen; i++)
		if (l->seen[i].ended_ms >= l->from_ms)
			l->seen[kept++] = l->seen[i];
	l->n_seen = kept;
}

struct page {
	struct buf answer; /* that the tree is of */
	struct json_doc *doc;
};

static void page_clear(struct page *p)
{
	json_doc_free(p->doc);
	buf_free(&p->answer);
}

static int follow_page(struct logs *l, struct page *page, const char *after, struct error *err)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_SIZE);

	buf_printf(&path, "/api/v1/generations?limit=%d%s&ended_from_ms=%lld", PAGE_FOLLOWED,
	        buf_cstr(&l->filters), (long long)l->from_ms);
	if (after[0])
		add_filter(&path, "after", after);
	buf_init(&page->answer, ANSWER_MAX);
	return fetch(l, buf_cstr(&path), &page->answer, &page->doc, err);
}

static void print_backwards(struct logs *l, const struct json *data)
{
	size_t n = json_count(data), i = n;
	const struct json **rows = mem_array(n + 1, sizeof(const struct json *));

	for (const struct json *row = json_first(data); row; row = json_next(row))
		rows[--i] = row;
	for (i = 0; i < n; i++)
		follow_row(l, rows[i]);
	free(rows);
}

/* All that has ended and was not printed yet, the oldest first. */
static int follow_once(struct logs *l, struct error *err)
{
	struct page pages[PAGES_MAX] = {0};
	char after[64] = "";
	bool more = true;
	int r = 0, n = 0;

	while (r == 0 && more && n < PAGES_MAX) {
		const struct json *list;

		r = follow_page(l, &pages[n], after, err);
		if (r < 0) {
			page_clear(&pages[n]);
			break;
		}
		list = json_root(pages[n++].doc);
		more = json_bool(json_get(list, "has_more")) &&
		       str_copy(after, sizeof(after), json_str(json_get(list, "last_id")));
	}
	for (int i = n; i-- > 0;) {
		print_backwards(l, json_get(json_root(pages[i].doc), "data"));
		page_clear(&pages[i]);
	}
	follow_on(l);
	fflush(stdout);
	return r;
}

static int follow(struct logs *l, struct error *err)
{
	static const struct timespec pause = {0, FOLLOW_MS * 1000000L};
	int r = 0;

	client_catch_signals();
	if (l->from_ms == 0)
		l->from_ms = clock_wall_ms();
	while (r == 0 && client_caught_signal() == 0) {
		r = follow_once(l, err);
		if (r == 0)
			nanosleep(&pause, NULL);
	}
	free(l->seen);
	return r == -ERR_CANCELED ? 0 : r;
}

/* ---- one, and export ---- */

static int show_one(struct logs *l, const char *id, struct error *err)
{
	_cleanup_json_ struct json_doc *record = NULL, *runs = NULL;
	_cleanup_buf_ struct buf answer = BUF_INIT(ANSWER_MAX), runs_answer = BUF_INIT(ANSWER_MAX);
	_cleanup_buf_ struct buf query = BUF_INIT(PATH_SIZE), path = BUF_INIT(PATH_SIZE);
	const struct json *data, *list;
	int r;

	add_filter(&query, "id", id);
	buf_printf(&path, "/api/v1/generation?%s", buf_cstr(&query) + 1);
	r = fetch(l, buf_cstr(&path), &answer, &record, err);
	if (r < 0)
		return r;
	data = json_get(json_root(record), "data");
	buf_reset(&path);
	buf_printf(&path, "/api/v1/generations/%.*s/tool_runs",
	        (int)json_str(json_get(data, "id")).n, json_str(json_get(data, "id")).p);
	r = fetch(l, buf_cstr(&path), &runs_answer, &runs, err);
	if (r < 0)
		return r;
	list = json_get(json_root(runs), "data");
	if (!l->json)
		logs_show_one(data, list);
	else
		printf("{\"generation\":%.*s,\"tool_runs\":%.*s}\n", (int)json_raw(data).n,
		        json_raw(data).p, (int)json_raw(list).n, json_raw(list).p);
	return 0;
}

static int pass_on(void *ctx, const char *data, size_t n, struct error *err)
{
	return fwrite(data, 1, n, stdout) == n
	               ? 0
	               : error_set(err, ERR_IO, "standard output takes no more");
}

static int export(struct logs *l, struct error *err)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_SIZE);
	int r;

	buf_printf(&path, "/api/v1/generations/export?content=%s%s", l->content ? "true" : "false",
	        buf_cstr(&l->filters));
	r = client_request(&l->client, "GET", buf_cstr(&path), (struct str){0}, pass_on, NULL, err);
	return r == 0 && fflush(stdout) != 0
	               ? error_set(err, ERR_IO, "standard output takes no more")
	               : r;
}

/* ---- the command ---- */

static int run(struct logs *l, const char *id, struct error *err)
{
	if (id)
		return show_one(l, id, err);
	if (l->export)
		return export(l, err);
	return l->follow ? follow(l, err) : list_all(l, err);
}

static int check(struct logs *l, const struct cli_usage *usage, int left)
{
	uint64_t wanted = LIST_PRESET;

	if (left > 1)
		return cli_wrong(usage, "logs takes one ID at most");
	if (left == 1 && (l->follow || l->export))
		return cli_wrong(usage, "--follow and --export go without an ID");
	if (l->follow && l->export)
		return cli_wrong(usage, "--follow and --export exclude each other");
	if (l->content && !l->export)
		return cli_wrong(usage, "--content goes with --export");
	if (l->limit &&
	        (!str_to_u64(str_of(l->limit), &wanted) || wanted < 1 || wanted > LIST_MOST))
		return cli_wrong(usage, "--limit must be from 1 to %d", LIST_MOST);
	if (l->since && !since_read(l->since, &l->from_ms))
		return cli_wrong(usage, "--since must be like 90s, 15m, 6h or 30d");
	l->wanted = wanted;
	if (l->from_ms > 0 && !l->follow)
		buf_printf(&l->filters, "&from_ms=%lld", (long long)l->from_ms);
	return buf_error(&l->filters) < 0 ? cli_wrong(usage, "these filters are too long") : 0;
}

int cli_logs(int argc, char **argv)
{
	struct logs l = {.filters = BUF_INIT(8192)};
	static const char *const names[] = {"model", "provider", "api_type", "key", "session_id",
	        "user", "container_id", "status", "ledger_status", "guardrail_hit", "q"};
	enum { N_FILTERS = sizeof(names) / sizeof(names[0]) };
	const char *values[N_FILTERS] = {NULL}, *data = NULL;
	const struct cli_flag flags[] = {
	        {"--model", "MODEL", "the model that served, as provider/model", &values[0], NULL},
	        {"--provider", "NAME", "of this provider", &values[1], NULL},
	        {"--api", "NAME", "responses, messages, gemini, chat, exec or container",
	                &values[2], NULL},
	        {"--key", "HASH", "asked with this key", &values[3], NULL},
	        {"--session", "ID", "of this session", &values[4], NULL},
	        {"--user", "NAME", "of this user", &values[5], NULL},
	        {"--container", "ID", "of this container", &values[6], NULL},
	        {"--status", "STATUS", "an HTTP status, or its first digit", &values[7], NULL},
	        {"--ledger", "STATE", "open, settled or recovered", &values[8], NULL},
	        {"--hit", "ACTION", "a guardrail did this: any, flag, redact, block", &values[9],
	                NULL},
	        {"--search", "TEXT", "in request, answer, commands or output", &values[10], NULL},
	        {"--since", "AGO", "not older than this: 90s, 15m, 6h, 30d", &l.since, NULL},
	        {"--limit", "N", "at most so many (50)", &l.limit, NULL},
	        {"--follow", NULL, "goes on with each request that ends", NULL, &l.follow},
	        {"--export", NULL, "all of them whole, as JSON lines", NULL, &l.export},
	        {"--content", NULL, "with --export: with what was said and printed", NULL,
	                &l.content},
	        {"--json", NULL, "as JSON, one array; with --follow, lines", NULL, &l.json},
	        {"--data", "DIR", "the data folder of the server (/var/lib/brig)", &data, NULL},
	};
	const struct cli_usage usage = {
	        .line = "brig logs [FLAG…] [ID]",
	        .about = "Lists requests that the key can see, the newest first; with an ID shows "
	                 "one, with its commands.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	};
	struct error err = {0};
	int end = 0, at, r;

	at = cli_flags(&usage, argc, argv, &end);
	if (at < 0)
		return end;
	for (size_t i = 0; i < N_FILTERS; i++)
		if (values[i])
			add_filter(&l.filters, names[i], values[i]);
	end = check(&l, &usage, argc - at);
	r = end ? 0 : client_find(&l.client, data, &err);
	if (!end && r == 0)
		r = run(&l, argv[at], &err);
	client_wipe(&l.client);
	buf_free(&l.filters);
	return end ? end : r < 0 ? cli_fail(&err) : 0;
}
