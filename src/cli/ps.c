/* The containers of a running server, page by page. */
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "json/json.h"

#include <stdio.h>

enum { PAGE_MAX = 16 * 1024 * 1024, MAX_PAGES = 10000 };

struct ps {
	struct client client;
	bool json;
	size_t n; /* containers printed so far */
	char after[128];
};

static void print_age(int64_t since)
{
	int64_t s = clock_wall_s() - since;

	if (s < 0)
		s = 0;
	if (s < 120)
		printf("%lld s ago\n", (long long)s);
	else if (s < 7200)
		printf("%lld min ago\n", (long long)(s / 60));
	else if (s < 172800)
		printf("%lld h ago\n", (long long)(s / 3600));
	else
		printf("%lld days ago\n", (long long)(s / 86400));
}

/* The first name that it may reach, and how many more there are. */
static void print_network(const struct json *policy)
{
	const struct json *names = json_get(policy, "allowed_domains");
	struct str first = json_str(json_first(names));
	char text[64] = "-";

	if (json_count(names) == 1)
		snprintf(text, sizeof(text), "%.*s", (int)(first.n < 22 ? first.n : 22), first.p);
	else if (json_count(names) > 1)
		snprintf(text, sizeof(text), "%.*s +%zu", (int)(first.n < 18 ? first.n : 18),
		        first.p, json_count(names) - 1);
	printf("%-24s", text);
}

static void print_row(struct ps *p, const struct json *c)
{
	struct str id = json_str(json_get(c, "id")), status = json_str(json_get(c, "status"));
	struct str memory = json_str(json_get(c, "memory_limit"));
	int64_t active = 0;

	if (p->json) {
		printf("%s%.*s", p->n ? "," : "", (int)json_raw(c).n, json_raw(c).p);
		p->n++;
		return;
	}
	if (p->n++ == 0)
		printf("%-42s%-10s%-8s%-24s%s\n", "CONTAINER", "STATUS", "MEMORY", "NETWORK",
		        "LAST USED");
	printf("%-42.*s%-10.*s%-8.*s", (int)id.n, id.p, (int)status.n, status.p, (int)memory.n,
	        memory.n ? memory.p : "");
	print_network(json_get(c, "network_policy"));
	if (json_i64(json_get(c, "last_active_at"), &active))
		print_age(active);
	else
		puts("-");
}

/* Prints one page; sets *ret_more and where the next one begins. */
static int print_page(struct ps *p, bool *ret_more, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	_cleanup_buf_ struct buf answer = BUF_INIT(PAGE_MAX);
	const struct json *list, *c;
	char path[256];
	int r;

	str_format(path, sizeof(path), "/api/v1/containers?limit=100%s%s",
	        p->after[0] ? "&after=" : "", p->after);
	r = client_fetch(&p->client, "GET", path, (struct str){0}, &answer, err);
	if (r < 0)
		return r;
	r = json_parse((struct str){answer.data, answer.len}, 8 * PAGE_MAX, &doc, err);
	if (r < 0)
		return error_prefix(err, "the server's answer");
	list = json_root(doc);
	for (c = json_first(json_get(list, "data")); c; c = json_next(c)) {
		print_row(p, c);
		if (!str_copy(p->after, sizeof(p->after), json_str(json_get(c, "id"))))
			return error_set(err, ERR_PROTOCOL,
			        "the server sent a container with an endless id");
	}
	*ret_more = json_bool(json_get(list, "has_more")) && json_count(json_get(list, "data")) > 0;
	return 0;
}

int cli_ps(int argc, char **argv)
{
	struct ps p = {0};
	const char *data = NULL;
	const struct cli_flag flags[] = {
	        {"--json", NULL, "as JSON, one array", NULL, &p.json},
	        {"--data", "DIR", "the data folder of the server (/var/lib/brig)", &data, NULL},
	};
	const struct cli_usage usage = {
	        .line = "brig ps [--json]",
	        .about = "Lists the containers that the key can see. running: processes may run; "
	                 "frozen: they stand\n"
	                 "still until the next use; asleep: files only.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	};
	struct error err = {0};
	bool more = true;
	int end = 0, at, r, page;

	at = cli_flags(&usage, argc, argv, &end);
	if (at < 0)
		return end;
	if (at < argc)
		return cli_wrong(&usage, "ps takes no argument: %s", argv[at]);
	r = client_find(&p.client, data, &err);
	if (r == 0 && p.json)
		putchar('[');
	for (page = 0; r == 0 && more && page < MAX_PAGES; page++)
		r = print_page(&p, &more, &err);
	if (p.json && page > 0)
		puts("]");
	else if (r == 0 && p.n == 0)
		puts("no containers");
	client_wipe(&p.client);
	return r < 0 ? cli_fail(&err) : 0;
}
