/*
 * Bytes are kept in pieces of a fixed size, each of which knows the first event that begins in it,
 * so that the place of a number is found by looking through one piece. Readers hold offsets that
 * count from the first byte of all: what they want next is there, or is to come, or has gone.
 *
 * A log that is over does not change any more: the pool compresses what it has while readers go on.
 */
#include "gateway/event_log.h"

#include <stdlib.h>
#include <zstd.h>

enum {
	PIECE = 64 * 1024,
	READERS_MAX = 64,    /* of one response: each event is written to all of them at once */
	LEVEL = 3,           /* zstd's own default */
	LOADED_MAX = 1 << 30 /* bytes: what the setting may be at most */
};
#define NONE UINT64_MAX

struct piece {
	struct piece *next;
	uint64_t at; /* of its first byte */
	uint64_t starts,
	        first; /* where the first event in it begins, and its number; NONE: none does */
	size_t len;
	char bytes[PIECE];
};

struct reader {
	struct reader *next, **link; /* in log.readers */
	struct event_log *log;
	struct http_exchange *x;
	struct owner owner; /* the exchange's data */
	uint64_t pos;       /* NONE: the first event for it has not come */
	uint64_t first;     /* its number */
	bool cut;           /* its connection is about to go */
};

struct event_log {
	struct event_log *next, **link; /* in gateway.event_logs */
	struct gateway *g;
	const struct config_key *key;
	char id[STORE_ID_MAX + 1];
	struct piece *head, *tail;
	size_t kept;     /* bytes of pieces, counted in the gateway's history_bytes */
	uint64_t end;    /* of all bytes there ever were */
	uint64_t whole;  /* of whole events: here the next one begins */
	uint64_t number; /* of that one */
	bool newline;    /* the last byte was one */
	bool over;       /* nothing more comes */
	bool owned;      /* by the turn, or by the pool, which stores it */
	struct reader *readers;
	unsigned n_readers;
	struct store_response_events stored; /* to be, on the pool */
};

/* ---- life ---- */

struct event_log *event_log_new(struct gateway *g, const struct config_key *key, const char *id)
{
	struct event_log *l = mem_alloc(sizeof(*l));

	*l = (struct event_log){.g = g, .key = key, .owned = true, .next = g->event_logs};
	str_copy(l->id, sizeof(l->id), str_of(id));
	l->link = &g->event_logs;
	if (l->next != NULL)
		l->next->link = &l->next;
	g->event_logs = l;
	return l;
}

static void drop_head(struct event_log *l)
{
	struct piece *p = l->head;

	l->head = p->next;
	if (l->head == NULL)
		l->tail = NULL;
	l->kept -= sizeof(*p);
	atomic_fetch_sub(&l->g->history_bytes, sizeof(*p));
	free(p);
}

static void free_if_useless(struct event_log *l)
{
	if (l->owned || l->readers != NULL)
		return;
	while (l->head != NULL)
		drop_head(l);
	*l->link = l->next;
	if (l->next != NULL)
		l->next->link = l->link;
	free(l->stored.bytes);
	free(l);
}

void event_log_free_all(struct gateway *g)
{
	while (g->event_logs != NULL) {
		g->event_logs->owned = false;
		free_if_useless(g->event_logs);
	}
}

struct event_log *event_log_find(struct gateway *g, const struct config_key *key, const char *id)
{
	for (struct event_log *l = g->event_logs; l != NULL; l = l->next)
		if (l->owned && strcmp(l->id, id) == 0 &&
		        strcmp(l->key->account, key->account) == 0 &&
		        strcmp(l->key->workspace, key->workspace) == 0)
			return l;
	return NULL;
}

/* ---- readers ---- */

static void reader_free(struct reader *r)
{
	struct event_log *l = r->log;

	if (r->x != NULL)
		http_exchange_set_data(r->x, NULL);
	*r->link = r->next;
	if (r->next != NULL)
		r->next->link = r->link;
	l->n_readers--;
	free(r);
	free_if_useless(l);
}

/* Behind the first event in n bytes; NULL: they hold no whole one. */
static const char *event_end(const char *p, size_t n)
{
	const char *end = memmem(p, n, "\n\n", 2);

	return end != NULL ? end + 2 : NULL;
}

/* Where an event begins that has begun or is the next; NONE: it is kept no more. */
static uint64_t place_of(const struct event_log *l, uint64_t number)
{
	const struct piece *in = NULL;
	const char *at, *end;

	if (number == l->number && (l->head == NULL || l->head->at <= l->whole))
		return l->whole;
	for (const struct piece *p = l->head; p != NULL; p = p->next)
		if (p->starts != NONE && p->first <= number)
			in = p;
	if (in == NULL)
		return NONE;
	at = in->bytes + (in->starts - in->at);
	end = in->bytes + in->len;
	for (uint64_t i = in->first; i < number && at != NULL; i++)
		at = event_end(at, (size_t)(end - at));
	return at != NULL ? in->at + (uint64_t)(at - in->bytes) : NONE;
}

static const struct piece *piece_at(const struct event_log *l, uint64_t pos)
{
	const struct piece *p = l->head;

	if (l->tail->at <= pos)
		return l->tail;
	while (p->at + p->len <= pos)
		p = p->next;
	return p;
}

/* Sends what there is for it, as far as its client takes it. It may be gone afterwards. */
static void reader_send(struct reader *r)
{
	const struct event_log *l = r->log;
	struct http_exchange *x = r->x;

	if (r->pos == NONE && r->first <= l->number) {
		r->pos = place_of(l, r->first);
		r->cut = r->pos == NONE;
	}
	r->cut = r->cut || (r->pos != NONE && l->head != NULL && r->pos < l->head->at);
	if (r->cut) {
		http_abort(x); /* too slow: what it wants next is kept no more */
		return;
	}
	while (r->pos != NONE && r->pos < l->end && !http_above_high_water(x)) {
		const struct piece *p = piece_at(l, r->pos);
		size_t from = (size_t)(r->pos - p->at);

		http_write(x, (struct str){p->bytes + from, p->len - from});
		r->pos = p->at + p->len;
	}
	if (!l->over || (r->pos != NONE && r->pos < l->end))
		return;
	reader_free(r);
	http_finish(x);
}

static void on_drain(void *self)
{
	reader_send(self);
}

static void on_gone(void *self, enum http_gone why)
{
	struct reader *r = self;

	r->x = NULL;
	reader_free(r);
}

static void explain_dropped(const char *id, uint64_t from, struct error *err)
{
	error_param(err, ERR_INVALID, "starting_after",
	        "The events of response '%s' before number %llu are kept no more: leave 'stream' "
	        "out to get all of it, once it is over.",
	        id, (unsigned long long)from);
}

int event_log_read(struct event_log *l, struct http_exchange *x, uint64_t first, struct error *err)
{
	struct reader *r;
	const struct piece *p = l->head;

	while (p != NULL && p->starts == NONE)
		p = p->next;
	if (first <= l->number && place_of(l, first) == NONE) {
		explain_dropped(l->id, p != NULL ? p->first : l->number + 1, err);
		return -ERR_INVALID;
	}
	if (l->n_readers == READERS_MAX) {
		error_set(
		        err, ERR_RATE, "Response '%s' has %d readers already.", l->id, READERS_MAX);
		err->retry_after_ms = 1000;
		return -ERR_RATE;
	}
	l->n_readers++;
	r = mem_alloc(sizeof(*r));
	*r = (struct reader){.log = l, .x = x, .pos = NONE, .first = first, .next = l->readers};
	r->owner = (struct owner){on_drain, on_gone, r};
	r->link = &l->readers;
	if (r->next != NULL)
		r->next->link = &r->next;
	l->readers = r;
	http_exchange_set_data(x, &r->owner);
	http_response_header(x, "Cache-Control", "no-cache");
	http_response_header(x, "X-Accel-Buffering", "no");
	http_respond_start(x, 200, "text/event-stream; charset=utf-8");
	reader_send(r);
	return 0;
}

static void send_all(struct event_log *l)
{
	for (struct reader *r = l->readers, *next; r != NULL; r = next) {
		next = r->next;
		reader_send(r);
	}
}

void event_log_keepalive(struct event_log *l, struct str comment)
{
	for (const struct reader *r = l->readers; r != NULL; r = r->next)
		if (!r->cut && (r->pos == NONE || r->pos == l->whole) && http_pending(r->x) == 0)
			http_write(r->x, comment);
}

/* ---- what comes ---- */

static struct piece *piece_new(struct event_log *l)
{
	const struct config_limits *limits = &l->g->config->limits;
	struct piece *p = mem_alloc(sizeof(*p));
	size_t all = atomic_fetch_add(&l->g->history_bytes, sizeof(*p)) + sizeof(*p);

	p->at = l->end;
	p->starts = l->whole == l->end ? l->end : NONE;
	p->first = l->number;
	l->kept += sizeof(*p);
	*(l->tail != NULL ? &l->tail->next : &l->head) = p;
	l->tail = p;
	while (l->head != p &&
	        (l->kept > limits->response_events_bytes || all > limits->in_flight_bytes)) {
		drop_head(l);
		all -= sizeof(*p);
	}
	return p;
}

/* The piece's last n bytes are new: which events end in them? */
static void count(struct event_log *l, struct piece *p, size_t n)
{
	const char *at = p->bytes + p->len - n, *end = p->bytes + p->len, *line;

	while ((line = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		bool twice = line > at ? false : l->newline;

		at = line + 1;
		l->newline = !twice;
		if (twice) {
			l->number++;
			l->whole = p->at + (uint64_t)(at - p->bytes);
			if (p->starts == NONE) {
				p->starts = l->whole;
				p->first = l->number;
			}
		}
	}
	if (at < end)
		l->newline = false;
}

void event_log_add(struct event_log *l, struct str bytes)
{
	while (bytes.n > 0) {
		struct piece *p = l->tail != NULL && l->tail->len < PIECE ? l->tail : piece_new(l);
		size_t n = PIECE - p->len < bytes.n ? PIECE - p->len : bytes.n;

		memcpy(p->bytes + p->len, bytes.p, n);
		p->len += n;
		l->end += n;
		bytes.p += n;
		bytes.n -= n;
		count(l, p, n);
	}
	send_all(l);
}

/* ---- the end ---- */

static void store_work(void *arg)
{
	struct event_log *l = arg;
	struct store_scope scope = row_scope(l->key);
	size_t room = ZSTD_compressBound(l->kept), n = 0;
	char *text = malloc(l->kept), *packed = malloc(room);
	const struct piece *p = l->head;
	struct error e;
	int r = 0;

	while (p != NULL && p->starts == NONE)
		p = p->next;
	l->stored.from = (int64_t)(p != NULL ? p->first : l->number);
	if (text == NULL || packed == NULL) {
		free(packed);
		free(text);
		log_text(LOG_ERROR, "store_failed", "no memory to keep the events of %s", l->id);
		return;
	}
	for (uint64_t skip = p != NULL ? p->starts - p->at : 0; p != NULL; p = p->next, skip = 0) {
		memcpy(text + n, p->bytes + skip, p->len - skip);
		n += p->len - skip;
	}
	l->stored.bytes = packed;
	l->stored.len = ZSTD_compress(packed, room, text, n, LEVEL);
	free(text);
	if (ZSTD_isError(l->stored.len))
		r = error_set(&e, ERR_NOMEM, "events: %s", ZSTD_getErrorName(l->stored.len));
	else
		r = store_response_events_put(l->g->store, &scope, str_of(l->id), &l->stored,
		        l->g->config->limits.workspace_responses_bytes, &e);
	if (r < 0)
		log_text(LOG_ERROR, "store_failed", "%s", e.text);
}

static void store_done(void *arg)
{
	struct event_log *l = arg;

	l->owned = false;
	free_if_useless(l);
}

void event_log_end(struct event_log *l)
{
	l->over = true;
	send_all(l);
	if (pool_run(l->g->pool, store_work, store_done, l))
		return;
	log_text(LOG_ERROR, "store_failed", "no room to keep the events of %s", l->id);
	store_done(l);
}

struct event_log *event_log_drop(struct event_log *l)
{
	if (l == NULL)
		return NULL;
	for (struct reader *r = l->readers; r != NULL; r = r->next)
		http_abort(r->x);
	l->owned = false;
	free_if_useless(l);
	return NULL;
}

/* ---- stored ones ---- */

static int expand(struct store_response_events *e, char **ret, size_t *ret_len, struct error *err)
{
	unsigned long long size = ZSTD_getFrameContentSize(e->bytes, e->len);
	size_t n;

	if (size > LOADED_MAX)
		return error_set(err, ERR_INTERNAL, "stored events are no zstd frame");
	*ret = malloc((size_t)size + 1);
	if (*ret == NULL)
		return error_set(err, ERR_NOMEM, "no memory for the events of a response");
	n = ZSTD_decompress(*ret, (size_t)size, e->bytes, e->len);
	if (ZSTD_isError(n)) {
		free(*ret);
		return error_set(err, ERR_INTERNAL, "stored events: %s", ZSTD_getErrorName(n));
	}
	(*ret)[n] = 0;
	*ret_len = n;
	return 0;
}

int event_log_load(struct gateway *g, const struct config_key *key, const char *id, uint64_t first,
        struct buf *ret, struct error *err)
{
	struct store_scope scope = row_scope(key);
	struct store_response_events e = {0};
	const char *at;
	char *text = NULL;
	size_t n = 0;
	int r = store_response_events_get(g->reader, &scope, str_of(id), clock_wall_ms(), &e, err);

	if (r < 0)
		return r;
	if (e.bytes == NULL)
		return error_set(err, ERR_UNSUPPORTED, "there are no events of it");
	if (first < (uint64_t)e.from) {
		explain_dropped(id, (uint64_t)e.from, err);
		free(e.bytes);
		return -ERR_INVALID;
	}
	r = expand(&e, &text, &n, err);
	free(e.bytes);
	if (r < 0)
		return r;
	at = text;
	for (uint64_t i = (uint64_t)e.from; i < first && at != NULL; i++)
		at = event_end(at, n - (size_t)(at - text));
	buf_take(ret, text, n);
	buf_consume(ret, at != NULL ? (size_t)(at - text) : n);
	return 0;
}
