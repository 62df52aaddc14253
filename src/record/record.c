#include "record/record.h"

#include "base/mem.h"

#include <stdlib.h>

const char *record_state_name(enum record_state s)
{
	return s == RECORD_OPEN ? "open" : s == RECORD_SETTLED ? "settled" : "recovered";
}

struct record *record_new(void)
{
	return mem_alloc(sizeof(struct record));
}

static void attempt_clear(struct record_attempt *a)
{
	free(a->provider);
	free(a->model);
	free(a->error);
	free(a->finish);
	free(a->native_finish);
}

static void run_clear(struct record_run *run)
{
	for (size_t i = 0; i < run->n_commands; i++) {
		struct record_command *c = &run->commands[i];

		free(c->command);
		free(c->out);
		free(c->err);
		free(c->signal);
		free(c->reason);
	}
	free(run->commands);
	for (size_t i = 0; i < run->n_hosts; i++) {
		free(run->hosts[i].host);
		free(run->hosts[i].reason);
	}
	free(run->hosts);
	free(run->call_id);
	free(run->tool);
	free(run->container_id);
	free(run->status);
	free(run->error);
}

void record_hit_clear(struct record_hit *h)
{
	free(h->guardrail);
	free(h->rule);
	free(h->pattern);
	free(h->action);
	free(h->matched);
}

struct record *record_free(struct record *r)
{
	if (!r)
		return NULL;
	for (size_t i = 0; i < r->n_attempts; i++)
		attempt_clear(&r->attempts[i]);
	for (size_t i = 0; i < r->n_runs; i++)
		run_clear(&r->runs[i]);
	for (size_t i = 0; i < r->n_hits; i++)
		record_hit_clear(&r->hits[i]);
	char *const texts[] = {r->account, r->workspace, r->key_hash, r->key_name, r->api, r->asked,
	        r->provider, r->model, r->session_id, r->user, r->request_id, r->user_agent,
	        r->container_id, r->metadata, r->trace, r->traceparent, r->error, r->finish,
	        r->native_finish, r->request, r->answer};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		free(texts[i]);
	free(r->attempts);
	free(r->runs);
	free(r->hits);
	free(r);
	return NULL;
}

/* One more, zeroed; the array grows one by one, since there are few. */
static void *add(void *array, size_t *n, size_t size)
{
	void **items = array;
	char *grown = mem_array(*n + 1, size);

	if (*n)
		memcpy(grown, *items, *n * size);
	free(*items);
	*items = grown;
	return grown + (*n)++ * size;
}

struct record_attempt *record_add_attempt(struct record *r)
{
	return add(&r->attempts, &r->n_attempts, sizeof(*r->attempts));
}

struct record_run *record_add_run(struct record *r)
{
	return add(&r->runs, &r->n_runs, sizeof(*r->runs));
}

struct record_command *record_add_command(struct record_run *run)
{
	return add(&run->commands, &run->n_commands, sizeof(*run->commands));
}

struct record_host *record_add_host(struct record_run *run)
{
	return add(&run->hosts, &run->n_hosts, sizeof(*run->hosts));
}

struct record_hit *record_add_hit(struct record *r)
{
	return add(&r->hits, &r->n_hits, sizeof(*r->hits));
}

void record_set(char **member, struct str value)
{
	char *old = *member;

	*member = value.p ? mem_strndup(value.p, value.n) : NULL;
	free(old);
}
