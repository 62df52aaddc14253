#include "provider/provider.h"

#include "base/mem.h"
#include "provider/anthropic.h"
#include "provider/gemini.h"
#include "provider/openai_chat.h"
#include "provider/openai_responses.h"
#include "provider/script.h"

#include <stdlib.h>
#include <string.h>

const struct provider provider_openai_chat = {
        .dialect = DIALECT_OPENAI_CHAT,
        .name = "openai-chat",
        .build = openai_chat_build,
        .relay = openai_chat_relay,
        .open = openai_chat_parse_open,
        .feed = openai_chat_parse_feed,
        .end = openai_chat_parse_end,
        .close = openai_chat_parse_close,
        .error = openai_chat_error,
};

const struct provider provider_anthropic = {
        .dialect = DIALECT_ANTHROPIC,
        .name = "anthropic",
        .build = anthropic_build,
        .relay = anthropic_relay,
        .open = anthropic_parse_open,
        .feed = anthropic_parse_feed,
        .end = anthropic_parse_end,
        .close = anthropic_parse_close,
        .error = anthropic_error,
};

const struct provider provider_gemini = {
        .dialect = DIALECT_GEMINI,
        .name = "gemini",
        .build = gemini_build,
        .relay = gemini_relay,
        .open = gemini_parse_open,
        .feed = gemini_parse_feed,
        .end = gemini_parse_end,
        .close = gemini_parse_close,
        .error = gemini_error,
};

const struct provider provider_openai_responses = {
        .dialect = DIALECT_OPENAI_RESPONSES,
        .name = "openai-responses",
        .build = openai_responses_build,
        .relay = openai_responses_relay,
        .open = openai_responses_parse_open,
        .feed = openai_responses_parse_feed,
        .end = openai_responses_parse_end,
        .close = openai_responses_parse_close,
        .error = openai_chat_error,
};

const struct provider provider_script = {
        .dialect = DIALECT_SCRIPT,
        .name = "script",
        .local = script_reply,
};

const struct provider *provider_for(enum dialect d)
{
	switch (d) {
	case DIALECT_OPENAI_CHAT:
		return &provider_openai_chat;
	case DIALECT_SCRIPT:
		return &provider_script;
	case DIALECT_GEMINI:
		return &provider_gemini;
	case DIALECT_OPENAI_RESPONSES:
		return &provider_openai_responses;
	case DIALECT_ANTHROPIC:
		return &provider_anthropic;
	}
	return NULL;
}

static bool has_native_tool(const struct config_provider *p, const char *name)
{
	for (size_t i = 0; i < p->n_native_tools; i++)
		if (strcmp(p->native_tools[i], name) == 0)
			return true;
	return false;
}

const struct shell_settings *provider_shell_settings(const struct tool_entry *t)
{
	return t->kind == TOOL_SERVER && t->tool && strcmp(t->tool->name, "shell") == 0
	               ? t->settings
	               : NULL;
}

/* May a provider run what this entry offers, or hand it to the client, itself? */
static bool is_native_shell(const struct conversation *c, const struct tool_entry *t)
{
	const struct shell_settings *s = provider_shell_settings(t);

	if (t->kind == TOOL_SERVER)
		return s && s->may_be_native;
	return c->dialect == DIALECT_OPENAI_RESPONSES && t->kind == TOOL_FUNCTION &&
	       (str_is(t->type, "shell") || str_is(t->type, "local_shell"));
}

bool provider_runs_shell(const struct provider_target *t, const struct conversation *c)
{
	if (t->provider->dialect != DIALECT_OPENAI_RESPONSES ||
	        !has_native_tool(t->config, "shell"))
		return false;
	for (size_t i = 0; i < c->n_tools; i++)
		if (is_native_shell(c, &c->tools[i]))
			return true;
	return false;
}

int provider_check_shell(
        const struct provider_target *t, const struct conversation *c, struct error *err)
{
	for (size_t i = 0; i < c->n_tools; i++) {
		const struct shell_settings *s = provider_shell_settings(&c->tools[i]);

		if (!s || !s->native_path || provider_runs_shell(t, c))
			continue;
		error_param(err, ERR_UNSUPPORTED, s->native_path,
		        "%s: only a provider's own shell can serve this, and the provider '%s' has "
		        "none.",
		        s->native_path, t->config->name);
		str_copy(err->type, sizeof(err->type), STR("unsupported_value"));
		return -ERR_UNSUPPORTED;
	}
	return 0;
}

bool provider_state(const struct provider_call *pc, const struct item *it, struct buf *out)
{
	if (!it->opaque.n)
		return false;
	if (str_starts(it->opaque, PROVIDER_SEALED))
		return pc->open && pc->open(pc->open_ctx, pc->target, it->opaque, out) &&
		       !buf_error(out);
	return pc->conversation->dialect == pc->target->provider->dialect &&
	       buf_append(out, it->opaque.p, it->opaque.n) == 0;
}

bool provider_keeps_call_state(const struct provider_target *t)
{
	return t->config->dialect == DIALECT_GEMINI ||
	       (t->config->dialect == DIALECT_OPENAI_CHAT &&
	               str_contains(str_of(t->model), "gemini"));
}

void provider_request_free(struct provider_request *r)
{
	if (!r)
		return;
	free(r->path);
	for (char **h = r->headers; h && *h; h++) {
		mem_wipe(*h, strlen(*h));
		free(*h);
	}
	free(r->headers);
	free(r->body);
	*r = (struct provider_request){0};
}
