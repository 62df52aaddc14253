#include "gateway/job.h"

#include "http/record.h"

#include <stdlib.h>

#define ANSWER_MAX ((size_t)64 << 20)

static void job_free(struct job *j)
{
	if (j->clear != NULL)
		j->clear(j->own);
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

/* ---- the answer ---- */

static void send_more(struct job *j)
{
	if (respond_more(j->x, (struct str){j->out.data, j->out.len}, &j->sent))
		job_free(j);
}

static void on_drain(void *self)
{
	struct job *j = self;

	if (j->sending)
		send_more(j);
}

static void on_gone(void *self, enum http_gone why)
{
	struct job *j = self;

	j->x = NULL;
	if (j->sending)
		job_free(j);
}

/* One that is recorded goes out once the record of it is kept. */
static bool goes_in_pieces(const struct job *j)
{
	return j->out.len > RESPOND_PIECE && http_record_ctx(j->x) == NULL;
}

void job_answer(void *job)
{
	struct job *j = job;

	if (j->result < 0 && j->err.code == ERR_IO)
		log_text(LOG_ERROR, "store_failed", "%s", j->err.text);
	if (j->x != NULL && j->result >= 0 && goes_in_pieces(j)) {
		http_respond_start_length(j->x, j->status, j->type, j->out.len);
		j->sending = true;
		send_more(j);
		return;
	}
	if (j->x != NULL) {
		http_exchange_set_data(j->x, NULL);
		if (j->result < 0)
			respond_error(j->x, j->under_v1, &j->err);
		else
			http_respond(
			        j->x, j->status, j->type, (struct str){j->out.data, j->out.len});
	}
	job_free(j);
}

void job_fail(struct job *j, const struct error *e)
{
	j->err = *e;
	j->result = -(int)e->code;
	job_answer(j);
}

void job_leave(struct job *j)
{
	job_free(j);
}

/* ---- the work ---- */

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

	/* Without a server the gateway stops, and nobody would hear of another step. */
	if (j->after != NULL && j->g->server != NULL)
		j->after(j);
	else
		job_answer(j);
}

void job_again(struct job *j, void (*work)(struct job *j), void (*after)(struct job *j))
{
	struct error e;

	j->work = work;
	j->after = after;
	if (pool_run(j->g->pool, job_work, job_done, j))
		return;
	gateway_busy(&e);
	job_fail(j, &e);
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
	char *to = j->texts = mem_alloc(r->params[0].n + r->params[1].n + query.n + 3);

	j->params[0] = keep(&to, r->params[0]);
	j->params[1] = keep(&to, r->params[1]);
	j->query = keep(&to, query);
}

struct job *job_new(struct request *r, void (*work)(struct job *j), size_t own_len)
{
	struct job *j = mem_alloc(sizeof(*j));

	*j = (struct job){.g = r->g,
	        .key = r->key,
	        .scope = row_scope(r->key),
	        .x = r->x,
	        .under_v1 = r->under_v1,
	        .work = work,
	        .status = 200,
	        .type = "application/json"};
	j->owner = (struct owner){on_drain, on_gone, j};
	buf_init(&j->out, ANSWER_MAX);
	keep_texts(j, r);
	if (own_len > 0)
		j->own = mem_alloc(own_len);
	j->own_len = own_len;
	return j;
}

void job_go(struct job *j)
{
	http_exchange_set_data(j->x, &j->owner);
	job_again(j, j->work, j->after);
}

void job_run(struct request *r, void (*work)(struct job *j))
{
	struct job *j = job_new(r, work, 0);

	j->body = request_take_body(r, &j->body_len);
	job_go(j);
}
