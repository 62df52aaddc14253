/*
 * The life of a direct exec. See exec.h.
 *
 * An exec that was asked for without `detach` belongs to its request: when the client goes, the
 * hold is released, which kills what runs. A detached one belongs to this gateway and keeps its
 * hold, and so the container thawed and awake, until its commands have ended.
 */
#include "gateway/admission.h"
#include "gateway/exec.h"
#include "gateway/idempotency.h"
#include "gateway/keeping.h"

#include "base/id.h"
#include "gateway/saving.h"

#include <signal.h>
#include <stdlib.h>

#define TOTAL_OUTPUT   ((uint32_t)16 << 20) /* collected text of one exec */
#define TOUCH_EVERY_MS 1000                 /* last_active_at is told in seconds */

static void exec_next(struct exec *e);

/* ---- finding and freeing ---- */

struct exec *exec_find(
        struct gateway *g, const struct config_key *key, struct str container, struct str id)
{
	for (struct exec *e = g->execs; e != NULL; e = e->next)
		if (!e->destroyed && str_is(id, e->id) && str_is(container, e->container) &&
		        strcmp(e->key->account, key->account) == 0 &&
		        strcmp(e->key->workspace, key->workspace) == 0)
			return e;
	return NULL;
}

size_t exec_running(const struct gateway *g)
{
	size_t n = 0;

	for (struct exec *e = g->execs; e != NULL; e = e->next)
		n += !e->done;
	return n;
}

static void exec_free(struct exec *e)
{
	*e->link = e->next;
	if (e->next != NULL)
		e->next->link = e->link;
	exec_record_free(e);
	collector_free(e->out);
	collector_free(e->err);
	for (size_t i = 0; e->outputs != NULL && i < e->n_commands; i++) {
		free((void *)(uintptr_t)e->outputs[i].out.p);
		free((void *)(uintptr_t)e->outputs[i].err.p);
	}
	free(e->outputs);
	free(e->ring[0].bytes);
	free(e->ring[1].bytes);
	free(e->commands);
	free(e->env);
	arena_free(e->memory);
	free(e);
}

struct exec *exec_hold(struct exec *e)
{
	e->n_held++;
	return e;
}

void exec_unhold(struct exec *e)
{
	if (--e->n_held == 0 && e->destroyed)
		exec_free(e);
}

void exec_destroy(struct exec *e)
{
	container_release(e->hold);
	if (e->keepalive != NULL)
		event_free(e->keepalive);
	if (e->expire != NULL)
		event_free(e->expire);
	e->hold = NULL;
	e->command = NULL;
	e->keepalive = e->expire = NULL;
	e->done = e->destroyed = true;
	if (e->n_held == 0)
		exec_free(e);
}

void exec_free_all(struct gateway *g)
{
	for (struct exec *e = g->execs, *next; e != NULL; e = next) {
		next = e->next;
		if (e->done)
			continue;
		error_set(&e->failed, ERR_UNAVAILABLE, "the server is going down");
		container_release(e->hold);
		e->hold = NULL;
		e->command = NULL;
		e->done = true;
		exec_on_done(e);
	}
}

void exec_destroy_all(struct gateway *g)
{
	for (struct exec *e = g->execs, *next; e != NULL; e = next) {
		next = e->next;
		exec_destroy(e);
	}
}

static void on_expire(evutil_socket_t fd, short what, void *arg)
{
	exec_destroy(arg);
}

/* The oldest ended one that is only kept goes; false: there is none. */
static bool drop_oldest(struct gateway *g, size_t kept)
{
	struct exec *oldest = NULL;
	size_t n = 0;

	for (struct exec *e = g->execs; e != NULL; e = e->next)
		if (e->done && !e->destroyed && e->rings && e->x == NULL && e->waiters == NULL) {
			oldest = e;
			n++;
		}
	if (n <= kept)
		return false;
	exec_destroy(oldest);
	return true;
}

static size_t exec_bytes(const struct exec *e)
{
	size_t n = sizeof(*e) + arena_used(e->memory) + e->ring[0].cap + e->ring[1].cap;

	for (size_t i = 0; e->outputs != NULL && i < e->n_commands && e->outputs[i].done; i++)
		n += e->outputs[i].out.n + e->outputs[i].err.n;
	return n;
}

static bool has_room(const struct gateway *g)
{
	size_t bytes = 0, running = 0;

	for (const struct exec *e = g->execs; e != NULL; e = e->next) {
		bytes += exec_bytes(e);
		running += !e->done;
	}
	return bytes <= EXEC_MAX_BYTES && running <= EXEC_MAX_RUNNING;
}

int exec_admit(struct gateway *g, struct error *err)
{
	while (!has_room(g)) {
		if (drop_oldest(g, 0))
			continue;
		error_set(err, ERR_UNAVAILABLE, "This server runs as many execs as it can hold.");
		err->retry_after_ms = 5000;
		return -ERR_UNAVAILABLE;
	}
	return 0;
}

/* Freed from the loop: callers further up may still look at it. */
static void expire_in(struct exec *e, unsigned ms)
{
	const struct timeval tv = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};

	if (e->expire == NULL)
		e->expire = evtimer_new(e->g->base, on_expire, e);
	if (e->expire != NULL)
		evtimer_add(e->expire, &tv);
}

static void exec_ended(struct exec *e)
{
	e->done = true;
	container_release(e->hold);
	e->hold = NULL;
	e->command = NULL;
	if (!exec_record_settle(e))
		exec_on_settled(e);
}

void exec_on_settled(struct exec *e)
{
	exec_on_done(e);
	if (e->rings) {
		expire_in(e, EXEC_KEEP_MS);
		drop_oldest(e->g, EXEC_MAX_KEPT);
	} else if (e->x == NULL) {
		expire_in(e, 0);
	}
}

void exec_let_go(struct exec *e)
{
	e->x = NULL;
	if (!e->detach && !e->done) {
		error_set(&e->failed, ERR_CANCELED, "the client has gone");
		exec_ended(e);
	} else if (e->done && !e->rings) {
		expire_in(e, 0);
	}
}

void exec_cancel(struct exec *e)
{
	e->killed = true;
	if (e->command != NULL) {
		command_kill(e->command);
	} else if (!e->done && !e->saving) {
		error_set(&e->failed, ERR_CANCELED, "it was ended before it ran");
		exec_ended(e);
	}
}

/* ---- commands ---- */

static void on_output(void *ctx, struct command *c, bool is_stderr, const void *data, size_t n)
{
	struct exec *e = ctx;

	if (e->rings)
		ring_write(&e->ring[is_stderr], data, n);
	if (e->out != NULL)
		collector_feed(is_stderr ? e->err : e->out, data, n, NULL);
	exec_on_output(e, is_stderr, data, n);
	if (e->rings && !e->done)
		exec_on_rings(e);
}

static struct str text_keep(struct str s)
{
	return (struct str){mem_strndup(s.p != NULL ? s.p : "", s.n), s.n};
}

static void output_fill(struct exec *e, const struct command_end *end)
{
	struct command_output *o = &e->outputs[e->index];

	if (end->outcome == INIT_TIMED_OUT) {
		o->outcome = OUTCOME_TIMEOUT;
	} else {
		o->outcome = OUTCOME_EXIT;
		o->exit_code = command_exit_code(end);
	}
	if (end->outcome == INIT_SIGNALED)
		o->signal = str_of(command_signal_name(end->code));
	if (end->outcome == INIT_KILLED)
		o->signal = STR("SIGKILL");
	if (end->memory)
		o->reason = STR("memory");
	collector_end(e->out, NULL);
	collector_end(e->err, NULL);
	o->out = text_keep(collector_text(e->out));
	o->err = text_keep(collector_text(e->err));
	o->out_truncated = collector_truncated(e->out);
	o->err_truncated = collector_truncated(e->err);
	o->out_chars = collector_chars(e->out);
	o->err_chars = collector_chars(e->err);
	o->done = true;
	size_t used = o->out.n + o->err.n;

	e->output_left -= used < e->output_left ? (uint32_t)used : e->output_left;
}

static void on_saved(void *ctx, const struct error *err)
{
	struct exec *e = ctx;

	e->saving = false;
	if (!e->done) {
		if (err != NULL && e->failed.code == 0)
			error_set(&e->failed, ERR_UNAVAILABLE,
			        "The container's files could not be saved.");
		exec_ended(e);
	}
	exec_unhold(e);
}

/* All commands have run. */
static void exec_finish(struct exec *e)
{
	uint8_t key[SUP_KEY_LEN];

	if (e->g->saving == NULL) {
		exec_ended(e);
		return;
	}
	e->saving = true;
	row_key(e->key, str_of(e->container), key);
	saving_changed(e->g->saving, key);
	saving_settle(e->g->saving, key, on_saved, exec_hold(e));
}

static void on_end(
        void *ctx, struct command *c, const struct command_end *end, const struct error *err)
{
	/* What is known of a command whose container was deleted, or whose init died. */
	static const struct command_end lost = {.outcome = INIT_KILLED, .code = SIGKILL};
	struct exec *e = ctx;

	e->command = NULL;
	if (err != NULL && !str_is(str_of(err->type), "init")) {
		e->failed = *err;
		exec_ended(e);
		return;
	}
	output_fill(e, err != NULL ? &lost : end);
	if (err == NULL && end->unsynced) {
		log_text(LOG_ERROR, "sync_failed", "container %s", e->container);
		error_set(&e->failed, ERR_UNAVAILABLE,
		        "The container's files could not be written to disk.");
	}
	if (err != NULL) {
		e->outputs[e->index].reason = STR("init");
		error_set(&e->failed, ERR_UNAVAILABLE, "The sandbox ended while the command ran.");
		str_copy(e->failed.type, sizeof(e->failed.type), str_of(err->type));
	}
	exec_record_command_ended(e);
	exec_on_command_done(e);
	if (e->done)
		return; /* the client went while it was told */
	e->index++;
	if (e->index == e->n_commands || e->is_argv || e->killed || e->failed.code != 0)
		exec_finish(e);
	else
		exec_next(e);
}

static void exec_next(struct exec *e)
{
	const struct command_handler h = {.ctx = e, .on_output = on_output, .on_end = on_end};
	struct command_options o = {
	        .argv = e->is_argv ? e->commands : &e->commands[e->index],
	        .argc = e->is_argv ? e->n_commands : 1,
	        .shell = !e->is_argv,
	        .env = e->env,
	        .envc = e->n_env,
	        .cwd = e->cwd,
	        .user = e->user,
	        .timeout_ms = e->timeout_ms,
	        .stdin_data = e->index == 0 ? e->stdin_data : (struct str){NULL, 0},
	        .durable = e->g->config->container.durable_power,
	};
	uint32_t chars = e->output_left / 8;

	collector_free(e->out);
	collector_free(e->err);
	e->out = collector_new(chars < e->output_chars ? chars : e->output_chars);
	e->err = collector_new(chars < e->output_chars ? chars : e->output_chars);
	e->streamed[0] = e->streamed[1] = 0;
	e->command = container_run(e->hold, &o, &h, &e->failed);
	if (e->command == NULL) {
		exec_ended(e);
		return;
	}
	exec_record_command(e);
	if (e->stream && e->x != NULL && http_above_high_water(e->x))
		command_pause(e->command, true);
}

static void on_claimed(void *ctx, struct container_hold *hold, const struct error *err)
{
	struct exec *e = ctx;

	if (err != NULL) {
		e->hold = NULL;
		e->failed = *err;
		exec_ended(e);
		return;
	}
	keeping_claimed(e->g, e->key, e->container, hold);
	exec_record_open(e);
}

void exec_on_opened(struct exec *e)
{
	if (e->failed.code != 0) {
		exec_ended(e);
		return;
	}
	idempotency_ran(e->x);
	exec_on_started(e);
	if (!e->done)
		exec_next(e);
}

/* The container's own variables first: the request's win. */
static void add_env(struct exec *e, const struct store_container *row)
{
	struct str *all = mem_array(ENV_ROW_MAX + e->n_env, sizeof(*all));
	size_t n = env_of_row(row, e->memory, all);

	if (e->n_env > 0)
		memcpy(all + n, e->env, e->n_env * sizeof(*all));
	free(e->env);
	e->env = all;
	e->n_env += n;
}

static void on_row(void *ctx, const struct store_container *row, const struct error *err)
{
	struct exec *e = ctx;
	struct container_spec spec;

	if (!e->done && err != NULL) {
		e->failed = *err;
		exec_ended(e);
	} else if (!e->done) {
		add_env(e, row);
		if (row_spec(e->g, e->key, row, &spec, &e->failed) < 0) {
			exec_ended(e);
			exec_unhold(e);
			return;
		}
		e->hold = container_claim(e->g->containers, &spec, on_claimed, e);
		container_spec_clear(&spec);
		/* Behind the claim, and not at each of many: writing takes longer than the claim.
		 */
		if (clock_wall_ms() - row->last_used_ms >= TOUCH_EVERY_MS)
			row_touch_later(e->g, e->key, str_of(e->container));
	}
	exec_unhold(e);
}

static void start(struct exec *e)
{
	/* This makes the row where there is none. */
	if (row_read(e->g, e->key, str_of(e->container), NULL, on_row, exec_hold(e)))
		return;
	gateway_busy(&e->failed);
	exec_ended(e);
	exec_unhold(e);
}

static void on_admitted(void *ctx, const struct record_hold *hold, const struct error *err)
{
	struct exec *e = ctx;
	struct record_hold held = *hold;

	if (e->done) { /* its client has gone meanwhile */
		key_limits_give(
		        &e->g->shared->key_limits, e->g->options->index, &held, (struct money){0});
	} else if (err != NULL) {
		e->failed = *err;
		e->rings = false; /* asked again with the same id it may well run */
		exec_ended(e);
	} else {
		e->record->hold = held;
		start(e);
		exec_on_admitted(e);
	}
	exec_unhold(e);
}

void exec_begin(struct exec *e)
{
	struct money least = money_mul(
	        e->g->config->container.price_per_second, turn_sandbox_ms(0, 0, true), 1000);

	e->output_left = TOTAL_OUTPUT;
	e->outputs = mem_array(e->n_commands, sizeof(*e->outputs));
	admission_ask(e->g, e->key, least, true, on_admitted, exec_hold(e));
}
