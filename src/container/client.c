/*
 * The supervisor's client: one socket, requests that overlap, answers matched by their number.
 *
 * The supervisor ends a gateway that does not read what it is sent, so no more may be asked at once
 * than fits into its socket's buffer as answers. What is above that waits here, in three queues:
 *
 *     orders  that nothing answers (release, and the cancel of a claim); they are never held back
 *     slow    what the supervisor may take its time for (claim, sleep, delete); SLOW_MAX at once
 *     quick   what it answers on the spot (status, keep); QUICK_MAX at once
 *
 * A claim that is cancelled may have been answered already, or never will be. So that its place in
 * the count is given back exactly once, the cancel is followed by a question with the claim's
 * number, and it is the answer to this that counts.
 */
#include "container/internal.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOW_MAX  768
#define QUICK_MAX 128

/* A message that waits to be sent. */
struct outgoing {
	TAILQ_ENTRY(outgoing) link;
	struct container_hold *claim; /* whose claim it is, or NULL */
	size_t size;
	int fd; /* goes with it; -1: none */
	char bytes[];
};

/* A question or order that waits for its answer. */
struct waiting {
	LIST_ENTRY(waiting) bucket;
	uint32_t seq;
	bool slow;
	container_answer_fn fn;
	container_files_socket_fn files; /* in place of fn: waits for a worker's socket */
	container_node_fn node;          /* in place of both */
	void *ctx;
	struct error failed; /* code set: it failed at once, and on_failed tells so from the loop */
	struct container_client *client;
};

/* ---- sending ---- */

static void outgoing_free(struct outgoing_list *list, struct outgoing *o)
{
	if (o->claim != NULL)
		o->claim->unsent = NULL;
	TAILQ_REMOVE(list, o, link);
	if (o->fd >= 0)
		close(o->fd);
	free(o);
}

/* False: what is left must wait until the socket takes more. */
static bool send_some(
        struct container_client *c, struct outgoing_list *list, unsigned *count, unsigned max)
{
	struct outgoing *o;

	while ((o = TAILQ_FIRST(list)) != NULL && (count == NULL || *count < max)) {
		if (socket_send(c->fd, o->bytes, o->size, NULL, 0, &o->fd, o->fd >= 0) < 0 &&
		        (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM))
			return false;
		/* Any other failure means that the supervisor has gone: the reader will see it. */
		outgoing_free(list, o);
		if (count != NULL)
			++*count;
	}
	return true;
}

static void send_all(struct container_client *c)
{
	if (c->lost)
		return;
	if (send_some(c, &c->orders, NULL, 0) && send_some(c, &c->quick, &c->n_quick, QUICK_MAX) &&
	        send_some(c, &c->slow, &c->n_slow, SLOW_MAX))
		event_del(c->writable);
	else
		event_add(c->writable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	send_all(arg);
}

/* message begins with a sup_header. claim: the hold that it claims, or NULL. fd is taken over; -1:
 * none. */
static void post_with(struct container_client *c, struct outgoing_list *list, const void *message,
        struct container_hold *claim, int fd)
{
	const struct sup_header *h = message;
	struct outgoing *o = mem_alloc(sizeof(*o) + h->size);

	o->size = h->size;
	o->fd = fd;
	o->claim = claim;
	if (claim != NULL)
		claim->unsent = o;
	memcpy(o->bytes, message, h->size);
	TAILQ_INSERT_TAIL(list, o, link);
	send_all(c);
}

static void post(struct container_client *c, struct outgoing_list *list, const void *message,
        struct container_hold *claim)
{
	post_with(c, list, message, claim, -1);
}

static void unpost_all(struct outgoing_list *list)
{
	while (!TAILQ_EMPTY(list))
		outgoing_free(list, TAILQ_FIRST(list));
}

/* ---- life of a hold ---- */

static void hold_free(struct container_hold *h)
{
	hold_drop_commands(h);
	if (!h->claimed)
		LIST_REMOVE(h, bucket);
	if (h->unsent != NULL)
		outgoing_free(&h->client->slow, h->unsent);
	if (h->freed != NULL)
		*h->freed = true;
	if (h->readable != NULL)
		event_free(h->readable);
	if (h->failed != NULL)
		event_free(h->failed);
	hurry_close(&h->channel);
	*h->link = h->next;
	if (h->next != NULL)
		h->next->link = h->link;
	free(h);
}

/* ---- errors ---- */

void error_no_files(struct error *e)
{
	error_set(e, ERR_UNAVAILABLE, "this server has too many files open");
	e->retry_after_ms = 5000;
}

static void error_from_failed(const struct sup_failed *f, struct error *e)
{
	switch ((enum sup_error)f->why) {
	case SUP_E_POLICY:
		error_set(e, ERR_CONFLICT,
		        "The container is live with another network policy, image or memory.");
		return;
	case SUP_E_CAPACITY:
		error_set(e, ERR_CAPACITY,
		        "no capacity: every live container of this server is busy");
		e->retry_after_ms = 5000;
		return;
	case SUP_E_WORKSPACE:
		error_set(e, ERR_CAPACITY,
		        "no capacity: this workspace has its number of live containers");
		e->retry_after_ms = 5000;
		return;
	case SUP_E_DISK:
		error_set(e, ERR_UNAVAILABLE,
		        "the server's disk is nearly full: no container can be started");
		e->retry_after_ms = 60000;
		return;
	case SUP_E_UNKNOWN:
		error_set(e, ERR_NOT_FOUND, "There is no such container.");
		return;
	case SUP_E_BUSY:
		error_set(e, ERR_CONFLICT, "The container is in use.");
		return;
	case SUP_E_HOME:
		/* Not ERR_IO, whose words are for the log alone: this is for its owner to know. */
		error_set(e, ERR_UNAVAILABLE,
		        "the container's files cannot be mounted; they are kept as they are");
		return;
	case SUP_E_STOPPING:
		error_set(e, ERR_UNAVAILABLE, "the server is going down");
		return;
	case SUP_E_INVALID:
		error_set(e, ERR_INTERNAL, "the supervisor refused a request");
		return;
	case SUP_E_SYSTEM:
		break;
	}
	if (f->errnum == EMFILE || f->errnum == ENFILE || f->errnum == ETOOMANYREFS) {
		error_no_files(e);
		return;
	}
	error_errno(e, (int)f->errnum, "the sandbox could not be started: %.63s", f->step);
	e->code = ERR_IO;
}

/* ---- answers ---- */

static struct container_hold *hold_by_seq(struct container_client *c, uint32_t seq)
{
	struct container_hold *h;

	LIST_FOREACH(h, &c->claims[seq % CLIENT_BUCKETS], bucket)
	{
		if (h->seq == seq)
			return h;
	}
	return NULL;
}

static struct waiting *waiting_take(struct container_client *c, uint32_t seq)
{
	struct waiting *w;

	LIST_FOREACH(w, &c->waiting[seq % CLIENT_BUCKETS], bucket)
	{
		if (w->seq != seq)
			continue;
		LIST_REMOVE(w, bucket);
		return w;
	}
	return NULL;
}

static void waiting_counted(struct container_client *c, const struct waiting *w)
{
	if (w->slow)
		c->n_slow--;
	else
		c->n_quick--;
}

static void on_channel(evutil_socket_t fd, short what, void *arg)
{
	hold_channel_ready(arg);
}

static void send_release(struct container_client *c, uint64_t hold)
{
	const struct sup_hold m = {{SUP_RELEASE, sizeof(m), 0}, hold};

	if (!c->lost)
		post(c, &c->orders, &m, NULL);
}

static void count_claim(const struct container_hold *h, bool claimed)
{
	const struct container_client_handler *to = &h->client->handler;

	if (to->on_claim != NULL)
		to->on_claim(to->ctx, claimed, h->how, clock_mono_ns() - h->asked_ns);
}

/* Tells the one who claimed; the hold is gone before. */
static void claim_failed(struct container_hold *h, const struct error *e)
{
	container_claimed_fn fn = h->fn;
	void *ctx = h->ctx;

	count_claim(h, false);
	hold_free(h);
	fn(ctx, NULL, e);
}

static void on_kept(void *ctx, const struct container_status *status, const struct error *err)
{
	/* It may have ended meanwhile, which its commands tell better. */
}

/* channel < 0: this process had no room for one more descriptor. */
static void on_claimed(struct container_client *c, const struct sup_claimed *m, int channel)
{
	struct container_hold *h = hold_by_seq(c, m->h.seq);
	struct error e;

	if (h == NULL) { /* released before the answer came */
		hurry_close(&channel);
		send_release(c, m->hold);
		return;
	}
	c->n_slow--;
	if (channel < 0) {
		send_release(c, m->hold);
		error_no_files(&e);
		claim_failed(h, &e);
		return;
	}
	h->claimed = true;
	LIST_REMOVE(h, bucket);
	if (h->keep_ms > 0)
		container_order_keep(c, h->key, h->keep_ms, on_kept, NULL);
	h->hold = m->hold;
	h->generation = m->generation;
	h->how = (enum sup_how)m->how;
	h->channel = channel;
	h->readable = event_new(c->base, channel, EV_READ | EV_PERSIST, on_channel, h);
	if (h->readable == NULL || event_add(h->readable, NULL) < 0)
		BUG("no memory to watch a channel");
	count_claim(h, true);
	h->fn(h->ctx, h, NULL);
}

static void waiting_fail(struct waiting *w, const struct error *e)
{
	if (w->node != NULL)
		w->node(w->ctx, NULL, e);
	else if (w->files != NULL)
		w->files(w->ctx, -1, e);
	else
		w->fn(w->ctx, NULL, e);
	free(w);
}

/* sock < 0: this process had no room for one more descriptor. */
static void on_files(struct container_client *c, uint32_t seq, int sock)
{
	struct waiting *w = waiting_take(c, seq);
	struct error e;

	if (w != NULL)
		waiting_counted(c, w);
	if (w != NULL && w->files != NULL && sock >= 0) {
		w->files(w->ctx, sock, NULL);
		free(w);
		return;
	}
	if (sock >= 0)
		close(sock);
	error_no_files(&e);
	if (w != NULL)
		waiting_fail(w, &e);
}

static void on_failed(struct container_client *c, const struct sup_failed *m)
{
	struct container_hold *h = hold_by_seq(c, m->h.seq);
	struct waiting *w = h == NULL ? waiting_take(c, m->h.seq) : NULL;
	struct error e;

	error_from_failed(m, &e);
	if (h != NULL) {
		c->n_slow--;
		claim_failed(h, &e);
	} else if (w != NULL) {
		waiting_counted(c, w);
		waiting_fail(w, &e);
	}
}

static void on_answer(struct container_client *c, uint32_t seq, const struct sup_status *m)
{
	struct waiting *w = waiting_take(c, seq);
	struct container_status s;
	struct error e;

	if (w == NULL) {
		if (m != NULL) /* the question behind a cancelled claim */
			c->n_slow--;
		return;
	}
	waiting_counted(c, w);
	if (w->files != NULL || w->node != NULL) { /* not what it asked for */
		error_set(&e, ERR_PROTOCOL, "the supervisor answered another question");
		waiting_fail(w, &e);
		return;
	}
	if (m != NULL) {
		s = (struct container_status){(enum sup_state)m->state, m->holders, m->idle_ms,
		        m->home_used_bytes, m->generation, {0}};
		memcpy(s.policy, m->policy, sizeof(s.policy));
	}
	w->fn(w->ctx, m != NULL ? &s : NULL, NULL);
	free(w);
}

static void on_node(struct container_client *c, const struct sup_node *m)
{
	struct waiting *w = waiting_take(c, m->h.seq);
	struct error e;

	if (w == NULL)
		return;
	waiting_counted(c, w);
	if (w->node != NULL) {
		w->node(w->ctx, m, NULL);
		free(w);
		return;
	}
	error_set(&e, ERR_PROTOCOL, "the supervisor answered another question");
	waiting_fail(w, &e);
}

static void on_records(struct container_client *c, int fd)
{
	if (fd >= 0 && c->handler.on_records != NULL)
		c->handler.on_records(c->handler.ctx, fd);
	else if (fd >= 0)
		close(fd);
}

union message {
	struct sup_header h;
	struct sup_claimed claimed;
	struct sup_failed failed;
	struct sup_status status;
	struct sup_ended ended;
	struct sup_node node;
	char bytes[SUP_MAX_MESSAGE];
};

static bool dispatch(struct container_client *c, union message *m, size_t n, int *fds, size_t n_fds)
{
	if (n < sizeof(m->h) || m->h.size != n)
		return false;
	if (m->h.op == SUP_CLAIMED) {
		if (n != sizeof(m->claimed) || n_fds > 1)
			return false;
		on_claimed(c, &m->claimed, n_fds == 1 ? fds[0] : -1);
		return true;
	}
	if (m->h.op == SUP_FILES_ARE) {
		if (n != sizeof(struct sup_simple) || n_fds > 1)
			return false;
		on_files(c, m->h.seq, n_fds == 1 ? fds[0] : -1);
		return true;
	}
	if (m->h.op == SUP_RECORDS) {
		if (n != sizeof(struct sup_simple) || n_fds > 1)
			return false;
		on_records(c, n_fds == 1 ? fds[0] : -1);
		return true;
	}
	if (n_fds != 0)
		return false;
	if (m->h.op == SUP_FAILED && n == sizeof(m->failed))
		on_failed(c, &m->failed);
	else if (m->h.op == SUP_DONE && n == sizeof(struct sup_simple))
		on_answer(c, m->h.seq, NULL);
	else if (m->h.op == SUP_STATUS_IS && n == sizeof(m->status))
		on_answer(c, m->h.seq, &m->status);
	else if (m->h.op == SUP_NODE_IS && n == sizeof(m->node))
		on_node(c, &m->node);
	else if (m->h.op == SUP_ENDED && n == sizeof(m->ended))
		c->handler.on_ended(c->handler.ctx, m->ended.key, (enum sup_end)m->ended.why);
	else
		return false;
	return true;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct container_client *c = arg;

	/* A bounded number in one step, so that other events have their turn. */
	for (int i = 0; i < 64; i++) {
		union message m;
		int fds[4];
		size_t n_fds;
		ssize_t n = socket_receive(c->fd, &m, sizeof(m), fds, 4, &n_fds);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n > 0 && dispatch(c, &m, (size_t)n, fds, n_fds))
			continue;
		for (size_t k = 0; k < n_fds; k++)
			close(fds[k]);
		c->lost = true;
		event_del(c->readable);
		event_del(c->writable);
		c->handler.on_lost(c->handler.ctx);
		return;
	}
	send_all(c); /* answers have made room */
}

/* ---- the client ---- */

struct container_client *container_client_new(
        struct event_base *base, int fd, const struct container_client_handler *h)
{
	struct container_client *c = mem_alloc(sizeof(*c));

	if (hurry_open() < 0)
		BUG("no timer");
	commands_open();
	c->base = base;
	c->fd = fd;
	c->handler = *h;
	c->lost = fd < 0;
	TAILQ_INIT(&c->orders);
	TAILQ_INIT(&c->slow);
	TAILQ_INIT(&c->quick);
	if (fd < 0)
		return c;
	c->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, c);
	c->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
	if (c->readable == NULL || c->writable == NULL || event_add(c->readable, NULL) < 0)
		BUG("no memory to watch the supervisor");
	return c;
}

struct container_client *container_client_free(struct container_client *c)
{
	if (c == NULL)
		return NULL;
	while (c->holds != NULL)
		hold_free(c->holds);
	for (size_t i = 0; i < CLIENT_BUCKETS; i++)
		while (!LIST_EMPTY(&c->waiting[i]))
			free(waiting_take(c, LIST_FIRST(&c->waiting[i])->seq));
	container_links_free(c);
	container_transfers_free(c);
	unpost_all(&c->orders);
	unpost_all(&c->slow);
	unpost_all(&c->quick);
	if (c->readable != NULL)
		event_free(c->readable);
	if (c->writable != NULL)
		event_free(c->writable);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
	return NULL;
}

/* ---- claims ---- */

void container_spec_clear(struct container_spec *s)
{
	free(s->policy_lines);
	s->policy_lines = NULL;
	s->policy_len = 0;
}

/* Sealed, so that the supervisor knows that it stays as it is. -1: no room for one more descriptor.
 */
static int policy_memfd(const struct container_spec *s)
{
	int fd = memfd_create("brig-policy", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (write(fd, s->policy_lines, s->policy_len) == (ssize_t)s->policy_len &&
	        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) ==
	                0)
		return fd;
	close(fd);
	return -1;
}

/* Tells from the loop what was known at once: callbacks are never made from inside the asking call.
 */
static void on_claim_failed(evutil_socket_t fd, short what, void *arg)
{
	struct container_hold *h = arg;
	struct error e;

	if (h->client->lost)
		error_set(&e, ERR_UNAVAILABLE, "this server has no sandboxes");
	else
		error_no_files(&e);
	claim_failed(h, &e);
}

struct container_hold *container_claim(struct container_client *c, const struct container_spec *s,
        container_claimed_fn fn, void *ctx)
{
	struct container_hold *h = mem_alloc(sizeof(*h));
	int policy = s->policy_len > 0 ? policy_memfd(s) : -1;
	struct sup_claim m = {
	        .h = {SUP_CLAIM, sizeof(m), ++c->next_seq},
	        .image = s->image,
	        .memory_mib = s->memory_mib,
	        .cpu_milli = s->cpu_milli,
	        .processes = s->processes,
	        .workspace_live = s->workspace_live,
	        .wait_ms = s->wait_ms,
	        .flags = s->must_exist ? SUP_CLAIM_MUST_EXIST : 0,
	};

	if (s->policy_len > 0)
		m.flags |= SUP_CLAIM_NETWORK | (s->any_address ? SUP_CLAIM_ANY_ADDRESS : 0);
	memcpy(m.key, s->key, sizeof(m.key));
	memcpy(h->key, s->key, sizeof(h->key));
	h->keep_ms = s->keep_ms;
	h->asked_ns = clock_mono_ns();
	memcpy(m.workspace, s->workspace, sizeof(m.workspace));
	memcpy(m.policy, s->policy, sizeof(m.policy));
	memcpy(m.hostname, s->hostname, sizeof(m.hostname));
	h->client = c;
	h->seq = m.h.seq;
	h->fn = fn;
	h->ctx = ctx;
	h->channel = -1;
	h->next = c->holds;
	h->link = &c->holds;
	if (h->next != NULL)
		h->next->link = &h->next;
	c->holds = h;
	LIST_INSERT_HEAD(&c->claims[h->seq % CLIENT_BUCKETS], h, bucket);
	if (c->lost || (s->policy_len > 0 && policy < 0)) {
		if (policy >= 0)
			close(policy);
		h->unasked = true;
		h->failed = evtimer_new(c->base, on_claim_failed, h);
		if (h->failed == NULL)
			BUG("no memory for an event");
		event_active(h->failed, EV_TIMEOUT, 0);
	} else {
		post_with(c, &c->slow, &m, h, policy);
	}
	return h;
}

void container_release(struct container_hold *h)
{
	struct container_client *c;

	if (h == NULL)
		return;
	c = h->client;
	if (h->claimed) {
		/* The channel first: its end is what kills the commands, and the supervisor may
		 * freeze what is left. */
		if (h->readable != NULL)
			event_free(steal(h->readable));
		hurry_close(&h->channel);
		send_release(c, h->hold);
	} else if (!c->lost && !h->unasked && h->unsent == NULL) {
		const struct sup_simple m = {{SUP_CANCEL, sizeof(m), h->seq}};
		const struct sup_key behind = {.h = {SUP_STATUS, sizeof(behind), h->seq}};

		post(c, &c->orders, &m, NULL);
		post(c, &c->orders, &behind, NULL);
	}
	hold_free(h);
}

enum sup_how container_hold_how(const struct container_hold *h)
{
	return h->how;
}

bool container_hold_keeps(const struct container_hold *h)
{
	return h->keep_ms > 0;
}

uint64_t container_hold_generation(const struct container_hold *h)
{
	return h->generation;
}

/* ---- questions and orders ---- */

static void on_ask_failed(evutil_socket_t fd, short what, void *arg)
{
	struct waiting *w = arg;

	if (waiting_take(w->client, w->seq) != w)
		BUG("a request that failed was not waiting");
	waiting_fail(w, &w->failed);
}

/* how: fn or files, and ctx. */
static void ask_with(struct container_client *c, void *message, const struct waiting *how)
{
	const struct timeval now = {0, 0};
	struct sup_header *h = message;
	struct waiting *w = mem_alloc(sizeof(*w));

	h->seq = ++c->next_seq;
	*w = *how;
	w->seq = h->seq;
	w->client = c;
	w->slow = h->op == SUP_SLEEP || h->op == SUP_DELETE || h->op == SUP_FILES;
	LIST_INSERT_HEAD(&c->waiting[h->seq % CLIENT_BUCKETS], w, bucket);
	if (!c->lost) {
		post(c, w->slow ? &c->slow : &c->quick, message, NULL);
		return;
	}
	error_set(&w->failed, ERR_UNAVAILABLE, "this server has no sandboxes");
	if (event_base_once(c->base, -1, EV_TIMEOUT, on_ask_failed, w, &now) < 0)
		BUG("no memory for an event");
}

static void ask(struct container_client *c, void *message, container_answer_fn fn, void *ctx)
{
	const struct waiting how = {.fn = fn, .ctx = ctx};

	ask_with(c, message, &how);
}

void container_ask_node(struct container_client *c, container_node_fn fn, void *ctx)
{
	const struct waiting how = {.node = fn, .ctx = ctx};
	struct sup_simple m = {.h = {SUP_NODE, sizeof(m), 0}};

	ask_with(c, &m, &how);
}

size_t container_client_waiting(const struct container_client *c)
{
	const struct outgoing_list *const lists[] = {&c->orders, &c->slow, &c->quick};
	const struct outgoing *o;
	size_t n = c->n_slow + c->n_quick;

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		TAILQ_FOREACH(o, lists[i], link)
	n++;
	return n;
}

static void ask_key(struct container_client *c, enum sup_op op, const uint8_t key[SUP_KEY_LEN],
        container_answer_fn fn, void *ctx)
{
	struct sup_key m = {.h = {(uint16_t)op, sizeof(m), 0}};

	memcpy(m.key, key, sizeof(m.key));
	ask(c, &m, fn, ctx);
}

void container_ask_status(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        container_answer_fn fn, void *ctx)
{
	ask_key(c, SUP_STATUS, key, fn, ctx);
}

void container_order_sleep(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        container_answer_fn fn, void *ctx)
{
	ask_key(c, SUP_SLEEP, key, fn, ctx);
}

void container_order_delete(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        container_answer_fn fn, void *ctx)
{
	ask_key(c, SUP_DELETE, key, fn, ctx);
}

void container_order_keep(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        uint64_t keep_ms, container_answer_fn fn, void *ctx)
{
	struct sup_keep m = {.h = {SUP_KEEP, sizeof(m), 0}, .keep_ms = keep_ms};

	memcpy(m.key, key, sizeof(m.key));
	ask(c, &m, fn, ctx);
}

void container_client_files(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        uint32_t flags, container_files_socket_fn fn, void *ctx)
{
	const struct waiting how = {.files = fn, .ctx = ctx};
	struct sup_files m = {.h = {SUP_FILES, sizeof(m), 0}};

	m.flags = flags;
	memcpy(m.key, key, sizeof(m.key));
	ask_with(c, &m, &how);
}
