#include "probe/network.h"

#include "probe/expect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void network_lo(void)
{
	/* An address for examples: connecting a datagram socket sends nothing. */
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
	struct if_nameindex *all = if_nameindex();
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char text[4096];

	expect_that(all, "interfaces: %s", strerror(errno));
	for (struct if_nameindex *i = all; i && i->if_index; i++)
		expect_that(strcmp(i->if_name, "lo") == 0, "interface %s", i->if_name);
	if (all)
		if_freenameindex(all);
	inet_pton(AF_INET, "192.0.2.1", &to.sin_addr);
	expect_refused(connect(udp, (struct sockaddr *)&to, sizeof to), ENETUNREACH, ENETUNREACH,
	        "a connection to outside");
	close(udp);
	expect_read("/proc/net/route", text, sizeof text);
	expect_that(!strchr(text, '\n') || !strchr(text, '\n')[1], "there are routes");
	expect_seen("lo and nothing else; ENETUNREACH");
}

static socklen_t abstract_name(struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(a->sun_path + 1, PROBE_SOCKET_NAME, sizeof PROBE_SOCKET_NAME - 1);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof PROBE_SOCKET_NAME);
}

static struct sockaddr_in port_name(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PROBE_PORT)};

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

void network_neighbour(void)
{
	struct sockaddr_un name;
	socklen_t len = abstract_name(&name);
	struct sockaddr_in port = port_name();
	int un = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int in = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	expect_refused(
	        connect(un, (struct sockaddr *)&name, len), ECONNREFUSED, EPERM, "abstract socket");
	expect_refused(
	        connect(in, (struct sockaddr *)&port, sizeof port), ECONNREFUSED, EPERM, "port");
	expect_refused(shmget(PROBE_SHM_KEY, 4096, 0), ENOENT, ENOENT, "shared memory");
	expect_refused(access(PROBE_FILE, F_OK), ENOENT, ENOENT, PROBE_FILE);
	close(un);
	close(in);
	expect_seen("not found");
}

int network_be_neighbour(void)
{
	struct sockaddr_un name;
	socklen_t len = abstract_name(&name);
	struct sockaddr_in port = port_name();
	int un = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int in = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int id = shmget(PROBE_SHM_KEY, 4096, IPC_CREAT | 0666);

	if (bind(un, (struct sockaddr *)&name, len) < 0 || listen(un, 1) < 0 ||
	        bind(in, (struct sockaddr *)&port, sizeof port) < 0 || listen(in, 1) < 0 ||
	        id < 0 || shmat(id, NULL, 0) == (void *)-1 ||
	        open(PROBE_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) < 0)
		return 1;
	if (write(STDOUT_FILENO, "r", 1) != 1)
		return 1;
	for (;;)
		pause();
}
