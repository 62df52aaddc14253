/* The table of server tools. */
#include "tool/tool.h"

static const struct tool *const tools[] = {&tool_shell};

const struct tool *tool_find(struct str entry_type)
{
	size_t i;

	for (i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
		if (tools[i]->is_entry(entry_type))
			return tools[i];
	}
	return NULL;
}
