/*
 * Theory of operation (docs/broadcast.md has the tree and all attributes)
 *
 *   SERVER "POST /v1/responses"         the request: its totals, costs, who asked; guardrail hits
 *     INTERNAL "invoke_agent brig"      where a server tool ran, or the client named a span
 *       CLIENT "chat MODEL"             each call of a provider
 *       INTERNAL "execute_tool shell"   each call of a server tool
 *         INTERNAL "exec"               each command
 *
 * Attributes follow the GenAI conventions, with the older names beside the newer where backends
 * still read those, and what Langfuse, Arize and Braintrust look for. Token counts and costs stand
 * on the model calls and, summed, on the agent's span; the root has sums under names of our own, so
 * that nobody who adds up gen_ai.usage.* of one kind of operation counts one twice.
 *
 * Times of a record are milliseconds; parts whose times are not known get their parent's. A span
 * never ends before it begins.
 */
#include "trace/spans.h"

#include "trace/otlp.h"
#include "trace/span.h"

#include <stdio.h>

#define METADATA_MAX 64 /* members of the client's own that become attributes */
#define TEXT_MAX     ((size_t)32 << 20)

/* ---- tokens and money ---- */

static void usage(struct spans *s, const struct record_tokens *t)
{
	struct json_writer *w = &s->w;

	if (!t->given && !t->estimated)
		return;
	otlp_count(w, "gen_ai.usage.input_tokens", t->input);
	otlp_count(w, "gen_ai.usage.output_tokens", t->output);
	otlp_count(w, "gen_ai.usage.total_tokens", t->input + t->output);
	otlp_count(w, "gen_ai.usage.prompt_tokens", t->input);
	otlp_count(w, "gen_ai.usage.completion_tokens", t->output);
	if (t->cached > 0)
		otlp_count(w, "gen_ai.usage.cache_read.input_tokens", t->cached);
	if (t->cache_write > 0) {
		otlp_count(w, "gen_ai.usage.cache_creation.input_tokens", t->cache_write);
		otlp_count(w, "gen_ai.usage.cache_write.input_tokens", t->cache_write);
	}
	if (t->reasoning > 0)
		otlp_count(w, "gen_ai.usage.reasoning.output_tokens", t->reasoning);
	if (t->estimated)
		otlp_bool(w, "brig.usage.estimated", true);
	if (s->d->type != TRACE_ARIZE)
		return;
	otlp_count(w, "llm.token_count.prompt", t->input);
	otlp_count(w, "llm.token_count.completion", t->output);
	otlp_count(w, "llm.token_count.total", t->input + t->output);
}

/* Langfuse has no prices of its own for models that it does not know. */
static void call_cost(struct spans *s, struct money cost)
{
	_cleanup_buf_ struct buf text = BUF_INIT(64);

	if (!s->r->priced)
		return;
	otlp_money(&s->w, "gen_ai.usage.cost", cost);
	if (s->d->type != TRACE_LANGFUSE)
		return;
	buf_puts(&text, "{\"total\":");
	money_write(&text, cost);
	buf_puts(&text, "}");
	otlp_str(&s->w, "langfuse.observation.cost_details", (struct str){text.data, text.len});
}

/* ---- the request ---- */

static const char *route_of(const struct record *r)
{
	static const struct {
		const char *api, *route;
	} routes[] = {
	        {"responses", "/v1/responses"},
	        {"chat", "/v1/chat/completions"},
	        {"messages", "/v1/messages"},
	        {"exec", "/v1/containers/{id}/exec"},
	};

	for (size_t i = 0; r->api && i < sizeof(routes) / sizeof(*routes); i++)
		if (strcmp(routes[i].api, r->api) == 0)
			return routes[i].route;
	return r->streamed ? "/v1beta/models/{model}:streamGenerateContent"
	                   : "/v1beta/models/{model}:generateContent";
}

/* OpenRouter's names of what a client gives along are kept: trace.metadata.*, for Arize metadata.*.
 */
static void metadata(struct spans *s, const char *prefix, const struct json *object)
{
	_cleanup_buf_ struct buf key = BUF_INIT(1 << 20);
	size_t n = 0;

	for (const struct json *v = json_first(object); v && n < METADATA_MAX; v = json_next(v)) {
		if (!json_is(object, JSON_OBJECT))
			return;
		if (object == s->context.trace && context_is_special(json_key(v)))
			continue;
		buf_reset(&key);
		buf_puts(&key, prefix);
		buf_append(&key, json_key(v).p, json_key(v).n);
		if (buf_error(&key) < 0)
			continue;
		otlp_json(&s->w, (struct str){key.data, key.len}, v);
		n++;
	}
}

static void client_metadata(struct spans *s)
{
	_cleanup_json_ struct json_doc *doc = NULL;

	metadata(s, s->d->type == TRACE_ARIZE ? "metadata." : "trace.metadata.", s->context.trace);
	if (s->r->metadata && json_parse(str_of(s->r->metadata), TEXT_MAX, &doc, NULL) == 0)
		metadata(s, "brig.metadata.", json_root(doc));
	otlp_str(&s->w, "brig.trace.given_id", context_text(&s->context, "trace_id"));
	otlp_str(&s->w, "brig.trace.given_parent", context_text(&s->context, "parent_span_id"));
	if (s->d->type != TRACE_LANGFUSE)
		return;
	otlp_str(&s->w, "langfuse.trace.name", context_text(&s->context, "trace_name"));
	otlp_str(&s->w, "langfuse.environment", context_text(&s->context, "environment"));
	otlp_str(&s->w, "langfuse.release", context_text(&s->context, "release"));
}

/* The opt-ins broadcast_generation_…: one JSON object, in an attribute. */
static void generation(struct spans *s)
{
	_cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
	const struct trace_destination *d = s->d;
	const struct record *r = s->r;
	struct json_writer w;

	if (!d->with_cost && !d->with_identity && !d->with_context)
		return;
	jw_init(&w, &text);
	jw_object(&w);
	if (d->with_cost) {
		jw_ki64(&w, "cache_write_tokens", (int64_t)r->tokens.cache_write);
		jw_kbool(&w, "usage_is_estimated", r->tokens.estimated);
		jw_kmoney(&w, "usage", r->total_cost);
		jw_kmoney(&w, "server_tool_cost", r->sandbox_cost);
		jw_kbool(&w, "cancelled", r->cancelled);
	}
	if (d->with_cost || d->with_context) {
		jw_kcstr(&w, "model", r->model);
		jw_kcstr(&w, "api_type", r->api);
	}
	if (d->with_identity) {
		jw_kcstr(&w, "api_key_hash", r->key_hash);
		jw_kcstr(&w, "api_key_name", r->key_name);
		jw_kcstr(&w, "account_id", r->account);
		jw_kcstr(&w, "workspace_id", r->workspace);
		jw_kcstr(&w, "user", r->user);
	}
	if (d->with_context) {
		jw_kcstr(&w, "request_id", r->request_id);
		jw_kcstr(&w, "user_agent", r->user_agent);
		jw_kbool(&w, "streamed", r->streamed);
		jw_kcstr(&w, "session_id", r->session_id);
		jw_kcstr(&w, "container_id", r->container_id);
	}
	jw_end(&w);
	if (jw_done(&w) == 0)
		otlp_str(&s->w,
		        d->type == TRACE_ARIZE ? "metadata.openrouter_generation"
		                               : "trace.metadata.openrouter_generation",
		        (struct str){text.data, text.len});
}

static void who(struct spans *s)
{
	otlp_cstr(&s->w, "user.id", s->r->user);
	otlp_cstr(&s->w, "session.id", s->r->session_id);
	otlp_cstr(&s->w, "gen_ai.conversation.id", s->r->session_id);
}

static void totals(struct spans *s)
{
	const struct record *r = s->r;
	struct json_writer *w = &s->w;

	if (r->tokens.given || r->tokens.estimated) {
		otlp_count(w, "brig.usage.input_tokens", r->tokens.input);
		otlp_count(w, "brig.usage.output_tokens", r->tokens.output);
	}
	if (r->priced) {
		otlp_money(w, "brig.cost.input", r->input_cost);
		otlp_money(w, "brig.cost.output", r->output_cost);
	}
	if (r->n_runs > 0) {
		otlp_money(w, "brig.cost.sandbox", r->sandbox_cost);
		otlp_count(w, "brig.sandbox.duration_ms", r->sandbox_ms);
	}
	otlp_money(w, "brig.cost.total", r->total_cost);
}

/* As a person reads it: messages and text; the model calls have them in the conventions' form. */
static void root_content(struct spans *s)
{
	_cleanup_buf_ struct buf input = BUF_INIT(TEXT_MAX);
	struct str output = json_str(json_get(s->said.answer, "completion"));

	s->shortened |= s->dropped;
	if (s->dropped)
		otlp_bool(&s->w, "brig.content_dropped", true);
	if (!s->content)
		return;
	if (content_input(&s->said, &input)) {
		span_content(s, "input.value", (struct str){input.data, input.len});
		otlp_cstr(&s->w, "input.mime_type", "application/json");
	}
	if (output.p)
		span_content(s, "output.value", output);
}

static void root_attributes(struct spans *s)
{
	const struct record *r = s->r;
	struct json_writer *w = &s->w;

	span_kinds(s, "CHAIN", "span");
	otlp_cstr(w, "http.request.method", "POST");
	otlp_cstr(w, "http.route", route_of(r));
	if (r->status > 0)
		otlp_int(w, "http.response.status_code", r->status);
	otlp_cstr(w, "user_agent.original", r->user_agent);
	otlp_cstr(w, "brig.generation.id", r->id);
	otlp_cstr(w, "brig.request.id", r->request_id);
	otlp_cstr(w, "brig.api", r->api);
	otlp_cstr(w, "brig.ledger.status", record_state_name(r->state));
	otlp_cstr(w, "brig.workspace", r->workspace);
	otlp_cstr(w, "brig.key.name", r->key_name);
	otlp_cstr(w, "brig.model.requested", r->asked);
	otlp_cstr(w, "brig.model.served", r->model);
	otlp_cstr(w, "brig.provider", r->provider);
	otlp_cstr(w, "brig.finish_reason", r->finish);
	otlp_bool(w, "brig.streamed", r->streamed);
	otlp_bool(w, "brig.cancelled", r->cancelled);
	otlp_cstr(w, "container.id", r->container_id);
	if (r->first_ms > 0)
		otlp_int(w, "brig.time_to_first_token_ms", r->first_ms - r->begin_ms);
	who(s);
	totals(s);
	client_metadata(s);
	generation(s);
	root_content(s);
	if (r->error || r->status >= 400 || r->state == RECORD_RECOVERED)
		span_error_type(s, r->status);
}

static void hit_event(struct spans *s, const struct record_hit *h)
{
	span_event_begin(s, "brig.guardrail.hit", s->r->begin_ms);
	otlp_cstr(&s->w, "brig.guardrail.name", h->guardrail);
	otlp_cstr(&s->w, "brig.guardrail.rule", h->rule);
	otlp_cstr(&s->w, "brig.guardrail.pattern", h->pattern);
	otlp_cstr(&s->w, "brig.guardrail.action", h->action);
	if (s->content)
		otlp_cstr(&s->w, "brig.guardrail.matched", h->matched);
	span_event_end(s);
}

static void root_links(struct spans *s)
{
	if (!s->context.linked)
		return;
	jw_key(&s->w, "links");
	jw_array(&s->w);
	jw_object(&s->w);
	jw_kcstr(&s->w, "traceId", s->context.link.trace_id);
	jw_kcstr(&s->w, "spanId", s->context.link.span_id);
	jw_ki64(&s->w, "flags", s->context.link.flags | 0x300);
	jw_end(&s->w);
	jw_end(&s->w);
}

static void root(struct spans *s)
{
	const struct record *r = s->r;
	struct str name = context_text(&s->context, "trace_name");
	char route[80];

	snprintf(route, sizeof(route), "POST %s", route_of(r));
	span_begin(s, &(struct span){.id = s->root,
	                      .parent = s->context.parent_id,
	                      .remote = s->context.parent_id[0] != '\0',
	                      .name = name.p ? name : str_of(route),
	                      .kind = SPAN_SERVER});
	root_attributes(s);
	jw_end(&s->w);
	if (r->n_hits > 0 || s->shortened) {
		jw_key(&s->w, "events");
		jw_array(&s->w);
		for (size_t i = 0; i < r->n_hits; i++)
			hit_event(s, &r->hits[i]);
		span_shortened_event(s, r->begin_ms);
		jw_end(&s->w);
	}
	root_links(s);
	span_status(s, r->error                       ? r->error
	               : r->state == RECORD_RECOVERED ? "The server ended while this ran."
	               : r->status >= 400             ? "The request was refused."
	                                              : NULL);
	jw_end(&s->w);
}

/* ---- the agent ---- */

static void agent(struct spans *s)
{
	const struct record *r = s->r;
	struct str given = context_text(&s->context, "span_name");

	if (!given.p && (r->n_runs == 0 || r->n_attempts == 0)) {
		memcpy(s->agent, s->root, sizeof(s->agent));
		return;
	}
	context_span_id(r, "agent", 0, 0, s->agent);
	span_begin(s, &(struct span){.id = s->agent,
	                      .parent = s->root,
	                      .name = given.p ? given : STR("invoke_agent brig"),
	                      .kind = SPAN_INTERNAL});
	span_kinds(s, "AGENT", "agent");
	otlp_cstr(&s->w, "gen_ai.operation.name", "invoke_agent");
	otlp_cstr(&s->w, "gen_ai.agent.name", "brig");
	who(s);
	if (s->d->type != TRACE_LANGFUSE) { /* it adds up what it finds */
		usage(s, &r->tokens);
		call_cost(s, r->total_cost);
	}
	jw_end(&s->w);
	span_status(s, r->error);
	jw_end(&s->w);
}

/* ---- model calls ---- */

/* The conventions' names for well-known providers; a provider of another name is its own. */
static const char *provider_name(const char *ours)
{
	static const struct {
		const char *ours, *theirs;
	} names[] = {{"gemini", "gcp.gemini"}, {"google", "gcp.gemini"}, {"mistral", "mistral_ai"},
	        {"xai", "x_ai"}, {"azure", "azure.ai.openai"}, {"bedrock", "aws.bedrock"},
	        {"vertex", "gcp.vertex_ai"}};

	for (size_t i = 0; ours && i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(names[i].ours, ours) == 0)
			return names[i].theirs;
	return ours;
}

/* What the request set, by the names that the dialects share or have each. */
static void parameters(struct spans *s)
{
	static const struct {
		const char *theirs, *key;
	} names[] = {
	        {"temperature", "gen_ai.request.temperature"},
	        {"top_p", "gen_ai.request.top_p"},
	        {"topP", "gen_ai.request.top_p"},
	        {"top_k", "gen_ai.request.top_k"},
	        {"topK", "gen_ai.request.top_k"},
	        {"max_tokens", "gen_ai.request.max_tokens"},
	        {"max_completion_tokens", "gen_ai.request.max_tokens"},
	        {"max_output_tokens", "gen_ai.request.max_tokens"},
	        {"maxOutputTokens", "gen_ai.request.max_tokens"},
	        {"frequency_penalty", "gen_ai.request.frequency_penalty"},
	        {"presence_penalty", "gen_ai.request.presence_penalty"},
	        {"seed", "gen_ai.request.seed"},
	};
	const struct json *from = json_get(s->said.request, "generationConfig");
	const char *last = "";

	if (!from)
		from = s->said.request;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const struct json *v = json_get(from, names[i].theirs);

		if (!json_is(v, JSON_NUMBER) || strcmp(last, names[i].key) == 0)
			continue;
		otlp_json(&s->w, str_of(names[i].key), v);
		last = names[i].key;
	}
}

/* The request's content stands on the first call that was answered, the answer's on the last. */
static void find_answered(const struct record *r, size_t *first, size_t *last)
{
	*first = *last = 0;
	for (size_t i = r->n_attempts; i-- > 0;)
		if (!r->attempts[i].error)
			*first = i;
	for (size_t i = 0; i < r->n_attempts; i++)
		if (!r->attempts[i].error)
			*last = i;
}

static void model_content(struct spans *s, size_t call)
{
	size_t first, last;

	_cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX);
	bool arize = s->d->type == TRACE_ARIZE;

	if (!s->content)
		return;
	find_answered(s->r, &first, &last);
	if (call == first && content_system(&s->said, &text))
		span_content(s, "gen_ai.system_instructions", (struct str){text.data, text.len});
	buf_reset(&text);
	if (call == first && content_input(&s->said, &text)) {
		span_content(s, "gen_ai.input.messages", (struct str){text.data, text.len});
		if (arize)
			span_content(s, "input.value", (struct str){text.data, text.len});
	}
	buf_reset(&text);
	if (call == last && content_output(&s->said, &text)) {
		span_content(s, "gen_ai.output.messages", (struct str){text.data, text.len});
		if (arize)
			span_content(s, "output.value", (struct str){text.data, text.len});
	}
}

static void model_times(struct spans *s, const struct record_attempt *a)
{
	uint64_t out = a->tokens.output;

	if (a->first_ms == 0 || a->first_ms < a->begin_ms)
		return;
	otlp_seconds(&s->w, "gen_ai.response.time_to_first_chunk", a->first_ms - a->begin_ms);
	otlp_int(&s->w, "openrouter.provider_time_to_first_token_ms", a->first_ms - a->begin_ms);
	if (out > 1 && a->end_ms >= a->first_ms)
		otlp_money(&s->w, "openrouter.inter_token_latency_ms",
		        money_mul((struct money){INT64_C(1000000000000)},
		                (uint64_t)(a->end_ms - a->first_ms), out - 1));
}

static void model_attributes(struct spans *s, const struct record_attempt *a, size_t i)
{
	struct json_writer *w = &s->w;
	const char *provider = provider_name(a->provider);
	const char *finish = a->finish;

	span_kinds(s, "LLM", "generation");
	otlp_cstr(w, "gen_ai.operation.name",
	        provider && strncmp(provider, "gcp.", 4) == 0 ? "generate_content" : "chat");
	otlp_cstr(w, "gen_ai.provider.name", provider);
	otlp_cstr(w, "gen_ai.system", provider);
	otlp_cstr(w, "gen_ai.request.model", a->model);
	otlp_cstr(w, "gen_ai.response.model", a->error ? NULL : a->model);
	if (s->r->streamed)
		otlp_bool(w, "gen_ai.request.stream", true);
	parameters(s);
	otlp_list(w, "gen_ai.response.finish_reasons", str_of(finish));
	otlp_cstr(w, "gen_ai.response.finish_reason", finish);
	if (a->status > 0)
		otlp_int(w, "http.response.status_code", a->status);
	otlp_count(w, "brig.call", i + 1);
	if (s->d->type == TRACE_ARIZE) {
		otlp_cstr(w, "llm.model_name", a->model);
		otlp_cstr(w, "llm.provider", provider);
	}
	who(s);
	usage(s, &a->tokens);
	if (a->tokens.given || a->tokens.estimated)
		call_cost(s, a->cost);
	model_times(s, a);
	model_content(s, i);
	if (a->error)
		span_error_type(s, a->status);
}

static void model(struct spans *s, const struct record_attempt *a, size_t i)
{
	_cleanup_buf_ struct buf name = BUF_INIT(4096);
	struct str given = context_text(&s->context, "generation_name");
	const char *provider = provider_name(a->provider);
	char id[17];

	buf_printf(&name, "%s %s",
	        provider && strncmp(provider, "gcp.", 4) == 0 ? "generate_content" : "chat",
	        a->model ? a->model : "");
	context_span_id(s->r, "call", i, 0, id);
	span_begin(s, &(struct span){.id = id,
	                      .parent = s->agent,
	                      .name = given.p ? given : (struct str){name.data, name.len},
	                      .kind = SPAN_CLIENT,
	                      .begin_ms = a->begin_ms,
	                      .end_ms = a->end_ms});
	model_attributes(s, a, i);
	jw_end(&s->w);
	if (a->first_ms > 0 || s->shortened) {
		jw_key(&s->w, "events");
		jw_array(&s->w);
		if (a->first_ms > 0) {
			span_event_begin(s, "brig.first_token", a->first_ms);
			span_event_end(s);
		}
		span_shortened_event(s, a->begin_ms);
		jw_end(&s->w);
	}
	span_status(s, a->error);
	jw_end(&s->w);
}

/* ---- tools ---- */

static void outcome(struct json_writer *w, const struct record_command *c)
{
	jw_key(w, "outcome");
	jw_object(w);
	jw_kcstr(w, "type", c->timed_out ? "timeout" : "exit");
	if (!c->timed_out)
		jw_ki64(w, "exit_code", c->exit_code);
	jw_end(w);
}

/* What the model asked for and what it got, as the tool's arguments and result. */
static void tool_content(struct spans *s, const struct record_run *run)
{
	_cleanup_buf_ struct buf asked = BUF_INIT(TEXT_MAX), got = BUF_INIT(2 * TEXT_MAX);
	struct json_writer a, g;
	bool any = false;

	if (!s->content)
		return;
	jw_init(&a, &asked);
	jw_object(&a);
	jw_key(&a, "commands");
	jw_array(&a);
	jw_init(&g, &got);
	jw_object(&g);
	jw_key(&g, "output");
	jw_array(&g);
	for (size_t i = 0; i < run->n_commands; i++) {
		const struct record_command *c = &run->commands[i];

		if (!c->command && !c->out && !c->err)
			continue;
		any = true;
		jw_str(&a, str_of(c->command));
		jw_object(&g);
		jw_kstr(&g, "stdout", str_of(c->out));
		jw_kstr(&g, "stderr", str_of(c->err));
		outcome(&g, c);
		jw_end(&g);
	}
	for (int i = 0; i < 2; i++) {
		jw_end(&a);
		jw_end(&g);
	}
	if (!any || jw_done(&a) < 0 || jw_done(&g) < 0)
		return;
	span_content(s, "gen_ai.tool.call.arguments", (struct str){asked.data, asked.len});
	span_content(s, "gen_ai.tool.call.result", (struct str){got.data, got.len});
	if (s->d->type != TRACE_ARIZE)
		return;
	span_content(s, "input.value", (struct str){asked.data, asked.len});
	span_content(s, "output.value", (struct str){got.data, got.len});
}

static struct str tool_name(const struct record_run *run)
{
	struct str name = str_of(run->tool);

	return str_starts(name, "openrouter:") ? (struct str){name.p + 11, name.n - 11} : name;
}

static bool timed_out(const struct record_run *run)
{
	for (size_t i = 0; i < run->n_commands; i++)
		if (run->commands[i].timed_out)
			return true;
	return false;
}

static void tool_attributes(struct spans *s, const struct record_run *run)
{
	struct json_writer *w = &s->w;

	span_kinds(s, "TOOL", "tool");
	otlp_cstr(w, "gen_ai.operation.name", "execute_tool");
	otlp_str(w, "gen_ai.tool.name", tool_name(run));
	otlp_cstr(w, "gen_ai.tool.type", "extension");
	otlp_cstr(w, "gen_ai.tool.call.id", run->call_id);
	if (s->d->type == TRACE_ARIZE)
		otlp_str(w, "tool.name", tool_name(run));
	otlp_cstr(w, "container.id", run->container_id);
	otlp_bool(w, "brig.container.started", run->started_container);
	otlp_cstr(w, "brig.tool.status", run->status);
	otlp_count(w, "brig.tool.commands", run->n_commands);
	otlp_count(w, "brig.network.allowed", run->network_allowed);
	otlp_count(w, "brig.network.denied", run->network_denied);
	tool_content(s, run);
	if (timed_out(run))
		otlp_cstr(w, "error.type", "timeout");
	else if (run->error)
		otlp_cstr(w, "error.type", "_OTHER");
}

static void command(
        struct spans *s, const struct record_run *run, const char *parent, size_t i, size_t k)
{
	const struct record_command *c = &run->commands[k];
	struct json_writer *w = &s->w;
	char id[17];

	context_span_id(s->r, "command", i, k, id);
	span_begin(s, &(struct span){.id = id,
	                      .parent = parent,
	                      .name = STR("exec"),
	                      .kind = SPAN_INTERNAL,
	                      .begin_ms = c->begin_ms > 0 ? c->begin_ms : run->begin_ms,
	                      .end_ms = c->end_ms > 0     ? c->end_ms
	                                : c->begin_ms > 0 ? run->end_ms
	                                                  : run->begin_ms});
	span_kinds(s, "CHAIN", "span");
	otlp_cstr(w, "container.id", run->container_id);
	if (!c->timed_out && !c->signal)
		otlp_int(w, "process.exit.code", c->exit_code);
	otlp_bool(w, "brig.command.timed_out", c->timed_out);
	otlp_cstr(w, "brig.command.signal", c->signal);
	otlp_cstr(w, "brig.command.reason", c->reason);
	if (c->out_truncated)
		otlp_bool(w, "brig.command.stdout_truncated", true);
	if (c->err_truncated)
		otlp_bool(w, "brig.command.stderr_truncated", true);
	if (s->content)
		span_content(s, "process.command_line", str_of(c->command));
	if (c->timed_out)
		otlp_cstr(w, "error.type", "timeout");
	jw_end(w);
	span_shortened(s, c->begin_ms > 0 ? c->begin_ms : run->begin_ms);
	span_status(s, c->timed_out ? "The command ran out of time." : NULL);
	jw_end(w);
}

static void tool(struct spans *s, const struct record_run *run, size_t i)
{
	_cleanup_buf_ struct buf name = BUF_INIT(4096);
	char id[17];

	buf_printf(&name, "execute_tool %.*s", (int)tool_name(run).n, tool_name(run).p);
	context_span_id(s->r, "tool", i, 0, id);
	span_begin(s, &(struct span){.id = id,
	                      .parent = s->agent,
	                      .name = (struct str){name.data, name.len},
	                      .kind = SPAN_INTERNAL,
	                      .begin_ms = run->begin_ms,
	                      .end_ms = run->end_ms});
	tool_attributes(s, run);
	jw_end(&s->w);
	span_shortened(s, run->begin_ms);
	span_status(s, run->error       ? run->error
	               : timed_out(run) ? "A command ran out of time."
	                                : NULL);
	jw_end(&s->w);
	for (size_t k = 0; k < run->n_commands; k++)
		command(s, run, id, i, k);
}

/* ---- all of them ---- */

int spans_write(struct buf *out, const struct trace_destination *d, const struct record *r,
        bool content, size_t *ret_n)
{
	_cleanup_buf_ struct buf text = BUF_INIT(out->max);
	struct spans s = {.d = d,
	        .r = r,
	        .content = content && !d->privacy_mode,
	        .dropped = !content && !d->privacy_mode};
	int result;

	context_open(&s.context, r);
	content_open(&s.said, r);
	trace_root_ids(r, (char[33]){0}, s.root);
	jw_init(&s.w, &text);
	jw_array(&s.w);
	root(&s);
	agent(&s);
	for (size_t i = 0; i < r->n_attempts; i++)
		model(&s, &r->attempts[i], i);
	for (size_t i = 0; i < r->n_runs; i++)
		tool(&s, &r->runs[i], i);
	jw_end(&s.w);
	content_close(&s.said);
	context_close(&s.context);
	result = jw_done(&s.w);
	if (result < 0)
		return result;
	*ret_n = s.n;
	return buf_append(out, text.data + 1, text.len - 2);
}
