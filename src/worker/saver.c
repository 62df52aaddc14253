/* One request, one answer. */
#include "worker/saver.h"

#include "packet/packet.h"
#include "proto/worker.h"
#include "worker/tree.h"

#include <string.h>
#include <unistd.h>

union saver_request {
	struct worker_header h;
	struct worker_save save;
};

static void answer(int sock, uint32_t seq, int errnum, const char *step)
{
	struct worker_done done = {.h = {WORKER_DONE, sizeof(done), seq}};
	struct worker_failed failed = {
	        .h = {WORKER_FAILED, sizeof(failed), seq}, .errnum = (uint32_t)errnum};
	size_t n = strlen(step);

	memcpy(failed.step, step, n < sizeof(failed.step) ? n : sizeof(failed.step) - 1);
	if (errnum == 0)
		(void)packet_send(sock, &done, sizeof(done), NULL, 0, NULL, 0);
	else
		(void)packet_send(sock, &failed, sizeof(failed), NULL, 0, NULL, 0);
}

/* The next datagram with one descriptor; the peer's end, or anything else, ends the process. */
static int receive(int sock, void *data, size_t size, size_t *ret_len)
{
	struct packet p;

	if (packet_receive(sock, 0, data, size, 1, &p) <= 0 || p.lost || p.n_fds != 1)
		_exit(0);
	*ret_len = p.len;
	return p.fds[0];
}

_Noreturn void saver_serve(int control, int home)
{
	struct worker_socket given;
	union saver_request r = {0};
	const char *step = "";
	size_t len;
	int sock = receive(control, &given, sizeof(given), &len);
	int pipe = receive(sock, &r, sizeof(r), &len), e;

	if (len == sizeof(r.save) && r.h.op == WORKER_SAVE && r.h.size == len)
		e = tree_send(home, pipe, r.save.same_before_ns, &step);
	else if (len == sizeof(r.h) && r.h.op == WORKER_RESTORE && r.h.size == len)
		e = tree_take(home, pipe, &step);
	else
		_exit(0);
	close(pipe);
	answer(sock, r.h.seq, e, step);
	_exit(0);
}
