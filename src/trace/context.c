/*
 * See context.h.
 *
 * A trace_id of the client that is no trace id (32 hex digits, dashes ignored, not all zero) is
 * hashed to one, so that all requests which name it share a trace. A parent_span_id that is no span
 * id cannot name a span anywhere, and is kept as metadata only. The header's span is the parent
 * where the trace is the header's own; where the body names another trace, it becomes a link.
 */
#include "trace/context.h"

#include "base/id.h"

#include <ctype.h>
#include <string.h>

#define DOC_MAX ((size_t)4 << 20)

/* The last is the name of what the opt-ins add. */
static const char *const special[] = {"trace_id", "trace_name", "span_name", "generation_name",
        "parent_span_id", "openrouter_generation"};

bool context_is_special(struct str key)
{
	for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++)
		if (str_is(key, special[i]))
			return true;
	return false;
}

/* n hex digits, in either case, dashes between them ignored; not all zero. */
static bool hex_id(struct str s, size_t n, char *out)
{
	size_t at = 0;
	bool any = false;

	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '-')
			continue;
		if (at == n || str_hex_digit(s.p[i]) < 0)
			return false;
		any |= s.p[i] != '0';
		out[at++] = (char)tolower((unsigned char)s.p[i]);
	}
	if (at == n)
		out[n] = '\0';
	return at == n && any;
}

/* The first n bytes of the hash, as hex; never all zero. */
static void hash_id(const struct str *parts, size_t n_parts, size_t n, char *out)
{
	uint8_t hash[32], any = 0;

	id_sha256_parts(parts, n_parts, hash);
	for (size_t i = 0; i < n; i++)
		any |= hash[i];
	if (!any)
		hash[n - 1] = 1;
	id_hex(hash, n, out);
}

void context_span_id(
        const struct record *r, const char *kind, size_t first, size_t second, char out[17])
{
	char numbers[48];

	str_format(numbers, sizeof(numbers), "%zu.%zu", first, second);
	hash_id((const struct str[]){STR("brig span"), str_of(r->id), str_of(kind),
	                str_of(numbers)},
	        4, 8, out);
}

struct str context_text(const struct context *c, const char *key)
{
	struct str s = json_str(json_get(c->trace, key));

	return s.n > 0 ? s : (struct str){NULL, 0};
}

static void choose_trace(struct context *c, const struct record *r)
{
	struct str given = context_text(c, "trace_id");

	if (given.p && !hex_id(given, 32, c->trace_id))
		hash_id((const struct str[]){STR("brig trace of"), given}, 2, 16, c->trace_id);
	else if (!given.p)
		hash_id((const struct str[]){STR("brig trace"), str_of(r->id)}, 2, 16, c->trace_id);
}

void context_open(struct context *c, const struct record *r)
{
	struct trace_parent caller;
	bool called;
	struct str parent;

	*c = (struct context){.flags = 1};
	if (r->trace && json_parse(str_of(r->trace), DOC_MAX, &c->doc, NULL) == 0)
		c->trace = json_root(c->doc);
	called = r->traceparent && trace_parent_read(str_of(r->traceparent), &caller);
	if (called && !context_text(c, "trace_id").p)
		memcpy(c->trace_id, caller.trace_id, sizeof(c->trace_id));
	else
		choose_trace(c, r);
	if (called)
		c->flags = caller.flags;
	parent = context_text(c, "parent_span_id");
	if (parent.p && hex_id(parent, 16, c->parent_id))
		return;
	c->parent_id[0] = '\0';
	if (!called)
		return;
	if (strcmp(c->trace_id, caller.trace_id) == 0) {
		memcpy(c->parent_id, caller.span_id, sizeof(c->parent_id));
	} else {
		c->linked = true;
		c->link = caller;
	}
}

void context_close(struct context *c)
{
	c->doc = json_doc_free(c->doc);
	c->trace = NULL;
}
