/*
 * One container's sockets. They lie in its network namespace, so whatever comes in here is from it,
 * and an answer can reach nobody else.
 *
 * A flood costs the container itself: each wake-up takes a bounded number, connections over a limit
 * are told so (and reset, where many are being told already), and after too many refused questions
 * the socket is left alone for a moment.
 */
#include "egress/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/dns.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ACCEPTS = 16, DATAGRAMS = 32, PAUSE_MS = 200, QUESTION_MAX = 1500, REFUSED_MAX = 16 };

bool egress_bucket_take(struct egress_bucket *b, unsigned per_s)
{
	uint64_t now = clock_mono_ms(), back = (now - b->at_ms) * per_s;

	b->thousandths -= back < b->thousandths ? back : b->thousandths;
	b->at_ms = now;
	if (b->thousandths + 1000 > (uint64_t)per_s * 2000)
		return false;
	b->thousandths += 1000;
	return true;
}

static void listen_again(struct egress_container *c)
{
	for (int i = 0; i < EGRESS_LISTENERS; i++)
		event_add(&c->events[i], NULL);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	listen_again(arg);
}

static void pause_one(struct egress_container *c, int which)
{
	struct timeval tv = {0, PAUSE_MS * 1000};

	event_del(&c->events[which]);
	if (!event_pending(&c->resume, EV_TIMEOUT, NULL))
		event_add(&c->resume, &tv);
}

/* ---- questions ---- */

static void tell_question(
        struct egress_container *c, const struct egress_dns_question *q, const char *reason)
{
	struct egress_record r = {.verdict = EGRESS_DENIED, .port = 53};

	str_copy(r.name, sizeof(r.name), str_of(q->name));
	str_copy(r.reason, sizeof(r.reason), str_of(reason));
	egress_records_tell(
	        c->egress->records, &c->record_rate, &r, egress_policy_label(c->policy));
}

/* The code for a question that the message alone does not decide. */
static enum egress_dns_code judge(struct egress_container *c, const struct egress_dns_question *q,
        uint32_t *ret_address, const char **ret_reason)
{
	const char *rule;

	*ret_reason = "not allowed";
	if (!egress_policy_allows(c->policy, str_of(q->name), &rule))
		return EGRESS_DNS_NXDOMAIN;
	if (q->type == EGRESS_DNS_AAAA || q->type == EGRESS_DNS_HTTPS || q->type == EGRESS_DNS_SVCB)
		return EGRESS_DNS_OK;
	*ret_reason = "type of question";
	if (q->type != EGRESS_DNS_A)
		return EGRESS_DNS_REFUSED;
	*ret_address = egress_names_address(c->names, str_of(q->name));
	return *ret_address ? EGRESS_DNS_OK : EGRESS_DNS_SERVFAIL;
}

size_t egress_container_answer(
        struct egress_container *c, const uint8_t *message, size_t len, uint8_t *out)
{
	struct egress_dns_question q;
	enum egress_dns_code code;
	const char *reason = "malformed question";
	uint32_t address = 0;

	if (!egress_dns_read(message, len, &q))
		return 0;
	code = q.code;
	if (!egress_bucket_take(&c->question_rate, c->egress->limits.questions_per_s)) {
		code = EGRESS_DNS_REFUSED;
		reason = "too many questions";
	} else if (code == EGRESS_DNS_OK) {
		code = judge(c, &q, &address, &reason);
	}
	if (code != EGRESS_DNS_OK)
		tell_question(c, &q, reason);
	return egress_dns_answer(message, &q, code, address, out);
}

/* One datagram, answered from the address that was asked. False: there is none. */
static bool datagram(struct egress_container *c, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[256];
	} control;
	struct sockaddr_storage from;
	uint8_t question[QUESTION_MAX], answer[EGRESS_DNS_ANSWER_MAX];
	struct iovec iov = {question, sizeof(question)};
	struct msghdr msg = {.msg_name = &from,
	        .msg_namelen = sizeof(from),
	        .msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = &control,
	        .msg_controllen = sizeof(control)};
	struct in_pktinfo info = {0};
	ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);

	if (n < 0)
		return false;
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return true;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h))
		if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_PKTINFO)
			memcpy(&info, CMSG_DATA(h), sizeof(info));
	iov = (struct iovec){answer, egress_container_answer(c, question, (size_t)n, answer)};
	if (iov.iov_len == 0)
		return true;
	info = (struct in_pktinfo){.ipi_spec_dst = info.ipi_addr};
	memset(&control, 0, sizeof(control));
	msg.msg_controllen = CMSG_SPACE(sizeof(info));
	msg.msg_flags = 0;
	control.align.cmsg_level = IPPROTO_IP;
	control.align.cmsg_type = IP_PKTINFO;
	control.align.cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(&control.align), &info, sizeof(info));
	sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	return true;
}

static void on_datagram(evutil_socket_t fd, short what, void *arg)
{
	struct egress_container *c = arg;
	unsigned per_s = c->egress->limits.questions_per_s;

	for (int i = 0; i < DATAGRAMS; i++)
		if (!datagram(c, fd))
			return;
	if (c->question_rate.thousandths + 1000 > (uint64_t)per_s * 2000)
		pause_one(c, EGRESS_UDP_53);
}

/* ---- connections ---- */

static void reset(int fd)
{
	struct linger now = {1, 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

static void tell_over(struct egress_container *c, uint16_t port, const char *reason)
{
	struct egress_record r = {.verdict = EGRESS_DENIED, .port = port};

	str_copy(r.reason, sizeof(r.reason), str_of(reason));
	egress_records_tell(
	        c->egress->records, &c->record_rate, &r, egress_policy_label(c->policy));
}

static const char *over_limit(struct egress_container *c, uint16_t port)
{
	const struct egress_limits *l = &c->egress->limits;

	if (port == 53)
		return c->n_questions >= l->dns_connections ? "too many connections" : NULL;
	if (c->n_conns >= l->connections)
		return "too many connections";
	if (c->egress->n_conns >= l->all_connections)
		return "too many connections in all";
	if (!egress_bucket_take(&c->connect_rate, l->connections_per_s))
		return "connections too fast";
	return NULL;
}

/* Those of a flood that nobody waits for are not worth a word each. */
static void refuse(struct egress_container *c, int fd, uint16_t port, const char *over)
{
	if (port != 53 && c->n_refused < REFUSED_MAX &&
	        c->egress->n_conns < c->egress->limits.all_connections) {
		egress_conn_refuse(c, fd, port, over);
		return;
	}
	tell_over(c, port, over);
	reset(fd);
}

static void accept_some(struct egress_container *c, int which, uint16_t port)
{
	for (int i = 0; i < ACCEPTS; i++) {
		int fd = accept4(c->fds[which], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		const char *over;

		if (fd < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				pause_one(c, which);
			return;
		}
		over = over_limit(c, port);
		if (over) {
			refuse(c, fd, port, over);
		} else if (port == 53) {
			egress_question_start(c, fd);
		} else {
			egress_conn_start(c, fd, port);
		}
	}
}

static void on_accept_53(evutil_socket_t fd, short what, void *arg)
{
	accept_some(arg, EGRESS_TCP_53, 53);
}

static void on_accept_80(evutil_socket_t fd, short what, void *arg)
{
	accept_some(arg, EGRESS_TCP_80, 80);
}

static void on_accept_443(evutil_socket_t fd, short what, void *arg)
{
	accept_some(arg, EGRESS_TCP_443, 443);
}

/* ---- life ---- */

struct egress_container *egress_container_new(struct egress *e, uint64_t id,
        struct egress_policy *policy, const int fds[EGRESS_LISTENERS])
{
	static const event_callback_fn CALLBACKS[EGRESS_LISTENERS] = {
	        on_datagram, on_accept_53, on_accept_80, on_accept_443};
	struct egress_container *c = mem_alloc(sizeof(*c));
	int one = 1;
	bool good = true;

	c->egress = e;
	c->id = id;
	c->policy = policy;
	c->names = egress_names_new();
	TAILQ_INIT(&c->conns);
	TAILQ_INIT(&c->questions);
	LIST_INSERT_HEAD(&e->containers, c, link);
	for (int i = 0; i < EGRESS_LISTENERS; i++) {
		c->fds[i] = fds[i];
		good = good && evutil_make_socket_nonblocking(fds[i]) == 0;
		event_assign(&c->events[i], e->base, fds[i], EV_READ | EV_PERSIST, CALLBACKS[i], c);
	}
	event_assign(&c->resume, e->base, -1, 0, on_resume, c);
	if (setsockopt(fds[EGRESS_UDP_53], IPPROTO_IP, IP_PKTINFO, &one, sizeof(one)) < 0)
		good = false;
	if (!good)
		return egress_container_free(c);
	listen_again(c);
	return c;
}

struct egress_container *egress_container_free(struct egress_container *c)
{
	if (!c)
		return NULL;
	while (!TAILQ_EMPTY(&c->conns))
		egress_conn_kill(TAILQ_FIRST(&c->conns));
	while (!TAILQ_EMPTY(&c->questions))
		egress_question_end(TAILQ_FIRST(&c->questions));
	LIST_REMOVE(c, link);
	event_del(&c->resume);
	for (int i = 0; i < EGRESS_LISTENERS; i++) {
		event_del(&c->events[i]);
		close(c->fds[i]);
	}
	egress_names_free(c->names);
	egress_policy_free(c->policy);
	free(c);
	return NULL;
}
