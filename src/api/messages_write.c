/*
 * What the client reads: the message, its blocks and its usage, as JSON. Keys come in a fixed
 * order. Where an SDK demands a key it is always there; where one refuses null (citations, caller)
 * the key is left out. Added keys stand inside blocks that clients know and say something only:
 * `output` where a bash_code_execution was more than one command, `outcome` where a return code
 * cannot say it, `stdout_truncated` and its like, `container_id`, `files`, `warnings`.
 */
#include "api/messages.h"

#include "api/outputs.h"
#include "tool/tool.h"

#include <stdlib.h>
#include <time.h>

enum { TIMED_OUT = 124 };

enum messages_shape messages_shape_of(const struct turn_request *r, const struct item *call)
{
	const struct tool_entry *entry = call->call.entry;

	if (!entry || entry->kind != TOOL_SERVER)
		entry = r->shell;
	if (entry && str_starts(entry->type, "brig:"))
		return SHAPE_CODE_EXECUTION;
	return entry && str_ends(entry->type, ":bash") ? SHAPE_OPENROUTER_BASH
	                                               : SHAPE_OPENROUTER_SHELL;
}

static int ignore_event(void *ctx, const struct json_event *ev)
{
	return 0;
}

bool messages_is_object(struct str text)
{
	while (text.n > 0 && memchr(" \t\r\n", text.p[0], 4)) {
		text.p++;
		text.n--;
	}
	return text.n > 0 && text.p[0] == '{' && json_read(text, ignore_event, NULL, NULL) == 0;
}

/* ---- calls ---- */

/* What a model wrote that is no object stays readable inside one. */
static void write_invalid(struct ropewriter *w, struct str arguments)
{
	jw_object(&w->json);
	if (str_trim(arguments).n > 0)
		ropewriter_kstr(w, "invalid_arguments", arguments);
	jw_end(&w->json);
}

static void write_arguments(struct ropewriter *w, struct str arguments)
{
	if (messages_is_object(arguments))
		messages_write_raw(w, arguments);
	else
		write_invalid(w, arguments);
}

/* Of a call that was not run: what would read as a command that was is not shown as one. */
static bool has_command(struct str arguments)
{
	_cleanup_json_ struct json_doc *doc = NULL;

	return json_parse(arguments, arguments.n * 64 + 65536, &doc, NULL) ||
	       json_get(json_root(doc), "command");
}

/* Several are lines of one; a call that is not run has none. */
static void write_commands(struct ropewriter *w, const struct tool_call *t)
{
	ropewriter_str_begin(w);
	for (size_t i = 0; t && i < t->n_commands; i++) {
		if (i > 0)
			ropewriter_str_part(w, STR("\n"));
		ropewriter_str_part(w, t->commands[i]);
	}
	ropewriter_str_end(w);
}

/* A shell's arguments under the name that Anthropic's sandbox has for one command. */
static void write_coded_input(struct ropewriter *w, const struct call *call, bool listed)
{
	const struct tool_call *t = call->parsed;
	struct json_writer *j = &w->json;

	jw_object(j);
	jw_key(j, "command");
	write_commands(w, t);
	if (t->n_commands != 1 || listed) {
		jw_key(j, "commands");
		jw_array(j);
		for (size_t i = 0; i < t->n_commands; i++)
			ropewriter_str(w, t->commands[i]);
		jw_end(j);
	}
	if (t->has_timeout)
		jw_ki64(j, "timeout_ms", t->asked_timeout);
	if (t->has_output)
		jw_ki64(j, "max_output_length", t->asked_output);
	jw_end(j);
}

static bool is_coded(const struct messages_state *s, const struct item *call)
{
	return messages_shape_of(s->request, call) == SHAPE_CODE_EXECUTION &&
	       call->call.tool == &tool_shell;
}

/* Then a list tells a shell's call from one of bash. */
static bool offers_bash(const struct messages_state *s)
{
	const struct conversation *c = s->request->conversation;

	for (size_t i = 0; i < c->n_tools; i++)
		if (str_is(c->tools[i].type, "brig:bash") && c->tools[i].kind == TOOL_SERVER)
			return true;
	return false;
}

bool messages_input_is_plain(const struct messages_state *s, const struct item *call)
{
	return messages_is_object(call->call.arguments) &&
	       !(is_coded(s, call) && (call->call.parsed || has_command(call->call.arguments)));
}

void messages_write_input(
        struct ropewriter *w, const struct messages_state *s, const struct item *call)
{
	if (messages_input_is_plain(s, call))
		messages_write_raw(w, call->call.arguments);
	else if (is_coded(s, call) && call->call.parsed)
		write_coded_input(w, &call->call, offers_bash(s));
	else
		write_invalid(w, call->call.arguments);
}

static void write_id(struct json_writer *j, const char *key, const struct item *call, bool server)
{
	char id[MESSAGES_ID_SIZE];

	messages_id_show(call->call.public_id, server, id);
	jw_kcstr(j, key, id);
}

static void write_server_call(
        struct ropewriter *w, const struct messages_state *s, const struct item *call, bool fresh)
{
	static const char *const names[] = {
	        [SHAPE_OPENROUTER_SHELL] = "openrouter:shell",
	        [SHAPE_OPENROUTER_BASH] = "openrouter:bash",
	        [SHAPE_CODE_EXECUTION] = "bash_code_execution",
	};
	struct json_writer *j = &w->json;

	jw_object(j);
	jw_kcstr(j, "type", "server_tool_use");
	write_id(j, "id", call, true);
	jw_kcstr(j, "name", names[messages_shape_of(s->request, call)]);
	jw_key(j, "input");
	if (fresh) {
		jw_object(j);
		jw_end(j);
	} else {
		messages_write_input(w, s, call);
	}
	jw_end(j);
}

/* ---- results ---- */

static bool has_outputs(const struct result *r)
{
	for (size_t i = 0; i < r->n_outputs; i++)
		if (r->outputs[i].done)
			return true;
	return false;
}

static void write_list(struct ropewriter *w, const struct result *r)
{
	jw_key(&w->json, "output");
	jw_array(&w->json);
	for (size_t i = 0; i < r->n_outputs; i++)
		if (r->outputs[i].done)
			outputs_write(w, &r->outputs[i]);
	jw_end(&w->json);
}

static void write_shell_content(struct ropewriter *w, const struct result *r)
{
	jw_object(&w->json);
	if (!r->error.p || has_outputs(r))
		write_list(w, r);
	if (r->error.p)
		ropewriter_kstr(w, "error", r->error);
	jw_end(&w->json);
}

/* The return code of all: that of the first that failed, else 0. */
static int return_code(const struct result *r)
{
	for (size_t i = 0; i < r->n_outputs; i++) {
		const struct command_output *o = &r->outputs[i];

		if (o->done && o->outcome == OUTCOME_TIMEOUT)
			return TIMED_OUT;
		if (o->done && o->exit_code != 0)
			return o->exit_code;
	}
	return 0;
}

static bool is_plain(const struct command_output *o)
{
	return o->outcome == OUTCOME_EXIT && !o->signal.n && !o->reason.n && !o->out_truncated &&
	       !o->err_truncated;
}

/* Of several commands the texts follow one another. */
static void write_joined(struct ropewriter *w, const char *key, const struct result *r, bool err)
{
	jw_key(&w->json, key);
	ropewriter_str_begin(w);
	for (size_t i = 0; i < r->n_outputs; i++)
		if (r->outputs[i].done)
			ropewriter_str_part(w, err ? r->outputs[i].err : r->outputs[i].out);
	ropewriter_str_end(w);
}

static void write_bash_content(
        struct ropewriter *w, const struct item *call, const struct result *r)
{
	struct json_writer *j = &w->json;

	jw_object(j);
	jw_key(j, "command");
	write_commands(w, call->call.parsed);
	if (has_outputs(r) || !r->error.p) {
		write_joined(w, "stdout", r, false);
		write_joined(w, "stderr", r, true);
		jw_ki64(j, "exitCode", return_code(r));
		if (r->n_outputs == 1 && !is_plain(&r->outputs[0]))
			outputs_write_outcome(w, &r->outputs[0]);
	}
	if (r->error.p)
		ropewriter_kstr(w, "error", r->error);
	jw_end(j);
}

static void write_file_ids(struct ropewriter *w, const struct result *r)
{
	struct json_writer *j = &w->json;

	jw_key(j, "content");
	jw_array(j);
	for (size_t i = 0; i < r->n_files; i++) {
		_cleanup_buf_ struct buf id = BUF_INIT(65536);

		api_file_id_append(&id, r->files[i].path);
		jw_object(j);
		jw_kcstr(j, "type", "bash_code_execution_output");
		jw_kstr(j, "file_id", (struct str){id.data, id.len});
		jw_end(j);
	}
	jw_end(j);
}

static void write_coded_error(struct ropewriter *w, const struct item *call, const struct result *r)
{
	struct json_writer *j = &w->json;

	jw_object(j);
	jw_kcstr(j, "type", "bash_code_execution_tool_result_error");
	jw_kcstr(j, "error_code", call->call.error.p ? "invalid_tool_input" : "unavailable");
	ropewriter_kstr(w, "error_message", r->error);
	jw_end(j);
}

static void write_coded_content(
        struct ropewriter *w, const struct item *call, const struct result *r)
{
	struct json_writer *j = &w->json;

	if (r->error.p && !has_outputs(r)) {
		write_coded_error(w, call, r);
		return;
	}
	jw_object(j);
	jw_kcstr(j, "type", "bash_code_execution_result");
	write_joined(w, "stdout", r, false);
	write_joined(w, "stderr", r, true);
	jw_ki64(j, "return_code", return_code(r));
	write_file_ids(w, r);
	if (r->n_outputs != 1)
		write_list(w, r);
	else if (!is_plain(&r->outputs[0]))
		outputs_write_outcome(w, &r->outputs[0]);
	if (r->error.p)
		ropewriter_kstr(w, "error", r->error);
	jw_end(j);
}

static void write_files(struct ropewriter *w, const struct result *r)
{
	if (r->container_id.n > 0)
		jw_kstr(&w->json, "container_id", r->container_id);
	outputs_write_files(w, r);
}

static void write_server_result(
        struct ropewriter *w, const struct messages_state *s, const struct messages_block *b)
{
	static const char *const types[] = {
	        [SHAPE_OPENROUTER_SHELL] = "openrouter_shell_tool_result",
	        [SHAPE_OPENROUTER_BASH] = "openrouter_bash_tool_result",
	        [SHAPE_CODE_EXECUTION] = "bash_code_execution_tool_result",
	};
	enum messages_shape shape = messages_shape_of(s->request, b->item);
	struct result none = {.error = STR("There is no result: the call was interrupted.")};
	const struct result *r = b->result ? &b->result->result : &none;
	struct json_writer *j = &w->json;

	jw_object(j);
	jw_kcstr(j, "type", types[shape]);
	write_id(j, "tool_use_id", b->item, true);
	jw_key(j, "content");
	if (shape == SHAPE_CODE_EXECUTION)
		write_coded_content(w, b->item, r);
	else if (shape == SHAPE_OPENROUTER_BASH)
		write_bash_content(w, b->item, r);
	else
		write_shell_content(w, r);
	write_files(w, r);
	outputs_write_warnings(w, s->request->shell);
	jw_end(j);
}

/* ---- other blocks ---- */

/* In JSON newlines stand only between values; in a line of a stream they would end it. */
void messages_write_raw(struct ropewriter *w, struct str raw)
{
	struct buf text = BUF_INIT((size_t)64 << 20);

	if (!memchr(raw.p, '\n', raw.n) && !memchr(raw.p, '\r', raw.n)) {
		ropewriter_raw(w, raw);
		return;
	}
	buf_append(&text, raw.p, raw.n);
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] == '\n' || text.data[i] == '\r')
			text.data[i] = ' ';
	jw_raw(&w->json, (struct str){text.data, text.len});
	buf_free(&text);
}

static void write_thinking(struct ropewriter *w, const struct item *it, bool fresh)
{
	static const struct item nothing;
	struct json_writer *j = &w->json;

	jw_object(j);
	jw_kcstr(j, "type", "thinking");
	jw_key(j, "thinking");
	ropewriter_str_begin(w);
	for (size_t i = 0; i < it->n_parts && !fresh; i++) {
		if (i > 0)
			ropewriter_str_part(w, STR(MESSAGES_THOUGHT_BREAK));
		ropewriter_str_part(w, it->parts[i].text);
	}
	ropewriter_str_end(w);
	jw_key(j, "signature");
	messages_signature_write(w, fresh ? &nothing : it);
	jw_end(j);
}

static void write_text(struct ropewriter *w, const struct messages_block *b, bool fresh)
{
	const struct item *it = b->item;
	struct str text = {NULL, 0};

	if (!fresh && it->raw.n > 0 && it->raw_dialect == DIALECT_ANTHROPIC && it->n_parts == 1) {
		messages_write_raw(w, it->raw); /* with its citations */
		return;
	}
	if (!fresh && b->part < it->n_parts)
		text = it->parts[b->part].text;
	jw_object(&w->json);
	jw_kcstr(&w->json, "type", "text");
	ropewriter_kstr(w, "text", text);
	jw_end(&w->json);
}

static void write_tool_use(struct ropewriter *w, const struct item *it, bool fresh)
{
	struct json_writer *j = &w->json;

	jw_object(j);
	jw_kcstr(j, "type", "tool_use");
	write_id(j, "id", it, false);
	ropewriter_kstr(w, "name", it->call.name);
	jw_key(j, "input");
	write_arguments(w, fresh ? STR("") : it->call.arguments);
	jw_end(j);
}

void messages_write_block(struct ropewriter *w, const struct messages_state *s,
        const struct messages_block *b, bool fresh)
{
	switch (b->kind) {
	case BLOCK_TEXT:
		write_text(w, b, fresh);
		break;
	case BLOCK_THINKING:
		write_thinking(w, b->item, fresh);
		break;
	case BLOCK_REDACTED:
		jw_object(&w->json);
		jw_kcstr(&w->json, "type", "redacted_thinking");
		ropewriter_kstr(w, "data", b->item->opaque);
		jw_end(&w->json);
		break;
	case BLOCK_TOOL_USE:
		write_tool_use(w, b->item, fresh);
		break;
	case BLOCK_SERVER_CALL:
		write_server_call(w, s, b->item, fresh);
		break;
	case BLOCK_SERVER_RESULT:
		write_server_result(w, s, b);
		break;
	case BLOCK_RAW:
		messages_write_raw(w, b->item->raw);
		break;
	}
}

/* ---- usage ---- */

void messages_write_usage(struct ropewriter *w, const struct messages_state *s, bool first)
{
	static const struct usage none;
	const struct usage *u = s->totals ? &s->totals->usage : &none;
	uint64_t cached = u->cached + u->cache_write;
	uint64_t input = u->input > cached ? u->input - cached : 0;
	struct json_writer *j = &w->json;

	if (first && !u->given)
		input = s->request->echo->estimate;
	jw_object(j);
	jw_ki64(j, "input_tokens", (int64_t)input);
	jw_ki64(j, "cache_creation_input_tokens", (int64_t)u->cache_write);
	jw_ki64(j, "cache_read_input_tokens", (int64_t)u->cached);
	jw_ki64(j, "output_tokens", (int64_t)u->output);
	if (!first) {
		jw_key(j, "output_tokens_details");
		jw_object(j);
		jw_ki64(j, "thinking_tokens", (int64_t)u->reasoning);
		jw_end(j);
		jw_knull(j, "server_tool_use");
		if (s->totals)
			api_write_cost(j, s->who, s->totals, "upstream_inference_prompt_cost",
			        "upstream_inference_completions_cost",
			        s->request->conversation->has_server_tool);
	}
	jw_end(j);
}

/* ---- the message ---- */

/* Anthropic's own field, which clients of its code execution hand back to stay in one container. */
static void write_container(struct ropewriter *w, const struct messages_state *s)
{
	const struct turn_request *r = s->request;
	char text[40];
	struct tm tm;
	time_t until;

	if (!s->ended || !r->shell || !str_starts(r->shell->type, "brig:") || !s->totals ||
	        !s->totals->commands_started) {
		jw_knull(&w->json, "container");
		return;
	}
	until = (time_t)s->who->created_s + (time_t)r->echo->keep_days * 24 * 3600;
	gmtime_r(&until, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	jw_key(&w->json, "container");
	jw_object(&w->json);
	jw_kcstr(&w->json, "id", r->container_id);
	jw_kcstr(&w->json, "expires_at", text);
	jw_end(&w->json);
}

void messages_write_end(struct ropewriter *w, const struct messages_state *s)
{
	struct json_writer *j = &w->json;

	jw_kcstr(j, "stop_reason", s->stop_reason);
	if (s->stop_sequence.p)
		ropewriter_kstr(w, "stop_sequence", s->stop_sequence);
	else
		jw_knull(j, "stop_sequence");
	if (s->stop_reason && str_is(str_of(s->stop_reason), "refusal")) {
		jw_key(j, "stop_details");
		jw_object(j);
		jw_kcstr(j, "type", "refusal");
		jw_knull(j, "category");
		jw_knull(j, "explanation");
		jw_end(j);
	} else {
		jw_knull(j, "stop_details");
	}
	write_container(w, s);
}

void messages_write_head(struct ropewriter *w, const struct messages_state *s)
{
	struct json_writer *j = &w->json;

	jw_object(j);
	jw_kcstr(j, "id", s->id);
	jw_kcstr(j, "type", "message");
	jw_kcstr(j, "role", "assistant");
	jw_kcstr(j, "model", s->who->model);
	jw_key(j, "content");
	jw_array(j);
}

void messages_write_tail(struct ropewriter *w, const struct messages_state *s)
{
	jw_end(&w->json);
	messages_write_end(w, s);
	jw_key(&w->json, "usage");
	messages_write_usage(w, s, !s->ended);
	if (s->who->provider)
		jw_kcstr(&w->json, "provider", s->who->provider);
	if (s->ended && s->who->metadata)
		jw_kraw(&w->json, "openrouter_metadata", str_of(s->who->metadata));
	jw_end(&w->json);
}
