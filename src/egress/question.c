/* DNS over TCP: messages with their length before them, one after the other; one is answered before
 * the next is read. A container has few of these connections and each ends after some seconds. */
#include "egress/internal.h"

#include "base/mem.h"
#include "egress/dns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS = 10, QUESTION_MAX = 1500 };

struct egress_question {
	TAILQ_ENTRY(egress_question) link;
	struct egress_container *container;
	int fd;
	struct event read, write, timer;
	uint8_t in[2 + QUESTION_MAX];
	size_t in_len;
	uint8_t out[2 + EGRESS_DNS_ANSWER_MAX];
	size_t out_len, sent;
};

void egress_question_end(struct egress_question *q)
{
	event_del(&q->read);
	event_del(&q->write);
	event_del(&q->timer);
	close(q->fd);
	TAILQ_REMOVE(&q->container->questions, q, link);
	q->container->n_questions--;
	free(q);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	egress_question_end(arg);
}

/* Answers the message at the front once it is whole. False: the connection is over. */
static bool answer(struct egress_question *q)
{
	size_t len, n;

	if (q->in_len < 2)
		return true;
	len = (size_t)(q->in[0] << 8 | q->in[1]);
	if (len > QUESTION_MAX)
		return false;
	if (q->in_len < 2 + len)
		return true;
	n = egress_container_answer(q->container, q->in + 2, len, q->out + 2);
	if (n == 0)
		return false;
	q->out[0] = (uint8_t)(n >> 8);
	q->out[1] = (uint8_t)n;
	q->out_len = 2 + n;
	q->sent = 0;
	q->in_len -= 2 + len;
	memmove(q->in, q->in + 2 + len, q->in_len);
	event_del(&q->read);
	return event_add(&q->write, NULL) == 0;
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
	struct egress_question *q = arg;
	ssize_t n = recv(fd, q->in + q->in_len, sizeof(q->in) - q->in_len, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	q->in_len += n > 0 ? (size_t)n : 0;
	if (n <= 0 || !answer(q))
		egress_question_end(q);
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
	struct egress_question *q = arg;
	ssize_t n = send(fd, q->out + q->sent, q->out_len - q->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		egress_question_end(q);
		return;
	}
	q->sent += n > 0 ? (size_t)n : 0;
	if (q->sent < q->out_len)
		return;
	event_del(&q->write);
	event_add(&q->read, NULL);
	if (!answer(q)) /* perhaps the next one is there already */
		egress_question_end(q);
}

void egress_question_start(struct egress_container *c, int fd)
{
	struct egress_question *q = mem_alloc(sizeof(*q));
	struct timeval tv = {SECONDS, 0};
	struct event_base *base = c->egress->base;

	q->container = c;
	q->fd = fd;
	TAILQ_INSERT_TAIL(&c->questions, q, link);
	c->n_questions++;
	event_assign(&q->read, base, fd, EV_READ | EV_PERSIST, on_read, q);
	event_assign(&q->write, base, fd, EV_WRITE | EV_PERSIST, on_write, q);
	event_assign(&q->timer, base, -1, 0, on_timer, q);
	event_add(&q->read, NULL);
	event_add(&q->timer, &tv);
}
