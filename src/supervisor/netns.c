#include "supervisor/netns.h"

#include "base/error.h"
#include "base/str.h"
#include "packet/packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
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

#define EGRESS_NET      0xc6120000u /* 198.18.0.0 */
#define EGRESS_NET_BITS 15

/* The kernel's answer to a request of ours: 0 or a negative errno. */
static int netlink_ask(int sock, const void *request, size_t len)
{
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char more[512];
	} answer;
	struct packet p;
	int r = packet_send(sock, request, len, NULL, 0, NULL, 0);
	if (r == 0)
		r = packet_receive(sock, MSG_DONTWAIT, &answer, sizeof(answer), 0, &p);
	if (r < 0)
		return r;
	if (r == 0 || p.len < sizeof(answer.h) + sizeof(answer.e) ||
	        answer.h.nlmsg_type != NLMSG_ERROR)
		return -EPROTO;
	return answer.e.error;
}

/* Makes all of net/bits addresses of this namespace, reached through lo. */
static int route_local(uint32_t net, uint8_t bits)
{
	struct {
		struct nlmsghdr h;
		struct rtmsg route;
		struct rtattr oif_head;
		uint32_t oif;
		struct rtattr dst_head;
		uint32_t dst;
	} q = {
	        .h = {.nlmsg_len = sizeof(q),
	                .nlmsg_type = RTM_NEWROUTE,
	                .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK},
	        .route = {.rtm_family = AF_INET,
	                .rtm_dst_len = bits,
	                .rtm_table = RT_TABLE_LOCAL,
	                .rtm_protocol = RTPROT_STATIC,
	                .rtm_scope = RT_SCOPE_HOST,
	                .rtm_type = RTN_LOCAL},
	        .oif_head = {.rta_len = RTA_LENGTH(4), .rta_type = RTA_OIF},
	        .oif = 1, /* lo is always the first */
	        .dst_head = {.rta_len = RTA_LENGTH(4), .rta_type = RTA_DST},
	        .dst = htonl(net),
	};
	_cleanup_close_ int sock =
	        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	return sock < 0 ? -errno : netlink_ask(sock, &q, sizeof(q));
}

/* No option that lets others share the port: whoever comes later, whatever its id, gets EADDRINUSE.
 */
static int listen_on(int type, uint16_t port)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
	_cleanup_close_ int sock = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0 || bind(sock, (const struct sockaddr *)&any, sizeof(any)) < 0 ||
	        (type == SOCK_STREAM && listen(sock, NETNS_BACKLOG) < 0))
		return -errno;
	return steal_fd(sock);
}

int netns_listen(int net_ns, int host_ns, bool any_address, int ret[NETNS_SOCKETS], struct fail *f)
{
	static const struct {
		int type;
		uint16_t port;
	} sockets[NETNS_SOCKETS] = {
	        [NETNS_UDP_53] = {SOCK_DGRAM, 53},
	        [NETNS_TCP_53] = {SOCK_STREAM, 53},
	        [NETNS_TCP_80] = {SOCK_STREAM, 80},
	        [NETNS_TCP_443] = {SOCK_STREAM, 443},
	};
	int fds[NETNS_SOCKETS] = {-1, -1, -1, -1}, r;
	if (setns(net_ns, CLONE_NEWNET) < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "enter network namespace");
	r = any_address ? route_local(0, 0) : route_local(EGRESS_NET, EGRESS_NET_BITS);
	for (int i = 0; r == 0 && i < NETNS_SOCKETS; i++) {
		fds[i] = listen_on(sockets[i].type, sockets[i].port);
		r = fds[i] < 0 ? fds[i] : 0;
	}
	netns_leave(host_ns);
	for (int i = 0; i < NETNS_SOCKETS; i++)
		if (r == 0)
			ret[i] = fds[i];
		else
			sys_close(&fds[i]);
	return r == 0 ? 0 : fail_set(f, SUP_E_SYSTEM, r, "make the sockets of egress");
}
