/*
 * Theory of operation. A request is read once, and copied member by member of the object that it
 * is: a member that is left out takes its comma with it, the model's value is written anew.
 *
 * The answer goes through two small machines, a byte at a time. One follows the lines of
 * server-sent events and knows which bytes are data and where an event ends. The other follows the
 * JSON in the data, just as far as is needed to know, for the two outermost levels, which member a
 * value belongs to. Neither judges: what is no JSON passes like everything else. All bytes are
 * appended to `held`, but for the string that is the model's name, which is kept aside until it has
 * ended and then replaced; where it does not end it is given back. `held` moves on at the end of an
 * event, or when it is full.
 */
#include "api/relay.h"

#include "base/mem.h"
#include "json/json.h"

#include <stdlib.h>

enum {
	HELD_MAX = 64 * 1024, /* an event up to here is passed on whole */
	HELD_KEPT =
	        1024, /* memory that is kept between events: most streams wait most of the time */
	VALUE_MAX = 4096, /* a model's name is shorter */
	KEY_MAX = 64,
	LEVELS = 2, /* of objects, in which members have a meaning */
	PATHS = 3,
};

enum relay_use { USE_MODEL, USE_ID, USE_SEQUENCE, USE_ANSWER, USE_ERROR };

/* A member of an event: of the outermost object, or of an object in it. */
struct relay_path {
	const char *keys[LEVELS]; /* the second NULL: of the outermost */
	enum relay_use use;
};

struct relay_rule {
	const char *const *ours;       /* members of a request that are for brig alone */
	const char *const *openrouter; /* … and those that OpenRouter knows too, and nobody else */
	bool model_in_body;
	struct relay_path event[PATHS]; /* of an event; ends with one without a key */
	struct relay_path whole[PATHS]; /* of a whole answer */
};

/* ---- the dialects ---- */

static const char *const ours[] = {"models", NULL};
static const char *const ours_responses[] = {"models", "seed", "stop", NULL};
static const char *const openrouter_chat[] = {"cache_control", "debug", "image_config", "plugins",
        "provider", "route", "session_id", "trace", "transforms", "usage", NULL};
static const char *const openrouter_responses[] = {"cache_control", "debug", "image_config",
        "modalities", "plugins", "provider", "route", "session_id", "stop_server_tools_when",
        "top_k", "trace", "transforms", "usage", NULL};
static const char *const openrouter_messages[] = {"debug", "fallbacks", "max_tool_calls", "plugins",
        "prompt_cache_key", "provider", "route", "session_id", "stop_server_tools_when", "trace",
        "transforms", "usage", "user", NULL};
static const char *const openrouter_gemini[] = {"session_id", NULL};

static const struct relay_rule rules[] = {
        [DIALECT_OPENAI_CHAT] = {.ours = ours,
                .openrouter = openrouter_chat,
                .model_in_body = true,
                .event = {{{"model"}, USE_MODEL}},
                .whole = {{{"model"}, USE_MODEL}, {{"choices"}, USE_ANSWER},
                        {{"error"}, USE_ERROR}}},
        [DIALECT_OPENAI_RESPONSES] = {.ours = ours_responses,
                .openrouter = openrouter_responses,
                .model_in_body = true,
                .event = {{{"response", "model"}, USE_MODEL}, {{"response", "id"}, USE_ID},
                        {{"sequence_number"}, USE_SEQUENCE}},
                .whole = {{{"model"}, USE_MODEL}, {{"output"}, USE_ANSWER},
                        {{"error"}, USE_ERROR}}},
        [DIALECT_ANTHROPIC] = {.ours = ours,
                .openrouter = openrouter_messages,
                .model_in_body = true,
                .event = {{{"message", "model"}, USE_MODEL}},
                .whole = {{{"model"}, USE_MODEL}, {{"content"}, USE_ANSWER},
                        {{"error"}, USE_ERROR}}},
        [DIALECT_GEMINI] = {.ours = ours,
                .openrouter = openrouter_gemini,
                .event = {{{"modelVersion"}, USE_MODEL}},
                .whole = {{{"modelVersion"}, USE_MODEL}, {{"candidates"}, USE_ANSWER},
                        {{"error"}, USE_ERROR}}},
};

/* ---- the request ---- */

struct copying {
	const struct relay_rule *rule;
	struct str body, model;
	bool to_openrouter;
	struct buf *out;
	unsigned depth;
	size_t done;   /* where the member before ends, or the first one may begin */
	size_t key_at; /* of the member that is being read */
	struct str key;
	size_t value_at;
	bool any, has_model;
};

static bool in_list(struct str key, const char *const *list)
{
	for (; *list; list++)
		if (str_is(key, *list))
			return true;
	return false;
}

/* Names that matter here hold no escape; JSON lets them be written with some. */
static struct str key_text(const struct json_event *ev, char room[KEY_MAX])
{
	if (!ev->escaped)
		return (struct str){ev->raw.p + 1, ev->raw.n - 2};
	if (ev->raw.n > KEY_MAX)
		return (struct str){NULL, 0};
	return (struct str){room, json_unescape(ev->raw, room)};
}

static void copy(struct copying *c, size_t from, size_t to)
{
	buf_append(c->out, c->body.p + from, to - from);
}

/* What stands between two members, or before the first: space and a comma, which only one that has
 * another before it keeps. */
static void copy_gap(struct copying *c, size_t from, size_t to)
{
	const char *comma = memchr(c->body.p + from, ',', to - from);
	size_t at = comma ? (size_t)(comma - c->body.p) : to;

	copy(c, from, at);
	if (c->any)
		buf_putc(c->out, ',');
	if (comma)
		copy(c, at + 1, to);
}

static void member_end(struct copying *c, size_t end)
{
	bool out = in_list(c->key, c->rule->ours) ||
	           (!c->to_openrouter && in_list(c->key, c->rule->openrouter));
	bool model = c->rule->model_in_body && str_is(c->key, "model");

	if (!out) {
		copy_gap(c, c->done, c->key_at);
		copy(c, c->key_at, model ? c->value_at : end);
		c->any = true;
	}
	if (model) {
		json_write_str(c->out, c->model);
		c->has_model = true;
	}
	c->done = end;
}

static int on_event(void *ctx, const struct json_event *ev)
{
	struct copying *c = ctx;
	char room[KEY_MAX];
	bool begins = ev->type == JSON_EV_OBJECT_BEGIN || ev->type == JSON_EV_ARRAY_BEGIN;
	bool ends = ev->type == JSON_EV_OBJECT_END || ev->type == JSON_EV_ARRAY_END;

	if (c->depth == 0) { /* the object itself */
		c->depth = 1;
		c->done = ev->offset + 1;
		copy(c, 0, c->done);
		return 0;
	}
	if (c->depth == 1 && ev->type == JSON_EV_KEY) {
		struct str text = key_text(ev, room);
		size_t i = 0;

		/* What is on no list needs no name: the text may lie in room. */
		c->key = (struct str){NULL, 0};
		for (const char *const *lists[] = {c->rule->ours, c->rule->openrouter}; i < 2; i++)
			for (const char *const *name = lists[i]; *name; name++)
				if (str_is(text, *name))
					c->key = str_of(*name);
		if (str_is(text, "model"))
			c->key = STR("model");
		c->key_at = ev->offset;
		return buf_error(c->out);
	}
	if (c->depth == 1 && !ends)
		c->value_at = ev->offset;
	c->depth += begins;
	c->depth -= ends;
	if (c->depth == 1 && ends)
		member_end(c, ev->offset + 1);
	else if (c->depth == 1)
		member_end(c, ev->offset + ev->raw.n);
	return buf_error(c->out);
}

int relay_request(
        enum dialect d, struct str body, struct str model, bool to_openrouter, struct buf *out)
{
	struct copying c = {.rule = &rules[d],
	        .body = body,
	        .model = model,
	        .to_openrouter = to_openrouter,
	        .out = out};
	int rc = json_read(body, on_event, &c, NULL);

	if (rc < 0)
		return rc;
	if (c.rule->model_in_body && !c.has_model) { /* the first of `models` was meant */
		buf_puts(out, c.any ? ",\"model\":" : "\"model\":");
		json_write_str(out, model);
	}
	copy(&c, c.done, body.n);
	return buf_error(out);
}

bool relay_holds_sealed(struct str body)
{
	/* As it is, and as a thoughtSignature has it: in base64. */
	return str_contains(body, "\"brig1.") || str_contains(body, "\"YnJpZzEu");
}

/* ---- the answer: state ---- */

enum line { LINE_START, LINE_FIELD, LINE_SPACE, LINE_DATA, LINE_OTHER };

struct relay {
	enum dialect dialect;
	const struct relay_path *paths;
	bool events;
	struct str model;
	struct buf held;      /* not passed on yet; with it belongs: */
	const char *run, *at; /* while bytes are fed: those from run to at */
	bool begun;           /* part of the event that is in held was passed on */

	enum line line;
	unsigned matched; /* bytes of "data" */
	unsigned bom;
	bool after_cr; /* an LF now belongs to the line's end before it */
	bool crlf;     /* such a pair was seen */
	bool end_due;  /* an event has ended, and the LF of its last CR may still come */

	unsigned depth;
	bool is_object[LEVELS + 1], key_next;
	unsigned open[LEVELS + 1]; /* paths that lead into the object at this level */
	unsigned found;            /* paths that the last key matches */
	bool in_string, escaped, in_key, in_number;
	struct buf text; /* of a key, or of a string that is looked for, with its quotes: */
	bool taken;      /* the string goes there */
	bool kept;       /* … and not on */
	bool copied;     /* … and on, too */

	struct buf id;    /* of the response */
	int64_t sequence; /* of the last whole event; -1: none */
	int64_t number;   /* of this event */
	bool has_answer, has_error;
};

/* n bytes from `at` on stay as they are. */
static void keep(struct relay *r, size_t n)
{
	r->at += n;
}

static size_t run_len(const struct relay *r)
{
	return (size_t)(r->at - r->run);
}

static void flush(struct relay *r)
{
	if (run_len(r) > 0)
		buf_append(&r->held, r->run, run_len(r));
	r->run = r->at;
}

/* The byte at `at` is left out. */
static void leave_out(struct relay *r)
{
	flush(r);
	r->run = ++r->at;
}

/* ---- JSON ---- */

static unsigned paths_all(const struct relay *r)
{
	unsigned all = 0;

	for (unsigned i = 0; i < PATHS && r->paths[i].keys[0]; i++)
		all |= 1u << i;
	return all;
}

/* Does the last key complete a path of this use? */
static bool wants(const struct relay *r, enum relay_use use)
{
	for (unsigned i = 0; i < PATHS; i++)
		if ((r->found >> i & 1) && r->paths[i].use == use &&
		        (r->paths[i].keys[1] != NULL) == (r->depth == LEVELS))
			return true;
	return false;
}

static int ignore(void *ctx, const struct json_event *ev)
{
	return 0;
}

static void key_end(struct relay *r)
{
	struct str raw = {r->text.data, r->text.len}, key;
	char room[KEY_MAX];

	r->found = 0;
	if (!r->taken || raw.n < 2 || raw.n > KEY_MAX)
		return;
	key = (struct str){raw.p + 1, raw.n - 2};
	if (memchr(raw.p, '\\', raw.n)) {
		if (json_read(raw, ignore, NULL, NULL) < 0)
			return;
		key = (struct str){room, json_unescape(raw, room)};
	}
	for (unsigned i = 0; i < PATHS; i++)
		if ((r->open[r->depth] >> i & 1) && r->paths[i].keys[r->depth - 1] &&
		        str_is(key, r->paths[i].keys[r->depth - 1]))
			r->found |= 1u << i;
}

/* The last key's value begins, and is not null. */
static void value_begin(struct relay *r)
{
	if (!r->found)
		return;
	r->has_answer = r->has_answer || wants(r, USE_ANSWER);
	r->has_error = r->has_error || wants(r, USE_ERROR);
}

static void string_begin(struct relay *r)
{
	bool counts = r->depth >= 1 && r->depth <= LEVELS;

	r->in_string = true;
	r->escaped = false;
	r->in_key = counts && r->is_object[r->depth] && r->key_next;
	if (!r->in_key)
		value_begin(r);
	r->kept = counts && !r->in_key && r->found && wants(r, USE_MODEL);
	r->copied = counts && !r->in_key && r->found && wants(r, USE_ID);
	r->taken = r->in_key ? r->open[r->depth] != 0 : r->kept || r->copied;
	buf_reset(&r->text);
	if (r->taken)
		buf_putc(&r->text, '"');
	if (r->kept)
		leave_out(r);
	else
		keep(r, 1);
}

/* It was no name after all. */
static void give_back(struct relay *r)
{
	if (!r->kept)
		return;
	r->kept = r->taken = false;
	flush(r);
	buf_append(&r->held, r->text.data, r->text.len);
	buf_reset(&r->text);
}

static void string_end(struct relay *r)
{
	r->in_string = false;
	if (r->in_key) {
		r->in_key = r->key_next = false;
		key_end(r);
		return;
	}
	if (r->kept)
		json_write_str(&r->held, r->model);
	else if (r->copied && !buf_error(&r->text)) {
		buf_reset(&r->id);
		buf_append(&r->id, r->text.data, r->text.len);
	}
	r->kept = r->copied = r->taken = false;
	r->found = 0;
}

static void string_byte(struct relay *r, char c)
{
	if (r->kept && r->text.len == VALUE_MAX)
		give_back(r);
	if (r->taken)
		buf_putc(&r->text, c);
	if (r->kept)
		leave_out(r);
	else
		keep(r, 1);
	if (r->escaped)
		r->escaped = false;
	else if (c == '\\')
		r->escaped = true;
	else if (c == '"')
		string_end(r);
}

static void container_begin(struct relay *r, bool object)
{
	unsigned into = 0;

	value_begin(r);
	/* An array of answers is as good as one after the other. */
	if (r->depth == 0 && !object)
		return;
	if (r->depth == 0)
		into = paths_all(r);
	else if (r->depth < LEVELS)
		for (unsigned i = 0; i < PATHS; i++)
			if ((r->found >> i & 1) && r->paths[i].keys[r->depth])
				into |= 1u << i;
	if (r->depth < UINT32_MAX)
		r->depth++;
	r->found = 0;
	r->key_next = object;
	if (r->depth <= LEVELS) {
		r->is_object[r->depth] = object;
		r->open[r->depth] = object ? into : 0;
	}
}

static void sequence_digit(struct relay *r, char c)
{
	if (!r->in_number)
		r->number = 0;
	r->in_number = true;
	if (r->number < INT64_MAX / 16)
		r->number = r->number * 10 + (c - '0');
}

static void scan(struct relay *r, char c)
{
	if (r->in_string) {
		string_byte(r, c);
		return;
	}
	if (c == '"') {
		string_begin(r);
		return;
	}
	keep(r, 1);
	if (c >= '0' && c <= '9') {
		if (r->found && wants(r, USE_SEQUENCE))
			sequence_digit(r, c);
		return;
	}
	r->in_number = false;
	if (c == '{' || c == '[') {
		container_begin(r, c == '{');
	} else if (c == '}' || c == ']') {
		r->depth -= r->depth > 0;
		r->found = 0;
		r->key_next = false;
	} else if (c == ',') {
		r->found = 0;
		r->key_next = true;
	}
}

/* The inside of most strings is of no interest. */
static size_t skip(struct relay *r, size_t n)
{
	const char *p = r->at;
	size_t i = 0;

	if (!r->in_string || r->escaped || r->taken)
		return 0;
	while (i < n && p[i] != '"' && p[i] != '\\' && p[i] != '\n' && p[i] != '\r')
		i++;
	keep(r, i);
	return i;
}

static void scan_reset(struct relay *r)
{
	give_back(r);
	r->depth = 0;
	r->found = 0;
	r->in_string = r->in_key = r->taken = r->copied = r->in_number = r->key_next = false;
}

/* ---- lines ---- */

static int pass_on(struct relay *r, struct buf *out)
{
	int rc = buf_error(&r->held);

	if (!rc && r->held.len > 0)
		rc = buf_append(out, r->held.data, r->held.len);
	if (!rc && run_len(r) > 0)
		rc = buf_append(out, r->run, run_len(r));
	r->run = r->at;
	if (r->held.cap > HELD_KEPT)
		buf_free(&r->held);
	buf_reset(&r->held);
	return rc;
}

static int event_end(struct relay *r, struct buf *out)
{
	r->begun = r->end_due = false;
	return pass_on(r, out);
}

static int line_end(struct relay *r, char c, struct buf *out)
{
	bool blank = r->line == LINE_START;

	give_back(r); /* no name has a line's end in it */
	keep(r, 1);
	r->line = LINE_START;
	r->matched = 0;
	r->after_cr = c == '\r';
	if (!blank)
		return 0;
	if (r->number >= 0)
		r->sequence = r->number;
	r->number = -1;
	scan_reset(r);
	r->end_due = r->crlf && c == '\r';
	return r->end_due ? 0 : event_end(r, out);
}

static void line_byte(struct relay *r, char c)
{
	switch (r->line) {
	case LINE_START:
	case LINE_FIELD:
		keep(r, 1);
		if (r->matched < 4 && c == "data"[r->matched]) {
			r->matched++;
			r->line = LINE_FIELD;
		} else {
			r->line = r->matched == 4 && c == ':' ? LINE_SPACE : LINE_OTHER;
		}
		break;
	case LINE_SPACE:
		r->line = LINE_DATA;
		if (c == ' ')
			keep(r, 1);
		else
			scan(r, c);
		break;
	case LINE_DATA:
		scan(r, c);
		break;
	case LINE_OTHER:
		keep(r, 1);
		break;
	}
}

/* Skips a byte order mark, and gives false for any other byte. */
static bool is_bom(struct relay *r, char c)
{
	if (r->bom < 3 && c == "\xef\xbb\xbf"[r->bom]) {
		r->bom++;
		keep(r, 1);
		return true;
	}
	if (r->bom > 0 && r->bom < 3)
		r->line = LINE_OTHER;
	r->bom = 3;
	return false;
}

static int event_byte(struct relay *r, char c, struct buf *out)
{
	int rc = 0;

	if (r->bom < 3 && is_bom(r, c))
		return 0;
	if (r->after_cr && c == '\n') {
		r->after_cr = false;
		r->crlf = true;
		keep(r, 1);
		/* Of an event that has ended already where such ends were not known yet. */
		return r->end_due || r->held.len + run_len(r) == 1 ? event_end(r, out) : 0;
	}
	r->after_cr = false;
	if (r->end_due)
		rc = event_end(r, out);
	if (c == '\n' || c == '\r')
		return rc ? rc : line_end(r, c, out);
	line_byte(r, c);
	return rc;
}

/* ---- the seam ---- */

struct relay *relay_new(enum dialect d, bool events, struct str model)
{
	struct relay *r = mem_alloc(sizeof(*r));

	r->dialect = d;
	r->events = events;
	r->paths = events ? rules[d].event : rules[d].whole;
	r->model = model;
	r->sequence = r->number = -1;
	buf_init(&r->held, SIZE_MAX / 2);
	buf_init(&r->text, VALUE_MAX);
	buf_init(&r->id, VALUE_MAX);
	return r;
}

struct relay *relay_free(struct relay *r)
{
	if (!r)
		return NULL;
	buf_free(&r->held);
	buf_free(&r->text);
	buf_free(&r->id);
	free(r);
	return NULL;
}

int relay_feed(struct relay *r, const void *data, size_t n, struct buf *out)
{
	const char *end = (const char *)data + n;
	int rc = 0;

	r->run = r->at = data;
	while (r->at < end && !rc) {
		bool data_here = !r->events || r->line == LINE_DATA;
		size_t skipped = data_here ? skip(r, (size_t)(end - r->at)) : 0;

		if (skipped == 0 && r->events)
			rc = event_byte(r, *r->at, out);
		else if (skipped == 0)
			scan(r, *r->at);
		if (!rc && r->held.len + run_len(r) > HELD_MAX) {
			r->begun = true;
			rc = pass_on(r, out);
		}
	}
	if (!rc && !r->events)
		rc = pass_on(r, out);
	flush(r);
	r->run = r->at = NULL;
	return rc ? rc : buf_error(&r->held);
}

int relay_end(struct relay *r, struct buf *out)
{
	give_back(r);
	return pass_on(r, out);
}

bool relay_is_answer(const struct relay *r)
{
	return !r->events && r->depth == 0 && !r->in_string && r->has_answer && !r->has_error;
}

bool relay_between(const struct relay *r)
{
	return r->events && !r->begun && (r->held.len == 0 || r->end_due);
}

void relay_break(struct relay *r, const struct api_identity *who, bool under_v1,
        const struct error *e, struct buf *out)
{
	const struct relay_place place = {
	        .id = {r->id.data, r->id.len},
	        .sequence = r->sequence,
	};

	if (r->begun)
		buf_puts(out, r->line == LINE_START ? "\n" : "\n\n");
	buf_reset(&r->held);
	r->begun = false;
	relay_error_write(r->dialect, &place, who, under_v1, e, out);
}
