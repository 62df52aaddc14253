/*
 * One request to a saver: its socket from the supervisor, the request with the pipe, one answer.
 * What goes through the pipe is between the saver and the pipe's other end; when the saver dies
 * both see their ends close.
 */
#include "container/transfer.h"

#include "container/internal.h"
#include "proto/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct container_transfer {
	LIST_ENTRY(container_transfer) link;
	struct container_client *client;
	union {
		struct worker_header h;
		struct worker_save save;
	} request;
	int pipe, sock;
	struct event *readable;
	container_transfer_fn fn;
	void *ctx;
};

static void transfer_free(struct container_transfer *t)
{
	LIST_REMOVE(t, link);
	if (t->readable != NULL)
		event_free(t->readable);
	if (t->pipe >= 0)
		close(t->pipe);
	if (t->sock >= 0)
		close(t->sock);
	free(t);
}

void container_transfers_free(struct container_client *c)
{
	while (!LIST_EMPTY(&c->transfers))
		transfer_free(LIST_FIRST(&c->transfers));
}

static void transfer_end(struct container_transfer *t, const struct error *err)
{
	container_transfer_fn fn = t->fn;
	void *ctx = t->ctx;

	transfer_free(t);
	fn(ctx, err);
}

static void transfer_gone(struct container_transfer *t)
{
	struct error e;

	error_set(&e, ERR_UNAVAILABLE, "the file worker ended before it was done");
	transfer_end(t, &e);
}

static void on_readable(evutil_socket_t sock, short what, void *arg)
{
	struct container_transfer *t = arg;
	union {
		struct worker_header h;
		struct worker_done done;
		struct worker_failed failed;
	} m;
	struct error e;
	int fds[1];
	size_t n_fds;
	ssize_t n = socket_receive(sock, &m, sizeof(m), fds, 1, &n_fds);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && n_fds > 0)
		close(fds[0]); /* it brings none, and what it says is not to be trusted */
	if (n == sizeof(m.done) && m.h.op == WORKER_DONE) {
		transfer_end(t, NULL);
	} else if (n == sizeof(m.failed) && m.h.op == WORKER_FAILED) {
		m.failed.step[sizeof(m.failed.step) - 1] = 0;
		error_errno(&e, (int)m.failed.errnum, "a home's files: %.51s", m.failed.step);
		transfer_end(t, &e);
	} else {
		transfer_gone(t);
	}
}

static void on_socket(void *ctx, int sock, const struct error *err)
{
	struct container_transfer *t = ctx;

	if (err != NULL) {
		transfer_end(t, err);
		return;
	}
	t->sock = sock;
	t->readable = event_new(t->client->base, sock, EV_READ | EV_PERSIST, on_readable, t);
	if (t->readable == NULL || event_add(t->readable, NULL) < 0)
		BUG("no memory to watch a worker");
	/* The socket is new and empty: what does not go in is not to be waited for. */
	if (socket_send(sock, &t->request, t->request.h.size, NULL, 0, &t->pipe, 1) < 0) {
		transfer_gone(t);
		return;
	}
	close(t->pipe); /* the saver's is the only one now: its end shows at the other side */
	t->pipe = -1;
}

static struct container_transfer *transfer_new(struct container_client *c, enum worker_op op,
        size_t size, int pipe, container_transfer_fn fn, void *ctx)
{
	struct container_transfer *t = mem_alloc(sizeof(*t));

	t->client = c;
	t->request.h = (struct worker_header){(uint16_t)op, (uint16_t)size, 1};
	t->pipe = pipe;
	t->sock = -1;
	t->fn = fn;
	t->ctx = ctx;
	LIST_INSERT_HEAD(&c->transfers, t, link);
	return t;
}

void container_send_home(struct container_client *c, const uint8_t key[SUP_KEY_LEN], int pipe,
        int64_t same_before_ns, container_transfer_fn fn, void *ctx)
{
	struct container_transfer *t =
	        transfer_new(c, WORKER_SAVE, sizeof(t->request.save), pipe, fn, ctx);

	t->request.save.same_before_ns = same_before_ns;
	container_client_files(c, key, SUP_FILES_TREE, on_socket, t);
}

void container_take_home(struct container_client *c, const uint8_t key[SUP_KEY_LEN], int pipe,
        container_transfer_fn fn, void *ctx)
{
	struct container_transfer *t =
	        transfer_new(c, WORKER_RESTORE, sizeof(t->request.h), pipe, fn, ctx);

	container_client_files(c, key, SUP_FILES_TREE | SUP_FILES_CREATE, on_socket, t);
}
