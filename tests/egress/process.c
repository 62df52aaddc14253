/*
 * The egress process for tests: control socket at descriptor 3, and what an operator or the clock
 * would choose from the command line: KEY=NUMBER for limits, own=PORT for brig's own listeners and
 * uid=NUMBER to become another user first.
 */
#include "base/log.h"
#include "egress/egress.h"
#include "proto/egress.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct egress_limits limits = EGRESS_LIMITS_DEFAULT;
static uint16_t ports[16];

static const struct {
	const char *key;
	unsigned *value;
} KEYS[] = {
        {"connections", &limits.connections},
        {"connections_per_s", &limits.connections_per_s},
        {"questions_per_s", &limits.questions_per_s},
        {"head_ms", &limits.head_ms},
        {"connect_ms", &limits.connect_ms},
        {"attempt_ms", &limits.attempt_ms},
        {"idle_ms", &limits.idle_ms},
        {"total_ms", &limits.total_ms},
        {"all_connections", &limits.all_connections},
};

static void set(struct egress_options *o, const char *arg)
{
	const char *eq = strchr(arg, '=');
	size_t n = eq ? (size_t)(eq - arg) : 0;
	unsigned long value = eq ? strtoul(eq + 1, NULL, 10) : 0;

	for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
		if (n != strlen(KEYS[i].key) || memcmp(arg, KEYS[i].key, n) != 0)
			continue;
		*KEYS[i].value = (unsigned)value;
		return;
	}
	if (n == 5 && memcmp(arg, "bytes", n) == 0) {
		limits.bytes = value;
	} else if (n == 3 && memcmp(arg, "own", n) == 0) {
		ports[o->n_own_ports++] = (uint16_t)value;
	} else if (n == 3 && memcmp(arg, "uid", n) == 0) {
		uid_t uid = (uid_t)value;

		if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
		        setresuid(uid, uid, uid) < 0) {
			perror("uid");
			exit(3);
		}
	} else {
		fprintf(stderr, "unknown: %s\n", arg);
		exit(3);
	}
}

int main(int argc, char **argv)
{
	struct egress_options o = {.own_ports = ports};
	struct error err = {0};

	log_init("egress", LOG_INFO);
	for (int i = 1; i < argc; i++)
		set(&o, argv[i]);
	o.limits = limits;
	if (egress_run(EGRESS_CONTROL_FD, &o, &err) == 0)
		return 0;
	LOG(LOG_ERROR, "egress_failed", LOG_S("error", err.text));
	return 1;
}
