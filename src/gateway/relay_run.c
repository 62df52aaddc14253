/*
 * Theory of operation. Whether a request is relayed is decided for each target when its request is
 * built, and whether its answer is when its first byte comes: a server that answers a stream with
 * one JSON text, or the other way, is translated after all.
 *
 * The provider's parser reads the same bytes as the client gets. Of its events the turn sees that
 * the reply has begun, the usage, and the end: what was said is the client's and the provider's
 * business. Bytes are kept back until the parser has seen that the reply has begun, so that what
 * fails before can be answered by another target or with a status. From then on the relay owns the
 * answer.
 *
 * The reply's end is told to the turn when the body has ended, since bytes may follow it; a server
 * that leaves the connection open gets a second for that. A body that breaks off before the reply's
 * end is an error that the client is told in its own dialect; one that the provider itself reported
 * has been passed on already.
 *
 * An answer that is not streamed is kept back as a whole up to KEEP_BACK, and sent in pieces
 * beyond.
 */
#include "gateway/turn_run.h"

#include <stdlib.h>

#define KEEP_BACK  65536
#define PREFIX_MAX 4096
#define OUT_MAX    ((size_t)4 << 20)
#define LINGER_S   1

/* ---- the request ---- */

/* Calls and results of brig's own, from when the conversation had a tool of ours, have no form
 * there. */
static bool holds_ours(const struct conversation *c)
{
	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];

		/* An item that kept its own text is of the provider's own shell. */
		if ((it->call.tool != NULL || it->result.tool != NULL) &&
		        !(c->dialect == DIALECT_OPENAI_RESPONSES && it->raw.n > 0))
			return true;
	}
	return false;
}

/* Does the provider know all tools of the request as they are? */
static bool knows_tools(const struct provider_target *target, const struct conversation *c)
{
	for (size_t i = 0; i < c->n_tools; i++)
		if (c->tools[i].kind == TOOL_SERVER && !str_is(c->tools[i].type, "shell"))
			return false; /* no entry of theirs */
	if (provider_runs_shell(target, c))
		return true;
	for (size_t i = 0; i < c->n_tools && c->dialect == DIALECT_OPENAI_RESPONSES; i++)
		if (str_is(c->tools[i].type, "shell") || str_is(c->tools[i].type, "local_shell"))
			return false;
	return !c->has_server_tool;
}

static bool fits(const struct turn_run *t, const struct provider_target *target)
{
	const struct turn_request *q = &t->request;

	return !t->no_compact && q->body.p != NULL && knows_tools(target, q->conversation) && !q->store &&
	       target->provider->dialect == q->api->speaks && target->provider->relay != NULL &&
	       !t->in.path_array && !holds_ours(q->conversation);
}

static void path_append(struct provider_request *r, const char *more)
{
	size_t n = strlen(r->path) + strlen(more) + 1;
	char *path = mem_alloc(n);

	str_format(path, n, "%s%s", r->path, more);
	free(r->path);
	r->path = path;
}

static void accept_json(char **headers)
{
	for (; *headers != NULL; headers++) {
		if (!str_ieq(str_of(*headers), STR("accept: text/event-stream")))
			continue;
		free(*headers);
		*headers = mem_strdup("Accept: application/json");
	}
}

/* Does the conversation keep all that these dialects' requests have? */
static bool is_kept(enum dialect spoken, const struct provider_target *target)
{
	return target->provider->dialect == spoken &&
	       (spoken == DIALECT_OPENAI_RESPONSES || spoken == DIALECT_ANTHROPIC);
}

int relay_run_build(struct turn_run *t, const struct provider_call *pc,
        struct provider_request *ret, struct error *err)
{
	const struct turn_request *q = &t->request;
	struct buf body = BUF_INIT(q->body.n + 4096);
	bool openrouter =
	        str_starts(str_of(pc->target->config->base_url), "https://openrouter.ai/");

	t->relay.sent = false;
	if (!fits(t, pc->target)) {
		/* For a provider of its own dialect it is built anew without loss. */
		if (q->only_here == NULL || is_kept(q->conversation->dialect, pc->target))
			return pc->target->provider->build(pc, ret, err);
		*err = *q->only_here;
		return -(int)err->code;
	}
	if (relay_request(q->api->speaks, q->body, str_of(pc->target->model), openrouter, &body) <
	        0) {
		buf_free(&body);
		return error_set(err, ERR_NOMEM, "The server has no memory for this request.");
	}
	if (pc->target->provider->relay(pc, q->stream, ret, err) < 0) {
		buf_free(&body);
		return -(int)err->code;
	}
	if (!q->stream)
		accept_json(ret->headers);
	if (q->api == &api_responses_compact)
		path_append(ret, "/compact");
	ret->body = buf_steal(&body, &ret->body_len);
	t->relay.sent = true;
	return 0;
}

/* ---- bytes ---- */

/* The first byte that is not space or a byte order mark tells what comes. */
static void decide(struct turn_run *t, const char *data, size_t n)
{
	struct relay_run *r = &t->relay;
	size_t i = 0;
	bool json;

	while (i < n && memchr(" \t\r\n\xef\xbb\xbf", data[i], 7) != NULL)
		i++;
	if (i == n)
		return;
	json = data[i] == '{' || data[i] == '[';
	if (json == t->request.stream) {
		r->sent = false;
		return;
	}
	r->on = true;
	r->edit = relay_new(t->request.api->speaks, t->request.stream, str_of(t->who.model));
	buf_init(&r->out, OUT_MAX);
	relay_feed(r->edit, r->prefix.data, r->prefix.len, &r->out);
	buf_free(&r->prefix);
}

static void broken(struct turn_run *t)
{
	log_text(LOG_ERROR, "relay_failed", "an answer could not be passed on");
	if (t->x != NULL)
		http_abort(t->x);
}

static void linger_begin(struct turn_run *t);

void relay_run_take(struct turn_run *t, const void *data, size_t n)
{
	struct relay_run *r = &t->relay;

	if (r->prefix.max == 0)
		buf_init(&r->prefix, PREFIX_MAX);
	if (r->sent && !r->on)
		decide(t, data, n);
	if (r->on && relay_feed(r->edit, data, n, &r->out) < 0)
		broken(t);
	else if (r->sent && !r->on)
		buf_append(&r->prefix, data, n); /* beyond its maximum nobody misses it */
	if (r->over)
		linger_begin(t);
}

/* Hands to the client what it may have. */
static void hand_over(struct turn_run *t)
{
	struct relay_run *r = &t->relay;

	if (buf_append(&t->out, r->out.data, r->out.len) < 0)
		broken(t);
	buf_free(&r->out);
	turn_run_go_on(t);
}

/* The parser of a whole answer says nothing before it has all of it. */
bool relay_run_pass(struct turn_run *t)
{
	struct relay_run *r = &t->relay;

	if (!r->on || r->out.len == 0)
		return false;
	if (!t->request.stream && !r->passing) {
		r->passing = r->out.len > KEEP_BACK;
		return r->passing;
	}
	if (r->owns)
		hand_over(t);
	return false;
}

/* ---- events ---- */

static void keep_end(struct turn_run *t, const struct stream_event *ev)
{
	struct relay_run *r = &t->relay;

	r->over = true;
	r->finish = ev->finish;
	if (ev->type == STREAM_ERROR) {
		r->failed = true;
		r->unseen = r->ending;
		r->error = error_copy(ev->error);
	}
	if (!r->ending)
		linger_begin(t);
}

/* A whole answer is the provider's word, whatever its parser makes of it. */
bool relay_run_vouches(const struct turn_run *t)
{
	const struct relay_run *r = &t->relay;

	return r->on && r->ending && !r->cut && relay_is_answer(r->edit);
}

bool relay_run_event(struct turn_run *t, const struct stream_event *ev)
{
	if (!t->relay.on)
		return false;
	t->relay.owns = true;
	switch (ev->type) {
	case STREAM_BEGIN:
	case STREAM_USAGE:
		return false;
	case STREAM_ITEM_BEGIN:
	case STREAM_DELTA:
	case STREAM_ITEM_END:
		return true;
	case STREAM_END:
	case STREAM_ERROR:
		keep_end(t, ev);
		return true;
	}
	return true;
}

/* ---- the end ---- */

static void tell_turn(struct turn_run *t)
{
	struct relay_run *r = &t->relay;
	const struct stream_event ev = {
	        .type = r->failed ? STREAM_ERROR : STREAM_END,
	        /* The client itself asks again where the provider wants that. */
	        .finish = r->finish == FINISH_PAUSE ? FINISH_STOP : r->finish,
	        .error = r->error,
	};
	struct turn_event te = {.type = TURN_STREAM, .stream = &ev};

	t->up.over = true;
	turn_run_feed(t, &te);
}

void relay_run_ending(struct turn_run *t, const struct error *cut)
{
	t->relay.ending = true;
	t->relay.cut = cut != NULL;
}

void relay_run_ended(struct turn_run *t, const struct error *cut)
{
	struct relay_run *r = &t->relay;

	if (!r->owns || !r->over)
		return;
	if (r->linger != NULL)
		evtimer_del(r->linger);
	if (!t->request.stream && cut == NULL)
		r->unseen = false;
	if (!r->unseen && cut == NULL)
		relay_end(r->edit, &r->out);
	else if (r->unseen && t->request.stream)
		relay_break(r->edit, &t->who, t->request.under_v1, r->error, &r->out);
	else if (r->unseen && r->passing && t->x != NULL)
		http_abort(t->x); /* an answer that ends too early must not look whole */
	if (r->out.len > 0 && (t->request.stream || !r->unseen))
		hand_over(t);
	tell_turn(t);
}

static void on_linger_over(evutil_socket_t fd, short what, void *arg)
{
	struct turn_run *t = arg;

	if (t->up.stands) /* it is us who do not listen */
		linger_begin(t);
	else
		relay_run_ended(t, NULL);
}

static void linger_begin(struct turn_run *t)
{
	const struct timeval tv = {LINGER_S, 0};
	struct relay_run *r = &t->relay;

	if (r->linger == NULL)
		r->linger = evtimer_new(t->g->base, on_linger_over, t);
	if (r->linger != NULL)
		evtimer_add(r->linger, &tv);
}

/* Where the turn's time is up; a client that has gone needs nothing. */
void relay_run_stop(struct turn_run *t, const struct turn_output *end)
{
	struct relay_run *r = &t->relay;
	struct error e;

	if (r->over)
		return;
	r->over = true;
	if (end->error != NULL)
		e = *end->error;
	else
		error_set(&e, ERR_TIMEOUT, "The answer took longer than this server allows.");
	if (t->request.stream)
		relay_break(r->edit, &t->who, t->request.under_v1, &e, &t->out);
	else if (r->passing && t->x != NULL)
		http_abort(t->x);
	r->failed = r->unseen = true;
	r->error = error_copy(&e);
	t->failure = r->error;
}

void relay_run_cancel(struct turn_run *t)
{
	struct relay_run *r = &t->relay;

	if (r->linger != NULL)
		evtimer_del(r->linger);
	if (r->owns)
		return;
	relay_run_free(t);
}

bool relay_run_answer(struct turn_run *t)
{
	struct relay_run *r = &t->relay;

	if (r->passing) {
		turn_run_answer_headers(t, 200);
		http_respond_start(t->x, 200, "application/json");
		return true;
	}
	if (!t->ended)
		return false;
	t->finished = true;
	if (r->unseen) {
		turn_run_answer_error(t);
		return false;
	}
	turn_run_answer_headers(t, 200);
	http_respond(t->x, 200, "application/json", (struct str){t->out.data, t->out.len});
	return false;
}

void relay_run_free(struct turn_run *t)
{
	struct relay_run *r = &t->relay;

	relay_free(r->edit);
	buf_free(&r->prefix);
	buf_free(&r->out);
	free(r->error);
	if (r->linger != NULL)
		event_free(r->linger);
	*r = (struct relay_run){.sent = false};
}
