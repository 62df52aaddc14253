#include "packet/hurry.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_NS                                                                                   \
	10000000 /* once one wait is over all that the same call has still to close goes fast */

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static timer_t timer;
static bool opened;

static void on_alarm(int number)
{
}

int hurry_open(void)
{
	struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
	sigset_t set;

	event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	if (sigaction(SIGALRM, &act, NULL) < 0 || pthread_sigmask(SIG_UNBLOCK, &set, NULL) != 0 ||
	        timer_create(CLOCK_MONOTONIC, &event, &timer) < 0)
		return -errno;
	opened = true;
	return 0;
}

/* Again and again until it is set to 0: a signal may come before the wait that it is to end. */
static void run(long ns)
{
	const struct itimerspec t = {.it_value.tv_nsec = ns, .it_interval.tv_nsec = ns};
	int errnum = errno;

	if (opened)
		timer_settime(timer, 0, &t, NULL);
	errno = errnum;
}

int hurry_receive(int sock, void *data, size_t size, size_t max_fds, struct packet *ret)
{
	int r;

	run(LIMIT_NS);
	r = packet_receive(sock, MSG_DONTWAIT, data, size, max_fds, ret);
	run(0);
	return r;
}

void hurry_close(int *fd)
{
	run(LIMIT_NS);
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	run(0);
}

void hurry_close_fds(struct packet *p)
{
	run(LIMIT_NS);
	packet_close(p);
	run(0);
}
