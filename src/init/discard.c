#include "init/discard.h"

#include "init/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISCARD_MAX 2048    /* two for each leaf; one more is closed, as if its reader had gone */
#define ROUND       1048576 /* bytes of one pipe before the others get a turn */

static struct {
	int fds[DISCARD_MAX]; /* 0: free (never a pipe of ours) */
} discards;

static void add(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	for (uint32_t i = 0; i < DISCARD_MAX; i++) {
		if (discards.fds[i])
			continue;
		if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || loop_add(fd, LOOP_DISCARD, i) < 0)
			break;
		discards.fds[i] = fd;
		return;
	}
	close(fd);
}

int discard_add(struct message *m)
{
	struct stat st;

	for (int i = 0; i < m->packet.n_fds; i++)
		if (fstat(m->packet.fds[i], &st) < 0 || !S_ISFIFO(st.st_mode))
			return -EBADMSG;
	for (int i = 0; i < m->packet.n_fds; i++)
		add(message_take_fd(m, i));
	return 0;
}

void discard_ready(uint32_t index)
{
	/* Standard output is the null device; what is spliced there is dropped without being
	 * copied. */
	ssize_t n =
	        splice(discards.fds[index], NULL, STDOUT_FILENO, NULL, ROUND, SPLICE_F_NONBLOCK);

	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) || !discards.fds[index])
		return;
	loop_close(discards.fds[index]);
	discards.fds[index] = 0;
}
