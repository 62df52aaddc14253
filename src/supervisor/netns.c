#include "supervisor/netns.h"

#include "base/error.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int loopback_up(void)
{
	_cleanup_close_ int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = {.ifr_name = "lo"};
	request.ifr_flags = IFF_UP;
	return sock < 0 || ioctl(sock, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

int netns_enter(int host_ns, struct fail *f)
{
	if (unshare(CLONE_NEWNET) < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "make network namespace");
	int r = loopback_up();
	if (r == 0)
		r = sys_write_at(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (r == 0)
		return 0;
	netns_leave(host_ns);
	return fail_set(f, SUP_E_SYSTEM, r, "set up network namespace");
}

void netns_leave(int host_ns)
{
	if (setns(host_ns, CLONE_NEWNET) < 0)
		BUG("cannot return to the host's network namespace: %s", strerror(errno));
}
