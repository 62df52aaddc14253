/* What client.c, command.c and files.c share. */
#ifndef BRIG_CONTAINER_INTERNAL_H
#define BRIG_CONTAINER_INTERNAL_H

#include "container/container.h"

#include "base/mem.h"
#include "proto/worker.h"
#include "packet/hurry.h"

#include <sys/queue.h>

#define CLIENT_BUCKETS 1024

struct waiting;
struct outgoing;
TAILQ_HEAD(outgoing_list, outgoing);

struct container_client {
	struct event_base *base;
	int fd; /* to the supervisor; -1: none */
	struct event *readable;
	struct container_client_handler handler;
	struct event *writable; /* in while the socket takes no more */
	uint32_t next_seq;
	struct outgoing_list orders, slow, quick; /* not sent yet; client.c says which is which */
	unsigned n_slow, n_quick;                 /* sent, and the answer has not come */
	/* Requests without an answer yet, by their number: there may be tens of thousands. */
	LIST_HEAD(, waiting) waiting[CLIENT_BUCKETS];
	LIST_HEAD(, container_hold) claims[CLIENT_BUCKETS];
	struct container_hold *holds;  /* claimed or waiting, linked */
	struct container_links *links; /* to workers; NULL until needed. files.c */
	LIST_HEAD(, container_transfer) transfers;
	bool lost;
};

struct container_hold {
	struct container_hold *next, **link;
	struct container_client *client;
	uint32_t seq; /* of the claim */
	bool claimed;
	bool unasked;                      /* it failed before the supervisor heard of it */
	LIST_ENTRY(container_hold) bucket; /* until it is claimed */
	struct outgoing *unsent;           /* the claim, while it waits in the client's queue */
	uint64_t hold;                     /* the supervisor's name for it */
	uint8_t key[SUP_KEY_LEN];
	uint64_t keep_ms;
	uint64_t asked_ns; /* when the claim was */
	uint64_t generation;
	enum sup_how how;
	container_claimed_fn fn;
	void *ctx;
	int channel; /* to init; -1 before the claim and after it broke */
	struct event *readable;
	uint64_t next_id;         /* of commands */
	struct command *commands; /* running, linked */
	struct event *failed;     /* tells from the loop that the claim failed at once */
	bool *freed; /* set to true when the hold goes: a callback may release it under our feet */
};

/* client.c: this process, the supervisor or init has as many descriptors as it may. */
void error_no_files(struct error *e);
/* sock: to the container's worker, the callee's; -1 with err. */
typedef void (*container_files_socket_fn)(void *ctx, int sock, const struct error *err);
/* Exactly one callback, but for container_client_free(). flags: SUP_FILES_… */
void container_client_files(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        uint32_t flags, container_files_socket_fn fn, void *ctx);

/* files_error.c: what went wrong with a question of this kind. */
void error_from_worker(enum worker_op op, const struct worker_failed *f, struct error *e);

/* files.c */
void container_links_free(struct container_client *c);
/* transfer.c */
void container_transfers_free(struct container_client *c);

/* command.c */
void commands_open(void);                          /* once, while there still are descriptors */
void hold_channel_ready(struct container_hold *h); /* the channel may be read */
void hold_channel_broken(struct container_hold *h);
void hold_drop_commands(struct container_hold *h); /* frees them without a callback */

/* One datagram with at most max_fds descriptors. Returns bytes, 0 at the end, -1 with errno.
 * Descriptors beyond max_fds are closed. Where this process has no room for them none is given: a
 * message that lacks what it should bring is to be expected. */
ssize_t socket_receive(int fd, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_fds);
int socket_send(int fd, const void *data, size_t size, const void *more, size_t more_size,
        const int *fds, size_t n_fds);

#endif
