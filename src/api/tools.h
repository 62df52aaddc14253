/* What the dialects' tools have in common: looking them up, and entries of the server's own. */
#ifndef BRIG_API_TOOLS_H
#define BRIG_API_TOOLS_H

#include "api/param.h"
#include "config/config.h"
#include "tool/tool.h"

/* The first entry of this name, or NULL. */
const struct tool_entry *tools_named(const struct conversation *c, struct str name);
/*
 * By which name the model knows a server's tool: the tool's own, or "brig_…" where an entry has
 * that one; *ret {NULL, 0}: both are taken. named: as tools_named(), of the entries that count.
 */
int tools_server_name(struct param_reader *in, const struct tool *tool,
        const struct tool_entry *(*named)(const struct conversation *c, struct str name),
        struct str *ret);
/* May this server execute commands? subject: "This server", as the sentence of the error begins. */
int tools_check_sandbox(struct param_reader *in, const struct config *config, const char *subject,
        const char *path, const char *key);
/* Entries by which a provider executes code in a sandbox of its own. */
bool tools_executes_code(struct str type);
/* May this server offer such a one? */
int tools_check_region(struct param_reader *in, const struct config *config, const char *subject,
        const char *path, const char *key);
/* The tool's own settings, of an entry of its type. */
int tools_read_settings(struct param_reader *in, const struct tool *tool, struct str type,
        const struct json *entry, const char *path, void **ret);

#endif
