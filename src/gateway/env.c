/* Variables of containers and execs. */
#include "gateway/internal.h"

#include <string.h>

static bool env_name_good(struct str name)
{
	return name.n > 0 && name.n <= 256 && !(name.p[0] >= '0' && name.p[0] <= '9') &&
	       str_in_set(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
}

int env_read(
        const struct json *env, struct arena *a, struct str *vars, size_t *n, struct error *err)
{
	for (const struct json *v = json_first(env); v != NULL; v = json_next(v)) {
		struct str name = json_key(v), value = json_str(v);
		char *text;

		if (!env_name_good(name))
			return error_param(err, ERR_INVALID, "env",
			        "A variable's name must be letters, digits and _ and not begin "
			        "with a digit.");
		if (value.n > 0 && memchr(value.p, 0, value.n) != NULL)
			return error_param(
			        err, ERR_INVALID, "env", "A variable's value holds a NUL.");
		text = arena_alloc(a, name.n + 1 + value.n + 1);
		if (text == NULL)
			return error_param(err, ERR_INVALID, "env", "The variables are too large.");
		memcpy(text, name.p, name.n);
		text[name.n] = '=';
		memcpy(text + name.n + 1, value.p, value.n);
		vars[(*n)++] = (struct str){text, name.n + 1 + value.n};
	}
	return 0;
}

size_t env_of_row(const struct store_container *row, struct arena *a, struct str *vars)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	size_t n = 0;

	/* What was checked when the row was made. */
	if (row->env != NULL && json_parse(str_of(row->env), (size_t)16 << 20, &doc, NULL) == 0)
		env_read(json_root(doc), a, vars, &n, NULL);
	return n;
}
