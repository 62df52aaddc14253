/* Rows N: what a container that may reach some names tries on what stands between it and the rest:
 * the ports that egress listens on, the namespace's devices and routes, addresses that no name
 * leads to. */
#include "escape.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static socklen_t make_address(union address *a, const char *text, unsigned int port)
{
	memset(a, 0, sizeof *a);
	if (strchr(text, ':')) {
		a->in6.sin6_family = AF_INET6;
		a->in6.sin6_port = htons((uint16_t)port);
		inet_pton(AF_INET6, text, &a->in6.sin6_addr);
		return sizeof a->in6;
	}
	a->in.sin_family = AF_INET;
	a->in.sin_port = htons((uint16_t)port);
	inet_pton(AF_INET, text, &a->in.sin_addr);
	return sizeof a->in;
}

/* Every way to be the one that listens where egress does. */
static void take_ports(void)
{
	static const char *const ADDRESSES[] = {"0.0.0.0", "127.0.0.1", "198.18.0.1",
	        "198.19.255.254", "8.8.8.8", "::ffff:0.0.0.0", "::ffff:198.18.0.1", "::"};
	static const int OPTIONS[][2] = {{SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_REUSEPORT},
	        {IPPROTO_IP, 15 /* FREEBIND */}, {IPPROTO_IP, 19 /* TRANSPARENT */}};
	static const struct {
		int type;
		unsigned int port;
	} PORTS[] = {{SOCK_DGRAM, 53}, {SOCK_STREAM, 53}, {SOCK_STREAM, 80}, {SOCK_STREAM, 443}};

	for (size_t p = 0; p < COUNT(PORTS); p++)
		for (size_t a = 0; a < COUNT(ADDRESSES); a++)
			for (unsigned int set = 0; set < 1u << COUNT(OPTIONS); set++) {
				union address to;
				socklen_t len = make_address(&to, ADDRESSES[a], PORTS[p].port);
				int fd = socket(to.sa.sa_family, PORTS[p].type | SOCK_CLOEXEC, 0),
				    one = 1, none = 0;

				if (fd < 0)
					continue;
				for (size_t o = 0; o < COUNT(OPTIONS); o++)
					if (set & 1u << o)
						setsockopt(fd, OPTIONS[o][0], OPTIONS[o][1], &one,
						        sizeof one);
				if (to.sa.sa_family == AF_INET6)
					setsockopt(
					        fd, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none);
				check(bind(fd, &to.sa, len) < 0, "bound %s port %u with options %x",
				        ADDRESSES[a], PORTS[p].port, set);
				close(fd);
			}
}

static void refused_option(int fd, int level, int option, const char *what)
{
	int one = 1;

	check(setsockopt(fd, level, option, &one, sizeof one) < 0, "%s was set", what);
}

static void change_device(void)
{
	static const struct {
		unsigned long request;
		const char *what;
	} CALLS[] = {{SIOCSIFADDR, "address"}, {SIOCSIFFLAGS, "flags"},
	        {SIOCSIFMTU, "size of packets"}, {SIOCSIFNAME, "name"}, {SIOCSIFNETMASK, "mask"},
	        {SIOCSIFDSTADDR, "peer"}, {SIOCSIFHWADDR, "hardware address"},
	        {SIOCSIFTXQLEN, "queue"}, {SIOCADDRT, "new route"}, {SIOCDELRT, "lost route"},
	        {SIOCSARP, "neighbour"}, {SIOCDARP, "lost neighbour"}, {SIOCADDMULTI, "group"},
	        {0x89a0, "bridge"}, {0x89f1, "tunnel"}, {0x8983, "VLAN"}, {0x8946, "ethtool"}};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	check(fd >= 0, "no socket");
	refused_option(fd, SOL_SOCKET, SO_MARK, "a mark");
	refused_option(fd, IPPROTO_IP, 19, "transparency");
	refused_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, "a buffer beyond the limit");
	for (size_t i = 0; i < COUNT(CALLS); i++) {
		union {
			struct ifreq device;
			struct rtentry route;
			char room[512];
		} r = {0};

		if (CALLS[i].request == SIOCADDRT || CALLS[i].request == SIOCDELRT) {
			make_address((void *)&r.route.rt_dst, "198.18.0.0", 0);
			make_address((void *)&r.route.rt_genmask, "255.254.0.0", 0);
			r.route.rt_flags = RTF_UP;
		} else {
			strcpy(r.device.ifr_name, "lo");
		}
		check(ioctl(fd, CALLS[i].request, &r) < 0, "ioctl: %s", CALLS[i].what);
	}
	close(fd);
}

/* Nobody but egress may answer, and it only says no. */
static void reach(const char *host, unsigned int port)
{
	static const char GET[] = "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
	union address to;
	socklen_t len = make_address(&to, host, port);
	int fd = socket(to.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), errnum = 0;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t size = sizeof errnum;
	char text[2048] = "";

	if (connect(fd, &to.sa, len) == 0 ||
	        (errno == EINPROGRESS && poll(&p, 1, 1000) == 1 &&
	                getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &size) == 0 && errnum == 0)) {
		check(port == 53 || port == 80 || port == 443, "%s port %u takes a connection",
		        host, port);
		send(fd, GET, sizeof GET - 1, MSG_NOSIGNAL);
		p.events = POLLIN;
		if (poll(&p, 1, 3000) == 1 && recv(fd, text, sizeof text - 1, 0) > 0)
			check(!strncmp(text, "HTTP/1.1 520 ", 13) || text[0] == 21,
			        "%s port %u says %.40s", host, port, text);
	}
	close(fd);
	fd = socket(to.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sendto(fd, GET, sizeof GET - 1, 0, &to.sa, len) > 0) {
		p = (struct pollfd){.fd = fd, .events = POLLIN};
		check(poll(&p, 1, 100) == 0 || recv(fd, text, sizeof text, 0) < 0,
		        "%s port %u answers a datagram", host, port);
	}
	close(fd);
}

int network_run(char **words)
{
	take_ports();
	change_device();
	for (; words[0] && words[1]; words += 2)
		reach(words[0], (unsigned int)strtoul(words[1], NULL, 10));
	printf("N %s %u looked at\n", *check_failure() ? check_failure() : "PASS", check_count());
	return *check_failure() != 0;
}
