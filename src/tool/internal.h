/* What the files of this folder share. */
#ifndef BRIG_TOOL_INTERNAL_H
#define BRIG_TOOL_INTERNAL_H

#include "tool/tool.h"

/* shell_settings.c: `settings` of struct tool, for both entry types. */
int shell_settings_read(struct arena *a, struct str type, const struct json *entry,
        const char *path, void **ret, struct error *err);

#endif
