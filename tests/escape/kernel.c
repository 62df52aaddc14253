/* K: what of the kernel can be reached. The names of the cases are the rows of README.md. */
#include "escape.h"

#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static void k1_namespaces(void)
{
	static const struct {
		const char *name;
		unsigned long flag;
	} SPACES[] = {{"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}, {"pid", CLONE_NEWPID},
	        {"net", CLONE_NEWNET}, {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS},
	        {"cgroup", CLONE_NEWCGROUP}, {"time", 0x80}};
	char path[64], text[32];

	for (size_t i = 0; i < COUNT(SPACES); i++) {
		int fd;
		long pid;

		refused(call(SYS_unshare, SPACES[i].flag, 0, 0, 0, 0), EPERM, EPERM,
		        SPACES[i].name);
		refused(call(SYS_unshare, SPACES[i].flag | CLONE_NEWUSER, 0, 0, 0, 0), EPERM, EPERM,
		        SPACES[i].name);
		snprintf(path, sizeof path, "/proc/self/ns/%s", SPACES[i].name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		refused(call(SYS_setns, (unsigned long)fd, 0, 0, 0, 0), EPERM, EPERM, "setns");
		/* NS_GET_USERNS, NS_GET_PARENT */
		check(fd < 0 || ioctl(fd, 0xb701) < 0 || !strcmp(SPACES[i].name, "time") ||
		                strcmp(SPACES[i].name, "net"),
		        "the owner of the net namespace can be had");
		check(fd < 0 || ioctl(fd, 0xb702) < 0, "the parent of a namespace can be had: %s",
		        SPACES[i].name);
		if (fd >= 0)
			close(fd);
		if (SPACES[i].flag == 0x80)
			continue; /* means something else to clone */
		pid = call(SYS_clone, SPACES[i].flag | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			_exit(0);
		refused(pid, EPERM, EPERM, "clone");
	}
	refused(call(SYS_clone3, TEXT(path), 64, 0, 0, 0), ENOSYS, ENOSYS, "clone3");
	refused(call(SYS_clone3, 0, 0, 0, 0, 0), ENOSYS, ENOSYS, "clone3 of nothing");
	get("/proc/sys/user/max_user_namespaces", text, sizeof text);
	check(!strcmp(text, "0\n"), "max_user_namespaces is %s", text);
}

/* Asks the routing socket for something; returns the error it answers, 0 for success. */
static int route_request(int type, int flags)
{
	struct {
		struct nlmsghdr h;
		union {
			struct ifinfomsg link;
			struct ifaddrmsg address;
			struct rtmsg route;
		} m;
		char more[64];
	} request = {.h = {.nlmsg_len = sizeof request.h + sizeof request.m,
	                     .nlmsg_type = (uint16_t)type,
	                     .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags)}};
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char more[4096];
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t n;

	if (fd < 0)
		return errno;
	n = send(fd, &request, request.h.nlmsg_len, 0) < 0 ? -1
	                                                   : recv(fd, &answer, sizeof answer, 0);
	close(fd);
	if (n < (ssize_t)sizeof answer.h)
		return EIO;
	return answer.h.nlmsg_type == NLMSG_ERROR ? -answer.e.error : 0;
}

static void k2_netlink(void)
{
	static const int CHANGES[] = {RTM_NEWLINK, RTM_DELLINK, RTM_SETLINK, RTM_NEWADDR,
	        RTM_DELADDR, RTM_NEWROUTE, RTM_DELROUTE, RTM_NEWNEIGH, RTM_NEWRULE, RTM_NEWQDISC,
	        RTM_NEWTCLASS, RTM_NEWTFILTER, RTM_NEWNSID, RTM_NEWNETCONF + 4};

	for (int protocol = 0; protocol < 64; protocol++) {
		int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

		check((fd >= 0) == (protocol == NETLINK_ROUTE), "netlink protocol %d", protocol);
		if (fd >= 0)
			close(fd);
		fd = (int)call(SYS_socket, AF_NETLINK | HIGH, SOCK_DGRAM | HIGH,
		        (unsigned long)protocol | HIGH, 0, 0);
		check((fd >= 0) == (protocol == NETLINK_ROUTE), "netlink protocol %d, high bits",
		        protocol);
		if (fd >= 0)
			close(fd);
	}
	for (size_t i = 0; i < COUNT(CHANGES); i++) {
		int errnum = route_request(CHANGES[i], NLM_F_CREATE);

		check(errnum == EPERM || errnum == EOPNOTSUPP, "routing request %d: %s", CHANGES[i],
		        strerror(errnum));
	}
}

static bool socket_is_allowed(int family, int type, int protocol)
{
	if (family == AF_UNIX)
		return true;
	if (family == AF_NETLINK)
		return protocol == NETLINK_ROUTE;
	if (family != AF_INET && family != AF_INET6)
		return false;
	return (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) ||
	       (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP));
}

static void k3_sockets(void)
{
	for (int family = 0; family < 64; family++)
		for (int type = 0; type < 16; type++)
			for (int protocol = 0; protocol < 264; protocol++) {
				int fd = socket(family, type | SOCK_CLOEXEC, protocol);

				if (fd < 0)
					continue;
				close(fd);
				check(socket_is_allowed(family, type, protocol),
				        "socket %d %d %d opens", family, type, protocol);
			}
	for (int family = 0; family < 64; family++) {
		int pair[2];

		if (socketpair(family, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
			continue;
		check(family == AF_UNIX, "socketpair of family %d opens", family);
		close(pair[0]);
		close(pair[1]);
	}
}

static void k3_options(void)
{
	int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int tcp6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int unix_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sock_filter pass = BPF_STMT(BPF_RET | BPF_K, 1);
	struct sock_fprog filter = {1, &pass};
	int one = 1;
	char zeros[64] = {0};

	for (int high = 0; high < 2; high++) {
		unsigned long add = high ? HIGH : 0;

		refused(call(SYS_setsockopt, (unsigned long)tcp, 6 | add, 31 | add, TEXT("tls"), 3),
		        EPERM, EPERM, "TCP_ULP");
		refused(call(SYS_setsockopt, (unsigned long)tcp6, 6 | add, 31 | add, TEXT("smc"),
		                3),
		        EPERM, EPERM, "TCP_ULP on IPv6");
		refused(call(SYS_setsockopt, (unsigned long)udp, 17 | add, 100 | add, TEXT(&one),
		                4),
		        EPERM, EPERM, "UDP_ENCAP");
		refused(call(SYS_setsockopt, (unsigned long)udp, SOL_SOCKET | add, 26 | add,
		                TEXT(&filter), sizeof filter),
		        EPERM, EPERM, "SO_ATTACH_FILTER");
		refused(call(SYS_setsockopt, (unsigned long)udp, SOL_SOCKET | add, 51 | add,
		                TEXT(&filter), sizeof filter),
		        EPERM, EPERM, "SO_ATTACH_REUSEPORT_CBPF");
	}
	refused(call(SYS_setsockopt, (unsigned long)unix_socket, 6, 31, TEXT("tls"), 3), EPERM,
	        EPERM, "TCP_ULP on a UNIX socket");
	check(setsockopt(tcp, SOL_IP, 64, zeros, sizeof zeros) < 0, "IPT_SO_SET_REPLACE");
	check(setsockopt(tcp6, SOL_IPV6, 64, zeros, sizeof zeros) < 0, "IP6T_SO_SET_REPLACE");
	check(setsockopt(tcp, SOL_SOCKET, 36 /* SO_MARK */, &one, sizeof one) < 0, "SO_MARK");
	check(setsockopt(tcp, SOL_SOCKET, 33 /* SO_RCVBUFFORCE */, &one, sizeof one) < 0,
	        "SO_RCVBUFFORCE");
	check(setsockopt(tcp, 6, 19 /* TCP_REPAIR */, &one, sizeof one) < 0, "TCP_REPAIR");
	check(setsockopt(tcp, SOL_IP, 19 /* IP_TRANSPARENT */, &one, sizeof one) < 0,
	        "IP_TRANSPARENT");
	check(setsockopt(tcp, SOL_IP, 17 /* IP_XFRM_POLICY */, zeros, sizeof zeros) < 0,
	        "IP_XFRM_POLICY");
	check(setsockopt(udp, SOL_SOCKET, 50 /* SO_ATTACH_BPF */, &one, sizeof one) < 0,
	        "SO_ATTACH_BPF");
	/* Below 1024 every port may be bound, in the container's own network. */
	struct sockaddr_in low = {.sin_family = AF_INET, .sin_port = htons(81)};
	check(bind(tcp, (void *)&low, sizeof low) == 0, "port 81: %s", strerror(errno));
}

/* The shape of Dirty Pipe and its kin, against a read-only file of our own making. */
static void k4_page_cache(void)
{
	static const char PLACE[] = "/var/tmp/page-cache";
	char text[64];
	int p[2], fd;
	loff_t at = 1;

	unlink(PLACE);
	fd = open(PLACE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	check(fd >= 0 && write(fd, "unchanged", 9) == 9, "make a file");
	close(fd);
	fd = open(PLACE, O_RDONLY | O_CLOEXEC);
	check(pipe2(p, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
	static char page[65536];
	while (write(p[1], page, 4096) > 0)
		;
	while (read(p[0], page, 4096) > 0)
		;
	check(splice(fd, &at, p[1], NULL, 1, 0) == 1, "splice");
	check(write(p[1], "XXXX", 4) == 4, "write");
	get(PLACE, text, sizeof text);
	check(!strcmp(text, "unchanged"), "a read-only file became %s", text);
	/* A splice to a file that is only open for reading, and to one without write permission. */
	check(splice(p[0], NULL, fd, NULL, 4, SPLICE_F_NONBLOCK) < 0,
	        "splice into a read-only file");
	check(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED, "a writable mapping");
	check(call(SYS_copy_file_range, (unsigned long)fd, 0, (unsigned long)fd, 0, 4) < 0,
	        "copy_file_range into it");
	unlink(PLACE);
}

static void k5_io_uring(void)
{
	char params[128] = {0};

	refused(call(SYS_io_uring_setup, 1, TEXT(params), 0, 0, 0), ENOSYS, ENOSYS, "setup");
	refused(call(SYS_io_uring_enter, 0, 0, 0, 0, 0), ENOSYS, ENOSYS, "enter");
	refused(call(SYS_io_uring_register, 0, 0, 0, 0, 0), ENOSYS, ENOSYS, "register");
}

static void k6_refused_calls(void)
{
	static const struct {
		const char *name;
		long nr;
		int errnum;
	} CALLS[] = {{"userfaultfd", SYS_userfaultfd, ENOSYS}, {"bpf", SYS_bpf, ENOSYS},
	        {"keyctl", SYS_keyctl, ENOSYS}, {"add_key", SYS_add_key, ENOSYS},
	        {"request_key", SYS_request_key, ENOSYS},
	        {"perf_event_open", SYS_perf_event_open, EPERM},
	        {"fanotify_init", SYS_fanotify_init, EPERM},
	        {"fanotify_mark", SYS_fanotify_mark, EPERM}, {"kexec_load", SYS_kexec_load, EPERM},
	        {"init_module", SYS_init_module, EPERM}, {"finit_module", SYS_finit_module, EPERM},
	        {"delete_module", SYS_delete_module, EPERM}, {"reboot", SYS_reboot, EPERM},
	        {"swapon", SYS_swapon, EPERM}, {"swapoff", SYS_swapoff, EPERM},
	        {"acct", SYS_acct, EPERM}, {"quotactl", SYS_quotactl, EPERM},
	        {"sethostname", SYS_sethostname, EPERM},
	        {"setdomainname", SYS_setdomainname, EPERM}, {"mbind", SYS_mbind, EPERM},
	        {"set_mempolicy", SYS_set_mempolicy, EPERM},
	        {"get_mempolicy", SYS_get_mempolicy, EPERM}, {"vhangup", SYS_vhangup, EPERM},
	        {"lookup_dcookie", 212, EPERM}, {"nfsservctl", 180, EPERM}, {"uselib", 134, EPERM},
	        {"ustat", 136, EPERM}, {"sysfs", 139, EPERM}, {"_sysctl", 156, EPERM},
	        {"iopl", 172, EPERM}, {"ioperm", 173, EPERM}, {"modify_ldt", 154, EPERM},
	        {"io_setup", SYS_io_setup, ENOSYS}, {"io_submit", SYS_io_submit, ENOSYS},
	        {"the newest", 999, ENOSYS}};

	for (size_t i = 0; i < COUNT(CALLS); i++)
		refused(call(CALLS[i].nr, -1ul, -1ul, -1ul, -1ul, -1ul), CALLS[i].errnum,
		        CALLS[i].errnum, CALLS[i].name);
	/* Allowed, where the kernel has it (since 6.5 without being asked to). */
	refused(call(447, -1ul, 0, 0, 0, 0), EINVAL, ENOSYS, "memfd_secret with flags");
	check(!exists("/dev/fuse") && !exists("/dev/userfaultfd") && !exists("/dev/kvm") &&
	                !exists("/dev/net") && !exists("/dev/vhost-net") && !exists("/dev/mem") &&
	                !exists("/dev/kmsg") && !exists("/dev/console") &&
	                !exists("/dev/loop-control"),
	        "a device of the host's");
}

static void use_int80(void)
{
#ifdef __x86_64__
	int rc;

	__asm__ volatile("int $0x80" : "=a"(rc) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
	_exit(rc > 0 ? 77 : 78);
#endif
	raise(SIGSYS);
}

static void use_x32(void)
{
	_exit(syscall(0x40000000 + 39) < 0 && errno == ENOSYS ? 0 : 77);
}

static void k11_other_abis(void)
{
	static const unsigned long PERSONALITIES[] = {0x0040000, 0x0400000, 0x0800000, 0x8000000,
	        0x20001, 0x0100000, 0x0200000, 0x1000000, 0x2000000, 0x4000000, 8 | 0x0040000};
	int status = in_child(use_int80);

	/* SIGSEGV: the machine has no such entry (some hypervisors take it out of the guest). */
	check(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS || WTERMSIG(status) == SIGSEGV),
	        "int 0x80: status %x", status);
#ifdef __x86_64__
	status = in_child(use_x32);
	/* Where the kernel knows no x32 calls it may be the filter or the kernel that refuses. */
	check((WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) ||
	                (WIFEXITED(status) && WEXITSTATUS(status) == 0),
	        "x32: status %x", status);
#endif
	for (size_t i = 0; i < COUNT(PERSONALITIES); i++) {
		refused(call(SYS_personality, PERSONALITIES[i], 0, 0, 0, 0), EPERM, EPERM,
		        "personality");
		refused(call(SYS_personality, PERSONALITIES[i] | HIGH, 0, 0, 0, 0), EPERM, EPERM,
		        "personality, high bits");
	}
	check(call(SYS_personality, 0xffffffff, 0, 0, 0, 0) == 0,
	        "personality is not the plain one");
}

/* What every container reads, and what a copy of would make of it root. */
static const char *const BASE[] = {"/usr/bin/su", "/usr/bin/mount", "/usr/bin/bash",
        "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        "/usr/lib/aarch64-linux-gnu/libc.so.6", "/usr/lib/os-release"};

static uint64_t sum_of(int fd)
{
	static unsigned char buf[65536];
	uint64_t sum = 14695981039346656037ull;
	off_t at = 0;
	ssize_t n;

	while ((n = pread(fd, buf, sizeof buf, at)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			sum = (sum ^ buf[i]) * 1099511628211ull;
		at += n;
	}
	return sum;
}

/* Dirty Pipe: a pipe whose buffers were written to before, a page of the file, a write. */
static void by_pipe(int fd)
{
	static char page[4096];
	loff_t at = 1;
	int p[2];

	check(pipe2(p, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
	while (write(p[1], page, sizeof page) > 0)
		;
	while (read(p[0], page, sizeof page) > 0)
		;
	check(splice(fd, &at, p[1], NULL, 1, 0) == 1, "splice");
	check(write(p[1], "XXXXXXXX", 8) == 8, "write");
	refused(splice(p[0], NULL, fd, NULL, 8, SPLICE_F_NONBLOCK), EBADF, EBADF, "splice back");
	close(p[0]);
	close(p[1]);
}

/* The same with the pages as a gift from memory, doubled, and through sockets. */
static void by_gift(int fd)
{
	char *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	struct iovec v = {map, 4096};
	char got[64];
	off_t at = 0;
	int p[2], q[2], s[2];

	check(pipe2(p, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(q, O_CLOEXEC | O_NONBLOCK) == 0 &&
	                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s) == 0,
	        "pipes");
	vmsplice(p[1], &v, 1, SPLICE_F_GIFT | SPLICE_F_NONBLOCK);
	tee(p[0], q[1], 4096, SPLICE_F_NONBLOCK);
	check(write(p[1], "YYYY", 4) == 4 && write(q[1], "YYYY", 4) == 4, "write");
	splice(q[0], NULL, s[0], NULL, 4096, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
	sendfile(s[0], fd, &at, 64);
	send(s[0], "ZZZZ", 4, MSG_DONTWAIT | MSG_MORE);
	while (recv(s[1], got, sizeof got, MSG_DONTWAIT) > 0)
		memset(got, 'Q', sizeof got);
	munmap(map, 4096);
	for (int i = 0; i < 2; i++) {
		close(p[i]);
		close(q[i]);
		close(s[i]);
	}
}

static char *cow_map;

static void *forget_pages(void *unused)
{
	(void)unused;
	for (int i = 0; i < 3000; i++)
		madvise(cow_map, 4096, MADV_DONTNEED);
	return NULL;
}

/* Dirty COW: writes through /proc/self/mem to a private mapping whose pages go meanwhile. */
static void by_copy(int fd)
{
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	struct iovec local, remote;
	pthread_t thread;
	char path[96];

	cow_map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	check(cow_map != MAP_FAILED && mem >= 0, "map and /proc/self/mem");
	check(pthread_create(&thread, NULL, forget_pages, NULL) == 0, "thread");
	for (int i = 0; i < 3000; i++)
		(void)!pwrite(mem, "WWWW", 4, (off_t)(uintptr_t)cow_map);
	pthread_join(thread, NULL);
	local = (struct iovec){path, 4};
	remote = (struct iovec){cow_map, 4};
	refused(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), EFAULT, EFAULT,
	        "process_vm_writev to a read-only page");
	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", TEXT(cow_map),
	        TEXT(cow_map) + 4096);
	refused(open(path, O_RDWR | O_CLOEXEC), EPERM, EACCES, "map_files");
	munmap(cow_map, 4096);
	cow_map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	refused(mprotect(cow_map, 4096, PROT_READ | PROT_WRITE), EACCES, EACCES, "mprotect");
	refused(madvise(cow_map, 4096, 23 /* MADV_POPULATE_WRITE */), EINVAL, EFAULT,
	        "MADV_POPULATE_WRITE");
	munmap(cow_map, 4096);
	close(mem);
}

/* The files of the base image, which lie in the same memory for all containers. */
static void k4_base(void)
{
	for (size_t i = 0; i < COUNT(BASE); i++) {
		int fd = open(BASE[i], O_RDONLY | O_CLOEXEC);
		uint64_t before;

		if (fd < 0)
			continue;
		before = sum_of(fd);
		by_pipe(fd);
		by_gift(fd);
		by_copy(fd);
		check(ftruncate(fd, 0) < 0 && fallocate(fd, 3, 0, 4096) < 0, "a hole in %s",
		        BASE[i]);
		check(sum_of(fd) == before, "%s has changed", BASE[i]);
		close(fd);
	}
	/* Where the latest of the kind start. */
	for (int type = 1; type < 6; type++) {
		refused(socket(38 /* AF_ALG */, type, 0), EPERM, EPERM, "AF_ALG");
		refused(socket(33 /* AF_RXRPC */, type, 0), EPERM, EPERM, "AF_RXRPC");
		refused(socket(15 /* AF_KEY */, type, 2), EPERM, EPERM, "AF_KEY");
	}
	refused(socket(AF_NETLINK, SOCK_RAW, 6 /* NETLINK_XFRM */), EPERM, EPERM, "NETLINK_XFRM");
}

static void k8_virtual_sockets(void)
{
	static const char *const NODES[] = {"/dev/vsock", "/dev/vhost-vsock", "/dev/virtio-ports",
	        "/dev/hvc0", "/dev/vport0p1"};
	int pair[2];

	for (int type = 0; type < 16; type++) {
		refused(socket(40, type, 0), EPERM, EPERM, "AF_VSOCK");
		refused(call(SYS_socket, 40 | HIGH, (unsigned long)type | HIGH, HIGH, 0, 0), EPERM,
		        EPERM, "AF_VSOCK with high bits");
	}
	refused(socketpair(40, SOCK_STREAM, 0, pair), EPERM, EPERM, "AF_VSOCK pair");
	for (size_t i = 0; i < COUNT(NODES); i++)
		refused(open(NODES[i], O_RDWR | O_CLOEXEC), ENOENT, ENOENT, NODES[i]);
}

static void k9_virtual_machines(void)
{
	static const char *const NODES[] = {"/dev/kvm", "/dev/vhost-net", "/dev/vhost-scsi",
	        "/dev/net/tun", "/dev/net", "/dev/vfio", "/dev/sgx_enclave", "/dev/sev",
	        "/dev/mshv", "/dev/cpu", "/dev/mem", "/dev/port", "/dev/loop-control", "/dev/loop0",
	        "/dev/sda", "/dev/vda", "/dev/mapper", "/dev/btrfs-control", "/dev/fuse",
	        "/dev/uinput", "/dev/snapshot", "/dev/userfaultfd", "/dev/autofs", "/dev/console",
	        "/dev/tty0"};

	for (size_t i = 0; i < COUNT(NODES); i++)
		refused(open(NODES[i], O_RDWR | O_CLOEXEC), ENOENT, ENOENT, NODES[i]);
}

static void k10_security_modules(void)
{
	static const char *const ATTRIBUTES[] = {"current", "exec", "fscreate", "keycreate",
	        "sockcreate", "apparmor/current", "apparmor/exec", "smack/current"};
	char path[64], before[256], after[256];

	check(!exists("/sys/kernel/security") && !exists("/sys/fs/selinux") &&
	                !exists("/sys/module/apparmor"),
	        "a file system of a security module");
	for (size_t i = 0; i < COUNT(ATTRIBUTES); i++) {
		snprintf(path, sizeof path, "/proc/self/attr/%s", ATTRIBUTES[i]);
		/* Where AppArmor confines nobody, "unconfined" may be asked for; it changes
		 * nothing. */
		get(path, before, sizeof before);
		put(path, "changeprofile unconfined");
		get(path, after, sizeof after);
		check(!strcmp(before, after), "%s was %s, is %s", path, before, after);
		check(put(path, "changeprofile escape-none") < 0, "%s takes a profile", path);
		snprintf(path, sizeof path, "/proc/1/attr/%s", ATTRIBUTES[i]);
		check(put(path, "changeprofile unconfined") < 0, "%s takes a write", path);
	}
	for (long nr = 459; nr <= 461; nr++)
		refused(call(nr, 100, TEXT(path), TEXT(path), 0, 0), EPERM, EPERM, "lsm_*");
}

/* A process may still protect itself, and only itself. */
static void k12_speculation(void)
{
	static const int KINDS[] = {
	        0 /* store bypass */, 1 /* indirect branch */, 2 /* L1D flush */};
	char text[8192];
	unsigned long long cookie = 0;

	for (size_t i = 0; i < COUNT(KINDS); i++) {
		int state = prctl(PR_GET_SPECULATION_CTRL, KINDS[i], 0, 0, 0);

		check(state >= 0 || errno == ENODEV || errno == EINVAL, "state of %d: %s", KINDS[i],
		        strerror(errno));
		if (state < 0 || !(state & PR_SPEC_PRCTL) || KINDS[i] == 2)
			continue;
		check(prctl(PR_SET_SPECULATION_CTRL, KINDS[i], PR_SPEC_FORCE_DISABLE, 0, 0) == 0,
		        "%d cannot be disabled: %s", KINDS[i], strerror(errno));
		state = prctl(PR_GET_SPECULATION_CTRL, KINDS[i], 0, 0, 0);
		check(state & PR_SPEC_FORCE_DISABLE, "state of %d is %x", KINDS[i], state);
		check(prctl(PR_SET_SPECULATION_CTRL, KINDS[i], PR_SPEC_ENABLE, 0, 0) < 0,
		        "%d can be enabled again", KINDS[i]);
	}
	check(get("/proc/self/status", text, sizeof text) > 0 &&
	                strstr(text, "Speculation_Store_Bypass:"),
	        "status does not say");
	check(prctl(62 /* PR_SCHED_CORE */, 0 /* get */, 1, 0, &cookie) < 0 || cookie == 0,
	        "init's core cookie");
}

/* Calls newer than Linux 6.1, and what a guest may do with those that are let in. */
static void k13_new_calls(void)
{
	static const struct {
		const char *name;
		long nr;
		int errnum;
	} CALLS[] = {{"open_tree", 428, EPERM}, {"move_mount", 429, EPERM}, {"fsopen", 430, EPERM},
	        {"fsconfig", 431, EPERM}, {"fsmount", 432, EPERM}, {"fspick", 433, EPERM},
	        {"clone3", 435, ENOSYS}, {"pidfd_getfd", 438, EPERM},
	        {"process_madvise", 440, EPERM}, {"mount_setattr", 442, EPERM},
	        {"quotactl_fd", 443, EPERM}, {"set_mempolicy_home_node", 450, EPERM},
	        {"lsm_get_self_attr", 459, EPERM}, {"lsm_set_self_attr", 460, EPERM},
	        {"lsm_list_modules", 461, EPERM}, {"open_tree_attr", 467, EPERM},
	        {"file_getattr", 468, ENOSYS}, {"file_setattr", 469, ENOSYS},
	        {"listns", 470, ENOSYS}, {"the next", 471, ENOSYS},
	        {"a far one", 0x3fffffff, ENOSYS}};
	struct {
		uint64_t value;
		uint32_t size, flags;
	} capability = {TEXT("\1\0\0\2\377\377\377\377\0\0\0\0\377\377\377\377\0\0\0\0"), 20, 0};
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls,
		        set_tid, set_tid_size, cgroup;
	} into = {.flags = 0x200000000ull /* CLONE_INTO_CGROUP */, .exit_signal = SIGCHLD};
	static const char PLACE[] = "/tmp/k13";
	int child_pidfd, fd;
	pid_t child;

	for (size_t i = 0; i < COUNT(CALLS); i++) {
		refused(call(CALLS[i].nr, 0, 0, 0, 0, 0), CALLS[i].errnum, CALLS[i].errnum,
		        CALLS[i].name);
		refused(call(CALLS[i].nr, -1ul, -1ul, -1ul, -1ul, -1ul), CALLS[i].errnum,
		        CALLS[i].errnum, CALLS[i].name);
	}
	into.cgroup = (uint64_t)open("/", O_PATH | O_CLOEXEC);
	refused(call(435, TEXT(&into), sizeof into, 0, 0, 0), ENOSYS, ENOSYS, "CLONE_INTO_CGROUP");
	fd = open(PLACE, O_RDWR | O_CREAT | O_CLOEXEC, 0700);
	refused(call(463 /* setxattrat */, (unsigned long)AT_FDCWD, TEXT(PLACE), 0,
	                TEXT("security.capability"), TEXT(&capability)),
	        EINVAL, ENOSYS, "setxattrat without a size");
	refused(syscall(463, AT_FDCWD, PLACE, 0, "security.capability", &capability,
	                sizeof capability),
	        EPERM, ENOSYS, "setxattrat of a capability");
	refused(syscall(463, AT_FDCWD, PLACE, 0, "trusted.x", &capability, sizeof capability),
	        EPERM, ENOSYS, "setxattrat of trusted");
	refused(call(452 /* fchmodat2 */, (unsigned long)AT_FDCWD, TEXT("/dev/null"), 0777, 0, 0),
	        EROFS, ENOSYS, "fchmodat2");
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	child_pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	refused(call(SYS_process_mrelease, (unsigned long)child_pidfd, 0, 0, 0, 0), EINVAL, ENOSYS,
	        "process_mrelease of the living");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(fd);
	unlink(PLACE);
}

/* Machine code of filters is the whole machine's to run out of; then nobody's command starts. */
static void k14_filters(void)
{
	struct sock_filter pass = BPF_STMT(BPF_RET | BPF_K, 0x7fff0000 /* SECCOMP_RET_ALLOW */);
	struct sock_fprog filter = {1, &pass};

	for (unsigned long flags = 0; flags < 64; flags++)
		refused(call(SYS_seccomp, 1 /* SET_MODE_FILTER */, flags, TEXT(&filter), 0, 0),
		        EINVAL, EINVAL, "seccomp");
	refused(call(SYS_seccomp, 1 | HIGH, 0, TEXT(&filter), 0, 0), EINVAL, EINVAL,
	        "seccomp, high bits");
	refused(call(SYS_prctl, PR_SET_SECCOMP, 2, TEXT(&filter), 0, 0), EINVAL, EINVAL, "prctl");
	refused(call(SYS_prctl, PR_SET_SECCOMP | HIGH, 2 | HIGH, TEXT(&filter), 0, 0), EINVAL,
	        EINVAL, "prctl, high bits");
}

const struct escape_case kernel_cases[] = {{"K1", k1_namespaces}, {"K2", k2_netlink},
        {"K3", k3_sockets}, {"K3-options", k3_options}, {"K4", k4_page_cache}, {"K4-base", k4_base},
        {"K5", k5_io_uring}, {"K6", k6_refused_calls}, {"K8", k8_virtual_sockets},
        {"K9", k9_virtual_machines}, {"K10", k10_security_modules}, {"K11", k11_other_abis},
        {"K12", k12_speculation}, {"K13", k13_new_calls}, {"K14", k14_filters}, {NULL, NULL}};
