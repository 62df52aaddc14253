/*
 * The table of live containers as live.c, queue.c, pool.c and worker.c share it; nobody else includes this.
 */
#ifndef BRIG_SUPERVISOR_LIVE_INTERNAL_H
#define BRIG_SUPERVISOR_LIVE_INTERNAL_H

#include "supervisor/live.h"
#include "supervisor/maker.h"

#include <sys/queue.h>

#define START_LIMIT_MS 10000
#define LIVE_NOBODY    UINT32_MAX /* in the place of a gateway that has gone */

enum state { LIVE_POOLED, LIVE_STARTING, LIVE_RUNNING, LIVE_FROZEN, LIVE_ENDING };

struct hold {
	TAILQ_ENTRY(hold) link;
	uint64_t id;
	uint32_t gateway;
};

struct container {
	TAILQ_ENTRY(container) link;
	struct sup_claim
	        is; /* the claim it was started for: key, workspace, policy, image, limits */
	enum state state;
	bool named;  /* it was claimed: until then only `image` of `is` says anything */
	bool pooled; /* it was made ahead of time */
	uint64_t generation;
	struct sandbox sb;
	int network[LIVE_NETWORK_FDS]; /* kept for as long as it is live; -1: it has none */
	TAILQ_HEAD(, hold) holds;
	uint32_t n_holds;
	bool created;  /* there was no home before */
	bool told;     /* the first claimant knows how it came to be */
	bool was_live; /* READY was seen: its end is announced */
	bool announced;
	uint64_t started_ns, prepared_ns, claimed_ns; /* where the time of a start went */
	uint64_t due_ms;   /* POOLED, STARTING: give up; ENDING: look again */
	uint64_t since_ms; /* ENDING */
	uint64_t idle_ms;  /* when the last holder left */
	uint64_t keep_ms;  /* kept thawed and awake until then */
	enum sup_end why;
	uint32_t looks;
	struct fail fail; /* why it could not start */
	char fail_text[64];
};

struct waiter {
	TAILQ_ENTRY(waiter) link;
	union message m;
	int policy; /* of a claim with network; else -1 */
	uint32_t gateway;
	uint64_t deadline_ms;
	uint64_t on; /* generation it waits for: of a start, or of an end that it asked for */
	bool extended;
	bool cold;      /* a pooled sandbox died under it: the next one is made for it */
	bool created;   /* … and had a new home */
	bool for_space; /* blocked by the workspace's limit in this run of the queue */
	uint32_t why;   /* what a time-out is called */
};

/* What pool.c knows. */
struct pool {
	uint32_t size;                /* how many it keeps */
	uint32_t asked[SUP_MAX_POOL]; /* the images of the last `size` starts, a ring */
	uint32_t asked_at;
	uint32_t failures; /* in a row */
	uint64_t next_ms;  /* nothing is made before */
	struct maker maker;
};

/* What worker.c knows. */
struct worker;
struct workers {
	TAILQ_HEAD(, worker) list;
	uint32_t n;
	uint32_t held;    /* homes without a user that something still holds */
	uint64_t look_ms; /* when to look at those again */
};

struct live {
	struct sandbox_host *host;
	const struct sup_config *cfg;
	struct live_out out;
	TAILQ_HEAD(, container) containers;
	TAILQ_HEAD(, waiter) queue;
	uint32_t n_containers, n_waiting, limit;
	uint64_t last_id, last_hold;
	uint64_t room_due_ms;
	bool out_of_room; /* under half of the reserve of free disk: all frozen */
	uint32_t max_cpu_milli;
	/* As this run of the queue found it, since the queue may be long. */
	enum disk_room room;
	bool deletes_wait;
	bool changed; /* a request has changed something that the queue has not been looked at for
	               */
	bool stopping;
	uint64_t ended[SUP_END_ASKED + 1]; /* by enum sup_end */
	struct pool pool;
	struct workers workers;
};

/* live.c: what a gateway is answered; fd: -1, or goes with it. */
void live_answer(struct live *l, uint32_t gateway, const void *msg, size_t len, int fd);
void live_answer_failed(struct live *l, uint32_t gateway, uint32_t seq, const struct fail *f);
void live_answer_why(
        struct live *l, uint32_t gateway, uint32_t seq, uint32_t why, const char *step);
void live_answer_done(struct live *l, uint32_t gateway, uint32_t seq);

/* live.c: an empty container in the table, in the state given; the one of a key, or NULL. */
struct container *container_new(struct live *l, enum state state);
struct container *container_find(struct live *l, const uint8_t key[SUP_KEY_LEN]);
/* live.c: starts what is claimed: out of the pool where `c` is from there, else (NULL) from
 * nothing. Its `fail` has a step where that failed. */
struct container *container_start(struct live *l, struct container *c, const struct waiter *w);
/* live.c: makes it what it should be, given holders, keeping and room. */
void container_settle(struct live *l, struct container *c);
bool container_is_idle(const struct container *c);
uint64_t container_idle_since(const struct container *c);
/* live.c: kills it; it stays in the table until nothing of it is left. */
void container_end(struct live *l, struct container *c, enum sup_end why);
/* live.c: the same for one that did not come up; whoever waits for this start gets the reason. */
void container_fail(struct live *l, struct container *c);

/* queue.c: the requests that wait. */
void queue_add(struct live *l, uint32_t gateway, const union message *m, int policy);
void queue_cancel(struct live *l, uint32_t gateway, uint32_t seq);
void queue_gateway_gone(struct live *l, uint32_t gateway);
void queue_start_failed(struct live *l, const struct container *c);
/* Looks at all of them again, since something has changed. */
void queue_run(struct live *l);
/* When the foremost time-out is; one that waits for a start has none of its own. */
uint64_t queue_due(const struct live *l);
void queue_clear(struct live *l);

/*
 * pool.c: the sandboxes that are made ahead of use. Each is a container of the table without a
 * name, and counts against the limit like any other.
 */
void pool_open(struct live *l);
/* The furthest one for this image that still lives, or NULL. It stays pooled until it is claimed.
 */
struct container *pool_find(struct live *l, uint32_t image);
/* A container of this image is being started. */
void pool_asked(struct live *l, uint32_t image);
/* A container has come up: what serves it goes first. */
void pool_pause(struct live *l);
/* Ends one to make room; false where there is none. */
bool pool_evict(struct live *l);
/* init has said PREPARED. */
void pool_prepared(struct live *l, struct container *c);
/* One failed or died, and is ending now. */
void pool_lost(struct live *l, struct container *c, const struct fail *f);
/* The maker's socket is readable; a child that is no sandbox's has ended (false: not the maker). */
void pool_heard(struct live *l);
bool pool_reaped(struct live *l, pid_t pid);
/* Nothing is made any more, and the maker ends. */
void pool_close(struct live *l);
/* When there is a step to make: now or earlier, or UINT64_MAX. */
uint64_t pool_due(const struct live *l, uint64_t now);
void pool_step(struct live *l);

/* figures.c: what the table holds, counted. */
void figures_fill(const struct live *l, struct sup_node *ret);

/*
 * worker.c: the processes that touch the files of containers for gateways, at most one for each.
 */
void workers_open(struct live *l);
/* Of this key's worker, if there is one: it is on its way out; it takes requests. */
bool worker_is_ending(const struct live *l, const uint8_t key[SUP_KEY_LEN]);
bool worker_serves(const struct live *l, const uint8_t key[SUP_KEY_LEN]);
/* A saver (SUP_FILES_TREE) of this key is at work, or on its way out. */
bool worker_saves(const struct live *l, const uint8_t key[SUP_KEY_LEN]);
/* Whether there is room for one more; if not one is ending by now, to make it. */
bool worker_has_room(struct live *l);
/* A new socket to the key's worker, which is started where there is none; with `saver` to a new one
 * for this socket alone. 0, -1 with f, or 1: the one that there was is ending. */
int worker_give(
        struct live *l, const uint8_t key[SUP_KEY_LEN], bool saver, int *ret_sock, struct fail *f);
/* Ends the key's worker and saver; true while there still is one. */
bool worker_end_key(struct live *l, const uint8_t key[SUP_KEY_LEN]);
/* A control socket is readable; a child has ended. False: not a worker's. */
bool worker_control(struct live *l, uint64_t id);
bool worker_reaped(struct live *l, pid_t pid);
/* Does what is due, and says when there is something again; true when one is out of the list. */
bool workers_tick(struct live *l, uint64_t now, uint64_t *due);
void workers_stop(struct live *l);
bool workers_empty(const struct live *l);

#endif
