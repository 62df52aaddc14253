/*
 * Calls that the provider's own shell has run and that the client knows as calls of brig's shell:
 * back to the provider they go as that shell's items. They are written from the public fields
 * alone, which are the same in the turn and in a replay.
 */
#include "provider/openai_responses.h"

#define TREE_MAX ((size_t)128 << 20)

static struct str upstream_id(const struct item *call)
{
	struct str id = call->call.upstream_id.n
	                        ? call->call.upstream_id
	                        : conversation_upstream_id(call->call.public_id, true);

	return id;
}

bool openai_responses_is_hosted(const struct item *call)
{
	return call->type == ITEM_CALL && call->call.tool && !call->call.error.n &&
	       conversation_id_is_hosted(upstream_id(call));
}

static void write_id(struct json_writer *w, const struct item *call)
{
	struct str id = upstream_id(call);
	size_t n = sizeof(CONVERSATION_HOSTED) - 1;

	jw_kstr(w, "call_id", (struct str){id.p + n, id.n - n});
}

static void write_member(struct json_writer *w, const struct json *arguments, const char *key)
{
	const struct json *v = json_get(arguments, key);

	if (json_absent(v))
		jw_knull(w, key);
	else
		jw_kraw(w, key, json_raw(v));
}

static void write_call(struct json_writer *w, const struct item *call, struct str container)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *arguments;

	if (json_parse(call->call.arguments, TREE_MAX, &doc, NULL) < 0)
		doc = NULL;
	arguments = json_root(doc);
	jw_object(w);
	jw_kcstr(w, "type", "shell_call");
	write_id(w, call);
	jw_key(w, "action");
	jw_object(w);
	if (json_is(json_get(arguments, "commands"), JSON_ARRAY)) {
		write_member(w, arguments, "commands");
	} else {
		jw_key(w, "commands");
		jw_array(w);
		jw_end(w);
	}
	write_member(w, arguments, "timeout_ms");
	write_member(w, arguments, "max_output_length");
	jw_end(w);
	if (container.n) {
		jw_key(w, "environment");
		jw_object(w);
		jw_kcstr(w, "type", "container_reference");
		jw_kstr(w, "container_id", container);
		jw_end(w);
	}
	jw_kcstr(w, "status", "completed");
	jw_end(w);
}

static void write_output(struct json_writer *w, const struct command_output *o)
{
	jw_object(w);
	jw_kstr(w, "stdout", o->out.p ? o->out : STR(""));
	jw_kstr(w, "stderr", o->err.p ? o->err : STR(""));
	jw_key(w, "outcome");
	jw_object(w);
	jw_kcstr(w, "type", o->outcome == OUTCOME_TIMEOUT ? "timeout" : "exit");
	if (o->outcome != OUTCOME_TIMEOUT)
		jw_ki64(w, "exit_code", o->exit_code);
	jw_end(w);
	jw_end(w);
}

void openai_responses_hosted_write(
        struct json_writer *w, const struct item *call, const struct item *res)
{
	write_call(w, call, res->result.container_id);
	jw_object(w);
	jw_kcstr(w, "type", "shell_call_output");
	write_id(w, call);
	jw_key(w, "output");
	jw_array(w);
	for (size_t i = 0; i < res->result.n_outputs; i++)
		write_output(w, &res->result.outputs[i]);
	jw_end(w);
	jw_kcstr(w, "status", "completed");
	jw_end(w);
}
