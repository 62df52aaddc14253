/*
 * Starting gateways: the same program again, under its own title, without privileges, with
 * descriptors at fixed numbers and nothing else.
 */
#ifndef BRIG_CLI_SPAWN_H
#define BRIG_CLI_SPAWN_H

#include "base/error.h"
#include "egress/egress.h"
#include "supervisor/supervisor.h"

#include <stdint.h>
#include <sys/types.h>

#define SPAWN_TITLE        "brig: gateway" /* argv[0] of a gateway, and what ps shows */
#define SPAWN_EGRESS_TITLE "brig: egress"

enum {
	SPAWN_SUPERVISOR_FD = 3, /* SOCK_SEQPACKET to the supervisor */
	SPAWN_LISTEN_FD,         /* bound and listening */
	SPAWN_SETTINGS_FD,       /* memfd of cli/settings.h */
	SPAWN_READY_FD,          /* one byte is written there when the gateway accepts */
	SPAWN_SHARED_FD,         /* memfd that all gateways map (gateway/shared.h) */
	SPAWN_FIRST_FREE_FD,
};

/* What the gateways of this server have in common. Lives as long as the supervisor runs. */
struct spawn {
	uint32_t workers;
	uid_t uid; /* of the gateways, where we are root */
	uid_t egress_uid;
	uint16_t port; /* that we listen on: egress never dials it on this machine */
	const struct egress_limits *egress;
	const char *data;
	int exe;      /* this program, O_PATH */
	int settings; /* memfd */
	int ready;    /* write end of a pipe */
	int shared;   /* memfd */
	int listeners[SUP_MAX_GATEWAYS];
};

/* Binds one socket for each worker to host:port (0: any free one, the same for all). *ret_port is
 * what it became. Not listening yet: clients are refused until spawn_listen(). */
int spawn_bind(
        struct spawn *s, const char *host, uint16_t port, uint16_t *ret_port, struct error *err);
int spawn_listen(struct spawn *s, struct error *err);

/* The memory that gateways share, of a size that none of them can change. -1, with errno: failed.
 */
int spawn_shared_memory(void);

/* A sup_spawn_gateway_fn, for egress too; ctx is a struct spawn. */
pid_t spawn_gateway(void *ctx, uint32_t index, int sock, struct error *err);

/*
 * Starts a process that waits until each worker has written its byte to the read end `ready`, then
 * writes <folder>/url and the line "ready URL" to standard output, and ends. It is nobody's child.
 * It also ends when this process does.
 */
int spawn_announcer(const struct spawn *s, int ready, int folder, const char *url,
        const char *local_url, struct error *err);

#endif
