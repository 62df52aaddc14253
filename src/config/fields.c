/*
 * Theory of operation
 *
 * A value is read in three steps: its text becomes a number in the smallest unit of its kind
 * (bytes, milliseconds, thousandths, 1), the number is held against the row's bounds, and it is
 * stored with the width of the kind. The same step writes bounds back into messages in the units
 * people write.
 */
#include "config/fields.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct unit {
	const char *name;
	uint64_t factor;
};

/* From the largest; the first exact one is used for writing. */
static const struct unit size_units[] = {
        {"t", 1ULL << 40}, {"g", 1ULL << 30}, {"m", 1ULL << 20}, {"k", 1ULL << 10}, {"", 1}};
static const struct unit time_units[] = {
        {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

#define N_UNITS 5

enum { COMMENT_COLUMN = 32 }; /* of the example file */

int loader_error(struct loader *l, const struct yaml_node *n, const char *fmt, ...)
{
	char text[320];
	va_list ap;
	int r;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	if (l->path[0])
		r = yaml_error(l->err, l->src->name, n, "%s: %s", l->path, text);
	else
		r = yaml_error(l->err, l->src->name, n, "%s", text);
	if (l->err)
		str_copy(l->err->param, sizeof(l->err->param), str_of(l->path));
	return r;
}

size_t loader_enter(struct loader *l, const char *key)
{
	size_t mark = strlen(l->path);
	char part[80];

	snprintf(part, sizeof(part), "%s%.60s", mark ? "." : "", key);
	str_copy(l->path + mark, sizeof(l->path) - mark, str_of(part));
	return mark;
}

size_t loader_enter_index(struct loader *l, size_t i)
{
	size_t mark = strlen(l->path);

	snprintf(l->path + mark, sizeof(l->path) - mark, "[%zu]", i);
	return mark;
}

void loader_leave(struct loader *l, size_t mark)
{
	l->path[mark] = '\0';
}

int field_expect(struct loader *l, const struct yaml_node *n, enum yaml_type type)
{
	static const char *const names[] = {"a single value", "a mapping (key: value)", "a list"};

	if (n->type == type)
		return 0;
	return loader_error(l, n, "expected %s", names[type]);
}

int field_read_text(struct loader *l, const struct yaml_node *n, size_t max, char **ret)
{
	size_t i;
	int r;

	r = field_expect(l, n, YAML_SCALAR);
	if (r < 0)
		return r;
	if (n->text_len == 0 || yaml_is_null(n))
		return loader_error(l, n, "is empty");
	if (n->text_len > max)
		return loader_error(l, n, "longer than %zu bytes", max);
	for (i = 0; i < n->text_len; i++)
		if ((unsigned char)n->text[i] < 0x20 || n->text[i] == 0x7f)
			return loader_error(l, n, "holds a control character");
	*ret = mem_strndup(n->text, n->text_len);
	return 0;
}

/* Digits, then a unit. A number alone counts in `bare`. */
static bool parse_units(struct str s, const struct unit *units, uint64_t bare, uint64_t *ret)
{
	uint64_t value, factor = 0;
	struct str digits = s, unit;
	size_t i = 0;

	while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
		i++;
	digits.n = i;
	unit = (struct str){s.p + i, s.n - i};
	if (!str_to_u64(digits, &value))
		return false;
	if (unit.n == 0)
		factor = bare;
	for (i = 0; i < N_UNITS && !factor; i++)
		if (units[i].name[0] && str_ieq(unit, str_of(units[i].name)))
			factor = units[i].factor;
	return factor && !__builtin_mul_overflow(value, factor, ret);
}

/* A decimal with at most three places, in thousandths. */
static bool parse_milli(struct str s, uint64_t *ret)
{
	struct money m;

	if (!money_parse(s, &m) || m.pico % 1000000000 != 0)
		return false;
	*ret = (uint64_t)(m.pico / 1000000000);
	return true;
}

static void write_units(char *out, size_t size, uint64_t v, const struct unit *units)
{
	size_t i = 0;

	while (i < N_UNITS - 1 && (v == 0 || v % units[i].factor != 0))
		i++;
	if (v == 0)
		snprintf(out, size, "0");
	else
		snprintf(out, size, "%" PRIu64 "%s", v / units[i].factor, units[i].name);
}

static const struct unit *kind_units(enum field_kind kind)
{
	if (kind == FIELD_MIB || kind == FIELD_BYTES || kind == FIELD_BYTES32)
		return size_units;
	if (kind == FIELD_MS || kind == FIELD_MS32)
		return time_units;
	return NULL;
}

static void write_bound(char *out, size_t size, enum field_kind kind, uint64_t v)
{
	if (kind_units(kind))
		write_units(out, size, v, kind_units(kind));
	else if (kind == FIELD_MILLI)
		snprintf(out, size, "%g", (double)v / 1000);
	else
		snprintf(out, size, "%" PRIu64, v);
}

static bool parse_number(enum field_kind kind, struct str s, uint64_t *ret)
{
	if (kind == FIELD_MILLI)
		return parse_milli(s, ret);
	if (kind_units(kind) == size_units)
		return parse_units(s, size_units, 1, ret);
	if (kind_units(kind) == time_units)
		return parse_units(s, time_units, 1000, ret);
	return str_to_u64(s, ret);
}

static const char *kind_expected(enum field_kind kind)
{
	if (kind == FIELD_MILLI)
		return "a number such as 1 or 0.5";
	if (kind_units(kind) == size_units)
		return "a size such as 256m or 5g";
	if (kind_units(kind) == time_units)
		return "a time such as 300s, 5m or 30d";
	return "a whole number";
}

/* Bounds are in the smallest unit: bytes, milliseconds, thousandths. */
static int read_number(struct loader *l, const struct yaml_node *n, enum field_kind kind,
        uint64_t min, uint64_t max, uint64_t *ret)
{
	char low[32], high[32];
	uint64_t v;
	int r;

	r = field_expect(l, n, YAML_SCALAR);
	if (r < 0)
		return r;
	if (!parse_number(kind, (struct str){n->text, n->text_len}, &v))
		return loader_error(
		        l, n, "expected %s, not \"%.40s\"", kind_expected(kind), n->text);
	if (v < min || v > max) {
		write_bound(low, sizeof(low), kind, min);
		write_bound(high, sizeof(high), kind, max);
		return loader_error(l, n, "must be from %s to %s", low, high);
	}
	if (kind == FIELD_MIB && v % (1 << 20) != 0)
		return loader_error(l, n, "must be whole mebibytes");
	*ret = v;
	return 0;
}

int field_read_mib(
        struct loader *l, const struct yaml_node *n, uint64_t min, uint64_t max, uint32_t *ret)
{
	uint64_t v;
	int r;

	r = read_number(l, n, FIELD_MIB, min, max, &v);
	if (r < 0)
		return r;
	*ret = (uint32_t)(v >> 20);
	return 0;
}

static int read_bool(struct loader *l, const struct yaml_node *n, bool *ret)
{
	static const struct {
		const char *word;
		bool value;
	} words[] = {{"true", true}, {"false", false}, {"on", true}, {"off", false}};
	size_t i;

	for (i = 0; n->type == YAML_SCALAR && i < 4; i++) {
		if (strcmp(n->text, words[i].word) == 0) {
			*ret = words[i].value;
			return 0;
		}
	}
	return loader_error(l, n, "expected true or false (on and off count too)");
}

static int read_money(struct loader *l, const struct yaml_node *n, struct money *ret)
{
	if (n->type == YAML_SCALAR && money_parse((struct str){n->text, n->text_len}, ret))
		return 0;
	return loader_error(l, n, "expected dollars such as \"0.25\"");
}

static int read_field(
        struct loader *l, const struct yaml_node *n, const struct field *f, void *target)
{
	void *at = (char *)target + f->offset;
	uint64_t v;
	int r;

	switch (f->kind) {
	case FIELD_CUSTOM:
		return f->read(l, n, target);
	case FIELD_LATER:
		return loader_error(l, n->key ? n->key : n, "not in this version");
	case FIELD_BOOL:
		return read_bool(l, n, at);
	case FIELD_MONEY:
		return read_money(l, n, at);
	case FIELD_COUNT:
	case FIELD_MIB:
	case FIELD_BYTES:
	case FIELD_BYTES32:
	case FIELD_MS:
	case FIELD_MS32:
	case FIELD_MILLI:
		break;
	}
	r = read_number(l, n, f->kind, f->min, f->max, &v);
	if (r < 0)
		return r;
	if (f->kind == FIELD_MS || f->kind == FIELD_BYTES)
		*(uint64_t *)at = v;
	else
		*(uint32_t *)at = (uint32_t)(f->kind == FIELD_MIB ? v >> 20 : v);
	return 0;
}

void fields_preset(struct loader *l, const struct field *fields, size_t n, void *target)
{
	struct yaml_node node = {.type = YAML_SCALAR, .plain = true, .line = 1, .column = 1};
	struct error err = {0}, *saved = l->err;
	char text[64];
	size_t i;

	l->err = &err;
	for (i = 0; i < n; i++) {
		if (!fields[i].preset)
			continue;
		str_format(text, sizeof(text), "%s", fields[i].preset);
		node.text = text;
		node.text_len = strlen(text);
		if (read_field(l, &node, &fields[i], target) < 0)
			BUG("the default of %s does not read: %s", fields[i].key, err.text);
	}
	l->err = saved;
}

/* Letters to insert, drop, change or swap with a neighbour until a is b. Both are under 32 bytes.
 */
static unsigned edit_distance(const char *a, const char *b)
{
	unsigned rows[3][33], *two = rows[0], *one = rows[1], *now = rows[2], *spare, best;
	size_t la = strlen(a), lb = strlen(b), i, j;

	for (j = 0; j <= lb; j++)
		one[j] = (unsigned)j;
	for (i = 1; i <= la; i++) {
		now[0] = (unsigned)i;
		for (j = 1; j <= lb; j++) {
			best = one[j - 1] + (a[i - 1] != b[j - 1]);
			best = one[j] + 1 < best ? one[j] + 1 : best;
			best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			        two[j - 2] + 1 < best)
				best = two[j - 2] + 1;
			now[j] = best;
		}
		spare = two;
		two = one;
		one = now;
		now = spare;
	}
	return one[lb];
}

static int unknown_key(
        struct loader *l, const struct yaml_node *key, const struct field *fields, size_t n)
{
	const char *near = NULL;
	unsigned distance, best = 3; /* further away is no slip of the hand */
	size_t i;

	for (i = 0; i < n && key->text_len < 32; i++) {
		if (fields[i].kind == FIELD_LATER)
			continue;
		distance = edit_distance(key->text, fields[i].key);
		if (distance < best && distance < strlen(fields[i].key)) {
			best = distance;
			near = fields[i].key;
		}
	}
	if (near)
		return loader_error(
		        l, key, "unknown key \"%.60s\"; did you mean \"%s\"?", key->text, near);
	return loader_error(l, key, "unknown key \"%.60s\"", key->text);
}

int fields_read(struct loader *l, const struct yaml_node *mapping, const struct field *fields,
        size_t n, void *target)
{
	const struct yaml_node *m;
	size_t i, mark;
	int r;

	if (yaml_is_null(mapping))
		return 0; /* a section whose settings are all commented out */
	r = field_expect(l, mapping, YAML_MAPPING);
	for (m = mapping->first; r == 0 && m; m = m->next) {
		for (i = 0; i < n && strcmp(fields[i].key, m->key->text) != 0; i++)
			;
		if (i == n)
			return unknown_key(l, m->key, fields, n);
		mark = loader_enter(l, m->key->text);
		r = read_field(l, m, &fields[i], target);
		loader_leave(l, mark);
	}
	return r;
}

void fields_write(struct buf *out, const struct field *fields, size_t n, int indent)
{
	size_t i, written;

	for (i = 0; i < n; i++) {
		if (!fields[i].preset)
			continue;
		written = (size_t)indent + strlen(fields[i].key) + 2 + strlen(fields[i].preset);
		buf_printf(out, "%*s%s: %s%*s# %s\n", indent, "", fields[i].key, fields[i].preset,
		        written < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - written) : 1, "",
		        fields[i].doc);
	}
}
