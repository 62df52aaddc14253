/* Conversations for tests, from JSON: see the cases in tests/cases/chat-build. */
#ifndef BRIG_TESTS_PROVIDER_LOAD_H
#define BRIG_TESTS_PROVIDER_LOAD_H

#include "util.h"

struct loaded {
	char *text;
	struct json_doc *doc;
	struct conversation *c;
	struct config_provider config;
	struct provider_target target;
	struct upstream_call call;
	struct provider_call pc;
	char base_url[256], api_key[64], model[128], native[64];
	char *native_tools[1];
};

/* Opens "sealed:BYTES", and only that. */
bool load_open(void *ctx, const struct provider_target *t, struct str sealed, struct buf *out);
/* Only the first n_items items (SIZE_MAX: all). */
void load_text(struct loaded *l, const char *text, size_t n_items);
void load_file(struct loaded *l, const char *path, size_t n_items);
/* The same with a history behind it that is made to be slow: 60,000 replies of one call each, cut
 * as a replay comes. Quadratic work would take minutes. upstream_id: of all the calls, or {NULL,
 * 0}. */
void load_long(struct loaded *l, const char *text, struct str upstream_id);
void load_free(struct loaded *l);

/* A server tool whose words do not change with src/tool. */
extern const struct tool load_tool;

#endif
