/*
 * Start, loop and end of a gateway.
 *
 * SIGTERM (from the supervisor, or a person) begins the drain: no new connections or requests, open
 * exchanges may finish within the grace, then what still runs is cancelled. A second SIGTERM cuts
 * the grace. The loop ends when no turn, exec or exchange is left; the supervisor's socket closing
 * ends it at once, since without a supervisor nothing can run.
 */
#include "gateway/internal.h"

#include "gateway/broadcast.h"
#include "gateway/rulebook.h"
#include "gateway/lists.h"
#include "gateway/event_log.h"
#include "gateway/idempotency.h"
#include "gateway/keeping.h"
#include "gateway/ledger.h"
#include "gateway/network.h"
#include "gateway/saving.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define POOL_THREADS  4
#define WORKERS_MAX   64
#define RESERVE_LEAST ((uint64_t)2 << 30)

static void drain_check(struct gateway *g)
{
	if (http_server_open_exchanges(g->server) == 0 && g->turns == NULL &&
	        g->event_logs == NULL && exec_running(g) == 0 &&
	        (g->saving == NULL || saving_idle(g->saving)))
		event_base_loopbreak(g->base);
}

static void on_drain_poll(evutil_socket_t fd, short what, void *arg)
{
	drain_check(arg);
}

static void on_grace_over(evutil_socket_t fd, short what, void *arg)
{
	struct gateway *g = arg;
	const struct timeval soon = {2, 0};

	turns_cancel_all(g);
	exec_free_all(g);
	/* Answers about the end are on their way; whoever does not take them is cut. */
	event_base_loopexit(g->base, &soon);
}

static void on_term(evutil_socket_t fd, short what, void *arg)
{
	struct gateway *g = arg;
	struct timeval grace = {(time_t)(g->config->grace_ms / 1000),
	        (suseconds_t)(g->config->grace_ms % 1000 * 1000)};
	const struct timeval poll = {0, 20000};

	if (g->draining) {
		on_grace_over(-1, 0, g);
		return;
	}
	g->draining = true;
	http_server_drain(g->server);
	websockets_drain(g);
	evtimer_add(g->grace, &grace);
	event_add(g->drain_poll, &poll);
	drain_check(g);
}

static void on_supervisor_lost(void *ctx)
{
	struct gateway *g = ctx;

	error_set(&g->failed, ERR_UNAVAILABLE, "the supervisor has gone");
	event_base_loopbreak(g->base);
}

static void on_container_ended(void *ctx, const uint8_t key[SUP_KEY_LEN], enum sup_end why)
{
	struct gateway *g = ctx;

	/* Holders learn it from their channels; the store's row says nothing about being live. */
	if (g->saving != NULL)
		saving_ended(g->saving, key);
	keeping_ended(g->keeping, key);
}

static void on_claim(void *ctx, bool claimed, enum sup_how how, uint64_t waited_ns)
{
	metrics_claim(ctx, claimed, (int)how, waited_ns);
}

static void on_records(void *ctx, int fd)
{
	network_listen(((struct gateway *)ctx)->network, fd);
}

static int start_signals(struct gateway *g, struct error *err)
{
	signal(SIGPIPE, SIG_IGN);
	g->term = evsignal_new(g->base, SIGTERM, on_term, g);
	g->term2 = evsignal_new(g->base, SIGINT, on_term, g);
	g->grace = evtimer_new(g->base, on_grace_over, g);
	g->drain_poll = event_new(g->base, -1, EV_PERSIST, on_drain_poll, g);
	if (g->term == NULL || g->term2 == NULL || g->grace == NULL || g->drain_poll == NULL)
		return error_set(err, ERR_NOMEM, "no memory for signals");
	evsignal_add(g->term, NULL);
	/* Ctrl-C reaches the whole foreground group; only the supervisor acts on it, and tells us.
	 */
	if (g->options->sup_fd < 0)
		evsignal_add(g->term2, NULL);
	else
		signal(SIGINT, SIG_IGN);
	return 0;
}

static int start_server(struct gateway *g, struct error *err)
{
	struct http_server_options so;
	struct http_handler handler;
	const struct config_limits *l = &g->config->limits;

	http_server_options_default(&so);
	so.max_body = l->body_bytes;
	so.max_in_flight = l->in_flight_bytes;
	so.max_connections = l->connections;
	so.write_timeout_ms = (unsigned)l->client_stall_ms;
	gateway_handler(g, &handler);
	g->server = http_server_new(g->base, &so, &handler);
	if (g->server == NULL)
		return error_set(err, ERR_NOMEM, "no memory for the server");
	int r = http_server_listen(g->server, g->options->listen_fd, err);

	return r < 0 ? r : forward_listen(g, err);
}

static int start_store(struct gateway *g, struct error *err)
{
	char path[4160];
	struct store_options so = {.path = path, .power = g->config->container.durable_power};
	int r;

	str_format(path, sizeof(path), "%s/brig.db", g->options->state_dir);
	r = store_open(&so, &g->store, err);
	if (r == 0)
		r = store_open(&so, &g->reader, err);
	if (r == 0)
		r = idempotency_recover(g, err);
	if (r == 0)
		r = ledger_recover(g, err);
	return r < 0 ? error_prefix(err, "store") : 0;
}

/* Documents and uploads keep out of the same reserve of free disk as containers do: 5 %, or 2 GiB.
 */
static uint64_t reserve_of(const struct statvfs *st)
{
	uint64_t part = (uint64_t)st->f_blocks * st->f_frsize / 20;

	return part > RESERVE_LEAST ? part : RESERVE_LEAST;
}

void gateway_name(uint32_t index, char out[GATEWAY_NAME_MAX])
{
	char host[256] = "";

	if (gethostname(host, sizeof(host) - 1) < 0 || host[0] == 0)
		str_copy(host, sizeof(host), STR("local"));
	str_format(out, GATEWAY_NAME_MAX, "%s/%u", host, index);
}

int gateway_recover(struct gateway *g,
        int (*recover)(struct gateway *g, struct str holder, struct error *err), struct error *err)
{
	uint32_t i = g->options->index;
	char holder[GATEWAY_NAME_MAX];
	int r, n = 0;

	gateway_name(i, holder);
	r = recover(g, str_of(holder), err);
	for (i = g->options->workers; g->options->index == 0 && i < WORKERS_MAX && r >= 0; i++) {
		n += r;
		gateway_name(i, holder);
		r = recover(g, str_of(holder), err);
	}
	return r < 0 ? r : n + r;
}

int gateway_busy(struct error *err)
{
	error_set(err, ERR_UNAVAILABLE, "The server has too much to do.");
	err->retry_after_ms = 1000;
	return -ERR_UNAVAILABLE;
}

int gateway_check_room(const struct gateway *g, struct error *err)
{
	struct statvfs st;

	if (statvfs(g->options->state_dir, &st) < 0)
		return error_errno(err, errno, "%s", g->options->state_dir);
	if ((uint64_t)st.f_bavail * st.f_frsize >= reserve_of(&st))
		return 0;
	error_set(err, ERR_UNAVAILABLE, "The server's disk is nearly full: it takes no files.");
	err->retry_after_ms = 60000;
	return -ERR_UNAVAILABLE;
}

static int start_blobs(struct gateway *g, struct error *err)
{
	char path[4160];
	struct blob_options bo = {.folder = path, .power = g->config->container.durable_power};
	struct statvfs st;

	if (statvfs(g->options->state_dir, &st) < 0)
		return error_errno(err, errno, "%s", g->options->state_dir);
	bo.reserve = reserve_of(&st);
	str_format(path, sizeof(path), "%s/blob", g->options->state_dir);
	return blob_open(&bo, &g->blobs, err);
}

static int gateway_start(struct gateway *g, struct error *err)
{
	const struct container_client_handler ch = {
	        g, on_container_ended, on_supervisor_lost, on_records, on_claim};
	int r;

	g->base = event_base_new();
	if (g->base == NULL)
		return error_set(err, ERR_NOMEM, "no event loop");
	g->shared = shared_map(g->options->shared_fd, err);
	if (g->shared == NULL)
		return -ERR_IO;
	r = start_store(g, err);
	if (r == 0)
		r = start_blobs(g, err);
	if (r < 0)
		return r;
	r = seal_key_load(g, err);
	if (r < 0)
		return r;
	g->pool = pool_new(g->base, POOL_THREADS);
	g->rulebook = rulebook_new(g, err);
	if (g->rulebook == NULL)
		return -(int)err->code;
	g->client = http_client_new(g->base, g->pool);
	g->lists = lists_new(g);
	g->network = network_new(g);
	g->containers = container_client_new(g->base, g->options->sup_fd, &ch);
	r = start_signals(g, err);
	if (r < 0)
		return r;
	if (g->config->container.save_to_blob && g->options->sup_fd >= 0) {
		g->saving = saving_new(g, err);
		if (g->saving == NULL)
			return -ERR_IO;
	}
	g->keys = keys_new(g, err);
	if (g->keys == NULL)
		return -ERR_IO;
	/* What the one before it left open is in the ledger by now. */
	key_limits_start(&g->shared->key_limits, g->options->index);
	g->ledger = ledger_new(g, err);
	if (g->ledger == NULL)
		return -ERR_NOMEM;
	g->keeper = keeper_start(g, err);
	if (g->keeper == NULL)
		return -ERR_NOMEM;
	g->broadcast = broadcast_start(g, err);
	if (g->broadcast == NULL)
		return -ERR_IO;
	g->keeping = keeping_start(g, err);
	if (g->keeping == NULL)
		return -ERR_NOMEM;
	r = start_server(g, err);
	if (r == 0)
		g->metrics = metrics_start(g);
	return r;
}

static void gateway_stop(struct gateway *g)
{
	if (g->server != NULL)
		turns_cancel_all(g);
	exec_free_all(g);
	g->server = http_server_free(g->server);
	exec_destroy_all(g);
	/* Whatever its work is for may turn to all that is freed below. */
	pool_stop(g->pool);
	g->metrics = metrics_free(g->metrics);
	container_client_free(g->containers);
	g->saving = saving_free(g->saving);
	upstream_free_links(g);
	lists_stop(g->lists);
	g->broadcast = broadcast_free(g->broadcast);
	http_client_free(g->client);
	pool_free(g->pool);
	ledger_stop(g->ledger);
	turns_free_all(g);
	event_log_free_all(g);
	g->ledger = ledger_free(g->ledger);
	g->keys = keys_free(g->keys);
	g->lists = lists_free(g->lists);
	g->network = network_free(g->network);
	g->keeping = keeping_free(g->keeping);
	keeper_free(g->keeper);
	store_close(g->store);
	store_close(g->reader);
	blob_close(g->blobs);
	for (size_t i = 0; i < 4; i++) {
		struct event *ev =
		        (struct event *[]){g->term, g->term2, g->grace, g->drain_poll}[i];

		if (ev != NULL)
			event_free(ev);
	}
	g->shared = shared_unmap(g->shared);
	mem_wipe(g->seal_key, sizeof(g->seal_key));
	g->rulebook = rulebook_free(g->rulebook);
	config_free(g->config);
	if (g->base != NULL)
		event_base_free(g->base);
}

int gateway_run(const struct gateway_options *o, struct error *err)
{
	struct gateway g = {.options = o, .config = o->config};
	int r = gateway_start(&g, err);

	if (r == 0) {
		if (o->ready_fd >= 0 && write(o->ready_fd, "r", 1) != 1)
			log_text(LOG_WARN, "ready_pipe", "nobody waits for the ready byte");
		if (o->ready_fd >= 0)
			close(o->ready_fd);
		event_base_dispatch(g.base);
		if (g.failed.code != 0) {
			if (err != NULL)
				*err = g.failed;
			r = -(int)g.failed.code;
		}
	}
	gateway_stop(&g);
	return r;
}
