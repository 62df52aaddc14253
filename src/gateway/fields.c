#include "gateway/fields.h"

#include <stdarg.h>
#include <stdio.h>

void fields_fail(struct fields *f, const char *param, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (f->failed)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	f->failed = true;
	error_param(&f->error, ERR_INVALID, param, "%s", text);
}

static bool name_allowed(struct str key, const char *const *allowed)
{
	for (; *allowed != NULL; allowed++)
		if (str_is(key, *allowed))
			return true;
	return false;
}

void fields_open(struct fields *f, struct str body, const char *const *allowed)
{
	char name[65];

	*f = (struct fields){0};
	if (body.n == 0)
		return;
	if (json_parse(body, (size_t)256 << 20, &f->doc, &f->error) < 0) {
		f->failed = true;
		return;
	}
	f->root = json_root(f->doc);
	if (json_type(f->root) != JSON_OBJECT) {
		fields_fail(f, "", "The body must be a JSON object.");
		return;
	}
	for (const struct json *v = json_first(f->root); v != NULL; v = json_next(v)) {
		if (name_allowed(json_key(v), allowed))
			continue;
		str_copy(name, sizeof(name), json_key(v));
		fields_fail(f, name, "Unknown field: %s.", name);
		str_copy(f->error.type, sizeof(f->error.type), STR("unknown_parameter"));
	}
}

void fields_close(struct fields *f)
{
	f->doc = json_doc_free(f->doc);
}

void fields_bool(struct fields *f, const char *name, bool *v)
{
	const struct json *j = json_get(f->root, name);

	if (json_absent(j))
		return;
	if (!json_is_bool(j))
		fields_fail(f, name, "%s must be true or false.", name);
	else
		*v = json_bool(j);
}

void fields_str(struct fields *f, const char *name, size_t max, struct str *v)
{
	const struct json *j = json_get(f->root, name);

	if (json_absent(j))
		return;
	if (!json_is(j, JSON_STRING)) {
		fields_fail(f, name, "%s must be a string.", name);
		return;
	}
	*v = json_str(j);
	if (v->n > max)
		fields_fail(f, name, "%s must be at most %zu bytes.", name, max);
}

void fields_u64(struct fields *f, const char *name, uint64_t least, uint64_t most, uint64_t *v)
{
	const struct json *j = json_get(f->root, name);
	int64_t n;

	if (json_absent(j))
		return;
	if (!json_i64(j, &n) || n < 0 || (uint64_t)n < least || (uint64_t)n > most)
		fields_fail(f, name, "%s must be a whole number from %llu to %llu.", name,
		        (unsigned long long)least, (unsigned long long)most);
	else
		*v = (uint64_t)n;
}

static const struct json *strings_in(
        struct fields *f, const char *name, enum json_type type, size_t most)
{
	const struct json *j = json_get(f->root, name);
	char path[128];
	size_t i = 0;

	if (json_absent(j))
		return NULL;
	if (json_type(j) != type) {
		fields_fail(f, name, "%s must be an %s.", name,
		        type == JSON_ARRAY ? "array of strings" : "object with strings as values");
		return NULL;
	}
	if (json_count(j) > most)
		fields_fail(f, name, "%s must have at most %zu entries.", name, most);
	for (const struct json *v = json_first(j); v != NULL; v = json_next(v), i++) {
		if (json_is(v, JSON_STRING))
			continue;
		snprintf(path, sizeof(path), "%s[%zu]", name, i);
		fields_fail(f, path, "%s must be a string.", path);
	}
	return f->failed ? NULL : j;
}

const struct json *fields_strings(struct fields *f, const char *name, size_t most)
{
	return strings_in(f, name, JSON_ARRAY, most);
}

const struct json *fields_map(struct fields *f, const char *name, size_t most)
{
	return strings_in(f, name, JSON_OBJECT, most);
}
