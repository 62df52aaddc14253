/* The files of one container of a running server. */
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/transfer.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_MAX = 16 * 1024 * 1024, MAX_PAGES = 100000 };

struct files {
	struct client client;
	bool json;
};

/* ---- ls ---- */

struct ls {
	bool json;
	size_t n;         /* files printed so far */
	struct buf after; /* "&after=ID" */
};

/* A name may hold what moves the cursor or ends the line. */
static void print_name(struct str name)
{
	for (size_t i = 0; i < name.n; i++)
		putchar((unsigned char)name.p[i] < 0x20 || name.p[i] == 0x7f ? '?' : name.p[i]);
}

static void print_file(struct ls *l, const struct json *f)
{
	int64_t bytes = 0, changed = 0;
	char date[32];

	if (l->json) {
		printf("%s%.*s", l->n++ ? "," : "", (int)json_raw(f).n, json_raw(f).p);
		return;
	}
	if (l->n++ == 0)
		printf("%14s  %-19s  %s\n", "BYTES", "CHANGED (UTC)", "PATH");
	json_i64(json_get(f, "bytes"), &bytes);
	json_i64(json_get(f, "created_at"), &changed);
	clock_iso8601(changed * 1000, date);
	date[10] = ' ';
	printf("%14lld  %.19s  ", (long long)bytes, date);
	print_name(json_str(json_get(f, "path")));
	putchar('\n');
}

/* Prints one page; sets *ret_more and where the next one begins. */
static int print_page(const struct client *c, const char *container, struct ls *l, bool *ret_more,
        struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	_cleanup_buf_ struct buf answer = BUF_INIT(PAGE_MAX), path = BUF_INIT(16384);
	const struct json *list;
	struct str last;
	int r = transfer_path(&path, container, NULL, err);

	if (r < 0)
		return r;
	buf_printf(&path, "?limit=1000%s", buf_cstr(&l->after));
	r = client_fetch(c, "GET", buf_cstr(&path), (struct str){0}, &answer, err);
	if (r < 0)
		return r;
	r = json_parse((struct str){answer.data, answer.len}, 8 * PAGE_MAX, &doc, err);
	if (r < 0)
		return error_prefix(err, "the server's answer");
	list = json_root(doc);
	for (const struct json *f = json_first(json_get(list, "data")); f; f = json_next(f))
		print_file(l, f);
	last = json_str(json_get(list, "last_id"));
	buf_reset(&l->after);
	buf_printf(&l->after, "&after=%.*s", (int)last.n, last.n ? last.p : "");
	*ret_more = json_bool(json_get(list, "has_more")) && last.n > 0;
	return buf_error(&l->after)
	               ? error_set(err, ERR_PROTOCOL, "the server sent a file with an endless id")
	               : 0;
}

static int files_ls(void *ctx, char **args, int n, struct error *err)
{
	const struct files *f = ctx;
	struct ls l = {.json = f->json, .after = BUF_INIT(16384)};
	bool more = true;
	int r = 0, page;

	for (page = 0; r == 0 && more && page < MAX_PAGES; page++) {
		if (page == 0 && f->json)
			putchar('[');
		r = print_page(&f->client, args[0], &l, &more, err);
	}
	if (f->json)
		puts("]");
	else if (r == 0 && l.n == 0)
		puts("no files");
	buf_free(&l.after);
	return r;
}

/* ---- the others ---- */

static int files_get(void *ctx, char **args, int n, struct error *err)
{
	const struct files *f = ctx;

	return transfer_get(&f->client, args[0], args[1], n > 2 ? args[2] : NULL, f->json, err);
}

static int files_put(void *ctx, char **args, int n, struct error *err)
{
	const struct files *f = ctx;

	if (n == 2 && strcmp(args[1], "-") == 0)
		return error_set(err, ERR_INVALID, "say under which path standard input is put");
	return transfer_put(&f->client, args[0], args[1], n > 2 ? args[2] : NULL, f->json, err);
}

/* One request for each path; the answers as an array. */
static int for_each(const struct files *f, char **args, int n, const char *method, const char *tail,
        void (*print)(const struct json *answer), struct error *err)
{
	int r = 0, done = 0;

	if (f->json)
		putchar('[');
	for (int i = 1; i < n && r == 0; i++) {
		_cleanup_buf_ struct buf path = BUF_INIT(16384), answer = BUF_INIT(PAGE_MAX);
		_cleanup_json_ struct json_doc *doc = NULL;

		r = transfer_path(&path, args[0], args[i], err);
		buf_puts(&path, tail);
		if (r == 0)
			r = client_fetch(
			        &f->client, method, buf_cstr(&path), (struct str){0}, &answer, err);
		if (r < 0)
			error_prefix(err, "%.200s", args[i]);
		else if (f->json)
			printf("%s%s", done++ ? "," : "", buf_cstr(&answer));
		else if (print && json_parse((struct str){answer.data, answer.len}, PAGE_MAX, &doc,
		                          NULL) == 0)
			print(json_root(doc));
	}
	if (f->json)
		puts("]");
	return r;
}

static int files_rm(void *ctx, char **args, int n, struct error *err)
{
	return for_each(ctx, args, n, "DELETE", "", NULL, err);
}

static void print_promoted(const struct json *answer)
{
	struct str id = json_str(json_get(answer, "id"));

	printf("%.*s\n", (int)id.n, id.p);
}

static int files_promote(void *ctx, char **args, int n, struct error *err)
{
	return for_each(ctx, args, n, "POST", "/promote", print_promoted, err);
}

static const struct cli_verb verbs[] = {
        {"ls", 1, 1, "CONTAINER", files_ls},
        {"get", 2, 3, "CONTAINER PATH [FILE|FOLDER|-]", files_get},
        {"put", 2, 3, "CONTAINER FILE|- [PATH]", files_put},
        {"promote", 2, 1000, "CONTAINER PATH…", files_promote},
        {"rm", 2, 1000, "CONTAINER PATH…", files_rm},
};

int cli_files(int argc, char **argv)
{
	struct files f = {.json = false};
	const char *data = NULL;
	const struct cli_flag flags[] = {
	        {"--json", NULL, "what the server says, as JSON", NULL, &f.json},
	        {"--data", "DIR", "the data folder of the server (/var/lib/brig)", &data, NULL},
	};
	const struct cli_usage usage = {
	        .line = "brig files ls|get|put|promote|rm [--json] CONTAINER …",
	        .about =
	                "ls CONTAINER                   lists all files, by path\n"
	                "get CONTAINER PATH [TO]        copies one here; TO is a file, a folder or "
	                "- (standard output)\n"
	                "put CONTAINER FILE|- [PATH]    copies one there, in place of what had the "
	                "name\n"
	                "promote CONTAINER PATH…        keeps a copy among the workspace's files; "
	                "prints its id\n"
	                "rm CONTAINER PATH…             removes files\n\n"
	                "Paths are relative to the container's home. Nothing wakes a container "
	                "that sleeps.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	};
	const struct cli_verb *verb;
	struct error err = {0};
	int end = 0, r;

	verb = cli_verb(&usage, verbs, sizeof(verbs) / sizeof(verbs[0]), &argc, &argv, &end);
	if (!verb)
		return end;
	r = client_find(&f.client, data, &err);
	client_catch_signals();
	if (r == 0)
		r = verb->run(&f, argv, argc, &err);
	client_wipe(&f.client);
	if (r == -ERR_CANCELED)
		return 128 + client_caught_signal();
	return r < 0 ? cli_fail(&err) : 0;
}
