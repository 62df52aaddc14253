/*
 * The table of live containers: what a node knows only in memory about them has this one owner.
 *
 * A container is in the table while anything of its sandbox exists. Gateways are known here by
 * number; answers go out through struct live_out. One thread; no function blocks on a sandbox.
 */
#ifndef BRIG_SUPERVISOR_LIVE_H
#define BRIG_SUPERVISOR_LIVE_H

#include "supervisor/message.h"
#include "supervisor/sandbox.h"

struct live;

/* The policy, then the sockets: what proto/egress.h wants with EGRESS_ADD. */
#define LIVE_NETWORK_FDS (1 + NETNS_SOCKETS)

struct live_out {
	/* Sends one datagram (with fd, when ≥ 0) to a gateway; a gateway that cannot take it is the
	 * callee's to drop, but not before this call has returned to its loop. */
	void (*send)(void *ctx, uint32_t gateway, const void *msg, size_t len, int fd);
	void (*send_all)(void *ctx, const void *msg, size_t len);
	/* Watches a control socket; live_control(id) is to be called when it is readable. */
	int (*watch)(void *ctx, int fd, uint64_t id);
	void (*unwatch)(void *ctx, int fd); /* before it is closed */
	void *ctx;
	/* Egress: a container with a network is live, and is live no more. The descriptors stay the
	 * caller's. NULL: there is no egress, and claims for network fail. */
	void (*network_add)(void *ctx, uint64_t id, const int fds[LIVE_NETWORK_FDS]);
	void (*network_remove)(void *ctx, uint64_t id);
};

#define LIVE_FIRST_ID 1000 /* ids given to watch are at least this (which is the pool's own) */

/* host may be NULL: `sandbox: off`; then every request fails with that. */
struct live *live_new(
        struct sandbox_host *host, const struct sup_config *cfg, const struct live_out *out);
struct live *live_free(struct live *l); /* when empty; takes NULL; returns NULL */

/* m passed message_check. policy: what came with it, taken over; -1 none, and where m should have
 * brought one, this process had no room for it. */
void live_request(struct live *l, uint32_t gateway, const union message *m, int policy);
/* Calls network_add for each: egress has been started anew. */
void live_tell_networks(struct live *l);
/* Nobody serves connections, and has not for some seconds: those that wait end. */
void live_refuse_connections(struct live *l);
void live_gateway_gone(struct live *l, uint32_t gateway); /* its holds and waiting requests end */
void live_control(struct live *l, uint64_t id);
bool live_reaped(struct live *l, pid_t pid); /* false: not one of ours */
/* Does what is due; returns how many ms until there is something again (at most 10,000). */
int live_tick(struct live *l);
/* Whether there is something to make ahead now; live_step makes one step of it, in at most a few
 * ms. To be called when nothing else is to be done. */
bool live_wants_step(const struct live *l);
void live_step(struct live *l);
/* Ends everything; from now on requests fail with SUP_E_STOPPING. */
void live_stop(struct live *l);
bool live_empty(const struct live *l);

#endif
