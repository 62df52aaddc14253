/*
 * The record of a direct exec: a request like any other, with one run and no model. Its row, with
 * the price of a container that was started for it, is durable before the first command; its end
 * before the answer's.
 */
#include "gateway/exec.h"
#include "gateway/ledger.h"

#include "base/id.h"

#include <stdlib.h>

void exec_record_begin(struct exec *e, const struct request *r)
{
	struct record *rec = record_new();

	id_make(rec->id, sizeof(rec->id), "gen-", 24);
	recording_who(rec, r);
	rec->store_content = request_may_keep(r->g, r->key, r->x);
	rec->streamed = e->stream;
	record_set(&rec->api, STR("exec"));
	record_set(&rec->request_id, str_of(e->id));
	record_set(&rec->container_id, str_of(e->container));
	rec->priced = true;
	e->record = rec;
	http_response_header(r->x, "X-Generation-Id", rec->id);
}

static void fill_cost(const struct exec *e, struct record *r)
{
	r->sandbox_ms = 0;
	r->sandbox_cost = r->total_cost = (struct money){0};
	if (e->run_mono_ms == 0)
		return; /* no command ran, and nothing is owed */
	r->sandbox_ms = turn_sandbox_ms(e->run_mono_ms, clock_mono_ms(), e->started_container);
	r->sandbox_cost = money_mul(e->g->config->container.price_per_second, r->sandbox_ms, 1000);
	r->total_cost = r->sandbox_cost;
}

static void on_opened(void *ctx, const struct error *err)
{
	struct exec *e = ctx;

	e->recording = false;
	if (!e->done && err != NULL) {
		error_set(&e->failed, ERR_UNAVAILABLE,
		        "The request could not be written down: try later.");
		e->run_mono_ms = 0;
	}
	if (!e->done) {
		exec_on_opened(e);
	} else {
		e->run_mono_ms = 0; /* it ended before a command could begin */
		exec_record_free(e);
	}
	exec_unhold(e);
}

void exec_record_open(struct exec *e)
{
	struct record_run *run = record_add_run(e->record);

	e->run_mono_ms = clock_mono_ms();
	e->started_container = container_hold_how(e->hold) != SUP_WAS_LIVE;
	record_set(&run->call_id, str_of(e->id));
	record_set(&run->tool, STR("exec"));
	record_set(&run->container_id, str_of(e->container));
	run->started_container = e->started_container;
	run->begin_ms = clock_wall_ms();
	fill_cost(e, e->record);
	e->recording = true;
	ledger_write(e->g->ledger, STORE_RECORD_OPEN, e->record, false, on_opened, exec_hold(e));
}

void exec_record_beat_all(struct gateway *g)
{
	for (struct exec *e = g->execs; e != NULL; e = e->next) {
		struct record *row;

		if (e->done || e->recording || e->record == NULL || e->run_mono_ms == 0)
			continue;
		row = ledger_beat_row(e->record);
		row->priced = true;
		fill_cost(e, row);
		key_limits_grow(&g->shared->key_limits, g->options->index, &e->record->hold,
		        row->total_cost);
		ledger_write(g->ledger, STORE_RECORD_BEAT, row, true, NULL, NULL);
	}
}

void exec_record_command(struct exec *e)
{
	if (e->record != NULL && e->record->n_runs > 0)
		record_add_command(&e->record->runs[0])->begin_ms = clock_wall_ms();
}

void exec_record_command_ended(struct exec *e)
{
	struct record_run *run =
	        e->record != NULL && e->record->n_runs > 0 ? &e->record->runs[0] : NULL;

	if (run != NULL && run->n_commands > 0)
		run->commands[run->n_commands - 1].end_ms = clock_wall_ms();
}

/* What ran, as its caller gave it; an argv as its words. */
static void set_command(struct record_command *c, const struct exec *e, size_t i)
{
	struct buf line = BUF_INIT((size_t)1 << 20);

	if (!e->is_argv) {
		record_set(&c->command, e->commands[i]);
		return;
	}
	for (size_t k = 0; k < e->n_commands; k++) {
		buf_puts(&line, k > 0 ? " " : "");
		buf_append(&line, e->commands[k].p, e->commands[k].n);
	}
	record_set(&c->command, (struct str){line.data, line.len});
	buf_free(&line);
}

static void fill_commands(const struct exec *e, struct record *r)
{
	struct record_run *run = &r->runs[0];

	for (size_t i = 0; i < run->n_commands; i++) {
		struct record_command *c = &run->commands[i];
		const struct command_output *o = &e->outputs[i];

		if (c->end_ms == 0)
			c->end_ms = run->end_ms;
		if (r->store_content)
			set_command(c, e, i);
		if (!o->done) {
			record_set(&c->signal, STR("SIGKILL"));
			continue;
		}
		recording_outcome(c, o);
		if (!r->store_content)
			continue;
		record_set(&c->out, o->out);
		record_set(&c->err, o->err);
	}
}

static struct record *finish_record(struct exec *e)
{
	struct record *r = steal(e->record);

	r->end_ms = r->heartbeat_ms = clock_wall_ms();
	r->state = RECORD_SETTLED;
	r->cancelled = e->failed.code == ERR_CANCELED;
	r->status = e->failed.code != 0 && !(e->outputs != NULL && e->outputs[0].done)
	                    ? error_http_status(&e->failed)
	                    : 200;
	if (e->failed.code != 0)
		record_set(&r->error, str_of(e->failed.text));
	fill_cost(e, r);
	if (r->n_runs > 0) {
		struct record_run *run = &r->runs[0];

		run->end_ms = r->end_ms;
		record_set(&run->status, e->failed.code != 0 ? STR("failed") : STR("completed"));
		record_set(&run->error, str_of(r->error));
		fill_commands(e, r);
	}
	return r;
}

static void on_settled(void *ctx, const struct error *err)
{
	struct exec *e = ctx;

	if (!e->destroyed)
		exec_on_settled(e);
	exec_unhold(e);
}

bool exec_record_settle(struct exec *e)
{
	if (e->record == NULL || e->recording)
		return false; /* its row is being made: the end of the exec settles it */
	ledger_write(e->g->ledger, STORE_RECORD_SETTLE, finish_record(e), true, on_settled,
	        exec_hold(e));
	return true;
}

void exec_record_free(struct exec *e)
{
	if (e->record != NULL && e->record->n_runs > 0)
		ledger_write(e->g->ledger, STORE_RECORD_SETTLE, finish_record(e), true, NULL, NULL);
	e->record = recording_drop(e->g, e->record);
}
