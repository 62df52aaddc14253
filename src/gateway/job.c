#include "gateway/job.h"

#include <stdlib.h>

#define ANSWER_MAX ((size_t)64 << 20)

static void on_gone(void *self, enum http_gone why)
{
	((struct job *)self)->x = NULL;
}

static void job_free(struct job *j)
{
	if (j->secret && j->out.data != NULL)
		mem_wipe(j->out.data, j->out.len);
	buf_free(&j->out);
	if (j->own != NULL)
		mem_wipe(j->own, j->own_len);
	free(j->own);
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

static void job_answer(void *arg)
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

static void job_done(void *arg)
{
	struct job *j = arg;

	if (j->settle != NULL && j->result >= 0)
		j->settle(j, job_answer);
	else
		job_answer(j);
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

struct job *job_new(struct request *r, void (*work)(struct job *j), size_t own_len)
{
	struct job *j = mem_alloc(sizeof(*j));

	*j = (struct job){
	        .g = r->g, .x = r->x, .under_v1 = r->under_v1, .work = work, .status = 200};
	j->owner = (struct owner){NULL, on_gone, j};
	buf_init(&j->out, ANSWER_MAX);
	keep_texts(j, r);
	if (own_len > 0)
		j->own = mem_alloc(own_len);
	j->own_len = own_len;
	return j;
}

void job_refuse(struct job *j, const struct error *e)
{
	respond_error(j->x, j->under_v1, e);
	job_free(j);
}

void job_go(struct job *j)
{
	struct error e;

	http_exchange_set_data(j->x, &j->owner);
	if (pool_run(j->g->pool, job_work, job_done, j))
		return;
	http_exchange_set_data(j->x, NULL);
	error_set(&e, ERR_UNAVAILABLE, "The server has too much to do.");
	e.retry_after_ms = 1000;
	job_refuse(j, &e);
}

void job_run(struct request *r, void (*work)(struct job *j))
{
	struct job *j = job_new(r, work, 0);

	j->body = request_take_body(r, &j->body_len);
	job_go(j);
}
