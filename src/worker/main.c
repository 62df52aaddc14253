/*
 * The worker: a process that touches the files of one container for gateways (proto/worker.h).
 *
 * Theory of operation. The supervisor's child execs it in new namespaces, as root of a user
 * namespace whose ids are nobody's, with a control socket and a mount of the home. It makes the
 * home its root, confines itself, and serves. The guest whose files these are may be running
 * meanwhile, and is the enemy: it wrote every name and every byte here, and may change them between
 * any two looks. What it can win is at most what this process could do, which is to touch those
 * same files.
 */
#include "proto/worker.h"
#include "worker/confine.h"
#include "worker/home.h"
#include "worker/saver.h"
#include "worker/serve.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	bool saver = argc > 0 && strcmp(argv[0], "brig: saver") == 0;
	int dir, proc;
	const char *step = NULL;

	/* The gateway sees its socket end; what step it was nobody reads but who debugs: the exit
	 * code is the error. */
	int rc = confine_worker(WORKER_HOME_FD, saver, &dir, &proc, &step);

	if (rc < 0)
		_Exit(-rc & 0x7f);
	if (saver)
		saver_serve(WORKER_CONTROL_FD, dir);
	home_open(dir, proc);
	serve(WORKER_CONTROL_FD);
}
