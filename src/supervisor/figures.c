/* Figures of the table of live containers, for who watches a node: sums, and nothing of anybody's.
 */
#include "supervisor/live_internal.h"

#include <string.h>

static enum sup_kind kind_of(enum state s)
{
	switch (s) {
	case LIVE_POOLED:
		return SUP_KIND_POOLED;
	case LIVE_STARTING:
		return SUP_KIND_STARTING;
	case LIVE_RUNNING:
		return SUP_KIND_RUNNING;
	case LIVE_FROZEN:
		return SUP_KIND_FROZEN;
	case LIVE_ENDING:
		break;
	}
	return SUP_KIND_ENDING;
}

void figures_fill(const struct live *l, struct sup_node *ret)
{
	const struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	ret->sandboxes[kind_of(c->state)]++;
	ret->live_max = l->limit;
	ret->pool_size = l->pool.size;
	ret->waiting = l->n_waiting;
	memcpy(ret->ended, l->ended, sizeof(ret->ended));
}
