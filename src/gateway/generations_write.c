/* Records as JSON, with OpenRouter's field names. See generations.h. */
#include "gateway/generations.h"

#include "json/json.h"

static void write_span(struct json_writer *w, const char *key, int64_t from, int64_t to)
{
	if (from == 0 || to == 0)
		jw_knull(w, key);
	else
		jw_ki64(w, key, to > from ? to - from : 0);
}

void generations_write_raw(struct json_writer *w, const char *key, const char *raw)
{
	if (raw != NULL)
		jw_kraw(w, key, str_of(raw));
	else
		jw_knull(w, key);
}

static void write_tokens(struct json_writer *w, const struct record_tokens *t)
{
	jw_ki64(w, "tokens_prompt", (int64_t)t->input);
	jw_ki64(w, "tokens_completion", (int64_t)t->output);
	jw_ki64(w, "native_tokens_prompt", (int64_t)t->input);
	jw_ki64(w, "native_tokens_completion", (int64_t)t->output);
	jw_ki64(w, "native_tokens_reasoning", (int64_t)t->reasoning);
	jw_ki64(w, "native_tokens_cached", (int64_t)t->cached);
	jw_ki64(w, "native_tokens_cache_write", (int64_t)t->cache_write);
	jw_kbool(w, "usage_is_estimated", t->estimated);
}

static void write_costs(struct json_writer *w, const struct record *r)
{
	jw_kmoney(w, "total_cost", r->total_cost);
	jw_kmoney(w, "usage", r->total_cost);
	if (r->priced)
		jw_kmoney(w, "upstream_inference_cost", money_add(r->input_cost, r->output_cost));
	else
		jw_knull(w, "upstream_inference_cost");
	jw_kmoney(w, "upstream_inference_input_cost", r->input_cost);
	jw_kmoney(w, "upstream_inference_output_cost", r->output_cost);
	jw_kmoney(w, "server_tool_cost", r->sandbox_cost);
	jw_ki64(w, "sandbox_ms", (int64_t)r->sandbox_ms);
}

void generations_write_row(struct json_writer *w, const struct record *r)
{
	jw_kcstr(w, "id", r->id);
	jw_kcstr(w, "ledger_status", record_state_name(r->state));
	jw_kcstr(w, "api_type", r->api);
	jw_kcstr(w, "model", r->model);
	jw_kcstr(w, "requested_model", r->asked);
	jw_kcstr(w, "provider_name", r->provider);
	jw_ktime(w, "created_at", r->begin_ms);
	jw_ki64(w, "created_at_ms", r->begin_ms);
	write_span(w, "latency", r->begin_ms, r->first_ms);
	write_span(w, "generation_time", r->begin_ms, r->end_ms);
	jw_kbool(w, "streamed", r->streamed);
	jw_kbool(w, "cancelled", r->cancelled);
	jw_ki64(w, "status", r->status);
	jw_kcstr(w, "error", r->error);
	jw_kcstr(w, "finish_reason", r->finish);
	jw_kcstr(w, "native_finish_reason", r->native_finish);
	write_tokens(w, &r->tokens);
	write_costs(w, r);
	jw_kcstr(w, "session_id", r->session_id);
	jw_kcstr(w, "user", r->user);
	jw_kcstr(w, "request_id", r->request_id);
	jw_kcstr(w, "user_agent", r->user_agent);
	jw_kcstr(w, "container_id", r->container_id);
	jw_kcstr(w, "workspace_id", r->workspace);
	jw_kcstr(w, "api_key_hash", r->key_hash);
	jw_kcstr(w, "api_key_name", r->key_name);
	jw_kbool(w, "content_stored", r->store_content);
	generations_write_raw(w, "metadata", r->metadata);
	generations_write_raw(w, "trace", r->trace);
}

static void write_attempt(struct json_writer *w, const struct record_attempt *a)
{
	jw_object(w);
	jw_kcstr(w, "provider_name", a->provider);
	jw_kcstr(w, "model", a->model);
	jw_ki64(w, "status", a->status);
	jw_kcstr(w, "error", a->error);
	jw_ki64(w, "started_at_ms", a->begin_ms);
	write_span(w, "latency", a->begin_ms, a->first_ms);
	write_span(w, "generation_time", a->begin_ms, a->end_ms);
	write_tokens(w, &a->tokens);
	jw_kmoney(w, "cost", a->cost);
	jw_kcstr(w, "finish_reason", a->finish);
	jw_end(w);
}

void generations_write_hit(struct json_writer *w, const struct record_hit *h)
{
	jw_kcstr(w, "guardrail", h->guardrail);
	jw_kcstr(w, "rule", h->rule);
	jw_kcstr(w, "pattern", h->pattern);
	jw_kcstr(w, "action", h->action);
	jw_kcstr(w, "matched", h->matched);
	jw_kbool(w, "false_positive", h->false_positive);
}

static void write_command(struct json_writer *w, const struct record_command *c)
{
	jw_object(w);
	jw_kcstr(w, "command", c->command);
	jw_kcstr(w, "stdout", c->out);
	jw_kcstr(w, "stderr", c->err);
	jw_kbool(w, "stdout_truncated", c->out_truncated);
	jw_kbool(w, "stderr_truncated", c->err_truncated);
	jw_key(w, "outcome");
	jw_object(w);
	jw_kcstr(w, "type", c->timed_out ? "timeout" : "exit");
	if (!c->timed_out)
		jw_ki64(w, "exit_code", c->exit_code);
	if (c->signal != NULL)
		jw_kcstr(w, "signal", c->signal);
	if (c->reason != NULL)
		jw_kcstr(w, "reason", c->reason);
	jw_end(w);
	jw_ki64(w, "started_at_ms", c->begin_ms);
	write_span(w, "duration_ms", c->begin_ms, c->end_ms);
	jw_end(w);
}

static void write_host(struct json_writer *w, const struct record_host *h)
{
	jw_object(w);
	jw_kcstr(w, "host", h->host);
	jw_kcstr(w, "verdict", h->allowed ? "allow" : "deny");
	jw_kcstr(w, "reason", h->reason != NULL && h->reason[0] != 0 ? h->reason : NULL);
	jw_ki64(w, "count", (int64_t)h->n);
	jw_ki64(w, "bytes_in", (int64_t)h->bytes_in);
	jw_ki64(w, "bytes_out", (int64_t)h->bytes_out);
	jw_end(w);
}

static void write_network(struct json_writer *w, const struct record_run *run)
{
	uint64_t rest = run->network_allowed + run->network_denied;

	jw_key(w, "network");
	jw_object(w);
	jw_ki64(w, "allowed", (int64_t)run->network_allowed);
	jw_ki64(w, "denied", (int64_t)run->network_denied);
	jw_key(w, "hosts");
	jw_array(w);
	for (size_t i = 0; i < run->n_hosts; i++) {
		write_host(w, &run->hosts[i]);
		rest -= run->hosts[i].n < rest ? run->hosts[i].n : rest;
	}
	jw_end(w);
	jw_ki64(w, "more", (int64_t)rest);
	jw_end(w);
}

static void write_run(struct json_writer *w, const struct record_run *run)
{
	jw_object(w);
	jw_kcstr(w, "call_id", run->call_id);
	jw_kcstr(w, "tool", run->tool);
	jw_kcstr(w, "container_id", run->container_id);
	jw_kcstr(w, "status", run->status);
	jw_kcstr(w, "error", run->error);
	jw_kbool(w, "started_container", run->started_container);
	jw_ki64(w, "started_at_ms", run->begin_ms);
	write_span(w, "duration_ms", run->begin_ms, run->end_ms);
	write_network(w, run);
	jw_key(w, "commands");
	jw_array(w);
	for (size_t i = 0; i < run->n_commands; i++)
		write_command(w, &run->commands[i]);
	jw_end(w);
	jw_end(w);
}

void generations_write_more(struct json_writer *w, const struct record *r)
{
	jw_kcstr(w, "traceparent", r->traceparent);
	jw_ki64(w, "num_tool_runs", (int64_t)r->n_runs);
	jw_key(w, "provider_responses");
	jw_array(w);
	for (size_t i = 0; i < r->n_attempts; i++)
		write_attempt(w, &r->attempts[i]);
	jw_end(w);
	jw_key(w, "guardrail_hits");
	jw_array(w);
	for (size_t i = 0; i < r->n_hits; i++) {
		jw_object(w);
		generations_write_hit(w, &r->hits[i]);
		jw_end(w);
	}
	jw_end(w);
}

void generations_write_runs(struct json_writer *w, const char *key, const struct record *r)
{
	jw_key(w, key);
	jw_array(w);
	for (size_t i = 0; i < r->n_runs; i++)
		write_run(w, &r->runs[i]);
	jw_end(w);
}
