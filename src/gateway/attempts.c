#include "gateway/attempts.h"

#include "base/mem.h"

#include <stdlib.h>

#define BACKOFF_FIRST_MS 500
#define BACKOFF_MOST_MS  8000

void attempts_begin(struct attempts *a, size_t n_targets, uint32_t retries, uint64_t wait_ms)
{
	attempts_end(a);
	*a = (struct attempts){.n = n_targets, .retries = retries, .wait_left_ms = wait_ms};
}

void attempts_end(struct attempts *a)
{
	free(a->of);
	free(a->told);
	*a = (struct attempts){0};
}

/* Twice as long each time, and up to a quarter less, so that callers do not come back together. */
static uint64_t backoff_ms(uint32_t tries, uint32_t jitter)
{
	uint64_t ms = BACKOFF_FIRST_MS;

	for (uint32_t i = 1; i < tries && ms < BACKOFF_MOST_MS; i++)
		ms *= 2;
	if (ms > BACKOFF_MOST_MS)
		ms = BACKOFF_MOST_MS;
	return ms - ms / 4 * (jitter % 1024) / 1024;
}

void attempts_failed(struct attempts *a, size_t target, enum attempt_failure how,
        const struct error *err, uint64_t now_ms, uint32_t jitter)
{
	struct attempt *t;
	uint64_t wait, asked = err->retry_after_ms > 0 ? (uint64_t)err->retry_after_ms : 0;

	if (a->of == NULL)
		a->of = mem_alloc(a->n * sizeof(*a->of));
	t = &a->of[target];
	t->tries++;
	t->out = how != ATTEMPT_BUSY || t->tries > a->retries;
	wait = backoff_ms(t->tries, jitter);
	t->due_ms = now_ms + (asked > wait ? asked : wait);
	if (a->told != NULL && how < a->worst)
		return;
	a->worst = how;
	free(a->told);
	a->told = error_copy(err);
}

bool attempts_next(struct attempts *a, uint64_t now_ms, size_t *ret_target, uint64_t *ret_wait_ms)
{
	const struct attempt *best = NULL;
	uint64_t wait;

	for (size_t i = 0; i < a->n; i++)
		if (!a->of[i].out && (best == NULL || a->of[i].due_ms < best->due_ms))
			best = &a->of[i];
	if (best == NULL)
		return false;
	wait = best->due_ms > now_ms ? best->due_ms - now_ms : 0;
	if (wait > a->wait_left_ms)
		return false;
	a->wait_left_ms -= wait;
	*ret_target = (size_t)(best - a->of);
	*ret_wait_ms = wait;
	return true;
}
