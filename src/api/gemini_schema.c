/*
 * The Schema of this API → JSON Schema, as text, so that the order of keys stays. Two things
 * differ: names of types are upper-case, and counts are 64-bit numbers, which Google's JSON writes
 * as strings. Whatever stands inside default, example or enum is data and stays.
 */
#include "api/gemini.h"

enum kind {
	KIND_SCHEMA,
	KIND_NAMES,
	KIND_DATA
}; /* NAMES: the keys of `properties` are names, not words */

struct converter {
	struct buf *out;
	struct str text;
	size_t done; /* of text */
	enum kind kinds[JSON_MAX_DEPTH + 1];
	int depth;
	struct str key; /* the last one, without quotes; {NULL,0} in an array */
};

static bool is_one_of(struct str s, const char *const *words)
{
	for (; *words; words++)
		if (str_is(s, *words))
			return true;
	return false;
}

static void enter(struct converter *k, bool object)
{
	static const char *const names[] = {
	        "properties", "patternProperties", "$defs", "defs", NULL};
	static const char *const data[] = {"default", "example", "examples", "enum", "const", NULL};
	enum kind in = k->kinds[k->depth], next = in;

	if (in == KIND_SCHEMA && is_one_of(k->key, data))
		next = KIND_DATA;
	else if (in == KIND_SCHEMA && object && is_one_of(k->key, names))
		next = KIND_NAMES;
	else if (in == KIND_NAMES)
		next = KIND_SCHEMA;
	if (k->depth < JSON_MAX_DEPTH)
		k->depth++;
	k->kinds[k->depth] = next;
	k->key = (struct str){NULL, 0};
}

/* Writes a string's value another way. inner: without its quotes. */
static void replace_string(struct converter *k, const struct json_event *ev, struct str inner)
{
	static const char *const types[] = {
	        "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL", NULL};
	static const char *const counts[] = {"minItems", "maxItems", "minLength", "maxLength",
	        "minProperties", "maxProperties", NULL};
	bool type = str_is(k->key, "type") && is_one_of(inner, types);
	bool count = is_one_of(k->key, counts) && inner.n < 20 && str_in_set(inner, "0123456789") &&
	             (inner.n == 1 || *inner.p != '0');

	if (!type && !count)
		return;
	buf_append(k->out, k->text.p + k->done, ev->offset - k->done);
	k->done = ev->offset + ev->raw.n;
	if (count) {
		buf_append(k->out, inner.p, inner.n);
		return;
	}
	buf_putc(k->out, '"');
	for (size_t i = 0; i < inner.n; i++)
		buf_putc(k->out, (char)(inner.p[i] - 'A' + 'a'));
	buf_putc(k->out, '"');
}

static int on_event(void *ctx, const struct json_event *ev)
{
	struct converter *k = ctx;

	switch (ev->type) {
	case JSON_EV_OBJECT_BEGIN:
	case JSON_EV_ARRAY_BEGIN:
		enter(k, ev->type == JSON_EV_OBJECT_BEGIN);
		break;
	case JSON_EV_OBJECT_END:
	case JSON_EV_ARRAY_END:
		k->depth--;
		k->key = (struct str){NULL, 0};
		break;
	case JSON_EV_KEY:
		k->key = (struct str){ev->raw.p + 1, ev->raw.n - 2};
		break;
	case JSON_EV_STRING:
		if (k->kinds[k->depth] == KIND_SCHEMA)
			replace_string(k, ev, (struct str){ev->raw.p + 1, ev->raw.n - 2});
		break;
	case JSON_EV_NUMBER:
	case JSON_EV_TRUE:
	case JSON_EV_FALSE:
	case JSON_EV_NULL:
		break;
	}
	return 0;
}

int gemini_schema_convert(struct str schema, struct buf *out)
{
	struct converter k = {.out = out, .text = schema};
	int rc = json_read(schema, on_event, &k, NULL);

	if (rc)
		return rc;
	return buf_append(out, schema.p + k.done, schema.n - k.done);
}
