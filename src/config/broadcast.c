/*
 * The list `broadcast:` (docs/broadcast.md).
 *
 * Theory of operation
 *
 * An entry has the members that POST /observability/destinations takes, so it is made the JSON of
 * one and read by the same function: what holds there holds here. The path in its error leads back
 * to the place in the file. Ours is only what JSON has not: `workspace` for workspace_id, on and
 * off, and members of config that come from a variable or a file (`apiKey_env`, `apiKey_file`).
 * Texts that may be secret are wiped when the JSON was read.
 */
#include "config/sections.h"

#include "base/mem.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	MAX_DESTINATIONS = TRACE_PER_TYPE_MAX * TRACE_TYPES,
	JSON_MAX_BYTES = 256 << 10,
};

/* ---- YAML to JSON ---- */

static struct str text_of(const struct yaml_node *n)
{
	return (struct str){n->text, n->text_len};
}

static bool is_number(struct str s)
{
	_cleanup_json_ struct json_doc *doc = NULL;

	return s.n > 0 && s.n < 64 && strchr("-0123456789", s.p[0]) &&
	       json_parse(s, 65536, &doc, NULL) == 0;
}

static void write_scalar(struct json_writer *w, const struct yaml_node *n)
{
	struct str s = text_of(n);

	if (yaml_is_null(n))
		jw_null(w);
	else if (n->plain && (str_is(s, "true") || str_is(s, "on")))
		jw_bool(w, true);
	else if (n->plain && (str_is(s, "false") || str_is(s, "off")))
		jw_bool(w, false);
	else if (n->plain && is_number(s))
		jw_raw(w, s);
	else
		jw_str(w, s);
}

/* The text that a member names, without spaces and line ends around it. */
static int write_named(struct loader *l, struct json_writer *w, const struct yaml_node *n,
        int (*read)(struct loader *l, const struct yaml_node *n, char **ret))
{
	char *text = NULL;
	size_t begin, end;
	int r = read(l, n, &text);

	if (r < 0)
		return r;
	begin = strspn(text, " \t\r\n");
	end = strlen(text);
	while (end > begin && strchr(" \t\r\n", text[end - 1]))
		end--;
	jw_str(w, (struct str){text + begin, end - begin});
	mem_wipe(text, strlen(text));
	free(text);
	return 0;
}

static int write_node(
        struct loader *l, struct json_writer *w, const struct yaml_node *n, int depth);

/* depth 0: the entry. The YAML reader bounds it (YAML_MAX_DEPTH). */
static int write_member(
        struct loader *l, struct json_writer *w, const struct yaml_node *n, bool config, int depth)
{
	struct str key = text_of(n->key);
	bool env = config && str_ends(key, "_env"), file = config && str_ends(key, "_file");
	size_t mark = loader_enter(l, n->key->text);
	int r;

	if (env || file)
		key.n -= env ? 4 : 5;
	if (depth == 0 && str_is(key, "workspace"))
		key = STR("workspace_id");
	jw_key_str(w, key);
	if (env || file)
		r = write_named(l, w, n, env ? section_env_text : section_file_text);
	else
		r = write_node(l, w, n, depth + 1);
	loader_leave(l, mark);
	return r;
}

/* Below `config` every member may be named by a variable or a file. */
static bool in_config(const struct yaml_node *n)
{
	for (; n && n->key; n = n->parent)
		if (str_is(text_of(n->key), "config"))
			return true;
	return false;
}

static int write_node(struct loader *l, struct json_writer *w, const struct yaml_node *n, int depth)
{
	size_t i = 0, mark;
	int r = 0;

	if (n->type == YAML_SCALAR) {
		write_scalar(w, n);
		return 0;
	}
	if (n->type == YAML_MAPPING)
		jw_object(w);
	else
		jw_array(w);
	for (const struct yaml_node *m = n->first; r == 0 && m; m = m->next, i++) {
		if (n->type == YAML_MAPPING) {
			r = write_member(l, w, m, in_config(n), depth);
			continue;
		}
		mark = loader_enter_index(l, i);
		r = write_node(l, w, m, depth + 1);
		loader_leave(l, mark);
	}
	if (r == 0)
		jw_end(w);
	return r;
}

/* Of values that may be secret; keys and places stay. */
static void wipe_scalars(const struct yaml_node *top)
{
	const struct yaml_node *n = top;

	while (n) {
		if (n->type == YAML_SCALAR)
			mem_wipe(n->text, n->text_len);
		if (n->first) {
			n = n->first;
			continue;
		}
		while (n != top && !n->next)
			n = n->parent;
		n = n == top ? NULL : n->next;
	}
}

/* ---- errors back to their place ---- */

/* The member of that name, however it is written in the file. */
static const struct yaml_node *member_at(const struct yaml_node *n, struct str name)
{
	static const char *const suffixes[] = {"", "_env", "_file"};
	char key[160];

	for (size_t i = 0; i < 3; i++) {
		const struct yaml_node *m;

		if (name.n >= sizeof(key) - 8)
			return NULL;
		str_format(key, sizeof(key), "%.*s%s", (int)name.n, name.p, suffixes[i]);
		m = yaml_get(n, key);
		if (m)
			return m;
	}
	return str_is(name, "workspace_id") ? yaml_get(n, "workspace") : NULL;
}

static const struct yaml_node *element_at(const struct yaml_node *n, const char *digits)
{
	size_t i = strtoul(digits, NULL, 10);
	const struct yaml_node *m = n->first;

	while (m && i-- > 0)
		m = m->next;
	return m;
}

/* The deepest node of the path that is there. */
static const struct yaml_node *node_at(const struct yaml_node *n, const char *path)
{
	while (*path) {
		const struct yaml_node *next;
		size_t len;

		if (*path == '[') {
			next = element_at(n, path + 1);
			path += strcspn(path, "]");
			path += *path != '\0';
		} else {
			path += *path == '.';
			len = strcspn(path, ".[");
			next = member_at(n, (struct str){path, len});
			path += len;
		}
		if (!next)
			break;
		n = next;
	}
	return n;
}

static int place_error(struct loader *l, const struct yaml_node *entry, const struct error *e)
{
	const char *text = e->text;
	size_t mark = strlen(l->path), n = strlen(e->param);
	int r;

	if (n > 0 && strncmp(text, e->param, n) == 0 && strncmp(text + n, ": ", 2) == 0)
		text += n + 2;
	if (n > 0)
		str_copy(l->path + mark, sizeof(l->path) - mark, STR("."));
	str_copy(l->path + strlen(l->path), sizeof(l->path) - strlen(l->path), str_of(e->param));
	r = loader_error(l, node_at(entry, e->param), "%s", text);
	loader_leave(l, mark);
	return r;
}

/* ---- the list ---- */

static int read_json(struct loader *l, const struct yaml_node *n, const struct buf *text,
        struct trace_destination **ret)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct error e = {0};

	if (json_parse((struct str){text->data, text->len}, 16 * JSON_MAX_BYTES, &doc, &e) < 0)
		return loader_error(l, n, "%s",
		        e.code == ERR_TOO_LARGE ? "is too large" : "has one member in two forms");
	if (trace_destination_parse(json_root(doc), ret, &e) < 0)
		return place_error(l, n, &e);
	return 0;
}

static int read_destination(
        struct loader *l, const struct yaml_node *n, struct trace_destination **ret)
{
	_cleanup_buf_ struct buf text = BUF_INIT(JSON_MAX_BYTES);
	struct json_writer w;
	int r = field_expect(l, n, YAML_MAPPING);

	if (r < 0)
		return r;
	jw_init(&w, &text);
	r = write_node(l, &w, n, 0);
	if (r == 0 && buf_error(&text) < 0)
		r = loader_error(l, n, "is too large");
	if (r == 0)
		r = read_json(l, n, &text, ret);
	if (text.data)
		mem_wipe(text.data, text.len);
	if (r == 0 && yaml_get(n, "config"))
		wipe_scalars(yaml_get(n, "config"));
	return r;
}

/* Names tell destinations apart: what was delivered is counted by them. */
static int check_others(struct loader *l, const struct yaml_node *n, size_t i)
{
	const struct config *c = l->c;
	size_t same = 0;

	for (size_t k = 0; k < i; k++) {
		if (strcmp(c->broadcast[k]->name, c->broadcast[i]->name) == 0)
			return loader_error(l, n, "the same name as broadcast[%zu]", k);
		same += c->broadcast[k]->type == c->broadcast[i]->type;
	}
	if (same >= TRACE_PER_TYPE_MAX)
		return loader_error(l, n, "more than %d of the type %s", TRACE_PER_TYPE_MAX,
		        trace_type_name(c->broadcast[i]->type));
	return 0;
}

int section_broadcast(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;
	size_t i = 0, mark;
	int r = field_expect(l, n, YAML_SEQUENCE);

	if (r < 0)
		return r;
	if (n->n > MAX_DESTINATIONS)
		return loader_error(l, n, "has more than %d entries", MAX_DESTINATIONS);
	c->broadcast = mem_array(n->n + 1, sizeof(struct trace_destination *));
	for (const struct yaml_node *m = n->first; r == 0 && m; m = m->next, i++) {
		mark = loader_enter_index(l, i);
		r = read_destination(l, m, &c->broadcast[i]);
		if (r == 0) {
			c->n_broadcast = i + 1;
			r = check_others(l, m, i);
		}
		loader_leave(l, mark);
	}
	return r;
}
