/*
 * What the four dialects' parsers do alike: from the body's bytes to its tree, and what a request
 * says about models, limits and the container. Errors are as in param.h.
 */
#ifndef BRIG_API_BODY_H
#define BRIG_API_BODY_H

#include "api/api.h"
#include "api/param.h"
#include "tool/tool.h"

enum { BODY_MODELS_MAX = 16, BODY_MODEL_NAME_MAX = 256, BODY_TOOL_CALLS_MAX = 30 };

/*
 * Takes the body over to a new conversation of r's, and reads it: *ret_in, and *ret_doc with an
 * object at its root, which is the caller's to free. On failure r is still to be freed.
 */
int body_read(struct api_request *in, enum dialect d, struct turn_request *r, struct error *err,
        struct param_reader *ret_in, struct json_doc **ret_doc);

/* `model`, and the list of `models` to fall back on: one of them is enough. And `provider`. */
int body_models(struct param_reader *in, const struct json *root);
/* The list alone, for a conversation whose model may be known. */
int body_model_list(struct param_reader *in, const struct json *root);
/* `stop`: a string or an array of strings. */
int body_stop(struct param_reader *in, const struct json *root);

/* How many calls of server tools a turn may have: at most as many as the server allows. */
uint32_t body_tool_calls(const struct config *config, int64_t wanted);
/* Everything that the server's limits say. */
struct turn_options body_options(const struct config *config, bool stream);
/* The container of r that the hints mean, or that the shell (NULL: none) refers to. */
int body_container(struct param_reader *in, struct api_container_hints *hints,
        const struct shell_settings *shell, struct turn_request *r);

#endif
