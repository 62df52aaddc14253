/* The egress process: what serve put at a fixed descriptor and in the environment. */
#include "egress/egress.h"

#include "base/log.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/spawn.h"
#include "proto/egress.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* As spawn.c wrote them. */
static bool read_limits(const char *text, struct egress_limits *l)
{
	unsigned *const numbers[] = {&l->connections, &l->connections_per_s, &l->questions_per_s,
	        &l->idle_ms, &l->total_ms};
	struct str rest = text ? str_of(text) : STR(""), word;
	uint64_t value;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const char *end = memchr(rest.p, ' ', rest.n);

		word = (struct str){rest.p, end ? (size_t)(end - rest.p) : 0};
		if (!str_to_u64(word, &value) || value == 0 || value > UINT_MAX)
			return false;
		*numbers[i] = (unsigned)value;
		rest = (struct str){end + 1, rest.n - word.n - 1};
	}
	return str_to_u64(rest, &l->bytes);
}

int cli_egress(void)
{
	const char *text = getenv("BRIG_PORT");
	struct egress_options o = {
	        .limits = EGRESS_LIMITS_DEFAULT,
	};
	struct error err = {0};
	socklen_t len = sizeof(int);
	uint64_t port = 0;
	uint16_t own;
	int type = 0, r;

	prctl(PR_SET_NAME, SPAWN_EGRESS_TITLE, 0, 0, 0);
	log_init("egress", LOG_INFO);
	if (!text || !str_to_u64(str_of(text), &port) || port > UINT16_MAX ||
	        !read_limits(getenv("BRIG_EGRESS_LIMITS"), &o.limits) ||
	        getsockopt(EGRESS_CONTROL_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
	        type != SOCK_SEQPACKET) {
		error_set(&err, ERR_INVALID, "this is started by brig serve only");
		return cli_fail(&err);
	}
	own = (uint16_t)port;
	o.own_ports = &own;
	o.n_own_ports = 1;
	fcntl(EGRESS_CONTROL_FD, F_SETFD, FD_CLOEXEC);
	r = egress_run(EGRESS_CONTROL_FD, &o, &err);
	if (r == 0)
		return 0;
	LOG(LOG_ERROR, "egress_failed", LOG_S("error", err.text));
	return CLI_FAILED;
}
