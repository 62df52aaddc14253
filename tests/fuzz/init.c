/*
 * What a taken-over gateway can make of init: the input is a script of datagrams with descriptors
 * on several channels, answers that are read or not, ends of commands, time. Messages, channels,
 * the queue and the commands are real; groups and processes are of this file and do nothing. At the
 * end all channels are closed and nothing may be left: no command, no descriptor.
 */
#include "base/error.h"
#include "init/channel.h"
#include "init/child.h"
#include "init/command.h"
#include "init/discard.h"
#include "init/loop.h"
#include "init/procfiles.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHANNELS 3
#define PIDS     64
#define MAX_FD   256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
pid_t fuzz_fork(void);
int fuzz_kill(pid_t pid, int number);

static struct {
	const uint8_t *at, *end;
	uint64_t now_ns;
	int ours[CHANNELS], theirs[CHANNELS]; /* -1: closed; theirs is init's */
	uint32_t index[CHANNELS];
	int discards[MAX_FD]; /* descriptor → index of the discard; -1 */
	pid_t running[PIDS];
	pid_t last_pid;
	unsigned fail, leaves, n_loop;
	bool populated;
} world;

static uint8_t byte(void)
{
	return world.at < world.end ? *world.at++ : 0;
}

/* ---- what init's other files do ---- */

int loop_add(int fd, enum loop_kind kind, uint32_t index)
{
	if (fd < 0 || fd >= MAX_FD)
		BUG("descriptor %d", fd);
	if (world.fail & 1)
		return -ENOSPC;
	world.n_loop++;
	for (int i = 0; kind == LOOP_CHANNEL && i < CHANNELS; i++)
		if (world.theirs[i] == fd)
			world.index[i] = index;
	if (kind == LOOP_DISCARD)
		world.discards[fd] = (int)index;
	return 0;
}

void loop_close(int fd)
{
	if (fd < 0 || fcntl(fd, F_GETFD) < 0)
		BUG("closed twice");
	for (int i = 0; i < CHANNELS; i++)
		if (world.theirs[i] == fd)
			world.theirs[i] = -1;
	if (fd < MAX_FD)
		world.discards[fd] = -1;
	close(fd);
}

uint64_t loop_now_ns(void)
{
	return world.now_ns;
}

struct leaf {
	bool given;
};

int leaf_take(struct leaf **ret)
{
	if (world.fail & 2)
		return -EAGAIN;
	*ret = calloc(1, sizeof(**ret));
	world.leaves++;
	return 0;
}

void leaf_give(struct leaf *leaf)
{
	free(leaf);
	world.leaves--;
}

pid_t leaf_fork(const struct leaf *leaf)
{
	return world.fail & 4 ? -EAGAIN : fuzz_fork();
}

void leaf_kill(struct leaf *leaf)
{
	leaf->given = true; /* a write that a sanitizer sees */
}

bool leaf_is_empty(const struct leaf *leaf)
{
	return !world.populated;
}

pid_t fuzz_fork(void)
{
	for (int i = 0; i < PIDS; i++)
		if (!world.running[i])
			return world.running[i] = ++world.last_pid;
	return errno = EAGAIN, -1;
}

int fuzz_kill(pid_t pid, int number)
{
	if (pid <= 1)
		BUG("kill(%d)", (int)pid);
	return 0;
}

_Noreturn void child_run(
        const struct command *c, const struct command_setup *setup, const struct child_pipes *pipes)
{
	BUG("no child here");
}

void procfiles_write(uint32_t running, uint64_t started)
{
}

/* ---- the script ---- */

static void open_channel(int i)
{
	int pair[2], small = 4608;
	if (world.ours[i] >= 0 || world.theirs[i] >= 0)
		return;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		BUG("socketpair");
	setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	world.ours[i] = pair[0];
	world.theirs[i] = pair[1];
	if (channel_open(pair[1]) < 0)
		world.theirs[i] = -1;
}

static int open_kind(uint8_t kind, const void *payload, size_t len)
{
	int p[2], fd;
	switch (kind % 5) {
	case 0:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 1:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 2:
		if (pipe2(p, O_CLOEXEC) < 0)
			return -1;
		close(p[1]);
		return p[0];
	default:
		fd = memfd_create("payload", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (write(fd, payload, len) < 0)
			return fd;
		if (kind % 5 == 3)
			fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
		return fd;
	}
}

static void send_fds(int sock, const void *data, size_t len, const int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)data, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (n) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, n * sizeof(int));
	}
	(void)!sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Bytes of the input, or a message that may well be sound; with descriptors or without. */
static void send_one(int i, bool raw)
{
	static uint8_t bytes[66000];
	uint8_t what = byte(), n_fds = byte(), kinds = byte(), size = byte();
	size_t have = (size_t)(world.end - world.at), len = 0;
	int fds[8];
	have = have < size ? have : size;
	if (raw) {
		len = what & 0x80 ? sizeof(bytes) : have;
		memcpy(bytes, world.at, have);
	} else if (what & 1) {
		struct init_id m = {{what & 2 ? INIT_KILL : INIT_DISCARD, sizeof(m), 0}, n_fds & 7};
		memcpy(bytes, &m, len = sizeof(m));
		n_fds >>= 3;
	} else {
		struct init_run m = {.h = {INIT_RUN, sizeof(m), 0},
		        .id = what >> 1 & 7,
		        .timeout_ms = what & 0x10 ? 100 : 0,
		        .flags = n_fds >> 4,
		        .argc = 1 + (kinds >> 7),
		        .envc = kinds >> 6 & 1,
		        .payload_len = (uint32_t)have};
		memcpy(bytes, &m, len = sizeof(m));
		if (!(m.flags & INIT_RUN_MEMFD)) {
			memcpy(bytes + len, world.at, have);
			len += have;
		}
		n_fds &= 15;
	}
	n_fds %= 7;
	for (int k = 0; k < n_fds; k++)
		fds[k] = open_kind((uint8_t)(kinds >> k), world.at, have);
	world.at += have;
	if (world.ours[i] >= 0)
		send_fds(world.ours[i], bytes, len, fds, n_fds);
	for (int k = 0; k < n_fds; k++)
		close(fds[k]);
}

static void reap_one(uint8_t which, int status)
{
	pid_t pid = world.running[which % PIDS];
	world.running[which % PIDS] = 0;
	command_reaped(pid ? pid : 99999, status);
}

static void read_answers(int i)
{
	union {
		struct init_header h;
		uint8_t bytes[512];
	} m;
	ssize_t n;
	/* Without room for descriptors: they go at once. */
	while (world.ours[i] >= 0 && (n = recv(world.ours[i], &m, sizeof(m), MSG_DONTWAIT)) > 0)
		if (n != m.h.size || m.h.op < INIT_STARTED || m.h.op > INIT_REFUSED)
			BUG("init said %u, %zd bytes", m.h.op, n);
}

static void turn(void)
{
	for (int i = 0; i < CHANNELS; i++)
		if (world.theirs[i] >= 0)
			channel_ready(world.index[i]);
	for (int fd = 0; fd < MAX_FD; fd++)
		if (world.discards[fd] >= 0)
			discard_ready((uint32_t)world.discards[fd]);
	channel_sweep();
	command_tick();
	channel_sweep();
}

static void step(void)
{
	uint8_t what = byte();
	int i = what / 16 % CHANNELS;
	switch (what % 10) {
	case 0:
		open_channel(i);
		break;
	case 1:
	case 2:
		send_one(i, false);
		break;
	case 3:
		send_one(i, true);
		break;
	case 4:
		reap_one(byte(), byte() << 8 | what >> 4);
		break;
	case 5:
		command_report_ready(byte() % INIT_MAX_RUNNING);
		break;
	case 6:
		read_answers(i);
		break;
	case 7:
		if (world.ours[i] >= 0)
			close(world.ours[i]);
		world.ours[i] = -1;
		break;
	case 8:
		world.now_ns += (uint64_t)byte() * 1000000;
		world.populated = what & 16;
		break;
	default:
		world.fail = byte();
	}
	turn();
}

static int count_fds(void)
{
	int count = 0;
	for (int fd = 0; fd < MAX_FD; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const struct command_setup setup = {
	        .cgroups = INIT_CG_V2, .init_uid = 65533, .oom = -1, .home = -1};
	int before = count_fds();
	memset(&world, 0, sizeof(world));
	world.at = data;
	world.end = data + n;
	world.now_ns = 1000000000;
	world.last_pid = 100000;
	for (int i = 0; i < CHANNELS; i++)
		world.ours[i] = world.theirs[i] = -1;
	memset(world.discards, -1, sizeof(world.discards));
	command_open(&setup);
	while (world.at < world.end)
		step();
	world.fail = 0;
	world.populated = false;
	for (int i = 0; i < CHANNELS; i++) {
		if (world.ours[i] >= 0)
			close(world.ours[i]);
		world.ours[i] = -1;
	}
	for (int round = 0; round < 50; round++) {
		turn();
		for (int i = 0; i < PIDS; i++)
			if (world.running[i])
				reap_one((uint8_t)i, SIGKILL);
		world.now_ns += 1000000000;
	}
	if (world.leaves)
		BUG("%u leaves are kept", world.leaves);
	if (count_fds() != before)
		BUG("%d descriptors, not %d", count_fds(), before);
	return 0;
}
