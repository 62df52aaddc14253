/* Any bytes as brig.yaml: either a config or an error with a text, never more. */
#include "config/config.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
const char *__lsan_default_suppressions(void);

/* libfyaml 0.7.12 loses a buffer of its own on some inputs; brig parses once a process. */
const char *__lsan_default_suppressions(void)
{
	return "leak:libfyaml.so";
}

static const char *env(void *ctx, const char *name)
{
	return strcmp(name, "SET") == 0 ? "secret" : NULL;
}

static char *read_file(void *ctx, const char *path, struct error *err)
{
	return mem_strdup("secret\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct config_source src = {
	        .text = {n ? (const char *)data : "", n},
	        .name = "fuzz",
	        .env = env,
	        .read_file = read_file,
	};
	struct config *c = NULL;
	struct error err = {0};

	if (config_load(&src, &c, &err) < 0) {
		if (c || !err.text[0])
			abort();
		return 0;
	}
	if (!c->n_providers || strcmp(c->providers[c->n_providers - 1].name, "brig") != 0)
		abort();
	config_free(c);
	return 0;
}
