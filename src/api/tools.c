#include "api/tools.h"

const struct tool_entry *tools_named(const struct conversation *c, struct str name)
{
	for (size_t i = 0; i < c->n_tools; i++)
		if (c->tools[i].name.p && str_eq(c->tools[i].name, name))
			return &c->tools[i];
	return NULL;
}

int tools_server_name(struct param_reader *in, const struct tool *tool,
        const struct tool_entry *(*named)(const struct conversation *c, struct str name),
        struct str *ret)
{
	struct str own = str_of(tool->name), brig;
	char text[80];
	bool ok = true;

	str_format(text, sizeof(text), "brig_%s", tool->name);
	brig = conversation_copy(in->conversation, str_of(text), &ok);
	if (!ok)
		return param_fail_memory(in);
	*ret = !named(in->conversation, own)    ? own
	       : !named(in->conversation, brig) ? brig
	                                        : (struct str){NULL, 0};
	return 0;
}

int tools_check_sandbox(struct param_reader *in, const struct config *config, const char *subject,
        const char *path, const char *key)
{
	if (!config->sandbox)
		return param_fail(in, ERR_UNSUPPORTED, "unsupported_value", path, key,
		        "%s runs without sandboxes, so it offers no tool that executes commands.",
		        subject);
	return tools_check_region(in, config, subject, path, key);
}

bool tools_executes_code(struct str type)
{
	return str_is(type, "code_interpreter") || str_is(type, "programmatic_tool_calling") ||
	       str_starts(type, "code_execution");
}

int tools_check_region(struct param_reader *in, const struct config *config, const char *subject,
        const char *path, const char *key)
{
	if (!config->region)
		return 0;
	return param_fail(in, ERR_PERMISSION, "permission_denied", path, key,
	        "%s keeps to the region '%s' and does not execute commands.", subject,
	        config->region);
}

int tools_read_settings(struct param_reader *in, const struct tool *tool, struct str type,
        const struct json *entry, const char *path, void **ret)
{
	int rc = tool->settings(in->conversation->arena, type, entry, path, ret, in->err);

	if (rc && in->err && !in->err->type[0])
		str_copy(in->err->type, sizeof(in->err->type),
		        rc == -ERR_UNSUPPORTED ? STR("unsupported_value") : STR("invalid_value"));
	return rc;
}
