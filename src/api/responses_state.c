/*
 * A request's body is looked over by events, so that a request that needs nothing stored costs no
 * tree. What is stored goes into the body as text, and the parser reads all of it as if the client
 * had sent it: the conversation is then the one that a client makes who sends everything again, and
 * so are the bytes that the model sees.
 */
#include "api/responses_state.h"

#include "base/mem.h"

#include <stdlib.h>

enum member { MEMBER_OTHER, MEMBER_PREVIOUS, MEMBER_LIST, MEMBER_TYPE, MEMBER_ROLE, MEMBER_ID };

struct scanner {
	struct responses_scan *scan;
	const char *text, *name;
	int depth;
	enum member top;   /* of the object */
	enum member inner; /* of the element */
	bool in_value;     /* of the member asked for: */
	bool in_list;      /* and that is an array */
};

static bool key_is(const struct json_event *ev, const char *name)
{
	char text[64];

	return ev->raw.n - 2 < sizeof(text) &&
	       str_is((struct str){text, json_unescape(ev->raw, text)}, name);
}

static void take_key(struct scanner *c, const struct json_event *ev)
{
	if (c->depth == 1)
		c->top = key_is(ev, c->name)                  ? MEMBER_LIST
		         : key_is(ev, "previous_response_id") ? MEMBER_PREVIOUS
		                                              : MEMBER_OTHER;
	else if (c->depth == 3 && c->in_list)
		c->inner = key_is(ev, "type")   ? MEMBER_TYPE
		           : key_is(ev, "role") ? MEMBER_ROLE
		           : key_is(ev, "id")   ? MEMBER_ID
		                                : MEMBER_OTHER;
}

/* A member of an element. */
static void take_member(struct scanner *c, const struct json_event *ev)
{
	struct responses_element *e = &c->scan->elements[c->scan->n - 1];
	bool is_string = ev->type == JSON_EV_STRING;

	if (ev->type == JSON_EV_NULL)
		return;
	if (c->inner == MEMBER_TYPE) {
		e->has_type = true;
		e->type = is_string ? ev->raw : e->type;
	} else if (c->inner == MEMBER_ROLE) {
		e->has_role = true;
	} else if (c->inner == MEMBER_ID && is_string) {
		e->id = ev->raw;
	}
}

static void take_value(struct scanner *c, const struct json_event *ev)
{
	struct responses_scan *s = c->scan;

	if (c->depth == 1) {
		c->in_value = c->top == MEMBER_LIST;
		c->in_list = c->in_value && ev->type == JSON_EV_ARRAY_BEGIN;
		if (c->top == MEMBER_LIST)
			s->list = ev->raw;
		if (c->top == MEMBER_PREVIOUS && ev->type == JSON_EV_STRING)
			s->previous = ev->raw;
	} else if (c->depth == 2 && c->in_list) {
		mem_grow(&s->elements, &s->cap, s->n, sizeof(*s->elements));
		s->elements[s->n++] = (struct responses_element){.raw = ev->raw};
		c->inner = MEMBER_OTHER;
	} else if (c->depth == 3 && c->in_list && c->inner != MEMBER_OTHER) {
		take_member(c, ev);
	}
}

static void take_end(struct scanner *c, const struct json_event *ev)
{
	struct responses_scan *s = c->scan;
	size_t end = ev->offset + 1;

	if (c->depth == 2 && c->in_list) {
		struct str *raw = &s->elements[s->n - 1].raw;

		raw->n = end - (size_t)(raw->p - c->text);
	} else if (c->depth == 1 && c->in_value) {
		s->list.n = end - (size_t)(s->list.p - c->text);
		c->in_value = c->in_list = false;
	}
}

static int on_event(void *ctx, const struct json_event *ev)
{
	struct scanner *c = ctx;

	switch (ev->type) {
	case JSON_EV_KEY:
		take_key(c, ev);
		break;
	case JSON_EV_OBJECT_BEGIN:
	case JSON_EV_ARRAY_BEGIN:
		if (c->depth == 0 && ev->type == JSON_EV_ARRAY_BEGIN)
			return -ERR_INVALID;
		if (c->depth == 0)
			c->scan->begin = ev->offset;
		take_value(c, ev);
		c->depth++;
		break;
	case JSON_EV_OBJECT_END:
	case JSON_EV_ARRAY_END:
		c->depth--;
		take_end(c, ev);
		break;
	case JSON_EV_STRING:
	case JSON_EV_NUMBER:
	case JSON_EV_TRUE:
	case JSON_EV_FALSE:
	case JSON_EV_NULL:
		if (c->depth == 0)
			return -ERR_INVALID;
		take_value(c, ev);
		break;
	}
	return 0;
}

bool responses_state_scan(struct str text, const char *name, struct responses_scan *ret)
{
	struct scanner c = {.scan = ret, .text = text.p, .name = name};

	*ret = (struct responses_scan){0};
	if (json_read(text, on_event, &c, NULL) == 0)
		return true;
	responses_scan_clear(ret);
	return false;
}

void responses_scan_clear(struct responses_scan *s)
{
	free(s->elements);
	*s = (struct responses_scan){0};
}

bool responses_state_text(struct str raw, char *out, size_t size)
{
	size_t n;

	if (raw.n < 2 || raw.n - 2 >= size)
		return false;
	n = json_unescape(raw, out);
	out[n] = 0;
	return memchr(out, 0, n) == NULL;
}

bool responses_state_is_reference(const struct responses_element *e)
{
	char type[32];

	if (e->has_type)
		return responses_state_text(e->type, type, sizeof(type)) &&
		       strcmp(type, "item_reference") == 0;
	return !e->has_role && e->id.p;
}

bool responses_state_needs(const struct responses_scan *s)
{
	if (s->previous.p)
		return true;
	for (size_t i = 0; i < s->n; i++)
		if (responses_state_is_reference(&s->elements[i]))
			return true;
	return false;
}

/* ---- the body with all of it ---- */

static void put_comma(struct buf *out, size_t begin)
{
	if (out->len > begin)
		buf_putc(out, ',');
}

/* A user's message in a string, or the elements of an array. */
static void put_items(struct buf *out, size_t begin, struct str json)
{
	struct str inner = json;

	if (json.n == 0)
		return;
	if (json.p[0] == '"') {
		put_comma(out, begin);
		buf_puts(out, "{\"role\":\"user\",\"content\":");
		buf_append(out, json.p, json.n);
		buf_putc(out, '}');
		return;
	}
	inner = (struct str){json.p + 1, json.n - 2};
	while (inner.n > 0 && memchr(" \t\r\n", inner.p[0], 4) != NULL)
		inner = (struct str){inner.p + 1, inner.n - 1};
	if (inner.n == 0)
		return;
	put_comma(out, begin);
	buf_append(out, inner.p, inner.n);
}

/* The request's own items. */
static void put_own(struct buf *out, const struct responses_scan *s, const struct str *items)
{
	size_t begin = out->len, next = 0;

	if (s->list.n > 0 && s->list.p[0] == '"') {
		put_items(out, begin, s->list);
		return;
	}
	if (s->list.n > 0 && s->list.p[0] != '[' && s->list.p[0] != 'n')
		buf_append(out, s->list.p, s->list.n); /* no item: the parser says so */
	for (size_t i = 0; i < s->n; i++) {
		const struct responses_element *e = &s->elements[i];
		struct str raw = responses_state_is_reference(e) ? items[next++] : e->raw;

		put_comma(out, begin);
		buf_append(out, raw.p, raw.n);
	}
}

int responses_state_expand(struct str body, const struct responses_scan *s,
        const struct str *history, size_t n_history, const struct str *items, struct buf *out,
        struct responses_span *ret_own)
{
	struct responses_span own;
	size_t begin, before;

	before = s->list.p ? (size_t)(s->list.p - body.p) : s->begin + 1;
	buf_append(out, body.p, before);
	if (!s->list.p)
		buf_puts(out, "\"input\":");
	buf_putc(out, '[');
	begin = out->len;
	for (size_t i = 0; i < n_history; i++)
		put_items(out, begin, history[i]);
	own.at = out->len + (out->len > begin);
	put_comma(out, begin);
	put_own(out, s, items);
	own.len = out->len - own.at;
	if (own.len == 0 && own.at > begin)
		out->len--; /* the comma before nothing */
	buf_putc(out, ']');
	if (!s->list.p)
		buf_putc(out, ',');
	before += s->list.n;
	buf_append(out, body.p + before, body.n - before);
	*ret_own = own;
	return buf_error(out);
}

/* ---- items as they are listed ---- */

static const char *const prefixes[][2] = {{"message", "msg_"}, {"reasoning", "rs_"},
        {"function_call", "fc_"}, {"function_call_output", "fco_"}, {"shell_call", "sh_"},
        {"shell_call_output", "sho_"}, {"openrouter:shell", "st_"}};

const char *responses_state_prefix(const struct json *item)
{
	struct str type = json_str(json_get(item, "type"));

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (str_is(type, prefixes[i][0]))
			return prefixes[i][1];
	return type.p ? "item_" : "msg_";
}

static void write_content(struct json_writer *w, const struct json *item, const struct json *text)
{
	bool assistant = str_is(json_str(json_get(item, "role")), "assistant");

	jw_key(w, "content");
	jw_array(w);
	jw_object(w);
	jw_kcstr(w, "type", assistant ? "output_text" : "input_text");
	jw_kraw(w, "text", json_raw(text));
	if (assistant) {
		jw_key(w, "annotations");
		jw_array(w);
		jw_end(w);
	}
	jw_end(w);
	jw_end(w);
}

void responses_state_write_item(struct json_writer *w, const struct json *item, const char *id)
{
	bool message = json_absent(json_get(item, "type")) ||
	               str_is(json_str(json_get(item, "type")), "message");
	bool has_id = !json_absent(json_get(item, "id"));

	jw_object(w);
	if (!has_id)
		jw_kcstr(w, "id", id);
	if (json_absent(json_get(item, "type")))
		jw_kcstr(w, "type", "message");
	if (json_absent(json_get(item, "status")) &&
	        !str_is(json_str(json_get(item, "type")), "reasoning"))
		jw_kcstr(w, "status", "completed");
	for (const struct json *v = json_first(item); v; v = json_next(v)) {
		struct str key = json_key(v);

		if (json_absent(v) &&
		        (str_is(key, "id") || str_is(key, "type") || str_is(key, "status")))
			continue;
		if (message && str_is(key, "content") && json_is(v, JSON_STRING)) {
			write_content(w, item, v);
			continue;
		}
		jw_key_str(w, key);
		jw_raw(w, json_raw(v));
	}
	jw_end(w);
}
