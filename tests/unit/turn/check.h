/*
 * A watcher that sees every event and effect of a turn and fails the test when a rule is broken
 * that holds for every order of events: one end, pauses in pairs, one item open at a time, what was
 * shown is what stays, no more runs than allowed, one result for each call.
 */
#ifndef BRIG_TEST_TURN_CHECK_H
#define BRIG_TEST_TURN_CHECK_H

#include "base/buf.h"
#include "turn/turn.h"

enum { CHECK_ITEMS_MAX = 4096, CHECK_COMMANDS_MAX = 100 };

struct check {
	const struct turn_options *o;
	struct conversation *c;
	bool late; /* outputs are taken late: an item may be further on than the output that shows it */
	bool upstream, upstream_paused;
	bool tool, tool_paused, tool_killed;
	bool begun, ended, done, stored, store_asked;
	bool started;      /* the tool that runs has begun its commands */
	struct item *open; /* begun and not ended */
	struct item *open_tool;
	struct buf shown; /* deltas of the open item, a '|' where a part begins */
	uint32_t part;
	struct buf output[2]; /* of the command that runs */
	uint32_t runs, ends_of_runs;
	/* What ended, and how it looked then. */
	struct item *items[CHECK_ITEMS_MAX];
	char *looks[CHECK_ITEMS_MAX];
	size_t n_items;
};

void check_init(struct check *k, struct conversation *c, const struct turn_options *o);
void check_free(struct check *k);
void check_event(struct check *k, const struct turn_event *ev);
void check_effect(struct check *k, const struct turn_effect *e);
/* After EFFECT_DONE: the conversation as a whole, and that a replay of it is cut the same way. */
void check_end(struct check *k);

/* All public fields of an item in one line, malloc'ed. */
char *check_look(const struct item *item);

#endif
