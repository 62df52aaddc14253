/*
 * One call of a turn to a provider.
 *
 * The route's targets are tried as long as nothing has reached the turn (attempts.h says which and
 * when): a refused connection, a time-out, 429 and 5xx go on to the next, and some of them back to
 * the same one after a while; a request that a target cannot express, a model that it does not know
 * and a conversation too long for it go on to the next; anything else is the answer. A provider
 * that does not answer at all is left alone for a while, by all turns of all gateways (circuit.h).
 *
 * brig/script has no upstream: its events are made on the spot. Every failure becomes one
 * STREAM_ERROR event.
 */
#include "gateway/turn_run.h"

#include "base/id.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#define MAX_ERROR_BODY 65536
#define BUILD_ON_POOL  524288 /* bytes of a conversation, as it lies in memory */

#define LINGER_MS    1000
#define LINGER_BYTES 65536

/* What a fetch knows of the turn that it works for. */
struct upstream_link {
	struct upstream_link *next, **link; /* in gateway.links */
	struct turn_run *t; /* NULL: the reply is over, only the connection counts */
	struct http_fetch *fetch;
	struct event *timer;
	struct event *watch; /* the provider must say something that counts */
	uint64_t heard_ms;   /* when it last did */
	size_t extra;
};

static void upstream_go(struct turn_run *t);

/* ---- links ---- */

static struct upstream_link *link_new(struct turn_run *t)
{
	struct upstream_link *l = mem_alloc(sizeof(*l));

	l->t = t;
	l->next = t->g->links;
	l->link = &t->g->links;
	if (l->next != NULL)
		l->next->link = &l->next;
	t->g->links = l;
	return l;
}

static void link_free(struct upstream_link *l)
{
	if (l->watch != NULL)
		event_free(l->watch);
	if (l->timer != NULL)
		event_free(l->timer);
	*l->link = l->next;
	if (l->next != NULL)
		l->next->link = l->link;
	free(l);
}

static void link_cut(struct upstream_link *l)
{
	http_fetch_cancel(l->fetch);
	link_free(l);
}

static void on_linger_over(evutil_socket_t fd, short what, void *arg)
{
	link_cut(arg);
}

static void link_linger(struct upstream_link *l, struct event_base *base)
{
	const struct timeval tv = {LINGER_MS / 1000, LINGER_MS % 1000 * 1000};

	l->t = NULL;
	l->timer = evtimer_new(base, on_linger_over, l);
	if (l->timer == NULL || evtimer_add(l->timer, &tv) < 0)
		link_cut(l);
}

void upstream_free_links(struct gateway *g)
{
	while (g->links != NULL)
		link_cut(g->links);
}

/* ---- how providers do ---- */

static struct circuit *circuit_of(const struct turn_run *t)
{
	size_t at = (size_t)(t->route.targets[t->up.target].config - t->g->config->providers);

	return at < SHARED_CIRCUITS ? &t->g->shared->circuits[at] : NULL;
}

static struct circuit_rule circuit_rule(const struct turn_run *t)
{
	const struct config_limits *l = &t->g->config->limits;

	return (struct circuit_rule){l->upstream_failures, l->upstream_rest_ms};
}

static void note_answered(const struct turn_run *t)
{
	struct circuit *c = circuit_of(t);

	if (c != NULL)
		circuit_answered(c);
}

/* It is not there, or has too much to do. An error of one request (500) says nothing of others. */
static void note_dead(const struct turn_run *t)
{
	const struct circuit_rule rule = circuit_rule(t);
	struct circuit *c = circuit_of(t);

	if (c != NULL)
		circuit_failed(c, &rule, clock_mono_ms());
}

static bool status_is_dead(int status)
{
	return status == 502 || status == 503 || status == 504 || (status >= 520 && status <= 530);
}

/* ---- what comes ---- */

static void upstream_failed(struct turn_run *t, const struct error *e);

static int on_event(void *ctx, const struct stream_event *ev)
{
	struct turn_run *t = ctx;
	struct turn_event te = {.type = TURN_STREAM, .stream = ev};
	unsigned call = t->up.serial;

	recording_stream(t, ev);
	if (ev->type == STREAM_ERROR && !t->up.begun && !relay_run_vouches(t)) {
		/* A 200 whose first word is an error: nothing was seen, so another target may help.
		 */
		t->up.over = true;
		upstream_failed(t, ev->error);
		return -ERR_CANCELED;
	}
	if (!t->up.begun)
		note_answered(t);
	t->up.begun = true;
	if (t->up.link != NULL)
		t->up.link->heard_ms = clock_mono_ms();
	if (relay_run_event(t, ev))
		return 0;
	t->up.over = ev->type == STREAM_END || ev->type == STREAM_ERROR;
	if (ev->type == STREAM_BEGIN)
		t->may_answer = t->served = true;
	turn_run_feed(t, &te);
	/* Performing effects may have ended this very call: then stop parsing. */
	return t->up.serial == call ? 0 : -ERR_CANCELED;
}

static void upstream_fail(struct turn_run *t, const struct error *e)
{
	const struct stream_event ev = {.type = STREAM_ERROR, .error = e};
	struct turn_event te = {.type = TURN_STREAM, .stream = &ev};

	recording_attempt_failed(t, e);
	upstream_cancel(t);
	turn_run_feed(t, &te);
}

/* May another target help? */
static bool worth_another(const struct error *e)
{
	return e->code == ERR_UPSTREAM || e->code == ERR_TIMEOUT || e->code == ERR_RATE ||
	       e->code == ERR_UNAVAILABLE || error_http_status(e) >= 500 ||
	       str_is(str_of(e->type), "model_not_found") ||
	       str_is(str_of(e->type), "context_length_exceeded");
}

/* May the same one, after a while? Not what will not change, nor who took all the time there was.
 */
static bool worth_again(const struct error *e, int status)
{
	if (e->code == ERR_TIMEOUT || status == 401 || status == 402 || status == 403)
		return false;
	return e->code == ERR_UPSTREAM || e->code == ERR_RATE || e->code == ERR_UNAVAILABLE ||
	       error_http_status(e) >= 500;
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	upstream_go(arg);
}

/* True: a timer will go on. */
static bool wait_for_retry(struct turn_run *t, uint64_t ms)
{
	struct timeval tv = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};

	if (t->retry == NULL)
		t->retry = evtimer_new(t->g->base, on_retry, t);
	return t->retry != NULL && evtimer_add(t->retry, &tv) == 0;
}

/* The target has failed before anything reached the turn: asks the next, or ends the call. */
static void upstream_next(struct turn_run *t, enum attempt_failure how, const struct error *e)
{
	struct upstream_call call = t->up.call;
	uint64_t now = clock_mono_ms(), wait;
	uint32_t jitter;
	size_t next;

	recording_attempt_failed(t, e);
	id_random(&jitter, sizeof(jitter));
	attempts_failed(&t->attempts, t->up.target, how, e, now, jitter);
	upstream_cancel(t);
	if (!attempts_next(&t->attempts, now, &next, &wait)) {
		struct error told = *t->attempts.told;

		upstream_fail(t, &told);
		return;
	}
	t->up.call = call;
	if (next != t->up.target) {
		t->up.target = next;
		t->no_compact = false;
		turn_run_serve(t);
	}
	if (wait == 0 || !wait_for_retry(t, wait))
		upstream_go(t);
}

static void upstream_failed(struct turn_run *t, const struct error *e)
{
	const struct provider_target *target = &t->route.targets[t->up.target];
	struct error copy = *e;

	log_text(LOG_WARN, "upstream_failed", "%s/%s: %s", target->config->name, target->model,
	        copy.text);
	if (t->up.begun || !worth_another(e))
		upstream_fail(t, &copy);
	else
		upstream_next(
		        t, worth_again(e, t->up.status) ? ATTEMPT_BUSY : ATTEMPT_FAILED, &copy);
}

/* ---- fetch ---- */

/* In seconds or as a date; some say it in milliseconds too, and mean that. */
static void keep_retry_after(struct turn_run *t, const struct http_fetch *f)
{
	uint64_t ms;

	if (str_to_u64(http_fetch_header(f, "retry-after-ms"), &ms))
		str_format(t->up.retry_after, sizeof(t->up.retry_after), "%" PRIu64 ".%03" PRIu64,
		        ms / 1000, ms % 1000);
	else
		str_copy(t->up.retry_after, sizeof(t->up.retry_after),
		        http_fetch_header(f, "retry-after"));
}

static void on_head(void *ctx, struct http_fetch *f, int status)
{
	struct turn_run *t = ((struct upstream_link *)ctx)->t;
	const struct provider_target *target;

	if (t == NULL)
		return;
	target = &t->route.targets[t->up.target];
	struct provider_call pc = {
	        .target = target, .conversation = t->request.conversation, .call = &t->up.call};

	t->up.status = status;
	if (status == 200) {
		t->up.parser = target->provider->open(&pc, http_fetch_header(f, "content-type"));
		return;
	}
	if (status_is_dead(status))
		note_dead(t);
	else
		note_answered(t);
	keep_retry_after(t, f);
	buf_init(&t->up.error_body, MAX_ERROR_BODY);
}

/* A call that was ended by one of its own events: its parser is off the stack now. */
static void parsing_end(struct turn_run *t, const struct provider *p)
{
	if (t->parser_over)
		p->close(t->parsing);
	t->parsing = NULL;
	t->parser_over = false;
}

static void on_data(void *ctx, struct http_fetch *f, const void *data, size_t n)
{
	struct upstream_link *l = ctx;
	struct turn_run *t = l->t;
	const struct provider *p;

	if (t == NULL) {
		l->extra += n;
		if (l->extra > LINGER_BYTES)
			link_cut(l);
		return;
	}
	p = t->route.targets[t->up.target].provider;
	if (t->up.parser != NULL) {
		relay_run_take(t, data, n);
		if (t->relay.on && !t->request.stream)
			l->heard_ms = clock_mono_ms(); /* all of it is the reply */
		t->parsing = t->up.parser;
		p->feed(t->up.parser, data, n, on_event, t);
		parsing_end(t, p);
		if (relay_run_pass(t)) {
			on_event(t, &(const struct stream_event){.type = STREAM_BEGIN});
			relay_run_pass(t);
		}
	} else if (t->up.error_body.len + n <= MAX_ERROR_BODY) {
		buf_append(&t->up.error_body, data, n);
	}
}

/* What the client may read of a failed fetch: where our providers are is the operator's business.
 */
static void fetch_error(const struct turn_run *t, const struct error *err, struct error *ret)
{
	const struct provider_target *target = &t->route.targets[t->up.target];

	log_text(LOG_WARN, "fetch_failed", "%s: %s", target->config->name, err->text);
	if (err->code == ERR_TIMEOUT)
		error_set(ret, ERR_TIMEOUT, "The provider %s did not answer in time.",
		        target->config->name);
	else if (t->up.status != 0)
		error_set(ret, err->code, "The answer of the provider %s was cut off.",
		        target->config->name);
	else
		error_set(ret, err->code, "The provider %s could not be reached.",
		        target->config->name);
}

/* The target has nothing at the path for compactions: it is asked for a summary instead. */
static bool has_no_compact(const struct turn_run *t)
{
	int status = t->up.status;

	return t->relay.sent && t->api == &api_responses_compact &&
	       (status == 404 || status == 405 || status == 501);
}

static void ask_for_summary(struct turn_run *t)
{
	struct upstream_call call = t->up.call;

	upstream_cancel(t);
	t->up.call = call;
	t->no_compact = true;
	upstream_go(t);
}

static void on_end(void *ctx, struct http_fetch *f, const struct error *err)
{
	struct turn_run *t = ((struct upstream_link *)ctx)->t;
	const struct provider *p;
	struct error e;

	link_free(ctx);
	if (t == NULL)
		return;
	p = t->route.targets[t->up.target].provider;
	t->up.link = NULL;
	if (err != NULL) {
		if (!t->up.begun && (t->up.status == 0 || t->up.status == 200))
			note_dead(t);
		fetch_error(t, err, &e);
		err = &e;
	}
	if (t->up.parser != NULL) {
		struct provider_parser *parser = t->up.parser;

		t->parsing = parser;
		relay_run_ending(t, err);
		p->end(parser, err, on_event, t);
		parsing_end(t, p);
		relay_run_ended(t, err);
		/* on_event may have begun the next call: only what is still ours is closed. */
		if (t->up.parser == parser)
			t->up.parser = p->close(parser);
		return;
	}
	if (err != NULL) {
		upstream_failed(t, err);
		return;
	}
	if (has_no_compact(t)) {
		ask_for_summary(t);
		return;
	}
	struct error refused;

	p->error(t->up.status, (struct str){t->up.error_body.data, t->up.error_body.len},
	        str_of(t->up.retry_after), &refused);
	upstream_failed(t, &refused);
}

/* ---- start and stop ---- */

static bool open_sealed(
        void *ctx, const struct provider_target *target, struct str sealed, struct buf *out)
{
	struct turn_run *t = ctx;

	if (seal_open(t->g, str_of(target->config->name), str_of(target->model),
	            str_of(t->key->account), sealed, out))
		return true;
	if (!t->state_dropped)
		LOG(LOG_WARN, "state_dropped", LOG_S("id", t->who.id),
		        LOG_S("provider", target->config->name), LOG_S("model", target->model));
	t->state_dropped = true; /* one line for a request, however many there are */
	return false;
}

static void upstream_local(struct turn_run *t, const struct provider_call *pc)
{
	struct error e;
	int r;

	recording_attempt(t);
	t->may_answer = true;
	r = pc->target->provider->local(pc, on_event, t, &e);
	if (r < 0 && r != -ERR_CANCELED)
		upstream_fail(t, &e);
}

/*
 * Some servers send comments for as long as they have nothing to say, so bytes alone are no sign of
 * life: only events of the reply are. The fetch itself watches the bytes.
 */
static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct upstream_link *link = arg;
	struct turn_run *t = link->t;
	uint64_t now = clock_mono_ms(), due;
	struct error e;

	if (t == NULL)
		return;
	const struct config_limits *l = &t->g->config->limits;

	if (t->up.stands)
		link->heard_ms = now; /* it is us who do not listen */
	due = link->heard_ms + (t->up.begun ? l->upstream_idle_ms : l->upstream_first_byte_ms);
	if (now < due) {
		struct timeval tv = {
		        (time_t)((due - now) / 1000), (suseconds_t)((due - now) % 1000 * 1000)};

		evtimer_add(link->watch, &tv);
		return;
	}
	if (!t->up.begun)
		note_dead(t);
	error_set(&e, ERR_TIMEOUT, "The provider %s did not answer in time.",
	        t->route.targets[t->up.target].config->name);
	upstream_failed(t, &e);
}

static void watch_begin(struct turn_run *t, struct upstream_link *link)
{
	link->heard_ms = clock_mono_ms();
	link->watch = evtimer_new(t->g->base, on_watch, link);
	if (link->watch != NULL)
		on_watch(-1, 0, link);
}

static void upstream_send(struct turn_run *t, struct provider_request *pr)
{
	const struct provider_target *target = &t->route.targets[t->up.target];
	const struct config_limits *l = &t->g->config->limits;
	struct http_fetch_handler h = {NULL, on_head, on_data, on_end};
	struct buf url = BUF_INIT(16384);
	struct error e;

	buf_printf(&url, "%s%s", target->config->base_url, pr->path);
	struct http_fetch_options o = {
	        .method = "POST",
	        .url = buf_cstr(&url),
	        .headers = (const char *const *)pr->headers,
	        .body = steal(pr->body),
	        .body_len = pr->body_len,
	        .resolve_timeout_ms = (unsigned)l->upstream_connect_ms,
	        .connect_timeout_ms = (unsigned)l->upstream_connect_ms,
	        .first_byte_timeout_ms = (unsigned)l->upstream_first_byte_ms,
	        .idle_timeout_ms = (unsigned)l->upstream_idle_ms,
	};

	struct upstream_link *link = link_new(t);

	recording_attempt(t);
	h.ctx = link;
	link->fetch = http_fetch_start(t->g->client, &o, &h, &e);
	provider_request_free(pr);
	buf_free(&url);
	if (link->fetch == NULL) {
		link_free(link);
		upstream_fail(t, &e);
		return;
	}
	t->up.link = link;
	watch_begin(t, link);
	upstream_apply_pause(t);
}

/* ---- large conversations: their requests are built on the pool ---- */

struct build_job {
	struct turn_run *t;
	struct provider_call pc;
	struct provider_request pr;
	struct error err;
	int result;
};

static void build_work(void *arg)
{
	struct build_job *j = arg;

	j->result = relay_run_build(j->t, &j->pc, &j->pr, &j->err);
}

/* Where the target cannot express the request, another may. */
static void build_failed(struct turn_run *t, const struct error *e)
{
	if (e->code == ERR_UNSUPPORTED)
		upstream_next(t, ATTEMPT_UNABLE, e);
	else
		upstream_fail(t, e);
}

static void build_done(void *arg)
{
	struct build_job *j = arg;
	struct turn_run *t = j->t;
	struct turn_event cancel = {.type = TURN_CANCEL}, timer = {.type = TURN_TIMER};
	bool timer_later = t->timer_later;

	t->building = t->timer_later = false;
	if (t->cancel_later) {
		if (j->result == 0)
			provider_request_free(&j->pr);
		turn_run_feed(t, &cancel);
	} else {
		if (j->result < 0)
			build_failed(t, &j->err);
		else
			upstream_send(t, &j->pr);
		if (timer_later && !t->done)
			turn_run_feed(t, &timer);
	}
	free(j);
}

static bool build_on_pool(struct turn_run *t, const struct provider_call *pc)
{
	struct build_job *j;

	if (arena_used(t->request.conversation->arena) + t->in.body_len < BUILD_ON_POOL)
		return false;
	j = mem_alloc(sizeof(*j));
	j->t = t;
	j->pc = *pc;
	t->building = true;
	if (pool_run(t->g->pool, build_work, build_done, j))
		return true;
	t->building = false;
	free(j);
	return false;
}

/* False: the provider is left alone, and that was dealt with. */
static bool is_allowed(struct turn_run *t)
{
	const struct circuit_rule rule = circuit_rule(t);
	struct circuit *c = circuit_of(t);
	uint64_t wait;
	struct error e;

	if (c == NULL || circuit_allows(c, &rule, clock_mono_ms(), &wait))
		return true;
	error_set(&e, ERR_UNAVAILABLE,
	        "The provider %s has not answered for a while; it is tried again soon.",
	        t->route.targets[t->up.target].config->name);
	str_copy(e.type, sizeof(e.type), STR("provider_unavailable"));
	e.retry_after_ms = wait < INT_MAX ? (int)wait : INT_MAX;
	upstream_next(t, ATTEMPT_RESTS, &e);
	return false;
}

/* Asks the target. */
static void upstream_go(struct turn_run *t)
{
	const struct provider_target *target = &t->route.targets[t->up.target];
	struct provider_request pr = {0};
	struct provider_call pc = {
	        .target = target,
	        .conversation = t->request.conversation,
	        .call = &t->up.call,
	        .open = open_sealed,
	        .open_ctx = t,
	};
	struct error e;

	if (provider_check_shell(target, t->request.conversation, &e) < 0) {
		build_failed(t, &e);
		return;
	}
	if (target->provider->local != NULL) {
		if (t->request.only_here != NULL) {
			build_failed(t, t->request.only_here);
		} else if (t->api == &api_responses_compact) {
			error_param(&e, ERR_UNSUPPORTED, "model",
			        "%s/%s is no model: it cannot summarize a conversation.",
			        target->config->name, target->model);
			build_failed(t, &e);
		} else {
			upstream_local(t, &pc);
		}
		return;
	}
	if (!is_allowed(t) || build_on_pool(t, &pc))
		return;
	if (relay_run_build(t, &pc, &pr, &e) < 0)
		build_failed(t, &e);
	else
		upstream_send(t, &pr);
}

void upstream_start(struct turn_run *t, const struct upstream_call *call)
{
	size_t target = t->up.target;

	upstream_cancel(t);
	t->up.call = *call;
	t->up.target = target; /* a turn stays with the target that answered its first call */
	attempts_begin(&t->attempts, t->route.n, t->g->config->limits.upstream_retries,
	        t->g->config->limits.upstream_retry_wait_ms);
	upstream_go(t);
}

void upstream_pause(struct turn_run *t, bool paused)
{
	t->up.paused = paused;
	upstream_apply_pause(t);
}

void upstream_apply_pause(struct turn_run *t)
{
	bool stand = t->up.paused || t->blocked;

	if (t->up.link == NULL || stand == t->up.stands)
		return;
	t->up.stands = stand;
	http_fetch_pause(t->up.link->fetch, stand);
}

void upstream_cancel(struct turn_run *t)
{
	bool paused = t->up.paused;
	size_t target = t->up.target;
	unsigned serial = t->up.serial;

	if (t->retry != NULL)
		evtimer_del(t->retry);
	if (t->up.link != NULL && t->up.over && !t->up.stands)
		link_linger(t->up.link, t->g->base);
	else if (t->up.link != NULL)
		link_cut(t->up.link);
	if (t->up.parser != NULL && t->up.parser == t->parsing)
		t->parser_over = true; /* we are inside of it: parsing_end() closes it */
	else if (t->up.parser != NULL)
		t->route.targets[target].provider->close(t->up.parser);
	relay_run_cancel(t);
	buf_free(&t->up.error_body);
	t->up = (struct upstream){.paused = paused, .target = target, .serial = serial + 1};
}
