/*
 * Theory of operation: the tree is built from the reader's events into one arena. A value is a
 * node; a member of an object is a node with its key behind it, made when the key is read. Nodes of
 * one container are a list. The builder keeps the open containers in an array of JSON_MAX_DEPTH
 * levels.
 *
 * Strings without escapes point into the source; others are decoded into the arena. Offsets and
 * lengths are 32 bits, which json_parse checks once, so a node is 40 bytes and a member 64.
 *
 * A key that comes twice is found by comparing with every earlier key while an object is small, and
 * through the keyset once it is not; either way the keys are compared as decoded.
 */
#include "json/internal.h"

#include <errno.h>
#include <stdlib.h>

enum { SMALL_OBJECT = 16 };

struct json {
	struct json *next;
	const char *raw;
	union {
		struct json *first; /* of a container */
		const char *text;   /* of a string, decoded */
	} u;
	uint32_t raw_len;
	uint32_t offset;
	uint32_t n; /* bytes of a string; elements or members of a container */
	uint8_t type;
	bool is_member;
};

struct json_member {
	struct json value; /* first: a member value is its member */
	const char *key;   /* decoded */
	uint32_t key_len;
	uint32_t key_offset;
	uint32_t key_raw_len;
};

_Static_assert(sizeof(struct json) <= 40, "a million values must stay affordable");
_Static_assert(sizeof(struct json_member) <= 64, "a million members must stay affordable");

struct json_doc {
	struct arena *arena;
	const struct json *root;
};

struct level {
	struct json *container;
	struct json *last;
};

struct builder {
	struct str text;
	size_t max_bytes;
	struct error *err;
	struct arena *arena;
	struct json *root;
	struct json_member *member; /* its key is read, its value is not yet */
	struct keyset keys;
	int depth;
	struct level levels[JSON_MAX_DEPTH];
};

static int fail_memory(const struct builder *b)
{
	return error_set(b->err, ERR_NOMEM, "the document needs more than %zu bytes of memory",
	        b->max_bytes);
}

static int fail_twice(const struct builder *b, const struct json_event *ev, struct str key)
{
	char shown[JSON_ECHO_MAX + 1];
	bool whole = str_copy(shown, sizeof(shown), key);

	return json_error_at(b->err, ERR_INVALID, b->text, ev->offset, "key \"%s%s\" appears twice",
	        shown, whole ? "" : "…");
}

/* The text of a key or string event: in the source, or decoded into the arena. */
static int decode(
        struct builder *b, const struct json_event *ev, const char **ret_p, uint32_t *ret_n)
{
	char *copy;

	if (!ev->escaped) {
		*ret_p = ev->raw.p + 1;
		*ret_n = (uint32_t)(ev->raw.n - 2);
		return 0;
	}
	copy = arena_alloc(b->arena, ev->raw.n - 2);
	if (!copy)
		return fail_memory(b);
	*ret_p = copy;
	*ret_n = (uint32_t)json_unescape(ev->raw, copy);
	return 0;
}

static struct str member_key(const struct json *v)
{
	const struct json_member *m = (const struct json_member *)v;

	return (struct str){m->key, m->key_len};
}

/* 0, -ERR_CONFLICT when the object has the key already, or -ERR_NOMEM. */
static int object_check_key(struct builder *b, const struct json *object, struct str key)
{
	const struct json *v;
	int rc;

	if (object->n < SMALL_OBJECT) {
		for (v = object->u.first; v; v = v->next)
			if (str_eq(member_key(v), key))
				return -ERR_CONFLICT;
		return 0;
	}
	if (object->n == SMALL_OBJECT) {
		for (v = object->u.first; v; v = v->next) {
			rc = keyset_add(&b->keys, object->offset, member_key(v));
			if (rc)
				return rc;
		}
	}
	return keyset_add(&b->keys, object->offset, key);
}

static int add_key(struct builder *b, const struct json_event *ev)
{
	struct json_member *m = arena_alloc(b->arena, sizeof(*m));
	struct str key;
	int rc;

	if (!m)
		return fail_memory(b);
	rc = decode(b, ev, &m->key, &m->key_len);
	if (rc)
		return rc;
	m->key_offset = (uint32_t)ev->offset;
	m->key_raw_len = (uint32_t)ev->raw.n;
	m->value.is_member = true;
	key = member_key(&m->value);
	rc = object_check_key(b, b->levels[b->depth - 1].container, key);
	if (rc == -ERR_CONFLICT)
		return fail_twice(b, ev, key);
	if (rc)
		return fail_memory(b);
	b->member = m;
	return 0;
}

/* Makes the node of a value (for a member it is there already) and puts it into its container. */
static struct json *add_node(struct builder *b, const struct json_event *ev, enum json_type type)
{
	struct level *level = b->depth > 0 ? &b->levels[b->depth - 1] : NULL;
	struct json *v;

	if (b->member) {
		v = &b->member->value;
		b->member = NULL;
	} else {
		v = arena_alloc(b->arena, sizeof(*v));
		if (!v)
			return NULL;
	}
	v->type = (uint8_t)type;
	v->raw = ev->raw.p;
	v->raw_len = (uint32_t)ev->raw.n;
	v->offset = (uint32_t)ev->offset;
	if (!level) {
		b->root = v;
	} else {
		if (level->last)
			level->last->next = v;
		else
			level->container->u.first = v;
		level->last = v;
		level->container->n++;
	}
	return v;
}

static int begin_container(struct builder *b, const struct json_event *ev, enum json_type type)
{
	struct json *v = add_node(b, ev, type);

	if (!v)
		return fail_memory(b);
	b->levels[b->depth++] = (struct level){.container = v};
	return 0;
}

static void end_container(struct builder *b, const struct json_event *ev)
{
	struct json *v = b->levels[--b->depth].container;

	v->raw_len = (uint32_t)(ev->offset + 1 - v->offset);
}

static int build(void *ctx, const struct json_event *ev)
{
	static const enum json_type types[] = {
	        [JSON_EV_STRING] = JSON_STRING,
	        [JSON_EV_NUMBER] = JSON_NUMBER,
	        [JSON_EV_TRUE] = JSON_TRUE,
	        [JSON_EV_FALSE] = JSON_FALSE,
	        [JSON_EV_NULL] = JSON_NULL,
	};
	struct builder *b = ctx;
	struct json *v;

	switch (ev->type) {
	case JSON_EV_OBJECT_BEGIN:
		return begin_container(b, ev, JSON_OBJECT);
	case JSON_EV_ARRAY_BEGIN:
		return begin_container(b, ev, JSON_ARRAY);
	case JSON_EV_OBJECT_END:
	case JSON_EV_ARRAY_END:
		end_container(b, ev);
		return 0;
	case JSON_EV_KEY:
		return add_key(b, ev);
	case JSON_EV_STRING:
	case JSON_EV_NUMBER:
	case JSON_EV_TRUE:
	case JSON_EV_FALSE:
	case JSON_EV_NULL:
		break;
	}
	v = add_node(b, ev, types[ev->type]);
	if (!v)
		return fail_memory(b);
	return ev->type == JSON_EV_STRING ? decode(b, ev, &v->u.text, &v->n) : 0;
}

int json_parse(struct str text, size_t max_bytes, struct json_doc **ret_doc, struct error *err)
{
	struct builder b = {.text = text, .max_bytes = max_bytes, .err = err};
	struct json_doc *doc;
	int rc;

	if (text.n > UINT32_MAX)
		return error_set(err, ERR_TOO_LARGE, "a JSON text of more than 4 GiB");
	b.arena = arena_new(max_bytes);
	keyset_init(&b.keys, b.arena);
	rc = json_read(text, build, &b, err);
	keyset_free(&b.keys);
	if (rc) {
		arena_free(b.arena);
		return rc;
	}
	doc = mem_alloc(sizeof(*doc));
	doc->arena = b.arena;
	doc->root = b.root;
	*ret_doc = doc;
	return 0;
}

struct json_doc *json_doc_free(struct json_doc *doc)
{
	if (!doc)
		return NULL;
	arena_free(doc->arena);
	free(doc);
	return NULL;
}

const struct json *json_root(const struct json_doc *doc)
{
	return doc ? doc->root : NULL;
}

size_t json_doc_memory(const struct json_doc *doc)
{
	return doc ? arena_used(doc->arena) : 0;
}

enum json_type json_type(const struct json *v)
{
	return v ? (enum json_type)v->type : JSON_NULL;
}

bool json_is(const struct json *v, enum json_type type)
{
	return v && v->type == type;
}

bool json_is_bool(const struct json *v)
{
	return json_is(v, JSON_TRUE) || json_is(v, JSON_FALSE);
}

bool json_bool(const struct json *v)
{
	return json_is(v, JSON_TRUE);
}

bool json_absent(const struct json *v)
{
	return !v || v->type == JSON_NULL;
}

struct str json_str(const struct json *v)
{
	return json_is(v, JSON_STRING) ? (struct str){v->u.text, v->n} : (struct str){NULL, 0};
}

struct str json_raw(const struct json *v)
{
	return v ? (struct str){v->raw, v->raw_len} : (struct str){NULL, 0};
}

size_t json_offset(const struct json *v)
{
	return v ? v->offset : 0;
}

static bool is_container(const struct json *v)
{
	return json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT);
}

size_t json_count(const struct json *v)
{
	return is_container(v) ? v->n : 0;
}

const struct json *json_first(const struct json *container)
{
	return is_container(container) ? container->u.first : NULL;
}

const struct json *json_next(const struct json *v)
{
	return v ? v->next : NULL;
}

const struct json *json_get(const struct json *object, const char *key)
{
	struct str want = str_of(key);
	const struct json *v;

	if (!json_is(object, JSON_OBJECT))
		return NULL;
	for (v = object->u.first; v; v = v->next)
		if (str_eq(member_key(v), want))
			return v;
	return NULL;
}

const struct json *json_at(const struct json *array, size_t i)
{
	const struct json *v = json_is(array, JSON_ARRAY) ? array->u.first : NULL;

	while (v && i-- > 0)
		v = v->next;
	return v;
}

struct str json_key(const struct json *member)
{
	return member && member->is_member ? member_key(member) : (struct str){NULL, 0};
}

struct str json_key_raw(const struct json *member)
{
	const struct json_member *m = (const struct json_member *)member;

	if (!member || !member->is_member)
		return (struct str){NULL, 0};
	/* The value's pointer and both offsets lead back to the key. */
	return (struct str){member->raw - (member->offset - m->key_offset), m->key_raw_len};
}

/*
 * A number taken apart: its digits without the point and without zeros at either end, and the power
 * of ten that they are to be multiplied with. Digits are looked at only through digit(), since the
 * point may stand among them.
 */
struct decimal {
	bool negative;
	int64_t exponent;
	uint64_t value; /* of the digits; only when they fit */
	bool fits;
};

/* The exponent part of a number, held within what no 4 GiB of digits can make up for. */
static int64_t read_exponent(const char *p, const char *end)
{
	const int64_t most = INT64_C(1) << 40;
	bool negative = *p == '-';
	int64_t v = 0;

	for (p += *p == '-' || *p == '+'; p < end; p++)
		if (v < most)
			v = v * 10 + (*p - '0');
	return negative ? -v : v;
}

static struct decimal read_decimal(const char *p, const char *end)
{
	struct decimal d = {.negative = *p == '-', .fits = true};
	int64_t zeros = 0; /* seen, but not yet known to be inside the digits */
	bool fraction = false;

	for (p += d.negative; p < end && *p != 'e' && *p != 'E'; p++) {
		if (*p == '.') {
			fraction = true;
			continue;
		}
		d.exponent -= fraction;
		if (*p == '0') {
			zeros++;
			continue;
		}
		/* Leading zeros multiply a value of 0; 20 zeros and more overflow anything else. */
		for (; zeros > 0 && d.fits && d.value; zeros--)
			d.fits = !__builtin_mul_overflow(d.value, 10U, &d.value);
		zeros = 0;
		d.fits = d.fits && !__builtin_mul_overflow(d.value, 10U, &d.value) &&
		         !__builtin_add_overflow(d.value, (uint64_t)(*p - '0'), &d.value);
	}
	d.exponent += zeros;
	if (p < end)
		d.exponent += read_exponent(p + 1, end);
	return d;
}

bool json_i64(const struct json *v, int64_t *ret)
{
	struct decimal d;

	if (!json_is(v, JSON_NUMBER))
		return false;
	d = read_decimal(v->raw, v->raw + v->raw_len);
	if (!d.fits)
		return false;
	if (d.value == 0) {
		*ret = 0;
		return true;
	}
	if (d.exponent < 0)
		return false;
	for (; d.exponent > 0; d.exponent--)
		if (__builtin_mul_overflow(d.value, 10U, &d.value))
			return false;
	if (d.value > (uint64_t)INT64_MAX + d.negative)
		return false;
	*ret = (int64_t)(d.negative ? 0 - d.value : d.value);
	return true;
}

bool json_double(const struct json *v, double *ret)
{
	_cleanup_free_ char *large = NULL;
	char small[64], *copy = small;
	double d;

	if (!json_is(v, JSON_NUMBER))
		return false;
	if (v->raw_len >= sizeof(small)) {
		copy = large = malloc((size_t)v->raw_len + 1);
		if (!copy)
			return false;
	}
	memcpy(copy, v->raw, v->raw_len);
	copy[v->raw_len] = '\0';
	/* brig never calls setlocale(), so the decimal point is a point. */
	d = strtod(copy, NULL);
	if (!__builtin_isfinite(d))
		return false;
	*ret = d;
	return true;
}
