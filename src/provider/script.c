/*
 * Theory of operation. The last user message is read as a script: fenced blocks are commands, and a
 * line
 * `---` between blocks begins the next call. The calls that were already made for it are the server
 * tool calls that stand after it in the conversation, so call number n of the script is due when
 * there are n of them; when all were made, or none may be, the answer is text that shows what each
 * command printed.
 *
 * Nothing is kept between requests and no text is invented: what it says is this file's or the
 * commands'.
 */
#include "provider/script.h"

#include "base/id.h"
#include "base/mem.h"
#include "json/json.h"

#include <stdlib.h>

#define MESSAGE_MAX   ((size_t)64 << 20)
#define ARGUMENTS_MAX ((size_t)128 << 20)
#define BLOCKS_MAX    10000
#define FLUSH_AT      ((size_t)16 << 10)

struct block {
	struct str command; /* without the line break before the closing fence; may hold CRLF */
	struct str timeout_ms, max_output_length; /* digits, or {NULL,0} */
	size_t call;                              /* number of the call it belongs to */
};

struct script {
	struct buf text; /* of the user's message */
	struct block *blocks;
	size_t n_blocks, cap;
	size_t n_calls;
};

/* ---- reading the message ---- */

static bool next_line(struct str *rest, struct str *ret)
{
	const char *nl;

	if (!rest->n)
		return false;
	nl = memchr(rest->p, '\n', rest->n);
	*ret = (struct str){rest->p, nl ? (size_t)(nl - rest->p) : rest->n};
	rest->p += ret->n + (nl ? 1 : 0);
	rest->n -= ret->n + (nl ? 1 : 0);
	return true;
}

static struct str without_cr(struct str line)
{
	while (line.n && line.p[line.n - 1] == '\r')
		line.n--;
	return line;
}

/* Length of the run of fence characters that begins the line (0: no fence), up to 3 spaces allowed.
 */
static size_t fence_length(struct str line, char *ret_mark, struct str *ret_info)
{
	size_t i = 0, n = 0;

	while (i < line.n && i < 3 && line.p[i] == ' ')
		i++;
	if (i == line.n || (line.p[i] != '`' && line.p[i] != '~'))
		return 0;
	*ret_mark = line.p[i];
	while (i + n < line.n && line.p[i + n] == *ret_mark)
		n++;
	*ret_info = str_trim((struct str){line.p + i + n, line.n - i - n});
	return n < 3 ? 0 : n;
}

static bool next_word(struct str *rest, struct str *ret)
{
	size_t n = 0;

	*rest = str_trim(*rest);
	while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != '\t')
		n++;
	*ret = (struct str){rest->p, n};
	rest->p += n;
	rest->n -= n;
	return n > 0;
}

static void read_option(struct str word, const char *name, struct str *ret)
{
	struct str value;

	if (!str_starts(word, name))
		return;
	value = (struct str){word.p + strlen(name), word.n - strlen(name)};
	/* No leading zero and not beyond what JSON readers hold: it is written as a number. */
	if (value.n <= 15 && str_in_set(value, "0123456789") && (value.n == 1 || value.p[0] != '0'))
		*ret = value;
}

/* Reads what follows the fence. False: the block is in another language. */
static bool read_info(struct str info, struct block *b)
{
	struct str word;
	bool first = true;

	while (next_word(&info, &word)) {
		bool option = memchr(word.p, '=', word.n) != NULL;

		if (first && !option && !str_ieq(word, STR("sh")) && !str_ieq(word, STR("bash")) &&
		        !str_ieq(word, STR("shell")))
			return false;
		first = false;
		read_option(word, "timeout_ms=", &b->timeout_ms);
		read_option(word, "max_output_length=", &b->max_output_length);
	}
	return true;
}

/* Takes the lines up to the closing fence (or the end of the message) as the block's command. */
static void read_block(struct str *rest, char mark, size_t length, struct block *b)
{
	const char *from = rest->p;
	struct str line;
	size_t end = 0;

	while (next_line(rest, &line)) {
		struct str info;
		char c;

		if (fence_length(line = without_cr(line), &c, &info) >= length && c == mark &&
		        !info.n)
			break;
		end = (size_t)(line.p + line.n - from);
	}
	b->command = (struct str){from, end};
}

static bool is_blank(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!memchr(" \t\r\n", s.p[i], 4))
			return false;
	return true;
}

static void read_script(struct script *s)
{
	struct str rest = {buf_cstr(&s->text), s->text.len};
	struct str line, info;
	size_t call = 0;
	bool divided = false;

	while (next_line(&rest, &line) && s->n_blocks < BLOCKS_MAX) {
		struct block b = {0};
		size_t length;
		char mark;

		line = without_cr(line);
		if (str_is(str_trim(line), "---")) {
			divided = s->n_blocks > 0;
			continue;
		}
		length = fence_length(line, &mark, &info);
		if (!length || (mark == '`' && info.n && memchr(info.p, '`', info.n)))
			continue; /* text, or `code` between runs of backticks within one line */
		if (!read_info(info, &b)) {
			read_block(&rest, mark, length, &b);
			continue;
		}
		read_block(&rest, mark, length, &b);
		if (is_blank(b.command))
			continue;
		call += divided;
		divided = false;
		b.call = call;
		mem_grow(&s->blocks, &s->cap, s->n_blocks, sizeof(*s->blocks));
		s->blocks[s->n_blocks++] = b;
		s->n_calls = call + 1;
	}
}

/* Index of the last user message, or n_items. */
static size_t last_user(const struct conversation *c)
{
	for (size_t i = c->n_items; i-- > 0;)
		if (c->items[i]->type == ITEM_MESSAGE && c->items[i]->role == ROLE_USER)
			return i;
	return c->n_items;
}

static int load_script(struct script *s, const struct conversation *c, size_t at)
{
	const struct item *it = at < c->n_items ? c->items[at] : NULL;

	for (size_t i = 0; it && i < it->n_parts; i++) {
		if (it->parts[i].type != PART_TEXT)
			continue;
		if (s->text.len)
			buf_putc(&s->text, '\n');
		buf_append(&s->text, it->parts[i].text.p, it->parts[i].text.n);
	}
	if (buf_error(&s->text))
		return buf_error(&s->text);
	read_script(s);
	return 0;
}

/* ---- speaking ---- */

struct speaker {
	stream_fn emit;
	void *ctx;
	int r; /* sticks */
	struct buf text;
};

static void emit(struct speaker *s, const struct stream_event *ev)
{
	if (s->r == 0)
		s->r = s->emit(s->ctx, ev);
}

static void flush(struct speaker *s, struct str text)
{
	struct stream_event ev = {.type = STREAM_DELTA,
	        .item_type = ITEM_MESSAGE,
	        .part_type = PART_TEXT,
	        .text = text};

	if (text.n)
		emit(s, &ev);
}

static void say(struct speaker *s, struct str text)
{
	if (s->text.len + text.n >= FLUSH_AT) {
		flush(s, (struct str){s->text.data, s->text.len});
		buf_reset(&s->text);
	}
	if (text.n >= FLUSH_AT)
		flush(s, text);
	else
		buf_append(&s->text, text.p, text.n);
}

static void say_line(struct speaker *s, const char *text)
{
	say(s, str_of(text));
	say(s, STR("\n"));
}

static void emit_end(struct speaker *s, enum finish finish)
{
	struct stream_event usage = {.type = STREAM_USAGE, .usage = {.given = true}};
	struct stream_event end = {.type = STREAM_END, .finish = finish};

	emit(s, &usage);
	emit(s, &end);
}

static void emit_call(struct speaker *s, struct str name, struct str arguments)
{
	char id[32];
	struct stream_event ev = {.type = STREAM_ITEM_BEGIN, .item_type = ITEM_CALL, .name = name};

	id_make(id, sizeof(id), "call_", 16);
	ev.id = str_of(id);
	emit(s, &ev);
	ev.type = STREAM_DELTA;
	ev.text = arguments;
	emit(s, &ev);
	ev.type = STREAM_ITEM_END;
	ev.text = (struct str){NULL, 0};
	emit(s, &ev);
	emit_end(s, FINISH_CALLS);
}

/* ---- calls ---- */

/* CRLF in a message is its transport's; in a command it would be an error of the shell. */
static int write_command(struct json_writer *w, struct str command)
{
	struct buf lf _cleanup_buf_ = BUF_INIT(MESSAGE_MAX);
	struct str line;

	if (!command.n || !memchr(command.p, '\r', command.n)) {
		jw_str(w, command);
		return 0;
	}
	while (next_line(&command, &line)) {
		if (lf.len)
			buf_putc(&lf, '\n');
		line = without_cr(line);
		buf_append(&lf, line.p, line.n);
	}
	jw_str(w, (struct str){lf.data, lf.len});
	return buf_error(&lf);
}

static int write_arguments(const struct script *s, size_t call, struct buf *out)
{
	struct str timeout = {NULL, 0}, output = {NULL, 0};
	struct json_writer w;
	int r = 0;

	jw_init(&w, out);
	jw_object(&w);
	jw_key(&w, "commands");
	jw_array(&w);
	for (size_t i = 0; i < s->n_blocks; i++) {
		const struct block *b = &s->blocks[i];

		if (b->call != call)
			continue;
		r = r ? r : write_command(&w, b->command);
		timeout = b->timeout_ms.p ? b->timeout_ms : timeout;
		output = b->max_output_length.p ? b->max_output_length : output;
	}
	jw_end(&w);
	if (timeout.p)
		jw_kraw(&w, "timeout_ms", timeout);
	if (output.p)
		jw_kraw(&w, "max_output_length", output);
	jw_end(&w);
	return r ? r : jw_done(&w);
}

/* ---- the answer ---- */

static void say_text(struct speaker *s, struct str text)
{
	if (!text.n)
		return;
	say(s, text);
	if (text.p[text.n - 1] != '\n')
		say(s, STR("\n"));
}

static void say_output(struct speaker *s, struct str command, const struct command_output *o)
{
	char line[160], signal[32], reason[64];

	say(s, STR("\n$ "));
	say_text(s, command);
	say_text(s, o->out);
	say_text(s, o->err);
	str_copy(signal, sizeof(signal), o->signal);
	str_copy(reason, sizeof(reason), o->reason);
	if (o->outcome == OUTCOME_TIMEOUT)
		str_format(line, sizeof(line), "[stopped at its deadline]");
	else if (o->signal.n)
		str_format(line, sizeof(line), "[ended by %s%s%s]", signal, reason[0] ? ": " : "",
		        reason);
	else
		str_format(line, sizeof(line), "[exit %d]", o->exit_code);
	say_line(s, line);
}

static void say_result(struct speaker *s, const struct item *call, const struct item *res)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *command = NULL;
	struct str error = res && res->result.error.n ? res->result.error : call->call.error;

	if (json_parse(call->call.arguments, MESSAGE_MAX, &doc, NULL) == 0)
		command = json_first(json_get(json_root(doc), "commands"));
	for (size_t i = 0; res && i < res->result.n_outputs; i++) {
		say_output(s, json_str(command), &res->result.outputs[i]);
		command = json_next(command);
	}
	for (size_t i = 0; res && i < res->result.n_parts; i++) {
		say(s, STR("\n"));
		say_text(s, res->result.parts[i].text);
	}
	if (error.n) {
		say(s, STR("\nNot run: "));
		say_text(s, error);
	} else if (!res) {
		say_line(s, "\nA call has no result.");
	}
}

static void say_usage(struct speaker *s, const char *why)
{
	say(s, STR("\nNothing was run: "));
	say_line(s, why);
	say_line(s, "\nWrite each command as a fenced block with no language, or with sh, bash or "
	            "shell:\n\n```bash\ncat /etc/os-release\n```\n");
	say_line(s,
	        "All blocks go into one call of the request's server tool, for example "
	        "{\"type\": \"openrouter:shell\"} in `tools`.\nA line `---` between two blocks "
	        "begins the next call. `timeout_ms=5000` and\n`max_output_length=1000` may follow "
	        "the language.");
}

/* What the conversation and the request come to. */
struct plan {
	struct script script;
	const struct tool_entry *tool; /* the server tool, where it may be called */
	bool has_tool;                 /* the request offers one */
	size_t user_at, n_made;
	bool named_made; /* the named function was called already */
};

static void say_answer(struct speaker *s, const struct conversation *c, const struct plan *p)
{
	struct stream_event begin = {.type = STREAM_ITEM_BEGIN, .item_type = ITEM_MESSAGE};
	struct stream_event end = {.type = STREAM_ITEM_END, .item_type = ITEM_MESSAGE};
	size_t n_shown = 0;

	emit(s, &begin);
	say_line(s,
	        "brig/script is no model: it runs the fenced blocks of your last message and shows "
	        "what they printed.");
	for (size_t i = p->user_at; i < c->n_items; i++)
		if (c->items[i]->type == ITEM_CALL) {
			say_result(s, c->items[i], conversation_call_result(c, c->items[i]));
			n_shown++;
		}
	if (p->n_made < p->script.n_calls && n_shown)
		say_line(s,
		        "\nThe blocks after these were not run: no further tool call is allowed.");
	else if (!n_shown && !p->script.n_blocks)
		say_usage(s, "your message holds no such block.");
	else if (!n_shown && !p->has_tool)
		say_usage(s, "the request offers no server tool.");
	else if (!n_shown)
		say_usage(s, "the request's tool_choice does not allow it.");
	flush(s, (struct str){s->text.data, s->text.len});
	emit(s, &end);
	emit_end(s, FINISH_STOP);
}

/* ---- deciding ---- */

static bool is_allowed(const struct upstream_call *call, struct str name)
{
	if (call->tools_off || call->choice.mode == CHOICE_NONE)
		return false;
	if (call->choice.mode == CHOICE_NAMED)
		return str_eq(call->choice.name, name);
	for (size_t i = 0; call->choice.restricted && i < call->choice.n_allowed; i++)
		if (str_eq(call->choice.allowed[i], name))
			return true;
	return !call->choice.restricted;
}

static int make_plan(const struct provider_call *pc, struct plan *p)
{
	const struct conversation *c = pc->conversation;

	for (size_t i = 0; i < c->n_tools; i++) {
		if (c->tools[i].kind != TOOL_SERVER)
			continue;
		p->has_tool = true;
		if (!p->tool && is_allowed(pc->call, c->tools[i].name))
			p->tool = &c->tools[i];
	}
	p->user_at = last_user(c);
	for (size_t i = p->user_at; i < c->n_items; i++) {
		const struct item *it = c->items[i];

		if (it->type != ITEM_CALL)
			continue;
		p->n_made += it->call.tool != NULL;
		p->named_made |= str_eq(it->call.name, pc->call->choice.name);
	}
	return load_script(&p->script, c, p->user_at);
}

/* tool_choice names a client's function: it is called, once, with no arguments. */
static bool must_call_function(const struct provider_call *pc, const struct plan *p)
{
	const struct conversation *c = pc->conversation;

	if (pc->call->tools_off || pc->call->choice.mode != CHOICE_NAMED || p->named_made)
		return false;
	for (size_t i = 0; i < c->n_tools; i++)
		if (c->tools[i].kind == TOOL_FUNCTION &&
		        str_eq(c->tools[i].name, pc->call->choice.name))
			return true;
	return false;
}

static int reply(const struct provider_call *pc, struct speaker *s, struct plan *p)
{
	struct stream_event begin = {.type = STREAM_BEGIN, .model = STR("script")};
	struct buf arguments _cleanup_buf_ = BUF_INIT(ARGUMENTS_MAX);
	char id[32];
	int r = make_plan(pc, p);

	if (r < 0)
		return r;
	id_make(id, sizeof(id), "script_", 16);
	begin.id = str_of(id);
	if (must_call_function(pc, p)) {
		emit(s, &begin);
		emit_call(s, pc->call->choice.name, STR("{}"));
	} else if (p->tool && p->n_made < p->script.n_calls) {
		r = write_arguments(&p->script, p->n_made, &arguments);
		if (r < 0)
			return r;
		emit(s, &begin);
		emit_call(s, p->tool->name, (struct str){arguments.data, arguments.len});
	} else {
		emit(s, &begin);
		say_answer(s, pc->conversation, p);
	}
	return s->r;
}

int script_reply(const struct provider_call *pc, stream_fn fn, void *ctx, struct error *err)
{
	struct speaker s = {.emit = fn, .ctx = ctx, .text = BUF_INIT(FLUSH_AT * 2)};
	struct plan p = {.script = {.text = BUF_INIT(MESSAGE_MAX)}};
	int r = reply(pc, &s, &p);

	buf_free(&s.text);
	buf_free(&p.script.text);
	free(p.script.blocks);
	if (r < 0 && s.r == 0)
		return error_set(err, ERR_TOO_LARGE, "the message is too large for brig/script");
	return r;
}
