/*
 * POST, GET and DELETE /containers/{id}/exec (DESIGN section 9 and its table).
 *
 * Every exec has one owner among the gateways, which follows from its id: the hash of workspace,
 * container and exec id, modulo the number of gateways. A request that arrives elsewhere is passed
 * on (forward.c); an id of our own making is chosen so that it is ours. So a repeated exec_id meets
 * the first run, and whoever asks later finds it, without any shared table.
 */
#include "gateway/exec.h"

#include "base/base64.h"
#include "base/id.h"
#include "base/utf8.h"
#include "gateway/fields.h"

#include <stdlib.h>

#define MAX_COMMANDS     100
#define MAX_TIMEOUT      86400000u /* 24 hours */
#define DEFAULT_WAIT_MAX 600

/* ---- writing ---- */

void exec_base64_write(struct json_writer *w, const char *key, struct str s)
{
	_cleanup_buf_ struct buf b = BUF_INIT(s.n * 2 + 16);

	base64_append(&b, s.p, s.n);
	jw_kstr(w, key, (struct str){b.data, b.len});
}

/* ---- events of a streamed exec ---- */

static void stream_begin(struct exec *e)
{
	if (e->answered)
		return;
	e->answered = true;
	http_response_header(e->x, "Cache-Control", "no-cache");
	http_response_header(e->x, "X-Accel-Buffering", "no");
	http_respond_start(e->x, 200, "text/event-stream; charset=utf-8");
}

/* Opens an event's object; send_event closes and sends it. */
static void event_open(struct json_writer *w, struct buf *b, const char *type)
{
	jw_init(w, b);
	jw_object(w);
	jw_kcstr(w, "type", type);
}

static void send_event(struct exec *e, struct json_writer *w, struct buf *b, const char *type)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)128 << 20);

	jw_end(w);
	buf_printf(&out, "event: %s\ndata: ", type);
	buf_append(&out, b->data, b->len);
	buf_puts(&out, "\n\n");
	if (e->x != NULL && buf_error(&out) == 0)
		http_write(e->x, (struct str){out.data, out.len});
}

static void send_output(struct exec *e, bool is_stderr, struct str bytes)
{
	_cleanup_buf_ struct buf b = BUF_INIT((size_t)1 << 20);
	struct json_writer w;

	event_open(&w, &b, "exec.output");
	jw_ki64(&w, "command", e->is_argv ? 0 : (int64_t)e->index);
	jw_kcstr(&w, "stream", is_stderr ? "stderr" : "stdout");
	if (e->base64)
		exec_base64_write(&w, "data", bytes);
	else
		jw_kstr(&w, "text", bytes);
	jw_ki64(&w, "offset", (int64_t)e->streamed[is_stderr]);
	send_event(e, &w, &b, "exec.output");
	e->streamed[is_stderr] += bytes.n;
}

/* Text waits for the rest of a character that was cut by a read; bytes go as they come. */
void exec_on_output(struct exec *e, bool is_stderr, const void *data, size_t n)
{
	struct str bytes = {data, n};
	size_t cut;

	if (!e->stream || e->x == NULL)
		return;
	_cleanup_buf_ struct buf joined = BUF_INIT((size_t)1 << 20);

	if (!e->base64) {
		buf_append(&joined, e->tail[is_stderr], e->tail_len[is_stderr]);
		buf_append(&joined, data, n);
		cut = utf8_incomplete_tail(joined.data, joined.len);
		e->tail_len[is_stderr] = cut;
		bytes = (struct str){joined.data, joined.len - cut};
		memcpy(e->tail[is_stderr], joined.data + bytes.n, cut);
	}
	if (bytes.n > 0)
		send_output(e, is_stderr, bytes);
	if (e->x != NULL && e->command != NULL && http_above_high_water(e->x))
		command_pause(e->command, true);
}

static void flush_tails(struct exec *e)
{
	for (int i = 0; i < 2; i++) {
		if (e->tail_len[i] > 0 && e->x != NULL)
			send_output(e, i == 1, (struct str){e->tail[i], e->tail_len[i]});
		e->tail_len[i] = 0;
	}
}

void exec_on_started(struct exec *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct json_writer w;

	if (!e->stream || e->x == NULL)
		return;
	stream_begin(e);
	event_open(&w, &b, "exec.started");
	jw_kcstr(&w, "container_id", e->container);
	jw_kcstr(&w, "exec_id", e->id);
	send_event(e, &w, &b, "exec.started");
}

void exec_on_command_done(struct exec *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct json_writer w;
	const struct command_output *o = &e->outputs[e->index];

	if (!e->stream || e->x == NULL)
		return;
	flush_tails(e);
	event_open(&w, &b, "exec.command_done");
	jw_ki64(&w, "command", e->is_argv ? 0 : (int64_t)e->index);
	jw_key(&w, "outcome");
	tool_write_outcome(&w, o);
	send_event(e, &w, &b, "exec.command_done");
}

/* ---- those who wait with GET ---- */

struct exec_waiter {
	struct exec_waiter *next;
	struct exec *e;
	struct http_exchange *x;
	struct owner owner;
	struct event *timer;
	uint64_t offset[2];
	bool until_done; /* output alone is no answer */
};

static void waiter_unlink(struct exec_waiter *w)
{
	struct exec_waiter **p = &w->e->waiters;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	event_free(w->timer);
	free(w);
}

static void waiter_answer(struct exec_waiter *w)
{
	const struct exec_waiter copy = *w;

	waiter_unlink(w);
	exec_answer_status(copy.e, copy.x, 200, copy.offset[0], copy.offset[1]);
}

static void on_waited(evutil_socket_t fd, short what, void *arg)
{
	waiter_answer(arg);
}

static void on_waiter_gone(void *self, enum http_gone why)
{
	waiter_unlink(self);
}

void exec_on_rings(struct exec *e)
{
	for (struct exec_waiter *w = e->waiters, *next; w != NULL; w = next) {
		next = w->next;
		if (e->done || !w->until_done)
			waiter_answer(w);
	}
}

/* ---- the end ---- */

/* Direct use: no room is the caller's to wait for (429), not a failed item. */
static void answer_failed(const struct exec *e, struct http_exchange *x)
{
	if (e->index > 0)
		http_response_header(x, "X-Should-Retry", "false");
	respond_error(x, str_starts(http_request_path(x), "/v1/"), &e->failed);
}

void exec_on_done(struct exec *e)
{
	struct http_exchange *x = e->x;

	exec_on_rings(e);
	if (e->keepalive != NULL)
		event_del(e->keepalive);
	if (x == NULL)
		return;
	if (e->stream && e->answered)
		flush_tails(e);
	e->x = NULL;
	http_exchange_set_data(x, NULL);
	if (e->stream && e->answered)
		exec_answer_done(e, x);
	else if (e->failed.code != 0 && !e->outputs[0].done)
		answer_failed(e, x);
	else
		exec_answer_whole(e, x);
}

static void on_exec_drain(void *self)
{
	struct exec *e = self;

	if (e->command != NULL)
		command_pause(e->command, false);
}

static void on_exec_gone(void *self, enum http_gone why)
{
	exec_let_go(self);
}

static void on_keepalive(evutil_socket_t fd, short what, void *arg)
{
	struct exec *e = arg;

	if (e->x != NULL && e->answered && http_pending(e->x) == 0)
		http_write(e->x, STR(": ping\n"));
}

/* ---- POST ---- */

static const char *const exec_fields[] = {"commands", "argv", "cwd", "env", "user", "stdin",
        "timeout_ms", "max_output_length", "stream", "detach", "exec_id", "encoding", NULL};

/* Copies a string into the exec's own memory. */
static struct str keep(struct exec *e, struct fields *f, struct str s)
{
	const char *p = arena_strndup(e->memory, s.p, s.n);

	if (p == NULL)
		fields_fail(f, "", "The request is too large.");
	return (struct str){p != NULL ? p : "", p != NULL ? s.n : 0};
}

/* No command line, folder or variable can hold one; stdin can. */
static void refuse_nul(struct fields *f, const char *name, struct str s)
{
	if (s.n > 0 && memchr(s.p, 0, s.n) != NULL)
		fields_fail(f, name, "%s must not hold a NUL.", name);
}

static void read_command(struct exec *e, struct fields *f)
{
	const struct json *commands = fields_strings(f, "commands", MAX_COMMANDS);
	const struct json *argv = fields_strings(f, "argv", INIT_MAX_ARGS);
	const struct json *list = argv != NULL ? argv : commands;

	if ((commands == NULL) == (argv == NULL)) {
		fields_fail(
		        f, commands == NULL ? "commands" : "argv", "Give either commands or argv.");
		return;
	}
	if (json_count(list) == 0) {
		fields_fail(f, argv != NULL ? "argv" : "commands", "There must be at least one.");
		return;
	}
	e->is_argv = argv != NULL;
	e->commands = mem_array(json_count(list), sizeof(*e->commands));
	for (const struct json *v = json_first(list); v != NULL; v = json_next(v)) {
		refuse_nul(f, argv != NULL ? "argv" : "commands", json_str(v));
		e->commands[e->n_commands++] = keep(e, f, json_str(v));
	}
}

static void read_id(struct exec *e, struct fields *f)
{
	struct str id = {NULL, 0};

	fields_str(f, "exec_id", 64, &id);
	if (id.p == NULL)
		return;
	if (!str_in_set(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"))
		fields_fail(f, "exec_id", "exec_id must be 1 to 64 of [A-Za-z0-9_-].");
	else
		str_copy(e->id, sizeof(e->id), id);
}

static void read_env(struct exec *e, struct fields *f, const struct json *env)
{
	struct error err;

	e->env = mem_array(json_count(env) + 1, sizeof(*e->env));
	if (env_read(env, e->memory, e->env, &e->n_env, &err) < 0)
		fields_fail(f, "env", "%s", err.text);
}

static void read_rest(struct exec *e, struct fields *f)
{
	const struct config_limits *l = &e->g->config->limits;
	const struct json *env = fields_map(f, "env", INIT_MAX_ENV / 2);
	uint64_t timeout = 0, chars = l->output_chars;
	struct str encoding = {NULL, 0}, s = {NULL, 0};

	fields_str(f, "cwd", 4096, &e->cwd);
	fields_str(f, "user", 256, &e->user);
	fields_str(f, "stdin", 1048576, &s);
	fields_u64(f, "timeout_ms", 0, MAX_TIMEOUT, &timeout);
	fields_u64(f, "max_output_length", 1, UINT32_MAX, &chars);
	fields_bool(f, "stream", &e->stream);
	fields_bool(f, "detach", &e->detach);
	fields_str(f, "encoding", 16, &encoding);
	refuse_nul(f, "cwd", e->cwd);
	refuse_nul(f, "user", e->user);
	if (encoding.p != NULL && !str_is(encoding, "base64") && !str_is(encoding, "utf-8"))
		fields_fail(f, "encoding", "encoding must be utf-8 or base64.");
	if (e->stream && e->detach)
		fields_fail(f, "detach",
		        "detach and stream exclude each other: a detached exec is read with GET.");
	e->base64 = str_is(encoding, "base64");
	e->timeout_ms = (uint32_t)timeout;
	e->output_chars = chars > l->max_output_chars ? l->max_output_chars : (uint32_t)chars;
	if (e->cwd.p != NULL)
		e->cwd = keep(e, f, e->cwd);
	if (e->user.p != NULL)
		e->user = keep(e, f, e->user);
	if (s.p != NULL)
		e->stdin_data = keep(e, f, s);
	read_env(e, f, env);
}

static struct exec *exec_new(struct request *r)
{
	struct exec *e = mem_alloc(sizeof(*e));

	e->g = r->g;
	e->key = r->key;
	str_copy(e->container, sizeof(e->container), r->params[0]);
	e->memory = arena_new((size_t)8 << 20);
	e->next = r->g->execs;
	e->link = &r->g->execs;
	if (e->next != NULL)
		e->next->link = &e->next;
	r->g->execs = e;
	return e;
}

static void attach(struct exec *e, struct http_exchange *x)
{
	uint64_t ms = e->g->config->limits.keepalive_ms;
	const struct timeval every = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};

	e->x = x;
	e->owner = (struct owner){on_exec_drain, on_exec_gone, e};
	http_exchange_set_data(x, &e->owner);
	if (!e->stream)
		return;
	e->keepalive = event_new(e->g->base, -1, EV_PERSIST, on_keepalive, e);
	if (e->keepalive != NULL)
		event_add(e->keepalive, &every);
}

/* One that is detached is answered now, and from then on its own. */
void exec_on_admitted(struct exec *e)
{
	struct http_exchange *x = e->x;

	if (!e->detach || x == NULL)
		return;
	e->x = NULL;
	http_exchange_set_data(x, NULL);
	exec_answer_status(e, x, 202, 0, 0);
}

/* The same exec_id again: the first run is the answer; one that still runs is waited for unless it
 * is detached. */
static void exec_again(struct exec *first, struct request *r, bool detach)
{
	struct exec_waiter *w;
	const struct timeval longest = {DEFAULT_WAIT_MAX, 0};

	if (first->done || detach) {
		exec_answer_status(first, r->x, 200, 0, 0);
		return;
	}
	w = mem_alloc(sizeof(*w));
	*w = (struct exec_waiter){
	        .next = first->waiters, .e = first, .x = r->x, .until_done = true};
	w->owner = (struct owner){NULL, on_waiter_gone, w};
	w->timer = evtimer_new(r->g->base, on_waited, w);
	if (w->timer == NULL)
		BUG("no memory for a timer");
	evtimer_add(w->timer, &longest);
	first->waiters = w;
	http_exchange_set_data(r->x, &w->owner);
}

static bool container_param_good(struct request *r)
{
	struct error e;

	if (api_container_id_valid(r->params[0]))
		return true;
	error_param(&e, ERR_INVALID, "container_id", "A container id is 1 to 40 of [A-Za-z0-9_-].");
	respond_error(r->x, r->under_v1, &e);
	return false;
}

static void exec_create_from(struct request *r, struct fields *f)
{
	struct exec *e, *first;
	struct error err;
	bool named;

	e = exec_new(r);
	read_id(e, f);
	named = e->id[0] != 0;
	if (!f->failed && named && forward_to_owner(r, str_of(e->container), str_of(e->id))) {
		exec_destroy(e);
		return;
	}
	read_command(e, f);
	read_rest(e, f);
	if (f->failed) {
		exec_destroy(e);
		respond_error(r->x, r->under_v1, &f->error);
		return;
	}
	if (named) {
		char id[65];

		str_copy(id, sizeof(id), str_of(e->id));
		e->id[0] = 0; /* so that it does not find itself */
		first = exec_find(r->g, r->key, str_of(e->container), str_of(id));
		if (first != NULL) {
			bool detach = e->detach;

			exec_destroy(e);
			exec_again(first, r, detach);
			return;
		}
		str_copy(e->id, sizeof(e->id), str_of(id));
	} else {
		do
			id_make(e->id, sizeof(e->id), "exec_", 24);
		while (!forward_is_ours(r->g, r->key, str_of(e->container), str_of(e->id)));
	}
	if (exec_admit(r->g, &err) < 0) {
		exec_destroy(e);
		respond_error(r->x, r->under_v1, &err);
		return;
	}
	e->rings = e->detach || named;
	exec_record_begin(e, r);
	attach(e, r->x);
	exec_begin(e);
}

void exec_create(struct request *r)
{
	if (request_may_execute(r) && container_param_good(r))
		request_fields(r, exec_fields, exec_create_from);
}

/* ---- GET and DELETE ---- */

static struct exec *exec_of_request(struct request *r)
{
	struct exec *e = exec_find(r->g, r->key, r->params[0], r->params[1]);
	struct error err;

	if (e != NULL && e->rings)
		return e;
	error_set(&err, ERR_NOT_FOUND,
	        "There is no such exec in this container; an ended one is kept for ten minutes.");
	respond_error(r->x, r->under_v1, &err);
	return NULL;
}

static bool query_number(struct request *r, const char *name, uint64_t most, uint64_t *v)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct error err;

	if (!http_query_get(http_request_query(r->x), name, &b))
		return true;
	if (str_to_u64((struct str){b.data, b.len}, v) && *v <= most)
		return true;
	error_param(&err, ERR_INVALID, name, "%s must be a whole number of at most %llu.", name,
	        (unsigned long long)most);
	respond_error(r->x, r->under_v1, &err);
	return false;
}

void exec_get(struct request *r)
{
	uint64_t offset[2] = {0, 0}, wait = 0;
	struct exec_waiter *w;
	struct exec *e;

	if (!container_param_good(r) || forward_to_owner(r, r->params[0], r->params[1]))
		return;
	e = exec_of_request(r);
	if (e == NULL || !query_number(r, "stdout_offset", INT64_MAX, &offset[0]) ||
	        !query_number(r, "stderr_offset", INT64_MAX, &offset[1]) ||
	        !query_number(r, "wait", DEFAULT_WAIT_MAX, &wait))
		return;
	w = mem_alloc(sizeof(*w));
	*w = (struct exec_waiter){
	        .next = e->waiters, .e = e, .x = r->x, .offset = {offset[0], offset[1]}};
	w->owner = (struct owner){NULL, on_waiter_gone, w};
	w->timer = evtimer_new(r->g->base, on_waited, w);
	if (w->timer == NULL)
		BUG("no memory for a timer");
	e->waiters = w;
	http_exchange_set_data(r->x, &w->owner);
	if (e->done || wait == 0 || offset[0] < e->ring[0].end || offset[1] < e->ring[1].end) {
		waiter_answer(w);
		return;
	}
	const struct timeval tv = {(time_t)wait, 0};

	evtimer_add(w->timer, &tv);
}

void exec_kill(struct request *r)
{
	struct exec *e;

	if (!container_param_good(r) || forward_to_owner(r, r->params[0], r->params[1]))
		return;
	e = exec_of_request(r);
	if (e == NULL)
		return;
	exec_hold(e); /* ending it may push it out of those that are kept */
	if (!e->done)
		exec_cancel(e);
	exec_answer_status(e, r->x, 200, 0, 0);
	exec_unhold(e);
}
