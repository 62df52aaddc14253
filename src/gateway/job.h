/*
 * A request that is handled on the pool, because it reads or writes the store: work() runs there
 * with copies of all that it may look at, and what it leaves is answered from the loop, unless the
 * client has gone meanwhile.
 */
#ifndef BRIG_GATEWAY_JOB_H
#define BRIG_GATEWAY_JOB_H

#include "gateway/internal.h"

struct job {
	struct gateway *g;         /* for its store, reader and config */
	struct store_scope scope;  /* whose request */
	bool under_v1;
	struct str params[2];      /* of the path */
	struct str query;
	char *body;                /* NULL: none */
	size_t body_len;
	/* What is answered: */
	int status;      /* 200 */
	struct buf out;  /* JSON */
	int result;      /* < 0: err, in the shape of who asks */
	struct error err;
	void *own; /* the handler's, as it asked for it in job_new(); zeroed, and wiped at the end */
	bool secret; /* the answer is wiped too */
	/* NULL, or what must be done on the loop after good work before it is answered: calls
	 * then(j) from the loop, always. */
	void (*settle)(struct job *j, void (*then)(void *j));
	/* job.c's own */
	size_t own_len;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	void (*work)(struct job *j);
	char *texts; /* what the strings above are in */
};

/* Answers the request with what work() leaves, later. The body is the job's. */
void job_run(struct request *r, void (*work)(struct job *j));

/* The same in steps, for handlers that read the body themselves: a job with own_len bytes of the
 * handler's own, which then goes, or is refused. */
struct job *job_new(struct request *r, void (*work)(struct job *j), size_t own_len);
void job_go(struct job *j);
void job_refuse(struct job *j, const struct error *e);

#endif
