/*
 * Theory of operation
 *
 * libfyaml scans and reports events; we build the tree, because its own document builder resolves
 * aliases, recurses, and loses the place of implicit mappings. A cursor points at the innermost
 * open collection; in a mapping a scalar is first taken as a key, kept in `pending`, and joined to
 * the node that follows. Bounds are checked before a node is made, so the work is linear in the
 * text whatever it says.
 */
#include "config/yaml.h"

#include "base/buf.h"
#include "base/utf8.h"

#include <libfyaml.h>
#include <stdarg.h>
#include <stdio.h>

struct builder {
	const char *name;
	struct arena *arena;
	struct error *err;
	struct yaml_node *root;
	struct yaml_node *open;    /* innermost collection, or NULL */
	struct yaml_node *pending; /* key that waits for its value */
	unsigned depth;
	unsigned n_nodes;
	unsigned n_documents;
};

static int yaml_error_at(struct error *err, const char *name, int line, int column, const char *fmt,
        va_list ap) __attribute__((format(printf, 5, 0)));

static int yaml_error_at(
        struct error *err, const char *name, int line, int column, const char *fmt, va_list ap)
{
	char text[400];

	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	return error_set(err, ERR_INVALID, "%.80s:%d:%d: %s", name, line, column, text);
}

int yaml_error(struct error *err, const char *name, const struct yaml_node *n, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = yaml_error_at(err, name, n->line, n->column, fmt, ap);
	va_end(ap);
	return r;
}

static int place_error(const struct builder *b, int line, int column, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

static int place_error(const struct builder *b, int line, int column, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = yaml_error_at(b->err, b->name, line, column, fmt, ap);
	va_end(ap);
	return r;
}

/* Joins a finished key or a value to the open collection. */
static int node_attach(struct builder *b, struct yaml_node *n)
{
	struct yaml_node *in = b->open, *other;

	if (!in) {
		b->root = n;
		return 0;
	}
	if (in->type == YAML_MAPPING && !b->pending) {
		if (n->type != YAML_SCALAR)
			return yaml_error(b->err, b->name, n, "a key must be a plain word");
		for (other = in->first; other; other = other->next)
			if (strcmp(other->key->text, n->text) == 0)
				return yaml_error(b->err, b->name, n,
				        "\"%.60s\" is here twice; it was set in line %d", n->text,
				        other->key->line);
		b->pending = n;
		return 0;
	}
	if (in->n >= YAML_MAX_MEMBERS)
		return yaml_error(b->err, b->name, n, "more than %d entries", YAML_MAX_MEMBERS);
	n->key = steal(b->pending);
	n->parent = in;
	if (in->last)
		in->last->next = n;
	else
		in->first = n;
	in->last = n;
	in->n++;
	return 0;
}

static bool is_absent(const struct fy_event *ev)
{
	return ev->type == FYET_SCALAR &&
	       (!ev->scalar.value || fy_token_get_text_length(ev->scalar.value) == 0) &&
	       (!ev->scalar.value || fy_token_scalar_style(ev->scalar.value) == FYSS_PLAIN);
}

/* The mark of a quoted scalar stands behind its quote. */
static bool is_quoted(const struct fy_event *ev)
{
	enum fy_scalar_style style;

	if (ev->type != FYET_SCALAR || !ev->scalar.value)
		return false;
	style = fy_token_scalar_style(ev->scalar.value);
	return style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
}

static int node_new(
        struct builder *b, struct fy_event *ev, enum yaml_type type, struct yaml_node **ret)
{
	const struct fy_mark *mark = fy_event_start_mark(ev);
	struct yaml_node *n;

	if (++b->n_nodes > YAML_MAX_NODES)
		return place_error(b, mark ? mark->line + 1 : 1, mark ? mark->column + 1 : 1,
		        "more than %d values", YAML_MAX_NODES);
	n = arena_alloc(b->arena, sizeof(*n));
	if (!n)
		return error_set(b->err, ERR_NOMEM, "%.80s: no memory", b->name);
	n->type = type;
	/* An absent value has no place of its own: its key's will do. */
	n->line = b->pending ? b->pending->line : 1;
	n->column = b->pending ? b->pending->column : 1;
	if (mark && !is_absent(ev)) {
		n->line = mark->line + 1;
		n->column = mark->column + 1 - is_quoted(ev);
	}
	*ret = n;
	return 0;
}

static int take_scalar(struct builder *b, struct fy_event *ev)
{
	struct yaml_node *n;
	size_t len = 0;
	const char *text;
	int r;

	r = node_new(b, ev, YAML_SCALAR, &n);
	if (r < 0)
		return r;
	text = fy_token_get_text(ev->scalar.value, &len);
	if (text && memchr(text, '\0', len))
		return yaml_error(b->err, b->name, n, "a NUL character in a value");
	n->text = arena_strndup(b->arena, text ? text : "", text ? len : 0);
	if (!n->text)
		return error_set(b->err, ERR_NOMEM, "%.80s: no memory", b->name);
	n->text_len = text ? len : 0;
	n->plain = !ev->scalar.value || fy_token_scalar_style(ev->scalar.value) == FYSS_PLAIN;
	return node_attach(b, n);
}

static int take_open(struct builder *b, struct fy_event *ev, enum yaml_type type)
{
	struct yaml_node *n;
	int r;

	r = node_new(b, ev, type, &n);
	if (r < 0)
		return r;
	if (b->depth == YAML_MAX_DEPTH)
		return yaml_error(b->err, b->name, n, "more than %d levels deep", YAML_MAX_DEPTH);
	r = node_attach(b, n);
	if (r < 0)
		return r;
	b->depth++;
	n->parent = b->open;
	b->open = n;
	return 0;
}

static void take_close(struct builder *b)
{
	b->depth--;
	b->open = b->open->parent;
}

/* Anchors and tags are refused wherever they stand. */
static int check_plain(
        struct builder *b, struct fy_event *ev, struct fy_token *anchor, struct fy_token *tag)
{
	const struct fy_mark *mark;

	if (!anchor && !tag)
		return 0;
	mark = fy_event_start_mark(ev);
	return place_error(b, mark ? mark->line + 1 : 1, mark ? mark->column + 1 : 1,
	        "%s are not used here", anchor ? "anchors" : "tags");
}

static int take_event(struct builder *b, struct fy_event *ev)
{
	const struct fy_mark *mark;
	int r;

	switch (ev->type) {
	case FYET_DOCUMENT_START:
		if (++b->n_documents == 1)
			return 0;
		mark = fy_event_start_mark(ev);
		return place_error(b, mark ? mark->line + 1 : 1, mark ? mark->column + 1 : 1,
		        "a second document; one is all that is read");
	case FYET_SCALAR:
		r = check_plain(b, ev, ev->scalar.anchor, ev->scalar.tag);
		return r < 0 ? r : take_scalar(b, ev);
	case FYET_MAPPING_START:
		r = check_plain(b, ev, ev->mapping_start.anchor, ev->mapping_start.tag);
		return r < 0 ? r : take_open(b, ev, YAML_MAPPING);
	case FYET_SEQUENCE_START:
		r = check_plain(b, ev, ev->sequence_start.anchor, ev->sequence_start.tag);
		return r < 0 ? r : take_open(b, ev, YAML_SEQUENCE);
	case FYET_MAPPING_END:
	case FYET_SEQUENCE_END:
		take_close(b);
		return 0;
	case FYET_ALIAS:
		/* Its mark stands behind the star. */
		mark = fy_event_start_mark(ev);
		return place_error(b, mark ? mark->line + 1 : 1, mark ? mark->column : 1,
		        "aliases are not used here");
	case FYET_NONE:
	case FYET_STREAM_START:
	case FYET_STREAM_END:
	case FYET_DOCUMENT_END:
		return 0;
	}
	return 0;
}

/* What libfyaml found wrong: the first of its errors. */
static int parser_error(const struct builder *b, struct fy_diag *diag)
{
	struct fy_diag_error *e;
	void *iter = NULL;

	e = fy_diag_errors_iterate(diag, &iter);
	if (!e)
		return place_error(b, 1, 1, "not YAML");
	return place_error(b, e->line > 0 ? e->line : 1, e->column > 0 ? e->column : 1, "%s",
	        e->msg ? e->msg : "not YAML");
}

/* Bytes that no text has, found before the parser sees them. */
static int check_bytes(const struct builder *b, struct str text)
{
	int line = 1, column = 1;
	size_t i = 0, len;

	while (i < text.n) {
		len = utf8_char_len(text.p + i, text.n - i);
		if (len == 0)
			return place_error(b, line, column, "not UTF-8");
		if (text.p[i] == '\0')
			return place_error(b, line, column, "a NUL character");
		column++;
		if (text.p[i] == '\n') {
			line++;
			column = 1;
		}
		i += len;
	}
	return 0;
}

static int build(struct builder *b, struct fy_parser *parser, struct fy_diag *diag)
{
	struct fy_event *ev;
	enum fy_event_type type;
	int r;

	for (;;) {
		ev = fy_parser_parse(parser);
		if (!ev)
			return fy_parser_get_stream_error(parser) || b->depth > 0
			               ? parser_error(b, diag)
			               : 0;
		type = ev->type;
		r = take_event(b, ev);
		fy_parser_event_free(parser, ev);
		if (r < 0)
			return r;
		if (type == FYET_STREAM_END)
			return 0;
	}
}

int yaml_parse(struct str text, const char *name, struct arena *a, struct yaml_node **ret,
        struct error *err)
{
	struct builder b = {.name = name, .arena = a, .err = err};
	struct fy_diag_cfg diag_cfg;
	struct fy_diag *diag;
	struct fy_parse_cfg cfg = {.flags = FYPCF_DEFAULT_PARSE};
	struct fy_parser *parser;
	int r;

	if (text.n > YAML_MAX_TEXT)
		return error_set(
		        err, ERR_INVALID, "%.80s: more than %d bytes", name, YAML_MAX_TEXT);
	r = check_bytes(&b, text);
	if (r < 0)
		return r;
	fy_diag_cfg_default(&diag_cfg);
	diag_cfg.fp = NULL;
	diag = fy_diag_create(&diag_cfg);
	if (!diag)
		return error_set(err, ERR_NOMEM, "%.80s: no memory", name);
	fy_diag_set_collect_errors(diag, true);
	cfg.diag = diag;
	parser = fy_parser_create(&cfg);
	if (!parser || fy_parser_set_string(parser, text.n ? text.p : "", text.n) != 0)
		r = error_set(err, ERR_NOMEM, "%.80s: no memory", name);
	else
		r = build(&b, parser, diag);
	if (parser)
		fy_parser_destroy(parser);
	fy_diag_destroy(diag);
	if (r < 0)
		return r;
	if (!b.root) {
		b.root = arena_alloc(a, sizeof(*b.root));
		if (!b.root)
			return error_set(err, ERR_NOMEM, "%.80s: no memory", name);
		b.root->type = YAML_MAPPING;
		b.root->line = b.root->column = 1;
	}
	*ret = b.root;
	return 0;
}

struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key)
{
	struct yaml_node *n;

	if (!mapping || mapping->type != YAML_MAPPING)
		return NULL;
	for (n = mapping->first; n; n = n->next)
		if (strcmp(n->key->text, key) == 0)
			return n;
	return NULL;
}

bool yaml_is_null(const struct yaml_node *n)
{
	return n->type == YAML_SCALAR && n->plain &&
	       (n->text_len == 0 || strcmp(n->text, "~") == 0 || strcmp(n->text, "null") == 0);
}
