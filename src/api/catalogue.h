/* The catalogue of server tools (GET /tools), in OpenRouter's shape. Pure. */
#ifndef BRIG_API_CATALOGUE_H
#define BRIG_API_CATALOGUE_H

#include "base/money.h"
#include "json/json.h"
#include "tool/tool.h"

#include <stdbool.h>
#include <stddef.h>

/* What the server at hand makes of its tools. */
struct catalogue_server {
	bool runs;          /* it has sandboxes, and may run commands */
	const char *region; /* NULL: none */
	struct money price_per_second;
	size_t native_providers, native_models; /* that have a shell of their own */
};

/* Is this the tool's name, or the type of an entry that offers it? */
bool catalogue_is_named(const struct tool *t, struct str name);
void catalogue_write(struct json_writer *w, const struct tool *t, const struct catalogue_server *s);

#endif
