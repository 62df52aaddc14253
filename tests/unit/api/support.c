#include "support.h"

#include "base/mem.h"
#include "json/json.h"
#include "tool/tool.h"

#include <stdio.h>
#include <stdlib.h>

struct buf test_buf(void)
{
	struct buf b;

	buf_init(&b, (size_t)256 * 1024 * 1024);
	return b;
}

/* ---- files of cases ---- */

const char *case_text(const struct test_case *c, const char *kind)
{
	for (size_t i = 0; i < c->n; i++)
		if (strcmp(c->sections[i].kind, kind) == 0)
			return c->sections[i].text;
	return NULL;
}

static char *file_read(const char *path)
{
	struct buf b = test_buf();
	char piece[65536];
	size_t n;
	FILE *f = fopen(path, "re");

	if (!f)
		fail_msg("%s cannot be opened", path);
	while ((n = fread(piece, 1, sizeof(piece), f)) > 0)
		buf_append(&b, piece, n);
	fclose(f);
	buf_append(&b, "", 0);
	return buf_steal(&b, NULL);
}

/* Takes the lines up to the next that begins with a mark. */
static char *block_take(char **at)
{
	char *start = *at, *end = start;

	while (*end && strncmp(end, "### ", 4) != 0 && strncmp(end, "--- ", 4) != 0) {
		char *newline = strchr(end, '\n');

		end = newline ? newline + 1 : end + strlen(end);
	}
	*at = end;
	if (end > start && end[-1] == '\n')
		end--;
	return mem_strndup(start, (size_t)(end - start));
}

static char *mark_take(char **at)
{
	char *start = *at + 4, *newline = strchr(start, '\n');
	char *end = newline ? newline : start + strlen(start);

	*at = newline ? newline + 1 : end;
	return mem_strndup(start, (size_t)(end - start));
}

static void case_take(char **at, struct test_case *c)
{
	size_t cap = 0;

	c->name = mark_take(at);
	c->intro = block_take(at);
	while (strncmp(*at, "--- ", 4) == 0) {
		mem_grow(&c->sections, &cap, c->n, sizeof(*c->sections));
		c->sections[c->n].kind = mark_take(at);
		c->sections[c->n++].text = block_take(at);
	}
}

static void case_write(const struct test_case *c, const char *got, struct buf *out)
{
	buf_printf(out, "### %s\n%s%s", c->name, c->intro, c->intro[0] ? "\n" : "");
	for (size_t i = 0; i < c->n; i++)
		buf_printf(out, "--- %s\n%s\n", c->sections[i].kind,
		        i + 1 == c->n ? got : c->sections[i].text);
}

static void case_free(struct test_case *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->sections[i].kind);
		free(c->sections[i].text);
	}
	free(c->sections);
	free(c->name);
	free(c->intro);
}

size_t cases_run(const char *path, case_fn fn)
{
	const char *update = getenv("UPDATE_CASES");
	char *text = file_read(path), *at = text;
	struct buf written = test_buf();
	size_t n = 0, bad = 0;
	char *head = block_take(&at);

	buf_printf(&written, "%s%s", head, head[0] ? "\n" : "");
	while (*at) {
		struct test_case c = {0};
		struct buf got = test_buf();

		case_take(&at, &c);
		assert_true(c.n >= 2);
		fn(&c, &got);
		while (got.len > 0 && got.data[got.len - 1] == '\n')
			got.data[--got.len] = '\0';
		case_write(&c, buf_cstr(&got), &written);
		if (strcmp(buf_cstr(&got), c.sections[c.n - 1].text) != 0) {
			if (!update)
				print_error("%s: %s\n-- expected\n%s\n-- got\n%s\n", path, c.name,
				        c.sections[c.n - 1].text, buf_cstr(&got));
			bad++;
		}
		buf_free(&got);
		case_free(&c);
		n++;
	}
	if (update) {
		FILE *f = fopen(path, "we");

		assert_non_null(f);
		assert_int_equal(fwrite(written.data, 1, written.len, f), written.len);
		fclose(f);
	} else if (bad) {
		fail_msg("%zu of %zu cases of %s differ", bad, n, path);
	}
	buf_free(&written);
	free(head);
	free(text);
	return n;
}

/* ---- requests ---- */

static char region[] = "eu";

struct config test_config(const char *words)
{
	struct config c = {
	        .sandbox = true,
	        .limits = {.tool_calls = 30,
	                .turn_ms = 3600000,
	                .turn_unstreamed_ms = 540000,
	                .turn_output_bytes = 16 << 20,
	                .call_output_bytes = 1 << 20,
	                .timeout_ms = 120000,
	                .max_timeout_ms = 300000,
	                .output_chars = 16384,
	                .max_output_chars = 65536,
	                .commands = 100},
	        .container = {.price_per_second = {.pico = 100000000}},
	};

	if (words && strstr(words, "sandbox=off"))
		c.sandbox = false;
	if (words && strstr(words, "region=eu"))
		c.region = region;
	if (words && strstr(words, "tool_calls=5"))
		c.limits.tool_calls = 5;
	return c;
}

size_t cases_run_all(const char *folder, const char *const *files, case_fn fn)
{
	char path[4096];
	size_t n = 0;

	for (; *files; files++) {
		str_format(path, sizeof(path), "%s/%s", folder, *files);
		n += cases_run(path, fn);
	}
	return n;
}

void test_cuts(parse_fn parse, const char *body, const char *bad)
{
	struct config config = test_config(NULL);
	struct turn_request r;
	struct error err;

	for (size_t n = 0; n < strlen(body); n++) {
		char *cut = mem_strndup(body, n);

		assert_int_equal(parse(cut, &config, &r, &err), -ERR_INVALID);
		assert_int_equal(error_http_status(&err), 400);
		free(cut);
	}
	assert_int_equal(parse(body, &config, &r, &err), 0);
	turn_request_free(&r);
	assert_int_equal(parse(bad, &config, &r, NULL), -ERR_INVALID);
}

char *test_long_text(size_t n)
{
	char *text = mem_alloc(n + 1);

	for (size_t i = 0; i < n; i++)
		text[i] = "ab\x1b\"\n\\c"[i % 7];
	return text;
}

int test_parse(const char *body, const char *session_header, const struct config *config,
        bool under_v1, struct turn_request *ret, struct error *err)
{
	struct api_request in = {
	        .body = mem_strndup(body, strlen(body)),
	        .body_len = strlen(body),
	        .session_header = str_of(session_header),
	        .under_v1 = under_v1,
	        .config = config,
	};

	return api_responses.parse(&in, STR("a request"), ret, err);
}

static void put(struct buf *out, const char *name, struct str s)
{
	if (!s.p)
		return;
	buf_printf(out, " %s=", name);
	json_write_str(out, s);
}

static void put_parts(struct buf *out, const struct part *parts, size_t n)
{
	static const char *const names[] = {
	        "text", "refusal", "summary", "reasoning", "image", "file", "audio"};

	for (size_t i = 0; i < n; i++) {
		buf_printf(out, " (%s", names[parts[i].type]);
		put(out, "text", parts[i].text);
		put(out, "url", parts[i].url);
		put(out, "data", parts[i].data);
		put(out, "filename", parts[i].filename);
		put(out, "detail", parts[i].detail);
		buf_putc(out, ')');
	}
}

static void put_result(struct buf *out, const struct result *r)
{
	buf_puts(out, r->tool ? "result of ours" : "result");
	put(out, "call_id", r->public_id);
	put(out, "container", r->container_id);
	put(out, "error", r->error);
	if (r->max_output_length)
		buf_printf(out, " max_output_length=%u", r->max_output_length);
	put_parts(out, r->parts, r->n_parts);
	for (size_t i = 0; i < r->n_outputs; i++) {
		const struct command_output *o = &r->outputs[i];

		buf_puts(out, " [");
		put(out, "out", o->out);
		put(out, "err", o->err);
		if (o->outcome == OUTCOME_EXIT)
			buf_printf(out, " exit=%d", o->exit_code);
		else
			buf_puts(out, " timeout");
		put(out, "signal", o->signal);
		put(out, "reason", o->reason);
		if (o->out_truncated || o->err_truncated)
			buf_printf(out, " cut=%d,%d of %llu,%llu", o->out_truncated,
			        o->err_truncated, (unsigned long long)o->out_chars,
			        (unsigned long long)o->err_chars);
		buf_puts(out, o->done ? " ]" : " running ]");
	}
}

void dump_item(const struct item *it, bool with_reply, struct buf *out)
{
	static const char *const roles[] = {"system", "developer", "user", "assistant"};

	if (with_reply && it->reply != REPLY_NONE)
		buf_printf(out, "r%u ", it->reply);
	switch (it->type) {
	case ITEM_MESSAGE:
		buf_puts(out, roles[it->role]);
		break;
	case ITEM_REASONING:
		buf_puts(out, "reasoning");
		put(out, "opaque", it->opaque);
		break;
	case ITEM_CALL:
		buf_puts(out, it->call.tool ? "call of ours" : "call");
		put(out, "call_id", it->call.public_id);
		put(out, "upstream", it->call.upstream_id);
		put(out, "name", it->call.name);
		put(out, "arguments", it->call.arguments);
		buf_puts(out, it->call.entry ? " declared" : " undeclared");
		break;
	case ITEM_OTHER:
		buf_puts(out, "other");
		put(out, "raw", it->raw);
		break;
	case ITEM_RESULT:
		put_result(out, &it->result);
		break;
	}
	put_parts(out, it->parts, it->n_parts);
	put(out, "id", it->id);
	put(out, "status", it->status);
	buf_putc(out, '\n');
}

static void dump_settings(const struct settings *s, struct buf *out)
{
	struct buf line = test_buf();

	put(&line, "max_output_tokens", s->max_output_tokens);
	put(&line, "temperature", s->temperature);
	put(&line, "top_p", s->top_p);
	put(&line, "top_k", s->top_k);
	put(&line, "presence_penalty", s->presence_penalty);
	put(&line, "frequency_penalty", s->frequency_penalty);
	put(&line, "seed", s->seed);
	put(&line, "top_logprobs", s->top_logprobs);
	put(&line, "stop", s->stop);
	put(&line, "text_format", s->text_format);
	put(&line, "verbosity", s->verbosity);
	put(&line, "effort", s->reasoning_effort);
	put(&line, "summary", s->reasoning_summary);
	put(&line, "user", s->user);
	put(&line, "safety_identifier", s->safety_identifier);
	put(&line, "prompt_cache_key", s->prompt_cache_key);
	put(&line, "service_tier", s->service_tier);
	put(&line, "metadata", s->metadata);
	if (s->parallel_tool_calls >= 0)
		buf_printf(&line, " parallel=%d", s->parallel_tool_calls);
	if (line.len > 0)
		buf_printf(out, "settings%s\n", line.data);
	buf_free(&line);
}

static void dump_tools(const struct conversation *c, struct buf *out)
{
	static const char *const modes[] = {"auto", "none", "required", "named"};

	for (size_t i = 0; i < c->n_tools; i++) {
		const struct tool_entry *t = &c->tools[i];

		bool local = t->kind == TOOL_FUNCTION && !str_is(t->type, "function");

		buf_printf(out, "tool %s",
		        t->kind == TOOL_SERVER   ? "ours"
		        : t->kind == TOOL_NATIVE ? "native"
		        : local                  ? "local"
		                                 : "function");
		put(out, "name", t->name);
		if (local || t->kind == TOOL_NATIVE)
			put(out, "type", t->type);
		if (!local) {
			put(out, "description", t->description);
			put(out, "parameters", t->parameters);
		}
		if (t->strict >= 0)
			buf_printf(out, " strict=%d", t->strict);
		if (t->kind == TOOL_SERVER) {
			const struct shell_settings *s = t->settings;

			buf_printf(out, " items=%s timeout=%u length=%u",
			        s->own_items ? "two" : "one", s->timeout_ms, s->max_output_length);
			put(out, "container", s->container_id);
			if (s->may_be_native)
				buf_puts(out, " may be native");
			if (s->only_native)
				buf_printf(out, " only native: %s", s->only_native->text);
		}
		buf_putc(out, '\n');
	}
	if (c->choice.mode == CHOICE_AUTO && !c->choice.restricted)
		return;
	buf_printf(out, "choice %s", modes[c->choice.mode]);
	put(out, "name", c->choice.name);
	for (size_t i = 0; i < c->choice.n_allowed; i++)
		put(out, "allowed", c->choice.allowed[i]);
	buf_putc(out, '\n');
}

void dump_request(const struct turn_request *r, struct buf *out)
{
	const struct conversation *c = r->conversation;

	buf_puts(out, "model");
	put(out, "name", c->model);
	for (size_t i = 0; i < c->n_models; i++)
		put(out, "then", c->models[i]);
	buf_printf(out, "%s calls=%u\n", r->stream ? " stream" : "", r->options.max_tool_calls);
	if (r->container_id[0])
		buf_printf(out, "container %s %s\n", r->container_id,
		        r->container_named ? "named" : "its own");
	dump_settings(&c->settings, out);
	for (size_t i = 0; i < c->n_extra; i++) {
		buf_puts(out, "extra");
		put(out, "key", c->extra[i].key);
		put(out, "raw", c->extra[i].raw);
		buf_putc(out, '\n');
	}
	if (r->only_here)
		buf_printf(out, "only here: %s: %s\n", r->only_here->param, r->only_here->text);
	if (r->body.p)
		buf_puts(out, "may be relayed\n");
	dump_tools(c, out);
	for (size_t i = 0; i < c->n_items; i++)
		dump_item(c->items[i], true, out);
	assert_ptr_equal(r->shell && c->has_server_tool ? r->shell : NULL, r->shell);
}

void dump_error(const struct error *e, bool under_v1, struct buf *out)
{
	buf_printf(out, "HTTP %d\n", error_http_status(e));
	api_error_body(e, under_v1, out);
}
