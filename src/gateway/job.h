/*
 * A request that is handled on the pool, because it reads or writes the store: work() runs there
 * with copies of all that it may look at, and what it leaves is answered from the loop, unless the
 * client has gone meanwhile. A long answer goes out as the client takes it.
 *
 * One that takes several steps has after(), which the loop calls when work() is done: it asks the
 * supervisor, waits, or has more work done, and in the end answers.
 */
#ifndef BRIG_GATEWAY_JOB_H
#define BRIG_GATEWAY_JOB_H

#include "gateway/internal.h"

struct job {
	struct gateway *g;            /* for its store, reader and config */
	const struct config_key *key; /* whose request; stands as long as the gateway */
	struct store_scope scope;     /* the key's */
	bool under_v1;
	struct str params[2]; /* of the path */
	struct str query;
	char *body; /* NULL: none */
	size_t body_len;
	/* What is answered: */
	int status;       /* 200 */
	const char *type; /* application/json */
	struct buf out;
	int result; /* < 0: err, in the shape of who asks */
	struct error err;
	void *own; /* the handler's, as it asked for it in job_new(); zeroed, and wiped at the end
	            */
	void (*clear)(void *own); /* NULL, or frees what it points at */
	bool secret;              /* the answer is wiped too */
	/* NULL: it is answered. Else, on the loop, whatever the work came to: sees to it that the
	 * job is answered, has more work done or is left, from the loop, always. */
	void (*after)(struct job *j);
	/* job.c's own */
	size_t own_len;
	struct http_exchange *x; /* NULL: the client has gone. after() may look at it */
	struct owner owner;
	bool sending;
	size_t sent;
	void (*work)(struct job *j);
	char *texts; /* what the strings above are in */
};

/* Answers the request with what work() leaves, later. The body is the job's. */
void job_run(struct request *r, void (*work)(struct job *j));

/* The same in steps, for handlers that read the request themselves: a job with own_len bytes of the
 * handler's own, which then goes, or fails. */
struct job *job_new(struct request *r, void (*work)(struct job *j), size_t own_len);
void job_go(struct job *j);

/* On the loop, before a job goes or in after() and later; j is gone then. */
void job_fail(struct job *j, const struct error *e);
void job_answer(void *j);      /* with what is in it */
void job_leave(struct job *j); /* somebody else answers: the exchange has another owner */
/* The next step. */
void job_again(struct job *j, void (*work)(struct job *j), void (*after)(struct job *j));

#endif
