/*
 * Answers about execs, as large as they may be: what a hundred commands printed is up to 16 MiB,
 * and any number of clients may ask for it and then read slowly, or not at all.
 *
 * So an answer borrows the texts from its exec, which lives on until the last answer is out
 * (exec_hold), and is written as its client takes it, at most STEP bytes in one step of the loop.
 * What is copied, bytes of the rings, is bounded as it stands in JSON.
 */
#include "gateway/exec.h"

#include "api/ropewriter.h"
#include "base/utf8.h"

#include <stdlib.h>

#define PIECE     32768
#define STEP      131072
#define RING_JSON 131072 /* bytes of one stream in one answer of GET */

struct exec_answer {
	struct exec *e;
	struct http_exchange *x;
	struct owner owner;
	struct ropewriter w;
	struct event *more; /* the client takes all at once: goes on in the next step */
};

/* ---- writing ---- */

static void output_write(struct ropewriter *w, const struct command_output *o)
{
	struct json_writer *j = &w->json;

	jw_object(j);
	ropewriter_kstr(w, "stdout", o->out);
	ropewriter_kstr(w, "stderr", o->err);
	jw_key(j, "outcome");
	tool_write_outcome(j, o);
	if (o->out_truncated) {
		jw_kbool(j, "stdout_truncated", true);
		jw_ki64(j, "stdout_length", (int64_t)o->out_chars);
	}
	if (o->err_truncated) {
		jw_kbool(j, "stderr_truncated", true);
		jw_ki64(j, "stderr_length", (int64_t)o->err_chars);
	}
	jw_end(j);
}

static void outputs_write(struct ropewriter *w, const struct exec *e)
{
	jw_key(&w->json, "output");
	jw_array(&w->json);
	for (size_t i = 0; i < e->n_commands && e->outputs[i].done; i++)
		output_write(w, &e->outputs[i]);
	jw_end(&w->json);
}

static void error_write(struct json_writer *w, const struct exec *e)
{
	if (e->failed.code == 0)
		return;
	jw_key(w, "error");
	jw_object(w);
	jw_kcstr(w, "message", api_error_text(&e->failed));
	jw_kcstr(w, "code", e->failed.type[0] ? e->failed.type : "exec_failed");
	jw_end(w);
}

/* How many of these bytes have no more than RING_JSON in JSON, whatever they are. */
static size_t ring_fit(struct str bytes)
{
	size_t room = RING_JSON, i, cost;

	for (i = 0; i < bytes.n; i++, room -= cost) {
		unsigned char c = (unsigned char)bytes.p[i];

		cost = c < 0x20 || c == 0x7f ? 6 : c >= 0x80 ? 3 : c == '"' || c == '\\' ? 2 : 1;
		if (cost > room)
			break;
	}
	return i;
}

static void ring_write_json(struct json_writer *w, const struct exec *e, int stream, uint64_t from)
{
	static const char *const names[2][3] = {{"stdout", "stdout_offset", "stdout_next"},
	        {"stderr", "stderr_offset", "stderr_next"}};
	_cleanup_buf_ struct buf b = BUF_INIT(RING_JSON);
	struct str bytes;

	ring_read(&e->ring[stream], &from, &b, e->base64 ? RING_JSON / 4 * 3 : RING_JSON);
	bytes = (struct str){b.data, b.len};
	if (e->base64) {
		exec_base64_write(w, names[stream][0], bytes);
	} else {
		bytes.n = ring_fit(bytes);
		/* A character is never cut between two answers. */
		if (!e->done || from + bytes.n != e->ring[stream].end)
			bytes.n -= utf8_incomplete_tail(bytes.p, bytes.n);
		jw_kstr(w, names[stream][0], bytes);
	}
	jw_ki64(w, names[stream][1], (int64_t)from);
	jw_ki64(w, names[stream][2], (int64_t)(from + bytes.n));
}

/* ---- sending ---- */

static void answer_free(struct exec_answer *a)
{
	struct exec *e = a->e;

	ropewriter_free(&a->w);
	if (a->more != NULL)
		event_free(a->more);
	free(a);
	exec_unhold(e);
}

static void answer_pump(struct exec_answer *a)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 20);
	const struct timeval now = {0, 0};
	size_t sent = 0;

	while (ropewriter_left(&a->w) > 0 && !http_above_high_water(a->x) && sent < STEP) {
		if (ropewriter_pull(&a->w, &out, PIECE) < 0) {
			http_abort(a->x); /* on_gone follows */
			return;
		}
		http_write(a->x, (struct str){out.data, out.len});
		sent += out.len;
		buf_reset(&out);
	}
	if (ropewriter_left(&a->w) == 0) {
		http_exchange_set_data(a->x, NULL);
		http_finish(a->x);
		answer_free(a);
	} else if (!http_above_high_water(a->x)) {
		evtimer_add(a->more, &now);
	}
}

static void on_more(evutil_socket_t fd, short what, void *arg)
{
	answer_pump(arg);
}

static void on_answer_drain(void *self)
{
	answer_pump(self);
}

static void on_answer_gone(void *self, enum http_gone why)
{
	answer_free(self);
}

/* x, whose answer this is, has no other owner from here on. */
static struct exec_answer *answer_new(struct exec *e, struct http_exchange *x)
{
	struct exec_answer *a = mem_alloc(sizeof(*a));

	a->e = exec_hold(e);
	a->x = x;
	a->owner = (struct owner){on_answer_drain, on_answer_gone, a};
	a->more = evtimer_new(e->g->base, on_more, a);
	if (a->more == NULL)
		BUG("no memory for a timer");
	http_exchange_set_data(x, &a->owner);
	ropewriter_init(&a->w);
	ropewriter_begin(&a->w);
	return a;
}

static void head_write(struct exec_answer *a, const char *type)
{
	struct json_writer *j = &a->w.json;

	jw_object(j);
	if (type != NULL)
		jw_kcstr(j, "type", type);
	jw_kcstr(j, "container_id", a->e->container);
	jw_kcstr(j, "exec_id", a->e->id);
}

/* A small answer goes as a whole, with its length. */
static void answer_send(struct exec_answer *a, int status)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 20);
	struct http_exchange *x = a->x;
	int r = 0;

	if (ropewriter_left(&a->w) > PIECE) {
		http_respond_start(x, status, "application/json");
		answer_pump(a);
		return;
	}
	while (r == 0 && ropewriter_left(&a->w) > 0)
		r = ropewriter_pull(&a->w, &out, PIECE);
	http_exchange_set_data(x, NULL);
	answer_free(a);
	respond_json(x, status, &out);
}

void exec_answer_status(
        struct exec *e, struct http_exchange *x, int status, uint64_t out_from, uint64_t err_from)
{
	struct exec_answer *a = answer_new(e, x);
	struct json_writer *j = &a->w.json;

	head_write(a, NULL);
	jw_kcstr(j, "status", e->done ? "done" : "running");
	outputs_write(&a->w, e);
	ring_write_json(j, e, 0, out_from);
	ring_write_json(j, e, 1, err_from);
	error_write(j, e);
	jw_end(j);
	answer_send(a, status);
}

void exec_answer_whole(struct exec *e, struct http_exchange *x)
{
	struct exec_answer *a = answer_new(e, x);

	head_write(a, NULL);
	outputs_write(&a->w, e);
	error_write(&a->w.json, e);
	jw_end(&a->w.json);
	answer_send(a, 200);
}

void exec_answer_done(struct exec *e, struct http_exchange *x)
{
	struct exec_answer *a = answer_new(e, x);

	ropewriter_literal(&a->w, STR("event: exec.done\ndata: "));
	head_write(a, "exec.done");
	outputs_write(&a->w, e);
	error_write(&a->w.json, e);
	jw_end(&a->w.json);
	ropewriter_literal(&a->w, STR("\n\n"));
	answer_pump(a);
}
