#include "api/param.h"

#include "base/utf8.h"

#include <stdio.h>

void param_index(char out[PARAM_PATH], const char *path, size_t n)
{
	char draft[PARAM_PATH + 32];

	str_format(draft, sizeof(draft), "%.*s[%zu]", PARAM_PATH, path, n);
	str_copy(out, PARAM_PATH, str_of(draft));
}

void param_join(char out[PARAM_PATH], const char *path, const char *key)
{
	char draft[2 * PARAM_PATH + 2];

	str_format(draft, sizeof(draft), "%.*s%s%.*s", PARAM_PATH, path, path[0] && key ? "." : "",
	        PARAM_PATH, key ? key : "");
	str_copy(out, PARAM_PATH, str_of(draft));
}

int param_fail(struct param_reader *r, enum err code, const char *type, const char *path,
        const char *key, const char *fmt, ...)
{
	char where[PARAM_PATH], text[sizeof(((struct error *)0)->text)];
	va_list ap;

	param_join(where, path, key);
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	error_param(r->err, code, where, "%s", text);
	if (r->err && type)
		str_copy(r->err->type, sizeof(r->err->type), str_of(type));
	return -(int)code;
}

static const char *type_name(const struct json *v)
{
	switch (json_type(v)) {
	case JSON_FALSE:
	case JSON_TRUE:
		return "a boolean";
	case JSON_NUMBER:
		return "a number";
	case JSON_STRING:
		return "a string";
	case JSON_ARRAY:
		return "an array";
	case JSON_OBJECT:
		return "an object";
	case JSON_NULL:
		break;
	}
	return "null";
}

int param_fail_type(struct param_reader *r, const struct json *v, const char *path, const char *key,
        const char *wanted)
{
	char where[PARAM_PATH];

	param_join(where, path, key);
	return param_fail(r, ERR_INVALID, "invalid_type", path, key,
	        "Invalid type for '%s': expected %s, but got %s instead.", where, wanted,
	        type_name(v));
}

int param_fail_missing(struct param_reader *r, const char *path, const char *key)
{
	char where[PARAM_PATH];

	param_join(where, path, key);
	return param_fail(r, ERR_INVALID, "missing_required_parameter", path, key,
	        "Missing required parameter: '%s'.", where);
}

int param_fail_memory(struct param_reader *r)
{
	return error_set(r->err, ERR_NOMEM, "The request needs more memory than one request may.");
}

int param_only_here(struct param_reader *r, struct error **reason, const char *type,
        const char *path, const char *key, const char *fmt, va_list ap)
{
	char where[PARAM_PATH], text[sizeof((*reason)->text)];

	if (*reason)
		return 0;
	*reason = arena_alloc(r->conversation->arena, sizeof(**reason));
	if (!*reason)
		return param_fail_memory(r);
	param_join(where, path, key);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	error_param(*reason, ERR_UNSUPPORTED, where, "%s", text);
	str_copy((*reason)->type, sizeof((*reason)->type), str_of(type));
	return 0;
}

struct param_shown param_show(struct str s)
{
	struct param_shown shown;

	if (str_copy(shown.text, 65, s))
		return shown;
	str_format(shown.text + strlen(shown.text), 5, "...");
	return shown;
}

int param_keep(struct param_reader *r, const struct json *string, struct str *ret)
{
	struct str s = json_str(string);
	bool ok = true;

	if (s.n == 0)
		s = STR("");
	else if (s.p < r->body.p || s.p >= r->body.p + r->body.n)
		/* It had escapes, so its decoded form lies in the tree, which is freed after the
		 * parse. */
		s = conversation_copy(r->conversation, s, &ok);
	if (!ok)
		return param_fail_memory(r);
	*ret = s;
	return 0;
}

int param_str(struct param_reader *r, const struct json *object, const char *path, const char *key,
        size_t max_chars, struct str *ret)
{
	const struct json *v = json_get(object, key);
	struct str s;

	*ret = (struct str){NULL, 0};
	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_STRING))
		return param_fail_type(r, v, path, key, "a string");
	s = json_str(v);
	if (max_chars && s.n > max_chars && utf8_count(s.p, s.n) > max_chars)
		return param_fail(r, ERR_INVALID, "string_above_max_length", path, key,
		        "Invalid '%s': string too long. Expected at most %zu characters.", key,
		        max_chars);
	return param_keep(r, v, ret);
}

int param_choice(struct param_reader *r, const struct json *object, const char *path,
        const char *key, const char *const *allowed, struct str *ret)
{
	char list[256] = "";
	size_t n = 0;
	struct str s;
	int rc = param_str(r, object, path, key, 0, &s);

	*ret = s;
	if (rc || !s.p)
		return rc;
	for (; *allowed; allowed++) {
		if (str_is(s, *allowed))
			return 0;
		if (n < sizeof(list))
			n += (size_t)snprintf(
			        list + n, sizeof(list) - n, "%s'%s'", n ? ", " : "", *allowed);
	}
	return param_fail(r, ERR_INVALID, "invalid_value", path, key,
	        "Invalid value: '%s'. Supported values are: %s.", param_show(s).text, list);
}

int param_bool(struct param_reader *r, const struct json *object, const char *path, const char *key,
        int *ret)
{
	const struct json *v = json_get(object, key);

	*ret = -1;
	if (json_absent(v))
		return 0;
	if (!json_is_bool(v))
		return param_fail_type(r, v, path, key, "a boolean");
	*ret = json_bool(v);
	return 0;
}

int param_number(struct param_reader *r, const struct json *object, const char *path,
        const char *key, double least, double most, struct str *ret_text)
{
	const struct json *v = json_get(object, key);
	double number;

	*ret_text = (struct str){NULL, 0};
	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_NUMBER))
		return param_fail_type(r, v, path, key, "a number");
	if (!json_double(v, &number) || number < least || number > most)
		return param_fail(r, ERR_INVALID, "invalid_value", path, key,
		        "Invalid '%s': expected a number from %g to %g.", key, least, most);
	*ret_text = json_raw(v);
	return 0;
}

int param_whole(struct param_reader *r, const struct json *object, const char *path,
        const char *key, int64_t least, int64_t most, struct str *ret_text, int64_t *ret)
{
	const struct json *v = json_get(object, key);
	int64_t number;

	if (ret_text)
		*ret_text = (struct str){NULL, 0};
	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_NUMBER))
		return param_fail_type(r, v, path, key, "an integer");
	if (!json_i64(v, &number) || number < least || number > most) {
		if (most == INT64_MAX)
			return param_fail(r, ERR_INVALID, "invalid_value", path, key,
			        "Invalid '%s': expected an integer of at least %lld.", key,
			        (long long)least);
		return param_fail(r, ERR_INVALID, "invalid_value", path, key,
		        "Invalid '%s': expected an integer from %lld to %lld.", key,
		        (long long)least, (long long)most);
	}
	if (ret_text)
		*ret_text = json_raw(v);
	if (ret)
		*ret = number;
	return 0;
}

int param_container(struct param_reader *r, const struct json *object, const char *path,
        const char *key, enum json_type type, const struct json **ret)
{
	const struct json *v = json_get(object, key);

	*ret = NULL;
	if (json_absent(v))
		return 0;
	if (!json_is(v, type))
		return param_fail_type(
		        r, v, path, key, type == JSON_ARRAY ? "an array" : "an object");
	*ret = v;
	return 0;
}

int param_need_str(struct param_reader *r, const struct json *object, const char *path,
        const char *key, struct str *ret)
{
	int rc = param_str(r, object, path, key, 0, ret);

	return rc || ret->p ? rc : param_fail_missing(r, path, key);
}

int param_need_container(struct param_reader *r, const struct json *object, const char *path,
        const char *key, enum json_type type, const struct json **ret)
{
	int rc = param_container(r, object, path, key, type, ret);

	return rc || *ret ? rc : param_fail_missing(r, path, key);
}
