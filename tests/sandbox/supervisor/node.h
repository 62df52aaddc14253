/*
 * A node for tests: the real supervisor in a child process over a data folder of its own, with the
 * test itself in the place of the gateways. Every "gateway" that the supervisor starts is a small
 * process that hands its socket to the test and then waits to be killed.
 *
 * All functions end the test (cmocka's fail) when something takes longer than its limit.
 */
#ifndef BRIG_TEST_NODE_H
#define BRIG_TEST_NODE_H

#include "proto/init.h"
#include "proto/supervisor.h"
#include "supervisor/supervisor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NODE_LIMIT_MS 30000

struct node {
	struct sup_config cfg;
	pid_t pid; /* of the supervisor; 0: not running */
	int door;  /* gateways' sockets come through it, and the supervisor's last word */
	int sock[SUP_MAX_GATEWAYS];
	pid_t gateway[SUP_MAX_GATEWAYS];
	uint32_t seq;
	int ids;         /* holds those from cfg.id_base on, against other nodes */
	char error[512]; /* what supervisor_run said, once it returned an error */
};

union reply {
	struct sup_header h;
	struct sup_claimed claimed;
	struct sup_failed failed;
	struct sup_status status;
	struct sup_ended ended;
	uint8_t bytes[SUP_MAX_MESSAGE];
};

/* A fresh data folder with a base image (busybox, and the helper that $BRIG_TEST_SBX names),
 * settings small and fast; nothing runs yet. */
void node_make(struct node *n);
void node_start(struct node *n);        /* until all gateways are there */
int node_start_fails(struct node *n);   /* expects it to end by itself; n->error says why */
int node_stop(struct node *n);          /* SIGTERM, and waits; returns its exit code */
void node_kill(struct node *n);         /* SIGKILL, and waits */
int node_wait(struct node *n);          /* until it ends by itself; returns its exit code */
int node_teardown(void **state);        /* after a test that failed: ends what still runs */
void node_take_gateway(struct node *n); /* waits for one more to be started, at whatever index */
void node_remove(struct node *n);       /* stops if need be and removes the data folder */
/* Fails where a mount, cgroup, loop device or process of the node is left on the host. */
void node_check_nothing_left(const struct node *n);

/* A claim with the defaults: key made of `name`, workspace "w", no policy, 256 MiB. */
struct sup_claim node_claim(struct node *n, const char *name);
void node_send(struct node *n, uint32_t gateway, const void *msg, size_t len);
/* The next message, with *ret_fd (or -1). ended messages come like any other. */
void node_recv(struct node *n, uint32_t gateway, union reply *ret, int *ret_fd);
bool node_quiet(struct node *n, uint32_t gateway, int ms); /* no message came in that time */
/* Sends the claim and waits for its answer, past any SUP_ENDED. Returns the channel, or -1 with
 * failed. */
int node_claimed(struct node *n, uint32_t gateway, struct sup_claim *c, union reply *ret);
void node_release(struct node *n, uint32_t gateway, uint64_t hold);
/* SLEEP, DELETE, STATUS: sends and waits for the answer, past any SUP_ENDED. */
void node_key_op(
        struct node *n, uint32_t gateway, enum sup_op op, const char *name, union reply *ret);
void node_keep(struct node *n, uint32_t gateway, const char *name, uint64_t ms, union reply *ret);
uint32_t node_state(struct node *n, const char *name); /* enum sup_state, asked by gateway 0 */
void node_await_state(struct node *n, const char *name, uint32_t state);

/* Runs a script through a channel and waits. Returns the exit code, or 1000 + signal, or 2000 +
 * another outcome; output (both streams) in out. */
int channel_run(int channel, const char *script, char *out, size_t size);
/* As channel_run, expects exit code 0. */
const char *channel_output(int channel, const char *script);
void channel_start(int channel, const char *script, uint64_t id); /* does not wait for its end */
bool channel_is_closed(int channel, int ms);

/* Processor time, in ticks, of all processes whose user is in the node's leases; and how many they
 * are. */
uint64_t node_ticks(const struct node *n, int *ret_count);
/* Calls for each process of the leases until it returns false. */
void node_each_process(const struct node *n, bool (*call)(void *ctx, pid_t pid), void *ctx);
int node_inits(const struct node *n); /* how many inits run: of containers and of the pool */
int node_fds(pid_t pid);              /* how many descriptors a process has */
int node_files(const struct node *n, const char *folder); /* how many a folder of the data has */
/* How often the supervisor has written that text to its log, in all its lives. */
int node_logged(const struct node *n, const char *text);
pid_t node_find_init(const struct node *n); /* the one init that runs, as the host sees it */
uint64_t now_ms(void);
void sleep_ms(int ms);

#endif
