/*
 * Theory of operation
 *
 * Egress sends a datagram for each verdict to one gateway of the node. It is a process that reads
 * what containers send, so it may be lying: a record is checked in every field, and at worst it
 * says of containers of this node what is not so.
 *
 * Records wait for FLUSH_MS, or until there are BATCH, and are then written in one transaction on
 * the pool. While that goes on the socket is not read; egress counts what we do not take (`more`),
 * so a flood costs neither memory nor disk. At most LOGGED_A_S lines a second go to the log.
 */
#include "gateway/network.h"

#include "network/policy.h"
#include "packet/packet.h"
#include "proto/egress.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define BATCH       256
#define FLUSH_MS    200
#define LOGGED_A_S  50
#define LIST_PRESET 100

/* ---- a policy, shown ---- */

static void write_warning(void *ctx, const char *sentence)
{
	jw_cstr(ctx, sentence);
}

static void count_warning(void *ctx, const char *sentence)
{
}

void network_log_warning(void *ctx, const char *sentence)
{
	log_text(LOG_WARN, "network_policy", "%s", sentence);
}

void network_write(struct json_writer *w, struct str network)
{
	jw_kraw(w, "network_policy", network.n > 0 ? network : STR("{\"type\":\"disabled\"}"));
	if (policy_warnings(network, count_warning, NULL) == 0)
		return;
	jw_key(w, "warnings");
	jw_array(w);
	policy_warnings(network, write_warning, w);
	jw_end(w);
}

/* ---- records ---- */

struct network {
	struct gateway *g;
	int fd; /* -1: none */
	struct event *readable, *flush;
	struct store_network batch[BATCH];
	size_t n;
	bool writing; /* the pool has the batch */
	int64_t log_second;
	unsigned logged;
	struct error err;
};

/* Printable ASCII up to its NUL, which must be there. */
static bool text_read(const char *p, size_t size, char *out, size_t out_size)
{
	size_t n = strnlen(p, size);

	if (n == size || n >= out_size)
		return false;
	for (size_t i = 0; i < n; i++)
		if (p[i] < 0x20 || p[i] > 0x7e)
			return false;
	memcpy(out, p, n + 1);
	return true;
}

/* account/workspace/container, as row.c wrote it. */
static bool label_read(struct str label, struct store_network *r)
{
	static const char set[] =
	        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
	char *out[] = {r->account, r->workspace, r->container};
	size_t room[] = {sizeof(r->account), sizeof(r->workspace), sizeof(r->container)};

	for (int i = 0; i < 3; i++) {
		const char *end = i < 2 ? memchr(label.p, '/', label.n) : label.p + label.n;
		struct str part = {label.p, end ? (size_t)(end - label.p) : 0};

		if (!str_in_set(part, set) || !str_copy(out[i], room[i], part))
			return false;
		if (i < 2)
			label = (struct str){end + 1, label.n - part.n - 1};
	}
	return true;
}

bool network_record_read(const void *datagram, size_t len, struct store_network *ret)
{
	struct egress_record m;
	struct store_network r = {0};

	if (len < sizeof(m))
		return false;
	memcpy(&m, datagram, sizeof(m));
	if (m.h.op != EGRESS_RECORD || m.h.size != sizeof(m) || m.label_len != len - sizeof(m) ||
	        m.label_len > EGRESS_LABEL_MAX || m.verdict > EGRESS_ALLOWED || m.time_ms < 0 ||
	        m.bytes_in > INT64_MAX || m.bytes_out > INT64_MAX)
		return false;
	if (!text_read(m.name, sizeof(m.name), r.name, sizeof(r.name)) ||
	        !text_read(m.address, sizeof(m.address), r.address, sizeof(r.address)) ||
	        !text_read(m.reason, sizeof(m.reason), r.reason, sizeof(r.reason)) ||
	        !label_read((struct str){(const char *)datagram + sizeof(m), m.label_len}, &r))
		return false;
	r.time_ms = m.time_ms;
	r.port = m.port;
	r.allowed = m.verdict == EGRESS_ALLOWED;
	r.bytes_in = m.bytes_in;
	r.bytes_out = m.bytes_out;
	r.more = m.more;
	*ret = r;
	return true;
}

static void log_record(struct network *n, const struct store_network *r)
{
	int64_t second = clock_wall_ms() / 1000;

	if (n->log_second != second)
		n->logged = 0;
	n->log_second = second;
	if (n->logged++ >= LOGGED_A_S)
		return;
	LOG(LOG_INFO, "network", LOG_S("account", r->account), LOG_S("workspace", r->workspace),
	        LOG_S("container", r->container), LOG_S("name", r->name),
	        LOG_S("address", r->address), LOG_N("port", r->port),
	        LOG_S("verdict", r->allowed ? "allow" : "deny"), LOG_S("reason", r->reason),
	        LOG_N("bytes_in", r->bytes_in), LOG_N("bytes_out", r->bytes_out),
	        LOG_N("more", r->more));
}

static void write_work(void *arg)
{
	struct network *n = arg;

	if (store_network_add(n->g->store, n->batch, n->n, &n->err) < 0)
		log_text(LOG_ERROR, "store_failed", "%s", n->err.text);
}

static void write_done(void *arg)
{
	struct network *n = arg;

	n->writing = false;
	n->n = 0;
	if (n->readable != NULL)
		event_add(n->readable, NULL);
}

static void flush_now(struct network *n)
{
	event_del(n->flush);
	if (n->n == 0 || n->writing)
		return;
	n->writing = true;
	if (n->readable != NULL)
		event_del(n->readable);
	if (!pool_run(n->g->pool, write_work, write_done, n)) {
		log_text(LOG_ERROR, "network_records_lost", "%zu: the server has too much to do",
		        n->n);
		write_done(n);
	}
}

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
	flush_now(arg);
}

static void unlisten(struct network *n)
{
	if (n->readable != NULL)
		event_free(n->readable);
	n->readable = NULL;
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
}

static void on_record(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval soon = {0, FLUSH_MS * 1000};
	struct network *n = arg;
	char datagram[sizeof(struct egress_record) + EGRESS_LABEL_MAX];

	for (int i = 0; i < 64 && n->n < BATCH; i++) {
		struct packet p;
		int r = packet_receive(n->fd, MSG_DONTWAIT, datagram, sizeof(datagram), 0, &p);

		if (r == -EAGAIN)
			break;
		if (r <= 0) { /* egress has gone; its successor has a socket of its own */
			unlisten(n);
			break;
		}
		if (p.lost || !network_record_read(datagram, p.len, &n->batch[n->n])) {
			log_text(LOG_ERROR, "egress_record", "one that is malformed was dropped");
			continue;
		}
		const struct store_network *seen = &n->batch[n->n++];

		metrics_egress(n->g, seen->allowed, UINT64_C(1) + seen->more, seen->bytes_in,
		        seen->bytes_out);
		log_record(n, seen);
	}
	if (n->n == BATCH)
		flush_now(n);
	else if (n->n > 0 && !evtimer_pending(n->flush, NULL))
		event_add(n->flush, &soon);
}

void network_listen(struct network *n, int fd)
{
	unlisten(n);
	n->fd = fd;
	n->readable = event_new(n->g->base, fd, EV_READ | EV_PERSIST, on_record, n);
	if (n->readable == NULL)
		BUG("no memory for an event");
	if (!n->writing)
		event_add(n->readable, NULL);
}

struct network *network_new(struct gateway *g)
{
	struct network *n = mem_alloc(sizeof(*n));

	n->g = g;
	n->fd = -1;
	n->flush = evtimer_new(g->base, on_flush, n);
	if (n->flush == NULL)
		BUG("no memory for an event");
	return n;
}

struct network *network_free(struct network *n)
{
	if (n == NULL)
		return NULL;
	unlisten(n);
	if (n->n > 0 && !n->writing)
		write_work(n);
	event_free(n->flush);
	free(n);
	return NULL;
}

/* ---- GET /containers/{id}/network ---- */

struct list_job {
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	bool under_v1;
	char id[STORE_ID_MAX + 1];
	uint32_t limit;
	struct store_network *rows;
	size_t n;
	int result;
	struct error err;
};

static void on_list_gone(void *self, enum http_gone why)
{
	((struct list_job *)self)->x = NULL;
}

static void list_work(void *arg)
{
	struct list_job *j = arg;
	struct store_scope scope = row_scope(j->key);
	struct store_container row = {0};

	j->result = store_container_get(j->g->reader, &scope, str_of(j->id), &row, &j->err);
	if (j->result == 0)
		j->result = store_network_list(
		        j->g->reader, &scope, str_of(j->id), j->limit, &j->rows, &j->n, &j->err);
	else if (j->result == -ERR_NOT_FOUND)
		error_set(&j->err, ERR_NOT_FOUND, "There is no container of this id.");
	store_container_clear(&row);
}

static void record_write(struct json_writer *w, const struct store_network *r)
{
	jw_object(w);
	jw_ki64(w, "time", r->time_ms / 1000);
	jw_ki64(w, "time_ms", r->time_ms);
	jw_kcstr(w, "name", r->name[0] ? r->name : NULL);
	jw_kcstr(w, "address", r->address[0] ? r->address : NULL);
	jw_ki64(w, "port", r->port);
	jw_kcstr(w, "verdict", r->allowed ? "allow" : "deny");
	jw_kcstr(w, "reason", r->reason[0] ? r->reason : NULL);
	jw_ki64(w, "bytes_in", (int64_t)r->bytes_in);
	jw_ki64(w, "bytes_out", (int64_t)r->bytes_out);
	jw_ki64(w, "more", r->more);
	jw_end(w);
}

static void list_done(void *arg)
{
	struct list_job *j = arg;
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)4 << 20);
	struct json_writer w;

	if (j->x != NULL)
		http_exchange_set_data(j->x, NULL);
	if (j->x != NULL && j->result < 0) {
		respond_error(j->x, j->under_v1, &j->err);
	} else if (j->x != NULL) {
		jw_init(&w, &out);
		jw_object(&w);
		jw_kcstr(&w, "object", "list");
		jw_key(&w, "data");
		jw_array(&w);
		for (size_t i = 0; i < j->n; i++)
			record_write(&w, &j->rows[i]);
		jw_end(&w);
		jw_end(&w);
		respond_json(j->x, 200, &out);
	}
	free(j->rows);
	free(j);
}

void network_list(struct request *r)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	uint64_t limit = LIST_PRESET;
	struct list_job *j;
	struct error e;

	if (http_query_get(http_request_query(r->x), "limit", &b) &&
	        (!str_to_u64((struct str){b.data, b.len}, &limit) || limit < 1 ||
	                limit > STORE_NETWORK_MAX)) {
		error_param(&e, ERR_INVALID, "limit", "limit must be a whole number from 1 to %d.",
		        STORE_NETWORK_MAX);
		respond_error(r->x, r->under_v1, &e);
		return;
	}
	if (!api_container_id_valid(r->params[0])) {
		error_set(&e, ERR_NOT_FOUND, "There is no container of this id.");
		respond_error(r->x, r->under_v1, &e);
		return;
	}
	j = mem_alloc(sizeof(*j));
	*j = (struct list_job){.g = r->g,
	        .key = r->key,
	        .x = r->x,
	        .under_v1 = r->under_v1,
	        .limit = (uint32_t)limit};
	str_copy(j->id, sizeof(j->id), r->params[0]);
	j->owner = (struct owner){NULL, on_list_gone, j};
	http_exchange_set_data(r->x, &j->owner);
	if (pool_run(j->g->pool, list_work, list_done, j))
		return;
	http_exchange_set_data(r->x, NULL);
	free(j);
	gateway_busy(&e);
	respond_error(r->x, r->under_v1, &e);
}
