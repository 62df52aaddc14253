/* One connection for one question: it is sent, one message with its length before it is read, and
 * then or after some seconds the connection ends. */
#include "egress/again.h"

#include "base/mem.h"
#include "egress/answer.h"

#include <errno.h>
#include <event2/event_struct.h>
#include <event2/util.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SECONDS = 5, ANSWER_MAX = 65535 };

struct egress_again {
	egress_again_done done;
	void *ctx;
	int fd;
	struct event ready, timer;
	uint8_t question[2 + EGRESS_QUESTION_MAX]; /* with its length */
	size_t question_len, sent;
	uint8_t *answer; /* likewise */
	size_t got;
};

void egress_again_cancel(struct egress_again *a)
{
	if (!a)
		return;
	event_del(&a->ready);
	event_del(&a->timer);
	close(a->fd);
	free(a->answer);
	free(a);
}

static void end(struct egress_again *a, const uint8_t *addresses, int n)
{
	egress_again_done done = a->done;
	void *ctx = a->ctx;

	egress_again_cancel(a);
	done(ctx, addresses, n);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	end(arg, NULL, -1);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct egress_again *a = arg;
	uint8_t addresses[16 * EGRESS_AGAIN_MAX];
	ssize_t r = recv(fd, a->answer + a->got, 2 + ANSWER_MAX - a->got, MSG_DONTWAIT);
	size_t len;

	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (r <= 0) {
		end(a, NULL, -1);
		return;
	}
	a->got += (size_t)r;
	if (a->got < 2)
		return;
	len = (size_t)(a->answer[0] << 8 | a->answer[1]);
	if (a->got < 2 + len)
		return;
	end(a, addresses,
	        egress_answer_read(a->answer + 2, len, a->question + 2, a->question_len - 2,
	                addresses, EGRESS_AGAIN_MAX));
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct egress_again *a = arg;
	ssize_t r = send(
	        fd, a->question + a->sent, a->question_len - a->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (r < 0 && errno != EAGAIN && errno != EINTR) {
		end(a, NULL, -1);
		return;
	}
	a->sent += r > 0 ? (size_t)r : 0;
	if (a->sent < a->question_len)
		return;
	event_del(&a->ready);
	event_assign(
	        &a->ready, event_get_base(&a->timer), fd, EV_READ | EV_PERSIST, on_readable, a);
	event_add(&a->ready, NULL);
}

struct egress_again *egress_again_start(struct event_base *base, const union address *server,
        const char *name, int family, egress_again_done done, void *ctx)
{
	struct egress_again *a = mem_alloc(sizeof(*a));
	struct timeval tv = {SECONDS, 0};
	uint16_t id;
	size_t n;

	evutil_secure_rng_get_bytes(&id, sizeof(id));
	n = egress_answer_question(name, family, id, a->question + 2);
	a->fd = socket(server->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (n == 0 || a->fd < 0 ||
	        (connect(a->fd, &server->sa, address_len(server)) < 0 &&
	                errno != EINPROGRESS)) {
		if (a->fd >= 0)
			close(a->fd);
		free(a);
		return NULL;
	}
	a->done = done;
	a->ctx = ctx;
	a->question[0] = (uint8_t)(n >> 8);
	a->question[1] = (uint8_t)n;
	a->question_len = 2 + n;
	a->answer = mem_alloc(2 + ANSWER_MAX);
	event_assign(&a->ready, base, a->fd, EV_WRITE | EV_PERSIST, on_writable, a);
	event_assign(&a->timer, base, -1, 0, on_timer, a);
	event_add(&a->ready, NULL);
	event_add(&a->timer, &tv);
	return a;
}
