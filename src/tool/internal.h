/* What the files of this folder share. */
#ifndef BRIG_TOOL_INTERNAL_H
#define BRIG_TOOL_INTERNAL_H

#include "tool/tool.h"

/* shell_settings.c: `settings` of struct tool, for both entry types. */
int shell_settings_read(struct arena *a, struct str type, const struct json *entry,
        const char *path, void **ret, struct error *err);

/* ---- arguments of calls (arguments.c); err->text is what the model is told ---- */

/* An object; `with` says what it should hold ("a list called commands"). -ERR_INVALID, or
 * -ERR_TOO_LARGE. */
int tool_arguments_read(
        struct str arguments, const char *with, struct json_doc **ret, struct error *err);
/* Command number `number`, from 1, copied into the arena. Bounded by what one argument of execve
 * holds. */
int tool_command_read(
        struct arena *a, const struct json *v, size_t number, struct str *ret, struct error *err);
/* timeout_ms and max_output_length, and what is in force of them. */
int tool_limits_read(const struct json *root, const struct shell_settings *s,
        const struct tool_limits *l, struct tool_call *call, struct error *err);

#endif
