/* The table of server tools, and what all of them write. */
#include "tool/tool.h"

static const struct tool *const tools[] = {&tool_shell, &tool_bash};

const struct tool *tool_find(struct str entry_type)
{
	size_t i;

	for (i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
		if (tools[i]->is_entry(entry_type))
			return tools[i];
	}
	return NULL;
}

const struct tool *tool_at(size_t i)
{
	return i < sizeof(tools) / sizeof(tools[0]) ? tools[i] : NULL;
}

void tool_write_outcome(struct json_writer *w, const struct command_output *o)
{
	jw_object(w);
	jw_kcstr(w, "type", o->outcome == OUTCOME_EXIT ? "exit" : "timeout");
	if (o->outcome == OUTCOME_EXIT)
		jw_ki64(w, "exit_code", o->exit_code);
	if (o->signal.n > 0)
		jw_kstr(w, "signal", o->signal);
	if (o->reason.n > 0)
		jw_kstr(w, "reason", o->reason);
	jw_end(w);
}
