#include "load.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

enum kind { TEXT, RAW, FIXED, INT, I64, BOOL, MONEY, TOKENS, LIST };

struct member {
	const char *key;
	enum kind kind;
	size_t at;
	void (*add)(void *to, const struct json *v);
};

static void fill(void *to, const struct json *v, const struct member *members, size_t n);

#define N(list) (sizeof(list) / sizeof(*(list)))

static void set(void *at, const struct json *v, const struct member *m)
{
	_cleanup_buf_ struct buf raw = BUF_INIT(SIZE_MAX / 2);
	int64_t i = 0;

	switch (m->kind) {
	case TEXT:
		record_set(at, json_str(v));
		return;
	case RAW:
		if (json_compact(json_raw(v), &raw) < 0)
			BUG("no JSON");
		record_set(at, (struct str){raw.data, raw.len});
		return;
	case FIXED:
		str_copy(at, sizeof(((struct record *)NULL)->id), json_str(v));
		return;
	case INT:
		json_i64(v, &i);
		*(int *)at = (int)i;
		return;
	case I64:
		if (!json_i64(v, at))
			BUG("%s is no whole number", m->key);
		return;
	case BOOL:
		*(bool *)at = json_bool(v);
		return;
	case MONEY:
		if (!money_parse(json_str(v), at))
			BUG("%s is no money", m->key);
		return;
	case TOKENS:
	case LIST:
		break;
	}
	BUG("not set here");
}

static void fill_tokens(struct record_tokens *t, const struct json *v)
{
#define AT(name) offsetof(struct record_tokens, name)
	static const struct member members[] = {{"input", I64, AT(input), NULL},
	        {"cached", I64, AT(cached), NULL}, {"cache_write", I64, AT(cache_write), NULL},
	        {"output", I64, AT(output), NULL}, {"reasoning", I64, AT(reasoning), NULL},
	        {"given", BOOL, AT(given), NULL}, {"estimated", BOOL, AT(estimated), NULL}};
#undef AT

	fill(t, v, members, N(members));
}

static void fill(void *to, const struct json *v, const struct member *members, size_t n)
{
	for (const struct json *c = json_first(v); c; c = json_next(c)) {
		const struct member *m = members;

		while (m < members + n && !str_is(json_key(c), m->key))
			m++;
		if (m == members + n)
			BUG("no member %.*s", (int)json_key(c).n, json_key(c).p);
		if (m->kind == TOKENS)
			fill_tokens((void *)((char *)to + m->at), c);
		else if (m->kind == LIST)
			for (const struct json *e = json_first(c); e; e = json_next(e))
				m->add(to, e);
		else
			set((char *)to + m->at, c, m);
	}
}

#define AT(name) offsetof(struct record_attempt, name)
static const struct member attempt_members[] = {
        {"provider", TEXT, AT(provider), NULL},
        {"model", TEXT, AT(model), NULL},
        {"status", INT, AT(status), NULL},
        {"error", TEXT, AT(error), NULL},
        {"begin_ms", I64, AT(begin_ms), NULL},
        {"first_ms", I64, AT(first_ms), NULL},
        {"end_ms", I64, AT(end_ms), NULL},
        {"tokens", TOKENS, AT(tokens), NULL},
        {"finish", TEXT, AT(finish), NULL},
        {"cost", MONEY, AT(cost), NULL},
};
#undef AT
#define AT(name) offsetof(struct record_command, name)
static const struct member command_members[] = {
        {"command", TEXT, AT(command), NULL},
        {"out", TEXT, AT(out), NULL},
        {"err", TEXT, AT(err), NULL},
        {"out_truncated", BOOL, AT(out_truncated), NULL},
        {"err_truncated", BOOL, AT(err_truncated), NULL},
        {"timed_out", BOOL, AT(timed_out), NULL},
        {"exit_code", INT, AT(exit_code), NULL},
        {"signal", TEXT, AT(signal), NULL},
        {"reason", TEXT, AT(reason), NULL},
        {"begin_ms", I64, AT(begin_ms), NULL},
        {"end_ms", I64, AT(end_ms), NULL},
};
#undef AT

static void add_command(void *run, const struct json *v)
{
	fill(record_add_command(run), v, command_members, N(command_members));
}

#define AT(name) offsetof(struct record_run, name)
static const struct member run_members[] = {
        {"call_id", TEXT, AT(call_id), NULL},
        {"tool", TEXT, AT(tool), NULL},
        {"container_id", TEXT, AT(container_id), NULL},
        {"status", TEXT, AT(status), NULL},
        {"error", TEXT, AT(error), NULL},
        {"started_container", BOOL, AT(started_container), NULL},
        {"begin_ms", I64, AT(begin_ms), NULL},
        {"end_ms", I64, AT(end_ms), NULL},
        {"network_allowed", I64, AT(network_allowed), NULL},
        {"network_denied", I64, AT(network_denied), NULL},
        {"commands", LIST, 0, add_command},
};
#undef AT
#define AT(name) offsetof(struct record_hit, name)
static const struct member hit_members[] = {
        {"guardrail", TEXT, AT(guardrail), NULL},
        {"rule", TEXT, AT(rule), NULL},
        {"pattern", TEXT, AT(pattern), NULL},
        {"action", TEXT, AT(action), NULL},
        {"matched", TEXT, AT(matched), NULL},
};
#undef AT

static void add_attempt(void *r, const struct json *v)
{
	fill(record_add_attempt(r), v, attempt_members, N(attempt_members));
}

static void add_run(void *r, const struct json *v)
{
	fill(record_add_run(r), v, run_members, N(run_members));
}

static void add_hit(void *r, const struct json *v)
{
	fill(record_add_hit(r), v, hit_members, N(hit_members));
}

#define AT(name) offsetof(struct record, name)
static const struct member record_members[] = {
        {"id", FIXED, AT(id), NULL},
        {"state", INT, AT(state), NULL},
        {"account", TEXT, AT(account), NULL},
        {"workspace", TEXT, AT(workspace), NULL},
        {"key_hash", TEXT, AT(key_hash), NULL},
        {"key_name", TEXT, AT(key_name), NULL},
        {"api", TEXT, AT(api), NULL},
        {"asked", TEXT, AT(asked), NULL},
        {"provider", TEXT, AT(provider), NULL},
        {"model", TEXT, AT(model), NULL},
        {"session_id", TEXT, AT(session_id), NULL},
        {"user", TEXT, AT(user), NULL},
        {"request_id", TEXT, AT(request_id), NULL},
        {"user_agent", TEXT, AT(user_agent), NULL},
        {"container_id", TEXT, AT(container_id), NULL},
        {"metadata", RAW, AT(metadata), NULL},
        {"trace", RAW, AT(trace), NULL},
        {"traceparent", TEXT, AT(traceparent), NULL},
        {"streamed", BOOL, AT(streamed), NULL},
        {"cancelled", BOOL, AT(cancelled), NULL},
        {"status", INT, AT(status), NULL},
        {"error", TEXT, AT(error), NULL},
        {"finish", TEXT, AT(finish), NULL},
        {"begin_ms", I64, AT(begin_ms), NULL},
        {"first_ms", I64, AT(first_ms), NULL},
        {"end_ms", I64, AT(end_ms), NULL},
        {"tokens", TOKENS, AT(tokens), NULL},
        {"input_cost", MONEY, AT(input_cost), NULL},
        {"output_cost", MONEY, AT(output_cost), NULL},
        {"sandbox_cost", MONEY, AT(sandbox_cost), NULL},
        {"total_cost", MONEY, AT(total_cost), NULL},
        {"priced", BOOL, AT(priced), NULL},
        {"sandbox_ms", I64, AT(sandbox_ms), NULL},
        {"attempts", LIST, 0, add_attempt},
        {"runs", LIST, 0, add_run},
        {"hits", LIST, 0, add_hit},
        {"store_content", BOOL, AT(store_content), NULL},
        {"request", RAW, AT(request), NULL},
        {"answer", RAW, AT(answer), NULL},
};
#undef AT

struct record *load_record(const struct json *v)
{
	struct record *r = record_new();

	r->state = RECORD_SETTLED;
	fill(r, v, record_members, N(record_members));
	return r;
}

char *load_file(const char *folder, const char *name, size_t *ret_len)
{
	struct buf all = BUF_INIT((size_t)64 << 20);
	char path[4096], piece[4096];
	size_t n;
	FILE *f;

	str_format(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "re");
	if (!f)
		BUG("cannot read %s", path);
	while ((n = fread(piece, 1, sizeof(piece), f)) > 0)
		buf_append(&all, piece, n);
	fclose(f);
	if (buf_error(&all) < 0)
		BUG("%s is too large", path);
	return buf_steal(&all, ret_len);
}
