#include "api/preferences.h"

enum { NAMES_MAX = 64, NAME_MAX = 256 };

static int parse_names(struct param_reader *r, const struct json *object, const char *key,
        struct str **ret, size_t *ret_n)
{
	char path[PARAM_PATH], at[PARAM_PATH];
	const struct json *list, *v;
	struct str *names;
	size_t n = 0;
	int rc = param_container(r, object, "provider", key, JSON_ARRAY, &list);

	if (rc || json_count(list) == 0)
		return rc;
	if (json_count(list) > NAMES_MAX)
		return param_fail(r, ERR_INVALID, "invalid_value", "provider", key,
		        "Invalid 'provider.%s': at most %d names.", key, NAMES_MAX);
	names = arena_alloc(r->conversation->arena, json_count(list) * sizeof(*names));
	if (!names)
		return param_fail_memory(r);
	param_join(path, "provider", key);
	for (v = json_first(list); v; v = json_next(v), n++) {
		param_index(at, path, n);
		if (!json_is(v, JSON_STRING))
			return param_fail_type(r, v, at, NULL, "a string");
		rc = param_keep(r, v, &names[n]);
		if (rc)
			return rc;
		if (names[n].n == 0 || names[n].n > NAME_MAX)
			return param_fail(r, ERR_INVALID, "invalid_value", at, NULL,
			        "Invalid '%s': a provider's name has 1 to %d characters.", at,
			        NAME_MAX);
	}
	*ret = names;
	*ret_n = n;
	return 0;
}

int preferences_parse(struct param_reader *r, const struct json *root)
{
	struct preferences *p = &r->conversation->preferences;
	const struct json *object;
	int fallbacks = -1;
	int rc = param_container(r, root, "", "provider", JSON_OBJECT, &object);

	if (rc || !object)
		return rc;
	rc = parse_names(r, object, "order", &p->order, &p->n_order);
	if (!rc)
		rc = parse_names(r, object, "only", &p->only, &p->n_only);
	if (!rc)
		rc = parse_names(r, object, "ignore", &p->ignore, &p->n_ignore);
	if (!rc)
		rc = param_bool(r, object, "provider", "allow_fallbacks", &fallbacks);
	p->no_fallbacks = fallbacks == 0;
	return rc;
}
