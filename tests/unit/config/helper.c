#include "helper.h"

#include "base/mem.h"

#include <string.h>

struct world {
	const struct pair *env, *files;
};

static const char *find(const struct pair *p, const char *name)
{
	for (; p && p->name; p++)
		if (strcmp(p->name, name) == 0)
			return p->value;
	return NULL;
}

static const char *world_env(void *ctx, const char *name)
{
	return find(((struct world *)ctx)->env, name);
}

static char *world_file(void *ctx, const char *path, struct error *err)
{
	const char *text = find(((struct world *)ctx)->files, path);

	if (!text)
		error_set(err, ERR_IO, "%s: No such file or directory", path);
	return mem_strdup(text);
}

int load_with(const char *text, size_t n, const struct pair *env, const struct pair *files,
        struct config **ret, struct error *err)
{
	struct world world = {env, files};
	struct config_source src = {
	        .text = {text, n},
	        .name = "brig.yaml",
	        .env = world_env,
	        .read_file = world_file,
	        .ctx = &world,
	};

	return config_load(&src, ret, err);
}

int load(const char *text, struct config **ret, struct error *err)
{
	return load_with(text, text ? strlen(text) : 0, NULL, NULL, ret, err);
}
