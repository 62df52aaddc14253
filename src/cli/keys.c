/*
 * Keys of a running server: made, listed, changed, revoked. A new key goes to standard output
 * alone, so that a script can take it; what is to be read by people goes to standard error.
 */
#include "base/clock.h"
#include "base/money.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

enum { ANSWER_MAX = 64 * 1024 * 1024, HASH_SHORT = 12, HASH_LEAST = 8, HASH_SIZE = 65 };

struct keys {
	struct client client;
	const char *name, *workspace, *limit, *reset, *rpm, *containers, *expires;
	struct cli_list disabled;
	bool admin, json;
};

/* ---- asking ---- */

static int fetch(const struct keys *k, const char *method, const char *path, struct str body,
        struct buf *answer, struct json_doc **ret, struct error *err)
{
	int r = client_fetch(&k->client, method, path, body, answer, err);

	if (r < 0)
		return r;
	r = json_parse((struct str){answer->data, answer->len}, 8 * (size_t)ANSWER_MAX, ret, err);
	return r < 0 ? error_prefix(err, "the server's answer") : 0;
}

/* A name may hold what moves the cursor. */
static void print_text(struct str s, int width)
{
	int n = 0;

	for (size_t i = 0; i < s.n; i++) {
		putchar((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f ? '?' : s.p[i]);
		n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
	}
	for (; n < width; n++)
		putchar(' ');
}

/* ---- create and change ---- */

/* "90d", "12h": from now on; else as the server reads it. */
static bool expiry_read(const char *s, char out[32])
{
	static const char units[] = "mhd";
	static const int64_t ms[] = {60000, 3600000, 86400000};
	size_t n = strlen(s);
	const char *unit = n > 1 ? strchr(units, s[n - 1]) : NULL;
	uint64_t count;

	if (!unit || !str_to_u64((struct str){s, n - 1}, &count) || count > 1000000)
		return str_copy(out, 32, str_of(s));
	clock_iso8601(clock_wall_ms() + (int64_t)count * ms[unit - units], out);
	return true;
}

/* "none" takes away what was set. */
static bool is_none(const char *value)
{
	return strcmp(value, "none") == 0;
}

static void put_text(struct json_writer *w, const char *name, const char *value)
{
	if (value)
		jw_kcstr(w, name, is_none(value) ? NULL : value);
}

static int put_number(struct json_writer *w, const char *name, const char *value, const char *flag,
        struct error *err)
{
	uint64_t n;

	if (!value)
		return 0;
	if (is_none(value)) {
		jw_knull(w, name);
		return 0;
	}
	if (!str_to_u64(str_of(value), &n) || n > INT64_MAX)
		return error_set(err, ERR_INVALID, "%s must be a whole number", flag);
	jw_ki64(w, name, (int64_t)n);
	return 0;
}

static int put_members(struct json_writer *w, const struct keys *k, struct error *err)
{
	char expires[32];
	int r;

	put_text(w, "name", k->name);
	put_text(w, "limit", k->limit);
	put_text(w, "limit_reset", k->reset);
	r = put_number(w, "requests_per_minute", k->rpm, "--rpm", err);
	if (r == 0)
		r = put_number(w, "containers_at_once", k->containers, "--containers", err);
	if (r == 0 && k->expires && !expiry_read(k->expires, expires))
		r = error_set(
		        err, ERR_INVALID, "--expires is like 30d, 12h or 2027-01-31T18:00:00Z");
	if (r == 0 && k->expires)
		put_text(w, "expires_at", expires);
	if (k->disabled.n == 0)
		return r;
	jw_key(w, "disabled_server_tools");
	jw_array(w);
	for (size_t i = 0; i < k->disabled.n; i++)
		if (!is_none(k->disabled.items[i]))
			jw_cstr(w, k->disabled.items[i]);
	jw_end(w);
	return r;
}

static int create_body(const struct keys *k, struct buf *out, struct error *err)
{
	struct json_writer w;
	int r;

	jw_init(&w, out);
	jw_object(&w);
	jw_kbool(&w, "admin", k->admin);
	if (k->workspace)
		jw_kcstr(&w, "workspace", k->workspace);
	r = put_members(&w, k, err);
	jw_end(&w);
	return r < 0 ? r : jw_done(&w);
}

static int change_body(const struct keys *k, struct buf *out, struct error *err)
{
	struct json_writer w;
	int r;

	jw_init(&w, out);
	jw_object(&w);
	r = put_members(&w, k, err);
	jw_end(&w);
	return r < 0 ? r : jw_done(&w);
}

static int keys_create(void *ctx, char **args, int n, struct error *err)
{
	struct keys *k = ctx;
	_cleanup_buf_ struct buf body = BUF_INIT(65536), answer = BUF_INIT(ANSWER_MAX);
	_cleanup_json_ struct json_doc *doc = NULL;
	struct str key, hash;
	int r = create_body(k, &body, err);

	if (r == 0)
		r = fetch(k, "POST", "/api/v1/keys", (struct str){body.data, body.len}, &answer,
		        &doc, err);
	if (r < 0)
		return r;
	key = json_str(json_get(json_root(doc), "key"));
	hash = json_str(json_get(json_root(doc), "hash"));
	if (k->json) {
		printf("%.*s\n", (int)answer.len, answer.data);
		return 0;
	}
	fprintf(stderr, "The key is shown this once; %.*s… is its hash.\n",
	        (int)(hash.n < HASH_SHORT ? hash.n : HASH_SHORT), hash.n ? hash.p : "");
	printf("%.*s\n", (int)key.n, key.n ? key.p : "");
	return 0;
}

/* ---- list ---- */

static const char *state_of(const struct json *key)
{
	int64_t expires;

	if (json_bool(json_get(key, "revoked")))
		return "revoked";
	if (clock_parse_iso8601(json_str(json_get(key, "expires_at")), &expires) &&
	        expires <= clock_wall_ms())
		return "expired";
	return json_bool(json_get(key, "admin")) ? "admin" : "in use";
}

static void print_key(const struct json *key)
{
	struct str hash = json_str(json_get(key, "hash")), usage = json_raw(json_get(key, "usage"));
	struct str limit = json_raw(json_get(key, "limit"));
	struct str reset = json_str(json_get(key, "limit_reset"));

	print_text((struct str){hash.p, hash.n < HASH_SHORT ? hash.n : HASH_SHORT}, 14);
	print_text(json_str(json_get(key, "name")), 24);
	putchar(' ');
	print_text(json_str(json_get(key, "workspace")), 16);
	printf(" %-9s", state_of(key));
	print_text(usage, 12);
	if (json_absent(json_get(key, "limit")))
		puts("-");
	else
		printf("%.*s%s%.*s\n", (int)limit.n, limit.p, reset.n ? " " : "", (int)reset.n,
		        reset.n ? reset.p : "");
}

static int keys_list(void *ctx, char **args, int n, struct error *err)
{
	struct keys *k = ctx;
	_cleanup_buf_ struct buf answer = BUF_INIT(ANSWER_MAX);
	_cleanup_json_ struct json_doc *doc = NULL;
	const struct json *data;
	int r = fetch(k, "GET", "/api/v1/keys", (struct str){0}, &answer, &doc, err);

	if (r < 0)
		return r;
	data = json_get(json_root(doc), "data");
	if (k->json) {
		printf("%.*s\n", (int)json_raw(data).n, json_raw(data).p);
		return 0;
	}
	printf("%-14s%-25s%-17s%-9s%-12s%s\n", "HASH", "NAME", "WORKSPACE", "STATE", "USED, $",
	        "LIMIT, $");
	for (const struct json *key = json_first(data); key; key = json_next(key))
		print_key(key);
	return 0;
}

/* ---- change and revoke ---- */

/* The one key whose hash begins so. */
static int hash_find(
        const struct keys *k, struct str given, char hash[HASH_SIZE], struct error *err)
{
	_cleanup_buf_ struct buf answer = BUF_INIT(ANSWER_MAX);
	_cleanup_json_ struct json_doc *doc = NULL;
	const struct json *list;
	char prefix[HASH_SIZE];
	int r, n = 0;

	if (!str_copy(prefix, sizeof(prefix), given) || given.n < HASH_LEAST)
		return error_set(err, ERR_INVALID,
		        "say at least the first %d digits of the key's hash, as `brig keys list` "
		        "shows "
		        "it",
		        HASH_LEAST);
	r = fetch(k, "GET", "/api/v1/keys", (struct str){0}, &answer, &doc, err);
	if (r < 0)
		return r;
	list = json_get(json_root(doc), "data");
	for (const struct json *key = json_first(list); key; key = json_next(key)) {
		struct str s = json_str(json_get(key, "hash"));

		if (str_starts(s, prefix) && str_copy(hash, HASH_SIZE, s))
			n++;
	}
	if (n != 1)
		return error_set(err, ERR_NOT_FOUND, "%s",
		        n ? "several keys have a hash that begins so"
		          : "no key has a hash that begins so");
	return 0;
}

/* method on the one key that args[0] begins the hash of. */
static int with_key(
        const struct keys *k, char **args, const char *method, struct str body, struct error *err)
{
	_cleanup_buf_ struct buf answer = BUF_INIT(ANSWER_MAX);
	char hash[HASH_SIZE], path[128];
	int r = hash_find(k, str_of(args[0]), hash, err);

	if (r < 0)
		return r;
	str_format(path, sizeof(path), "/api/v1/keys/%s", hash);
	r = client_fetch(&k->client, method, path, body, &answer, err);
	if (r == 0 && k->json)
		printf("%.*s\n", (int)answer.len, answer.data);
	return r;
}

static int keys_change(void *ctx, char **args, int n, struct error *err)
{
	struct keys *k = ctx;
	_cleanup_buf_ struct buf body = BUF_INIT(65536);
	int r = change_body(k, &body, err);

	return r < 0 ? r : with_key(k, args, "PATCH", (struct str){body.data, body.len}, err);
}

static int keys_revoke(void *ctx, char **args, int n, struct error *err)
{
	return with_key(ctx, args, "DELETE", (struct str){0}, err);
}

/* ---- the command ---- */

static const struct cli_verb verbs[] = {
        {"create", 0, 0, NULL, keys_create},
        {"list", 0, 0, NULL, keys_list},
        {"change", 1, 1, "one hash", keys_change},
        {"revoke", 1, 1, "one hash", keys_revoke},
};

int cli_keys(int argc, char **argv)
{
	struct keys k = {.name = NULL};
	const char *data = NULL;
	const struct cli_flag flags[] = {
	        {"--name", "NAME", "what it is called", &k.name, NULL},
	        {"--workspace", "NAME", "create: its workspace (that of the asking key)",
	                &k.workspace, NULL},
	        {"--limit", "DOLLARS", "what may be spent with it", &k.limit, NULL},
	        {"--reset", "WHEN", "the limit begins anew daily, weekly or monthly", &k.reset,
	                NULL},
	        {"--rpm", "N", "requests a minute", &k.rpm, NULL},
	        {"--containers", "N", "containers at once", &k.containers, NULL},
	        {"--expires", "WHEN", "after 30d, 12h, or at 2027-01-31T18:00:00Z", &k.expires,
	                NULL},
	        {"--disable", "TOOL",
	                "without shell, bash, exec or code_execution; may be repeated", NULL, NULL},
	        {"--admin", NULL, "create: may manage keys and workspaces", NULL, &k.admin},
	        {"--json", NULL, "what the server says, as JSON", NULL, &k.json},
	        {"--data", "DIR", "the data folder of the server (/var/lib/brig)", &data, NULL},
	};
	const struct cli_usage usage = {
	        .line = "brig keys [FLAG…] create | list | change HASH | revoke HASH",
	        .about = "Makes, lists, changes or revokes keys of the asking key's account, which "
	                 "must be an admin key.\n"
	                 "A new key is printed this once. HASH may be cut, to eight digits at "
	                 "least. "
	                 "In change, what is not\n"
	                 "said stays, and \"none\" takes it away.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	        .list = &k.disabled,
	};
	const struct cli_verb *verb;
	struct error err = {0};
	int end = 0, r;

	verb = cli_verb(&usage, verbs, sizeof(verbs) / sizeof(verbs[0]), &argc, &argv, &end);
	if (!verb)
		return end;
	if (verb->run == keys_create && (!k.name || !k.name[0]))
		return cli_wrong(&usage, "create needs --name");
	r = client_find(&k.client, data, &err);
	if (r == 0)
		r = verb->run(&k, argv, argc, &err);
	client_wipe(&k.client);
	return r < 0 ? cli_fail(&err) : 0;
}
