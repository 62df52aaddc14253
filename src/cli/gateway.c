/* The gateway's own process: what serve put at fixed descriptors and in the environment, checked.
 */
#include "gateway/gateway.h"

#include "base/log.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/settings.h"
#include "cli/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool number_from(const char *name, uint32_t max, uint32_t *ret)
{
	const char *text = getenv(name);
	uint64_t v;

	if (!text || !str_to_u64(str_of(text), &v) || v > max)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static bool is_socket(int fd, int type)
{
	socklen_t len = sizeof(int);
	int have = 0;

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &have, &len) == 0 && have == type;
}

/* What we were given stays ours: nothing here ever executes another program, but if it did. */
static void close_on_exec(int fd)
{
	fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static int take_options(struct gateway_options *o, struct error *err)
{
	int r, fd;

	if (!number_from("BRIG_GATEWAY", SUP_MAX_GATEWAYS - 1, &o->index) ||
	        !number_from("BRIG_WORKERS", SUP_MAX_GATEWAYS, &o->workers) ||
	        !getenv("BRIG_STATE") || !is_socket(SPAWN_LISTEN_FD, SOCK_STREAM))
		return error_set(err, ERR_INVALID, "this is started by brig serve only");
	o->state_dir = getenv("BRIG_STATE");
	o->listen_fd = SPAWN_LISTEN_FD;
	o->ready_fd = SPAWN_READY_FD;
	o->shared_fd = SPAWN_SHARED_FD;
	for (fd = SPAWN_SUPERVISOR_FD; fd < SPAWN_FIRST_FREE_FD; fd++)
		close_on_exec(fd);
	r = settings_read(SPAWN_SETTINGS_FD, &o->config, err);
	close(SPAWN_SETTINGS_FD);
	/* Where sandboxes are off the socket stays open all the same: its end tells the supervisor
	 * of ours. */
	o->sup_fd = r == 0 && o->config->sandbox ? SPAWN_SUPERVISOR_FD : -1;
	return r;
}

int cli_gateway(void)
{
	struct gateway_options o = {0};
	struct error err = {0};
	int r;

#ifndef __SANITIZE_ADDRESS__
	/* Keys are in memory. (The leak checker traces its own process, so its builds do without.)
	 */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
	prctl(PR_SET_NAME, SPAWN_TITLE, 0, 0, 0);
	log_init("gateway", LOG_INFO);
	r = take_options(&o, &err);
	if (r == 0)
		r = gateway_run(&o, &err);
	if (r == 0)
		return 0;
	LOG(LOG_ERROR, "gateway_failed", LOG_S("error", err.text), LOG_N("index", o.index));
	return CLI_FAILED;
}
