/*
 * Theory of operation.
 *
 * curl's multi interface asks for sockets to be watched and for one timer; both are events of the
 * caller's loop, and whatever happens ends in client_act. curl must not be entered from its own
 * callbacks, and a handle must not be removed there, so `in_curl` is set around every call that may
 * call back, and what a handler asks for meanwhile is put off: cancelled fetches go to the dead
 * list, emptied as soon as curl has returned; new ones and resumed ones go to the kick list, worked
 * off in the next loop step.
 *
 * A fetch passes through phases, each with its own time limit: resolve (ours, on the pool), connect
 * (curl's limit), send and read (a limit on silence), wait (from the request's end to the first
 * byte). The timer of a fetch is not moved at each byte: `since_ms` is, and the timer looks at it
 * when it fires.
 *
 * A burst is handed out over several steps of the loop: once STEP_BYTES were, the fetch is held as
 * if it were paused, and kicked. Few bytes may decode to many, so an answer may be compressed only
 * once: of one layer curl keeps at most what its receive buffer decodes to.
 *
 * Pausing sets a flag; the next write callback refuses its bytes, which curl keeps (one buffer of
 * them), and curl then stops watching the socket. Names reach curl as addresses (CURLOPT_RESOLVE),
 * since curl's own resolver thread would be waited for when a handle is removed.
 *
 * A small body is given to curl as a whole and leaves in one packet with the head; a larger one is
 * read piece by piece out of the caller's memory. Neither is copied as a whole.
 */
#include "http/client.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "http/fetch.h"

#include <stdlib.h>
#include <string.h>

enum {
	CONNECTIONS_KEPT = 512,
	RESOLVE_MS = 10000, /* where the caller says nothing */
	CONNECT_MS = 10000,
	IDLE_MS = 120000,
	STEP_BYTES =
	        131072, /* handed out in one step of the loop; what is decoded may be far more */
};

struct http_client {
	struct event_base *base;
	struct http_resolver *resolver;
	CURLM *multi;
	struct event timer;
	struct event kick;
	struct fetch_list fetches, kicked, dead;
	http_client_guard_fn guard; /* NULL: every address may be connected to */
	void *guard_ctx;
	bool in_curl;
	size_t budget; /* bytes that may still be handed out in this step of the loop */
};

struct watched {
	struct event event;
	struct http_client *client;
};

static void client_after(struct http_client *c);
static void client_kick(struct http_client *c, struct http_fetch *f);

/* ---- a fetch's end ---- */

static void fetch_detach(struct http_fetch *f)
{
	struct http_client *c = f->client;

	if (!f->easy)
		return;
	c->in_curl = true;
	if (f->added)
		curl_multi_remove_handle(c->multi, f->easy);
	curl_easy_cleanup(f->easy);
	c->in_curl = false;
	f->easy = NULL;
	f->added = false;
}

static struct http_fetch *fetch_free(struct http_fetch *f)
{
	struct http_client *c = f->client;

	if (f->lookup)
		http_resolve_cancel(f->lookup);
	fetch_detach(f);
	event_del(&f->timer);
	if (f->kicked)
		TAILQ_REMOVE(&c->kicked, f, kick);
	TAILQ_REMOVE(&c->fetches, f, all);
	f->headers = http_fetch_wipe(f->headers);
	f->resolve = http_fetch_wipe(f->resolve);
	buf_free(&f->head);
	free(f->body);
	free(f->host);
	free(f->place);
	free(f->failure);
	free(f);
	return NULL;
}

/* Not from inside curl. err NULL: the answer is complete. */
static void fetch_end(struct http_fetch *f, const struct error *err)
{
	f->ended = true;
	fetch_detach(f);
	f->h.on_end(f->h.ctx, f, err);
	fetch_free(f);
}

/* ---- time limits ---- */

static unsigned fetch_limit(const struct http_fetch *f)
{
	switch ((enum phase)f->phase) {
	case PHASE_RESOLVE:
		return f->resolve_ms;
	case PHASE_SEND:
	case PHASE_READ:
		return f->paused ? 0 : f->idle_ms;
	case PHASE_WAIT:
		return f->wait_ms;
	case PHASE_CONNECT: /* curl's CURLOPT_CONNECTTIMEOUT_MS */
		break;
	}
	return 0;
}

static void fetch_arm(struct http_fetch *f, uint64_t ms)
{
	struct timeval tv = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};

	event_add(&f->timer, &tv);
}

static void fetch_enter(struct http_fetch *f, enum phase phase)
{
	unsigned limit;

	f->phase = (uint8_t)phase;
	f->since_ms = clock_mono_ms();
	limit = fetch_limit(f);
	if (limit)
		fetch_arm(f, limit);
	else
		event_del(&f->timer);
}

static void fetch_on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct http_fetch *f = arg;
	unsigned limit = fetch_limit(f);
	uint64_t passed = clock_mono_ms() - f->since_ms;
	const char *place = f->phase == PHASE_RESOLVE ? f->host : f->place;
	struct error err;

	(void)fd;
	(void)what;
	if (limit == 0)
		return;
	if (passed < limit) {
		fetch_arm(f, limit - passed);
		return;
	}
	switch ((enum phase)f->phase) {
	case PHASE_RESOLVE:
		error_set(&err, ERR_TIMEOUT, "the name %s was not resolved within %u ms", place,
		        limit);
		break;
	case PHASE_SEND:
		error_set(&err, ERR_TIMEOUT, "%s took no more of the request for %u ms", place,
		        limit);
		break;
	case PHASE_WAIT:
		error_set(
		        &err, ERR_TIMEOUT, "%s did not begin to answer within %u ms", place, limit);
		break;
	case PHASE_READ:
	case PHASE_CONNECT:
		error_set(&err, ERR_TIMEOUT, "%s sent nothing more of its answer for %u ms", place,
		        limit);
		break;
	}
	fetch_end(f, &err);
}

/* ---- curl's callbacks ---- */

static int curl_on_request(void *arg, char *peer, char *local, int peer_port, int local_port)
{
	struct http_fetch *f = arg;

	(void)peer;
	(void)local;
	(void)peer_port;
	(void)local_port;
	if (f->cancelled)
		return CURL_PREREQFUNC_ABORT;
	f->sent_ns = clock_mono_ns();
	fetch_enter(f, f->body_len > HTTP_FETCH_SMALL_BODY ? PHASE_SEND : PHASE_WAIT);
	return CURL_PREREQFUNC_OK;
}

static size_t curl_on_read(char *out, size_t size, size_t n, void *arg)
{
	struct http_fetch *f = arg;
	size_t left = f->body_len - f->body_off;

	if (f->cancelled)
		return CURL_READFUNC_ABORT;
	n *= size;
	n = n < left ? n : left;
	if (n > 0)
		memcpy(out, f->body + f->body_off, n);
	f->body_off += n;
	f->since_ms = clock_mono_ms();
	if (f->body_off == f->body_len && f->phase == PHASE_SEND)
		fetch_enter(f, PHASE_WAIT);
	return n;
}

/* curl sends the body again on another connection when a kept one turned out to be closed. */
static int curl_on_seek(void *arg, curl_off_t offset, int origin)
{
	struct http_fetch *f = arg;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > f->body_len)
		return CURL_SEEKFUNC_FAIL;
	f->body_off = (size_t)offset;
	return CURL_SEEKFUNC_OK;
}

static int status_of(struct str line)
{
	const char *space = memchr(line.p, ' ', line.n);
	size_t at = space ? (size_t)(space - line.p) + 1 : line.n;
	uint64_t status;

	if (line.n < at + 3 || !str_to_u64((struct str){line.p + at, 3}, &status))
		return 0;
	return (int)status;
}

/* More codings than one: curl would decode them all at once, each a thousandfold. */
static bool coded_twice(const struct str head)
{
	size_t begin = 0, end, n = 0;

	for (; begin < head.n; begin = end + 1) {
		const char *lf = memchr(head.p + begin, '\n', head.n - begin);
		struct str line = {head.p + begin, head.n - begin}, value;
		const char *colon;

		end = lf ? (size_t)(lf - head.p) : head.n;
		line.n = end - begin;
		line.n -= line.n > 0 && line.p[line.n - 1] == '\r';
		colon = memchr(line.p, ':', line.n);
		if (!colon)
			continue;
		value = str_trim((struct str){colon + 1, line.n - (size_t)(colon - line.p) - 1});
		line.n = (size_t)(colon - line.p);
		if (str_ieq(line, STR("content-encoding")))
			n += value.n > 0 && !str_ieq(value, STR("identity"));
		else if (str_ieq(line, STR("transfer-encoding")))
			n += value.n > 0 && !str_ieq(value, STR("chunked"));
		else
			continue;
		if (n > 1 || memchr(value.p, ',', value.n))
			return true;
	}
	return false;
}

static size_t curl_on_header(char *data, size_t size, size_t n, void *arg)
{
	struct str line = {data, size * n};
	struct http_fetch *f = arg;
	int status;

	if (f->cancelled)
		return 0;
	f->since_ms = clock_mono_ms();
	if (f->head_done) /* trailers */
		return line.n;
	if (f->phase != PHASE_READ) {
		f->first_byte_ns = clock_mono_ns();
		fetch_enter(f, PHASE_READ);
	}
	if (str_starts(line, "HTTP/"))
		buf_reset(&f->head);
	if (buf_append(&f->head, line.p, line.n))
		return 0;
	if (str_trim(line).n > 0 && line.p[0] != '\r' && line.p[0] != '\n')
		return line.n;
	status = status_of((struct str){f->head.data, f->head.len});
	if (status < 200)
		return line.n; /* 100 and its like: the answer is still to come */
	if (coded_twice((struct str){f->head.data, f->head.len})) {
		f->coded_twice = true;
		return 0;
	}
	f->head_done = true;
	http_fetch_forget_request(f);
	f->h.on_head(f->h.ctx, f, status);
	buf_free(&f->head);
	return f->cancelled ? 0 : line.n;
}

static size_t curl_on_write(char *data, size_t size, size_t n, void *arg)
{
	struct http_fetch *f = arg;

	n *= size;
	if (f->cancelled)
		return CURL_WRITEFUNC_ERROR;
	if (f->paused || f->client->budget == 0) {
		f->held = true;
		if (!f->paused)
			client_kick(f->client, f);
		return CURL_WRITEFUNC_PAUSE;
	}
	f->client->budget -= n < f->client->budget ? n : f->client->budget;
	f->since_ms = clock_mono_ms();
	if (n > 0)
		f->h.on_data(f->h.ctx, f, data, n);
	return f->cancelled ? CURL_WRITEFUNC_ERROR : n;
}

static curl_socket_t curl_on_connect(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct http_fetch *f = arg;
	const char *why = f->client->guard(f->client->guard_ctx, &address->addr);
	int fd;

	(void)purpose;
	if (why) {
		f->refused = why;
		return CURL_SOCKET_BAD;
	}
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static void fetch_set_callbacks(struct http_fetch *f)
{
	CURL *e = f->easy;

	if (f->client->guard) {
		curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, curl_on_connect);
		curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, f);
	}
	curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, curl_on_request);
	curl_easy_setopt(e, CURLOPT_PREREQDATA, f);
	curl_easy_setopt(e, CURLOPT_READFUNCTION, curl_on_read);
	curl_easy_setopt(e, CURLOPT_READDATA, f);
	curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, curl_on_seek);
	curl_easy_setopt(e, CURLOPT_SEEKDATA, f);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, curl_on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, f);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, curl_on_write);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, f);
}

/* ---- curl and the loop ---- */

static void client_act(struct http_client *c, curl_socket_t fd, int what)
{
	int running;

	c->budget = STEP_BYTES;
	c->in_curl = true;
	curl_multi_socket_action(c->multi, fd, what, &running);
	c->in_curl = false;
	client_after(c);
}

static void client_on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	client_act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static void client_on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct watched *w = arg;

	client_act(w->client, fd,
	        (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static int curl_on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *assigned)
{
	struct http_client *c = arg;
	struct watched *w = assigned;
	short events = EV_PERSIST;

	(void)easy;
	if (w)
		event_del(&w->event);
	if (what == CURL_POLL_REMOVE) {
		free(w);
		curl_multi_assign(c->multi, fd, NULL);
		return 0;
	}
	if (!w) {
		w = mem_alloc(sizeof(*w));
		w->client = c;
		curl_multi_assign(c->multi, fd, w);
	}
	if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
		events |= EV_READ;
	if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
		events |= EV_WRITE;
	if (event_assign(&w->event, c->base, fd, events, client_on_socket, w) ||
	        event_add(&w->event, NULL))
		return -1;
	return 0;
}

static int curl_on_timer(CURLM *multi, long ms, void *arg)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};
	struct http_client *c = arg;

	(void)multi;
	if (ms < 0)
		event_del(&c->timer);
	else
		event_add(&c->timer, &tv);
	return 0;
}

/* The address is known: gives the handle to curl. Not from inside curl. */
static int fetch_add(struct http_fetch *f, struct error *err)
{
	struct http_client *c = f->client;
	CURLMcode r;

	fetch_enter(f, PHASE_CONNECT);
	c->in_curl = true;
	r = curl_multi_add_handle(c->multi, f->easy);
	c->in_curl = false;
	if (r)
		return error_set(err, ERR_UPSTREAM, "the request to %s cannot be started: %s",
		        f->place, curl_multi_strerror(r));
	f->added = true;
	return 0;
}

/*
 * curl itself sends a request again when the kept connection it was put on turns out to be closed,
 * but not when that shows while a body is being sent. Then we do, once, on a new connection, and
 * like curl only if not a byte came back.
 */
static bool fetch_again(struct http_fetch *f, CURLcode code)
{
	struct http_client *c = f->client;
	long n_connects = 1;

	if (code != CURLE_SEND_ERROR || f->again || f->first_byte_ns)
		return false;
	if (curl_easy_getinfo(f->easy, CURLINFO_NUM_CONNECTS, &n_connects) || n_connects > 0)
		return false;
	f->again = true;
	f->body_off = 0;
	c->in_curl = true;
	curl_multi_remove_handle(c->multi, f->easy);
	c->in_curl = false;
	f->added = false;
	curl_easy_setopt(f->easy, CURLOPT_FRESH_CONNECT, 1L);
	return fetch_add(f, NULL) == 0;
}

/* curl has returned: buries what was cancelled meanwhile and tells what has ended. */
static void client_after(struct http_client *c)
{
	struct http_fetch *f;
	struct error err;
	CURLMsg *msg;
	CURLcode code;
	char *private;
	int left;

	for (;;) {
		while ((f = TAILQ_FIRST(&c->dead))) {
			TAILQ_REMOVE(&c->dead, f, dead);
			fetch_free(f);
		}
		msg = curl_multi_info_read(c->multi, &left);
		if (!msg)
			return;
		if (msg->msg != CURLMSG_DONE)
			continue;
		code = msg->data.result; /* msg dies with the handle */
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &private);
		f = (struct http_fetch *)(void *)private;
		if (fetch_again(f, code))
			continue;
		if (code == CURLE_OK && !f->head_done)
			code = CURLE_RECV_ERROR; /* curl is content with half a head */
		if (code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT)
			http_resolver_forget(c->resolver, f->host);
		if (code)
			http_fetch_explain(f, code, &err);
		fetch_end(f, code ? &err : NULL);
	}
}

/* ---- starting ---- */

static void client_kick(struct http_client *c, struct http_fetch *f)
{
	struct timeval now = {0, 0};

	if (f->kicked)
		return;
	f->kicked = true;
	TAILQ_INSERT_TAIL(&c->kicked, f, kick);
	event_add(&c->kick, &now);
}

static void fetch_on_resolved(void *arg, const struct http_resolve_answer *answer)
{
	struct http_fetch *f = arg;
	struct error err;

	f->lookup = NULL;
	if (answer->failure[0]) {
		error_set(&err, ERR_UPSTREAM, "the name %s could not be resolved: %s", f->host,
		        answer->failure);
		fetch_end(f, &err);
		return;
	}
	http_fetch_set_addresses(f, answer);
	if (fetch_add(f, &err))
		fetch_end(f, &err);
}

static void client_on_kick(evutil_socket_t fd, short what, void *arg)
{
	struct http_client *c = arg;
	struct http_fetch *f;
	struct error err;
	size_t n = 0;

	(void)fd;
	(void)what;
	c->budget = STEP_BYTES;
	/* Only those that stand here now: one whose share is used up is kicked again. */
	TAILQ_FOREACH(f, &c->kicked, kick)
	{
		n++;
	}
	while (n-- > 0 && (f = TAILQ_FIRST(&c->kicked))) {
		TAILQ_REMOVE(&c->kicked, f, kick);
		f->kicked = false;
		if (!f->added && !f->lookup) {
			if (fetch_add(f, &err))
				fetch_end(f, &err);
		} else if (f->held && !f->paused) {
			f->held = false;
			c->in_curl = true;
			curl_easy_pause(f->easy, CURLPAUSE_CONT);
			c->in_curl = false;
		}
		client_after(c);
	}
}

static int fetch_go(struct http_fetch *f, struct error *err)
{
	struct http_client *c = f->client;
	const struct http_resolve_answer *known = NULL;

	if (!f->is_literal)
		known = http_resolver_cached(c->resolver, f->host);
	if (known)
		http_fetch_set_addresses(f, known);
	if (!f->is_literal && !known) {
		f->lookup = http_resolver_start(c->resolver, f->host, fetch_on_resolved, f, err);
		if (!f->lookup)
			return -ERR_INVALID;
		fetch_enter(f, PHASE_RESOLVE);
		return 0;
	}
	if (c->in_curl) {
		client_kick(c, f);
		return 0;
	}
	return fetch_add(f, err);
}

struct http_fetch *http_fetch_start(struct http_client *c, const struct http_fetch_options *o,
        const struct http_fetch_handler *h, struct error *err)
{
	struct http_fetch *f = mem_alloc(sizeof(*f));
	int r;

	f->client = c;
	f->h = *h;
	f->body = o->body;
	f->body_len = o->body ? o->body_len : 0;
	f->resolve_ms = o->resolve_timeout_ms ? o->resolve_timeout_ms : RESOLVE_MS;
	f->connect_ms = o->connect_timeout_ms ? o->connect_timeout_ms : CONNECT_MS;
	f->wait_ms = o->first_byte_timeout_ms;
	f->idle_ms = o->idle_timeout_ms ? o->idle_timeout_ms : IDLE_MS;
	f->failure = mem_alloc(CURL_ERROR_SIZE);
	buf_init(&f->head, HTTP_FETCH_HEAD_MAX);
	TAILQ_INSERT_TAIL(&c->fetches, f, all);
	evtimer_assign(&f->timer, c->base, fetch_on_timer, f);
	r = http_fetch_build(f, o, err);
	if (!r)
		fetch_set_callbacks(f);
	if (!r)
		r = fetch_go(f, err);
	return r ? fetch_free(f) : f;
}

/* ---- the rest of the interface ---- */

void http_client_guard(struct http_client *c, http_client_guard_fn fn, void *ctx)
{
	if (!TAILQ_EMPTY(&c->fetches))
		BUG("the HTTP client has begun without its guard");
	c->guard = fn;
	c->guard_ctx = ctx;
}

struct str http_fetch_header(const struct http_fetch *f, const char *name)
{
	size_t len = strlen(name), begin = 0, end;

	for (; begin < f->head.len; begin = end + 1) {
		const char *line = f->head.data + begin;
		const char *lf = memchr(line, '\n', f->head.len - begin);

		end = lf ? (size_t)(lf - f->head.data) : f->head.len;
		if (end - begin > len && line[len] == ':' &&
		        str_ieq((struct str){line, len}, str_of(name))) {
			struct str v = {line + len + 1, end - begin - len - 1};

			if (v.n > 0 && v.p[v.n - 1] == '\r')
				v.n--;
			return str_trim(v);
		}
	}
	return (struct str){NULL, 0};
}

void http_fetch_pause(struct http_fetch *f, bool paused)
{
	if (f->ended || f->cancelled || f->paused == paused)
		return;
	f->paused = paused;
	if (paused)
		return;
	if (f->phase == PHASE_READ)
		fetch_enter(f, PHASE_READ); /* the silence was ours */
	if (f->held)
		client_kick(f->client, f);
}

void http_fetch_cancel(struct http_fetch *f)
{
	struct http_client *c = f->client;

	if (f->ended || f->cancelled)
		return;
	f->cancelled = true;
	if (c->in_curl)
		TAILQ_INSERT_TAIL(&c->dead, f, dead);
	else
		fetch_free(f);
}

uint64_t http_fetch_sent_ns(const struct http_fetch *f)
{
	return f->sent_ns;
}

uint64_t http_fetch_first_byte_ns(const struct http_fetch *f)
{
	return f->first_byte_ns;
}

struct http_client *http_client_new(struct event_base *base, struct pool *pool)
{
	struct http_client *c = mem_alloc(sizeof(*c));

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		BUG("curl does not start");
	c->base = base;
	c->multi = curl_multi_init();
	if (!c->multi || evtimer_assign(&c->timer, base, client_on_timer, c) ||
	        evtimer_assign(&c->kick, base, client_on_kick, c))
		BUG("no HTTP client");
	c->resolver = http_resolver_new(pool);
	TAILQ_INIT(&c->fetches);
	TAILQ_INIT(&c->kicked);
	TAILQ_INIT(&c->dead);
	curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, curl_on_socket);
	curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
	curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, curl_on_timer);
	curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
	curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
	curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	return c;
}

struct http_client *http_client_free(struct http_client *c)
{
	if (!c)
		return NULL;
	if (c->in_curl)
		BUG("the HTTP client is freed by one of its callbacks");
	while (!TAILQ_EMPTY(&c->fetches))
		fetch_free(TAILQ_FIRST(&c->fetches));
	curl_multi_cleanup(c->multi);
	http_resolver_free(c->resolver);
	event_del(&c->timer);
	event_del(&c->kick);
	free(c);
	return NULL;
}
