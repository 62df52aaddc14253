#include "gateway/job.h"

#include <stdlib.h>

#define ANSWER_MAX ((size_t)64 << 20)

static void on_gone(void *self, enum http_gone why)
{
	((struct job *)self)->x = NULL;
}

static void job_free(struct job *j)
{
	buf_free(&j->out);
	free(j->body);
	free(j->texts);
	free(j);
}

static void job_work(void *arg)
{
	struct job *j = arg;

	j->work(j);
	if (j->result >= 0 && buf_error(&j->out) < 0)
		j->result = error_set(&j->err, ERR_TOO_LARGE, "The answer would be too large.");
}

static void job_done(void *arg)
{
	struct job *j = arg;

	if (j->x != NULL) {
		http_exchange_set_data(j->x, NULL);
		if (j->result < 0)
			respond_error(j->x, j->under_v1, &j->err);
		else
			respond_json(j->x, j->status, &j->out);
	}
	job_free(j);
}

/* A copy in the job's texts, with a NUL behind it; moves *to on. */
static struct str keep(char **to, struct str s)
{
	struct str copy = {*to, s.n};

	if (s.n > 0)
		memcpy(*to, s.p, s.n);
	(*to)[s.n] = 0;
	*to += s.n + 1;
	return copy;
}

static void keep_texts(struct job *j, struct request *r)
{
	struct str query = http_request_query(r->x);
	struct store_scope scope = row_scope(r->key);
	char *to = j->texts = mem_alloc(scope.account.n + scope.workspace.n + r->params[0].n +
	                                r->params[1].n + query.n + 5);

	j->scope.account = keep(&to, scope.account);
	j->scope.workspace = keep(&to, scope.workspace);
	j->params[0] = keep(&to, r->params[0]);
	j->params[1] = keep(&to, r->params[1]);
	j->query = keep(&to, query);
}

void job_run(struct request *r, void (*work)(struct job *j))
{
	struct job *j = mem_alloc(sizeof(*j));
	struct error e;

	*j = (struct job){
	        .g = r->g, .x = r->x, .under_v1 = r->under_v1, .work = work, .status = 200};
	j->owner = (struct owner){NULL, on_gone, j};
	buf_init(&j->out, ANSWER_MAX);
	keep_texts(j, r);
	j->body = request_take_body(r, &j->body_len);
	http_exchange_set_data(j->x, &j->owner);
	if (pool_run(j->g->pool, job_work, job_done, j))
		return;
	http_exchange_set_data(j->x, NULL);
	error_set(&e, ERR_UNAVAILABLE, "The server has too much to do.");
	e.retry_after_ms = 1000;
	respond_error(j->x, j->under_v1, &e);
	job_free(j);
}
