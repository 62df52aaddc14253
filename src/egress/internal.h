/* What the files of the egress process share. One thread. */
#ifndef BRIG_EGRESS_INTERNAL_H
#define BRIG_EGRESS_INTERNAL_H

#include "base/address.h"
#include "egress/egress.h"
#include "egress/names.h"
#include "egress/policy.h"
#include "egress/record.h"
#include "egress/resolve.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <sys/queue.h>

struct egress_conn;
struct egress_question; /* a container's DNS connection */
TAILQ_HEAD(egress_conns, egress_conn);
TAILQ_HEAD(egress_questions, egress_question);

/* So many a second on average, twice that at once. */
struct egress_bucket {
	uint64_t at_ms;
	uint64_t thousandths; /* of one, that were used and not regained yet */
};
bool egress_bucket_take(struct egress_bucket *b, unsigned per_s);

enum egress_listener {
	EGRESS_UDP_53,
	EGRESS_TCP_53,
	EGRESS_TCP_80,
	EGRESS_TCP_443,
	EGRESS_LISTENERS
};

struct egress_container {
	LIST_ENTRY(egress_container) link;
	struct egress *egress;
	uint64_t id;
	struct egress_policy *policy;
	struct egress_names *names;
	int fds[EGRESS_LISTENERS];
	struct event events[EGRESS_LISTENERS];
	struct event resume; /* listens again after a pause */
	struct egress_conns conns;
	unsigned n_conns;
	unsigned n_refused; /* more connections, which only take in why they are refused */
	struct egress_questions questions;
	unsigned n_questions;
	struct egress_bucket connect_rate, question_rate;
	struct egress_record_rate record_rate;
};
LIST_HEAD(egress_containers, egress_container);

struct egress {
	struct event_base *base;
	struct egress_limits limits;
	struct address_own *own;
	struct egress_resolver *resolver;
	bool has_sources; /* resolv.conf and hosts came */
	struct egress_records *records;
	struct egress_containers containers;
	unsigned n_conns;
	int failed; /* why the loop was left, or 0 */
	struct error *err;
	uint8_t scratch[65536]; /* what was read last; nothing keeps a pointer into it */
};

/* Takes the descriptors, also on failure (NULL). */
struct egress_container *egress_container_new(struct egress *e, uint64_t id,
        struct egress_policy *policy, const int fds[EGRESS_LISTENERS]);
struct egress_container *egress_container_free(struct egress_container *c);

/* A container's question and what is answered: applies policy and rate. Returns the answer's
 * length, 0: none. */
size_t egress_container_answer(
        struct egress_container *c, const uint8_t *message, size_t len, uint8_t *out);

/* A connection just accepted from a container; takes fd. */
void egress_conn_start(struct egress_container *c, int fd, uint16_t port);
/* One that is over a limit: it is told so in its protocol's own way, and ends. Takes fd. */
void egress_conn_refuse(struct egress_container *c, int fd, uint16_t port, const char *reason);
/* Ends it at once, with a reset. */
void egress_conn_kill(struct egress_conn *c);

void egress_question_start(struct egress_container *c, int fd);
void egress_question_end(struct egress_question *q);

#endif
