/*
 * The record of a turn, filled while it runs. See recording.h.
 *
 * Costs come from the same totals, by the same function, as the usage that the client is shown, so
 * that the two cannot differ. Content (texts of the request, of the answer, of commands) is only
 * ever put into the record where it may be stored: what is not there cannot be written by mistake.
 */
#include "gateway/recording.h"

#include "gateway/exec.h"
#include "gateway/guardrails.h"
#include "gateway/ledger.h"
#include "gateway/turn_run.h"

#include "base/id.h"
#include "json/json.h"
#include "trace/trace.h"

#include <stddef.h>
#include <stdlib.h>

#define CONTENT_MAX   ((size_t)4 << 20) /* of a request, of an answer: a larger one is not kept */
#define BYTES_A_TOKEN 4
#define TEXT_MAX      1024  /* of what a request says of itself */
#define JSON_KEPT     16384 /* of metadata and trace */

/* ---- the request ---- */

static void set_header(char **member, const struct http_exchange *x, const char *name)
{
	struct str value = http_request_header(x, name);

	if (value.p != NULL && value.n <= TEXT_MAX)
		record_set(member, value);
}

/* Kept as version 00 has it, however long a later version is. Of two headers none counts. */
static void set_traceparent(struct record *rec, const struct http_exchange *x)
{
	struct trace_parent parent;
	char text[56];

	if (http_request_header_count(x, "traceparent") != 1 ||
	        !trace_parent_read(http_request_header(x, "traceparent"), &parent))
		return;
	trace_parent_write(&parent, text);
	record_set(&rec->traceparent, str_of(text));
}

void recording_who(struct record *rec, const struct request *r)
{
	struct http_note *note = http_exchange_note(r->x);
	char hash[65];

	str_copy(note->id, sizeof(note->id), str_of(rec->id));
	rec->begin_ms = rec->heartbeat_ms = clock_wall_ms();
	record_set(&rec->account, str_of(r->key->account));
	record_set(&rec->workspace, str_of(r->key->workspace));
	id_hex(r->key->hash, sizeof(r->key->hash), hash);
	record_set(&rec->key_hash, str_of(hash));
	record_set(&rec->key_name, str_of(r->key->name));
	set_header(&rec->session_id, r->x, "x-session-id");
	set_header(&rec->user_agent, r->x, "user-agent");
	set_traceparent(rec, r->x);
}

void recording_begin(struct turn_run *t, const struct request *r)
{
	struct record *rec = record_new();

	t->recording = (struct recording){.record = rec, .run = SIZE_MAX};
	buf_init(&t->recording.completion, CONTENT_MAX);
	buf_init(&t->recording.reasoning, CONTENT_MAX);
	str_copy(rec->id, sizeof(rec->id), str_of(t->who.id));
	recording_who(rec, r);
	rec->store_content = t->state.past.allowed;
	record_set(&rec->api, str_of(t->api->name));
	record_set(&rec->request_id, str_of(t->who.id));
	record_set(&rec->asked, t->in.path_model);
}

/* The members of the body's own object that a record has. */
struct body_scan {
	struct str text;
	struct record *record;
	int depth;
	char key[16];
	size_t from; /* of the object that is kept */
};

static char **body_member(struct body_scan *s, enum json_event_type type)
{
	static const struct {
		const char *key;
		enum json_event_type type;
		size_t at;
	} members[] = {
	        {"model", JSON_EV_STRING, offsetof(struct record, asked)},
	        {"session_id", JSON_EV_STRING, offsetof(struct record, session_id)},
	        {"user", JSON_EV_STRING, offsetof(struct record, user)},
	        {"metadata", JSON_EV_OBJECT_BEGIN, offsetof(struct record, metadata)},
	        {"trace", JSON_EV_OBJECT_BEGIN, offsetof(struct record, trace)},
	};

	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
		if (type == members[i].type && strcmp(s->key, members[i].key) == 0)
			return (char **)(void *)((char *)s->record + members[i].at);
	return NULL;
}

static int on_body(void *ctx, const struct json_event *ev)
{
	struct body_scan *s = ctx;
	bool begins = ev->type == JSON_EV_OBJECT_BEGIN || ev->type == JSON_EV_ARRAY_BEGIN;
	bool ends = ev->type == JSON_EV_OBJECT_END || ev->type == JSON_EV_ARRAY_END;
	char **member, text[TEXT_MAX];

	s->depth -= ends;
	if (s->depth == 1 && ev->type == JSON_EV_KEY) {
		s->key[0] = 0;
		if (ev->raw.n < sizeof(s->key) && !ev->escaped)
			str_copy(
			        s->key, sizeof(s->key), (struct str){ev->raw.p + 1, ev->raw.n - 2});
	} else if (s->depth == 1 && ev->type == JSON_EV_STRING && ev->raw.n <= sizeof(text)) {
		member = body_member(s, JSON_EV_STRING);
		if (member != NULL)
			record_set(member, (struct str){text, json_unescape(ev->raw, text)});
	} else if (s->depth == 1 && begins) {
		s->from = ev->offset;
	} else if (s->depth == 1 && ev->type == JSON_EV_OBJECT_END) {
		size_t n = ev->offset + 1 - s->from;

		member = body_member(s, JSON_EV_OBJECT_BEGIN);
		if (member != NULL && n <= JSON_KEPT)
			record_set(member, (struct str){s->text.p + s->from, n});
	}
	s->depth += begins;
	return 0;
}

void recording_body(struct turn_run *t)
{
	struct record *r = t->recording.record;
	struct body_scan s = {.text = {t->in.body, t->in.body_len}, .record = r};

	if (r == NULL)
		return;
	t->recording.asked_bytes = t->in.body_len;
	/* What is wrong with it, the api says. */
	json_read(s.text, on_body, &s, NULL);
	if (r->store_content && s.text.n <= CONTENT_MAX)
		record_set(&r->request, s.text);
}

void recording_redacted(struct turn_run *t)
{
	struct record *r = t->recording.record;

	if (r != NULL && r->request != NULL)
		record_set(&r->request, (struct str){t->in.body, t->in.body_len});
}

/* ---- totals ---- */

static void fill_totals(
        struct record *r, const struct turn_run *t, const struct turn_totals *totals)
{
	const struct usage *u = &totals->usage;

	r->tokens = (struct record_tokens){
	        .input = u->input,
	        .cached = u->cached,
	        .cache_write = u->cache_write,
	        .output = u->output,
	        .reasoning = u->reasoning,
	        .given = u->given && !r->tokens.estimated,
	        .estimated = r->tokens.estimated,
	};
	api_price(&t->who, u, &r->input_cost, &r->output_cost);
	r->sandbox_cost = totals->sandbox_cost;
	r->sandbox_ms = totals->sandbox_ms;
	r->total_cost = money_add(money_add(r->input_cost, r->output_cost), r->sandbox_cost);
	r->priced = t->who.has_price;
}

static void fill_served(struct record *r, const struct turn_run *t)
{
	record_set(&r->provider, str_of(t->who.provider));
	record_set(&r->model, str_of(t->who.model));
	if (t->request.container_id[0] != 0)
		record_set(&r->container_id, str_of(t->request.container_id));
	r->streamed = t->request.stream;
}

/* As far as they are, without their commands. */
static void beat_runs(struct record *row, const struct turn_run *t)
{
	const struct record *r = t->recording.record;

	for (size_t i = 0; i < r->n_runs; i++) {
		const struct record_run *run = &r->runs[i];
		struct record_run *to = record_add_run(row);

		record_set(&to->call_id, str_of(run->call_id));
		record_set(&to->tool, str_of(run->tool));
		record_set(&to->container_id, str_of(run->container_id));
		record_set(&to->status, str_of(run->status));
		record_set(&to->error, str_of(run->error));
		to->started_container = run->started_container;
		to->begin_ms = run->begin_ms;
		to->end_ms = i != t->recording.run ? run->end_ms : 0;
	}
}

/* runs: one of them has begun or ended. */
static void beat(struct turn_run *t, bool runs)
{
	struct turn_totals totals;
	struct record *row;

	if (!t->recording.opened || t->recording.record == NULL || t->turn == NULL)
		return;
	fill_served(t->recording.record, t);
	row = ledger_beat_row(t->recording.record);
	turn_totals(t->turn, clock_mono_ms(), &totals);
	fill_totals(row, t, &totals);
	if (runs)
		beat_runs(row, t);
	key_limits_grow(&t->g->shared->key_limits, t->g->options->index,
	        &t->recording.record->hold, row->total_cost);
	ledger_write(t->g->ledger, STORE_RECORD_BEAT, row, true, NULL, NULL);
}

void recording_beat_all(struct gateway *g)
{
	for (struct turn_run *t = g->turns; t != NULL; t = t->next)
		beat(t, false);
	exec_record_beat_all(g);
}

/* ---- the row ---- */

static void on_opened(void *ctx, const struct error *err)
{
	struct turn_run *t = ctx;

	t->building = false;
	t->recording.opened = err == NULL;
	t->recording.then(t, err);
}

void recording_open(struct turn_run *t, recording_fn then)
{
	if (t->recording.record == NULL) {
		then(t, NULL);
		return;
	}
	fill_served(t->recording.record, t);
	t->recording.then = then;
	t->recording.asked = true;
	t->building = true; /* keeps it alive, and events away */
	ledger_write(t->g->ledger, STORE_RECORD_OPEN, t->recording.record, false, on_opened, t);
}

/* ---- attempts ---- */

static struct record_attempt *attempt_of(struct turn_run *t)
{
	struct record *r = t->recording.record;

	return r != NULL && t->recording.attempt ? &r->attempts[r->n_attempts - 1] : NULL;
}

void recording_attempt(struct turn_run *t)
{
	const struct provider_target *target = &t->route.targets[t->up.target];
	struct record_attempt *a;

	if (t->recording.record == NULL)
		return;
	a = record_add_attempt(t->recording.record);
	record_set(&a->provider, str_of(target->config->name));
	record_set(&a->model, str_of(target->model));
	a->begin_ms = clock_wall_ms();
	t->recording.seen_bytes = 0;
	t->recording.attempt = true;
}

/* By its own prices alone, whatever came before it in the turn. */
static struct money attempt_cost(const struct turn_run *t, const struct record_tokens *tokens)
{
	struct api_identity own = t->who;
	const struct usage u = {
	        .input = tokens->input, .cached = tokens->cached, .output = tokens->output};
	struct money input, output;

	own.earlier = (struct usage){0};
	own.earlier_input = own.earlier_output = (struct money){0};
	api_price(&own, &u, &input, &output);
	return money_add(input, output);
}

static void attempt_ended(struct turn_run *t, struct record_attempt *a)
{
	a->cost = attempt_cost(t, &a->tokens);
	a->end_ms = clock_wall_ms();
	if (t->up.status != 0)
		a->status = t->up.status;
	t->recording.attempt = false;
}

static const char *finish_name(enum finish f)
{
	static const char *const names[] = {[FINISH_STOP] = "stop",
	        [FINISH_CALLS] = "tool_calls",
	        [FINISH_LENGTH] = "length",
	        [FINISH_FILTER] = "content_filter",
	        [FINISH_PAUSE] = "pause"};

	return names[f];
}

static void keep_text(struct turn_run *t, const struct stream_event *ev)
{
	struct recording *rec = &t->recording;
	bool thought = ev->part_type == PART_SUMMARY || ev->part_type == PART_REASONING;

	if (!rec->record->store_content)
		return;
	if (rec->writing == ITEM_MESSAGE || (rec->writing == ITEM_REASONING && thought))
		buf_append(rec->writing == ITEM_MESSAGE ? &rec->completion : &rec->reasoning,
		        ev->text.p, ev->text.n);
}

static void tokens_fill(struct record_tokens *to, const struct usage *u)
{
	if (!u->given)
		return;
	*to = (struct record_tokens){.input = u->input,
	        .cached = u->cached,
	        .cache_write = u->cache_write,
	        .output = u->output,
	        .reasoning = u->reasoning,
	        .given = true};
}

/*
 * A reply without a word on its tokens, since it was broken off or relayed for a client that did
 * not ask: it is paid for by what was seen of it, about four bytes a token, of the request and of
 * the text.
 */
static void estimate(struct turn_run *t, struct record_attempt *a)
{
	struct recording *rec = &t->recording;
	uint64_t input = (rec->asked_bytes + BYTES_A_TOKEN - 1) / BYTES_A_TOKEN;
	uint64_t output = (rec->seen_bytes + BYTES_A_TOKEN - 1) / BYTES_A_TOKEN;

	if (a->tokens.given || a->status != 200)
		return;
	a->tokens = (struct record_tokens){.input = input, .output = output, .estimated = true};
	rec->guessed_input += input;
	rec->guessed_output += output;
}

/* What was not told goes into the same totals as what was. */
static void add_guessed(struct turn_run *t, struct turn_totals *totals)
{
	const struct recording *rec = &t->recording;
	struct usage *u = &totals->usage;

	if (rec->guessed_input + rec->guessed_output == 0)
		return;
	u->input += rec->guessed_input;
	u->output += rec->guessed_output;
	u->given = true;
	rec->record->tokens.estimated = true;
}

void recording_stream(struct turn_run *t, const struct stream_event *ev)
{
	struct record_attempt *a = attempt_of(t);

	if (a == NULL)
		return;
	switch (ev->type) {
	case STREAM_BEGIN:
		a->status = t->up.status;
		break;
	case STREAM_ITEM_BEGIN:
		t->recording.writing = ev->item_type;
		break;
	case STREAM_DELTA:
		if (a->first_ms == 0)
			a->first_ms = clock_wall_ms();
		if (t->recording.record->first_ms == 0)
			t->recording.record->first_ms = a->first_ms;
		t->recording.seen_bytes += ev->text.n;
		keep_text(t, ev);
		break;
	case STREAM_ITEM_END:
		break;
	case STREAM_USAGE:
		tokens_fill(&a->tokens, &ev->usage);
		break;
	case STREAM_END:
		record_set(&a->finish, str_of(finish_name(ev->finish)));
		if (t->relay.on)
			estimate(t, a);
		attempt_ended(t, a);
		break;
	case STREAM_ERROR:
		record_set(&a->error, str_of(ev->error->text));
		attempt_ended(t, a);
		break;
	}
}

void recording_attempt_failed(struct turn_run *t, const struct error *e)
{
	struct record_attempt *a = attempt_of(t);

	if (a == NULL)
		return;
	record_set(&a->error, str_of(e->text));
	attempt_ended(t, a);
}

/* ---- runs ---- */

static struct record_run *run_of(struct turn_run *t)
{
	struct record *r = t->recording.record;

	return r != NULL && t->recording.run != SIZE_MAX ? &r->runs[t->recording.run] : NULL;
}

static struct record_run *run_add(struct turn_run *t, const struct item *call)
{
	struct record_run *run = record_add_run(t->recording.record);
	struct buf name = BUF_INIT(TEXT_MAX);

	record_set(&run->call_id, call->call.public_id);
	buf_printf(&name, "openrouter:%s", call->call.tool != NULL ? call->call.tool->name : "");
	record_set(&run->tool, (struct str){name.data, name.len});
	buf_free(&name);
	run->begin_ms = run->end_ms = clock_wall_ms();
	return run;
}

void recording_run(struct turn_run *t, const struct item *call)
{
	if (t->recording.record == NULL)
		return;
	run_add(t, call);
	t->recording.run = t->recording.record->n_runs - 1;
}

void recording_run_started(struct turn_run *t)
{
	struct record_run *run = run_of(t);

	if (run == NULL)
		return;
	run->started_container = t->run.started_container;
	record_set(&run->container_id, str_of(t->request.container_id));
	beat(t, true);
}

void recording_command(struct turn_run *t)
{
	struct record_run *run = run_of(t);

	if (run != NULL)
		record_add_command(run)->begin_ms = clock_wall_ms();
}

void recording_command_ended(struct turn_run *t)
{
	struct record_run *run = run_of(t);

	if (run != NULL && run->n_commands > 0)
		run->commands[run->n_commands - 1].end_ms = clock_wall_ms();
}

static struct record_run *run_find(struct turn_run *t, struct str call_id)
{
	struct record *r = t->recording.record;

	for (size_t i = r->n_runs; i-- > 0;)
		if (str_is(call_id, r->runs[i].call_id))
			return &r->runs[i];
	return NULL;
}

void recording_outcome(struct record_command *c, const struct command_output *o)
{
	c->out_truncated = o->out_truncated;
	c->err_truncated = o->err_truncated;
	c->timed_out = o->outcome == OUTCOME_TIMEOUT;
	c->exit_code = o->exit_code;
	record_set(&c->signal, o->signal);
	record_set(&c->reason, o->reason);
}

static void command_fill(struct record_command *c, const struct command_output *o, bool content)
{
	recording_outcome(c, o);
	if (!content)
		return;
	record_set(&c->out, o->out.p != NULL ? o->out : STR(""));
	record_set(&c->err, o->err.p != NULL ? o->err : STR(""));
}

void recording_output(struct turn_run *t, const struct turn_output *o)
{
	struct record *r = t->recording.record;
	struct record_run *run;

	if (r == NULL || o->type != OUT_TOOL_END)
		return;
	run = run_find(t, o->item->call.public_id);
	if (run == NULL)
		run = run_add(t, o->item);
	run->end_ms = clock_wall_ms();
	record_set(&run->status, o->item->status.p != NULL ? o->item->status : STR("completed"));
	if (o->item->call.error.n > 0)
		record_set(&run->error, o->item->call.error);
	else if (o->result != NULL && o->result->result.error.n > 0)
		record_set(&run->error, o->result->result.error);
	const struct tool_call *tc = o->item->call.parsed;
	size_t n = o->result != NULL ? o->result->result.n_outputs : 0;

	for (size_t i = 0; i < n; i++) {
		struct record_command *c =
		        i < run->n_commands ? &run->commands[i] : record_add_command(run);

		if (c->end_ms == 0 && c->begin_ms != 0)
			c->end_ms = run->end_ms;
		command_fill(c, &o->result->result.outputs[i], r->store_content);
		if (r->store_content && tc != NULL && i < tc->n_commands)
			record_set(&c->command, tc->commands[i]);
	}
	if (run != run_of(t))
		return;
	t->recording.run = SIZE_MAX;
	if (run->container_id != NULL)
		beat(t, true);
}

/* ---- the end ---- */

static void fill_answer(struct turn_run *t)
{
	struct recording *rec = &t->recording;
	struct buf out = BUF_INIT(2 * CONTENT_MAX);
	struct json_writer w;

	if (!rec->record->store_content || buf_error(&rec->completion) < 0 ||
	        buf_error(&rec->reasoning) < 0)
		return;
	jw_init(&w, &out);
	jw_object(&w);
	jw_kstr(&w, "completion", (struct str){rec->completion.data, rec->completion.len});
	if (rec->reasoning.len > 0)
		jw_kstr(&w, "reasoning", (struct str){rec->reasoning.data, rec->reasoning.len});
	else
		jw_knull(&w, "reasoning");
	jw_end(&w);
	if (jw_done(&w) == 0)
		record_set(&rec->record->answer, (struct str){out.data, out.len});
	buf_free(&out);
}

/* What the end of the turn left under way. */
static void close_open(struct turn_run *t)
{
	struct record_attempt *a = attempt_of(t);
	struct record_run *run = run_of(t);

	if (a != NULL)
		attempt_ended(t, a);
	if (run == NULL)
		return;
	run->end_ms = clock_wall_ms();
	for (size_t i = 0; i < run->n_commands; i++)
		if (run->commands[i].end_ms == 0)
			run->commands[i].end_ms = run->end_ms;
	if (run->status == NULL)
		record_set(&run->status, STR("incomplete"));
	t->recording.run = SIZE_MAX;
}

static int status_of(const struct turn_run *t, const struct turn_output *end)
{
	if (end->status == TURN_FAILED && !t->answered && !(t->request.stream && t->may_answer))
		return error_http_status(end->error);
	return t->answered && t->status > 0 ? t->status : 200;
}

static void on_settled(void *ctx, const struct error *err)
{
	struct turn_run *t = ctx;

	t->state.holds = false;
	turn_run_emit_settled(t, &t->recording.end, &t->recording.totals);
}

static struct record *finish_record(struct turn_run *t)
{
	struct record *r = t->recording.record;

	close_open(t);
	fill_answer(t);
	guardrails_record(&t->guard, r);
	guardrails_record(&t->tool_guard, r);
	r->end_ms = r->heartbeat_ms = clock_wall_ms();
	r->state = RECORD_SETTLED;
	t->recording.record = NULL;
	return r;
}

void recording_hold(
        struct turn_run *t, const struct turn_output *end, const struct turn_totals *totals)
{
	struct recording *rec = &t->recording;
	struct record *r = rec->record;

	if (r == NULL) {
		turn_run_emit_settled(t, end, totals);
		return;
	}
	rec->end = *end;
	rec->totals = *totals;
	fill_served(r, t);
	r->cancelled = end->status == TURN_CANCELED;
	if (r->cancelled && attempt_of(t) != NULL)
		estimate(t, attempt_of(t));
	add_guessed(t, &rec->totals);
	fill_totals(r, t, &rec->totals);
	r->status = status_of(t, end);
	if (end->error != NULL)
		record_set(&r->error, str_of(end->error->text));
	if (end->status == TURN_COMPLETED || end->status == TURN_INCOMPLETE)
		record_set(&r->finish, str_of(finish_name(end->finish)));
	t->state.holds = true;
	ledger_write(t->g->ledger, STORE_RECORD_SETTLE, finish_record(t), true, on_settled, t);
}

static void on_refused(void *ctx, const struct error *err)
{
	struct turn_run *t = ctx;

	t->recording.then(t, err);
}

void recording_refused(struct turn_run *t, const struct error *e, recording_fn then)
{
	struct record *r = t->recording.record;

	if (r == NULL) {
		if (then != NULL)
			then(t, NULL);
		return;
	}
	r->cancelled = e == NULL;
	r->status = e != NULL ? error_http_status(e) : 0;
	if (e != NULL)
		record_set(&r->error, str_of(e->text));
	t->recording.then = then;
	ledger_write(t->g->ledger, STORE_RECORD_SETTLE, finish_record(t), true,
	        then != NULL ? on_refused : NULL, t);
}

struct record *recording_drop(struct gateway *g, struct record *r)
{
	if (r != NULL)
		key_limits_give(&g->shared->key_limits, g->options->index, &r->hold,
		        (struct money){0});
	return record_free(r);
}

void recording_free(struct turn_run *t)
{
	if (t->recording.record != NULL && t->recording.asked)
		recording_refused(t, NULL, NULL);
	t->recording.record = recording_drop(t->g, t->recording.record);
	buf_free(&t->recording.completion);
	buf_free(&t->recording.reasoning);
}
