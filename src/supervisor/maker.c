/*
 * Theory of operation.
 *
 * The child inherits what struct disk knows, closes all else, and answers one order at a time over
 * a socketpair; it ends with the socket, or with its parent. It has the supervisor's powers and is
 * part of it: neither side checks more than that a message is whole.
 *
 * What it makes is not attached anywhere: mounts and loop devices are descriptors, in flight or
 * held by one of the two, and go with the last of them whoever dies first. A home's file stays in
 * scratch/ then, which the next supervisor empties.
 */
#include "supervisor/maker.h"

#include "base/str.h"
#include "packet/packet.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct order {
	uint32_t what; /* enum maker_what */
	uint32_t image;
	uint64_t id;
	uid_t owner;
	uint32_t pad;
};

/* Descriptors of a home: file, loop device, mount; of a root: loop device, mount. */
struct answer {
	uint32_t what;
	uint32_t failed;
	uint64_t id;
	uint32_t why;
	int32_t errnum;
	int32_t number; /* of the loop device */
	char name[32];
	char step[64];
};

static void answer(int sock, struct answer *a, const struct fail *f, const int *fds, size_t n_fds)
{
	if (f) {
		a->failed = 1;
		a->why = f->why;
		a->errnum = f->errnum;
		str_copy(a->step, sizeof(a->step), str_of(f->step));
		n_fds = 0;
	}
	if (sys_send(sock, a, sizeof(*a), fds, n_fds) < 0)
		_exit(1);
}

static void make_home(struct disk *d, int sock, struct answer *a)
{
	struct fail f;
	struct disk_home home;
	if (disk_home_make(d, &home, &f) < 0) {
		answer(sock, a, &f, NULL, 0);
		return;
	}
	a->number = home.img.number;
	memcpy(a->name, home.name, sizeof(a->name));
	answer(sock, a, NULL, (int[]){home.fd, home.img.fd, home.mnt}, 3);
	close(home.fd);
	close(home.img.fd);
	close(home.mnt);
}

static void make_root(
        struct disk *d, int sock, const struct order *order, int userns, struct answer *a)
{
	struct fail f;
	struct image scratch = IMAGE_NONE;
	_cleanup_close_ int root = -1;
	if (disk_root_mount(d, order->image, userns, order->owner, &scratch, &root, &f) == 0) {
		a->number = scratch.number;
		answer(sock, a, NULL, (int[]){scratch.fd, root}, 2);
	} else {
		answer(sock, a, &f, NULL, 0);
	}
	sys_close(&scratch.fd);
}

static _Noreturn void maker_run(struct disk *d, int sock)
{
	sigset_t none;
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	prctl(PR_SET_NAME, "brig: maker", 0, 0, 0);
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	/* A stop from the terminal is the supervisor's to pass on. */
	signal(SIGINT, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (disk_become_maker(d, sock) < 0)
		_exit(1);
	for (;;) {
		struct order order;
		struct packet p;
		int r = packet_receive(sock, 0, &order, sizeof(order), 1, &p);
		if (r <= 0 || p.len != sizeof(order) || p.n_fds != (order.what == MAKER_ROOT))
			_exit(r == 0 ? 0 : 1);
		struct answer a = {.what = order.what, .id = order.id};
		if (order.what == MAKER_ROOT) {
			make_root(d, sock, &order, p.fds[0], &a);
			close(p.fds[0]);
		} else {
			make_home(d, sock, &a);
		}
	}
}

int maker_start(struct maker *m, struct disk *d, struct fail *f)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "socketpair");
	pid_t pid = fork();
	if (pid == 0)
		maker_run(d, pair[1]);
	int errnum = errno;
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return fail_set(f, SUP_E_SYSTEM, errnum, "fork");
	}
	*m = (struct maker){.pid = pid, .sock = pair[0]};
	return 0;
}

static int send_order(struct maker *m, const struct order *order, int userns)
{
	int r = sys_send(m->sock, order, sizeof(*order), &userns, userns >= 0 ? 1 : 0);
	m->busy = r == 0;
	return r;
}

int maker_order_home(struct maker *m)
{
	struct order order = {.what = MAKER_HOME};
	return send_order(m, &order, -1);
}

int maker_order_root(struct maker *m, uint64_t id, uint32_t image, int userns, uid_t owner)
{
	struct order order = {.what = MAKER_ROOT, .image = image, .id = id, .owner = owner};
	return send_order(m, &order, userns);
}

int maker_read(struct maker *m, struct maker_made *ret)
{
	struct answer a;
	struct packet p;
	int r = packet_receive(m->sock, MSG_DONTWAIT, &a, sizeof(a), PACKET_MAX_FDS, &p);
	if (r == -EAGAIN)
		return 0;
	bool whole = r > 0 && p.len == sizeof(a) && m->busy && a.what <= MAKER_ROOT &&
	             p.n_fds == (a.failed                      ? 0
	                                : a.what == MAKER_ROOT ? 2
	                                                       : 3);
	if (!whole) {
		if (r > 0)
			packet_close(&p);
		return -1;
	}
	m->busy = false;
	*ret = (struct maker_made){.what = (enum maker_what)a.what,
	        .id = a.id,
	        .failed = a.failed,
	        .home = DISK_HOME_NONE,
	        .scratch = IMAGE_NONE,
	        .root = -1};
	a.step[sizeof(a.step) - 1] = '\0';
	memcpy(ret->step, a.step, sizeof(ret->step));
	if (a.failed) {
		fail_set(&ret->f, a.why, a.errnum, ret->step);
	} else if (a.what == MAKER_HOME) {
		ret->home.fd = p.fds[0];
		ret->home.img = (struct image){.fd = p.fds[1], .number = a.number};
		ret->home.mnt = p.fds[2];
		memcpy(ret->home.name, a.name, sizeof(ret->home.name));
	} else {
		ret->scratch = (struct image){.fd = p.fds[0], .number = a.number};
		ret->root = p.fds[1];
	}
	return 1;
}

void maker_stop(struct maker *m)
{
	sys_close(&m->sock);
	m->busy = false;
	if (m->pid > 0)
		kill(m->pid, SIGKILL);
}
