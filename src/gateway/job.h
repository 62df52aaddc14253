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
	/* job.c's own */
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	void (*work)(struct job *j);
	char *texts; /* what the strings above are in */
};

/* Answers the request with what work() leaves, later. */
void job_run(struct request *r, void (*work)(struct job *j));

#endif
