/*
 * How much a key may use: requests per minute, containers at once, dollars in flight (docs/keys.md).
 *
 * The counters lie in the mapping that the gateways of a node share, one row for each key that has
 * a limit. Whatever lasts (a container, money that a running turn may still cost) is counted in the
 * share of the gateway that it runs in; a gateway that takes a dead one's place clears that share.
 * Requests are counted by one atomic time a key, which needs no share. Any thread, any gateway.
 */
#ifndef BRIG_GATEWAY_KEY_LIMITS_H
#define BRIG_GATEWAY_KEY_LIMITS_H

#include "base/error.h"
#include "base/money.h"
#include "config/config.h"
#include "record/record.h"

#include <stdatomic.h>

enum {
	KEY_LIMITS_ROWS = 16384, /* keys with limits since the server's start */
	KEY_LIMITS_GATEWAYS = 64,
};

struct key_limits_share {
	_Atomic int64_t dollars; /* 10^-12 */
	_Atomic int64_t containers;
};

struct key_limits_row {
	_Atomic uint64_t next_us; /* clock_mono: when its bucket of requests is full again */
	_Atomic int64_t dearest;  /* the most that a request of it has cost, 10^-12 dollars */
	struct key_limits_share shares[KEY_LIMITS_GATEWAYS];
};

/* Names apart from rows: what is not used is not touched, and then takes no memory. */
struct key_limits {
	atomic_bool used;
	_Atomic uint64_t names[KEY_LIMITS_ROWS]; /* the first bytes of a key's hash; 0: free */
	struct key_limits_row rows[KEY_LIMITS_ROWS];
};

/* A gateway starts in this place: what one before it held is given back. */
void key_limits_start(struct key_limits *l, uint32_t gateway);

/*
 * Counts a request. -ERR_RATE, with when to come again, where that is one too many: a bucket of as
 * many as the limit says fills again at that rate.
 */
int key_limits_request(
        struct key_limits *l, const struct config_key *key, uint64_t now_us, struct error *err);

/*
 * Takes dollars (at least what the dearest request of the key has cost) and, if container is set,
 * one container. *ret_others: the dollars that others had taken before, all gateways together.
 * -ERR_RATE: too many containers; then nothing is held. What the key has no limit for is not
 * counted.
 */
int key_limits_take(struct key_limits *l, const struct config_key *key, uint32_t gateway,
        struct money dollars, bool container, struct record_hold *hold,
        struct money *ret_others, struct error *err);
/* It costs this much already: holds as much at least. */
void key_limits_grow(
        struct key_limits *l, uint32_t gateway, struct record_hold *hold, struct money cost);
/* Gives all of it back; cost: what it came to in the end. */
void key_limits_give(
        struct key_limits *l, uint32_t gateway, struct record_hold *hold, struct money cost);

/* The day (since 1970, UTC) on which the period that now_ms lies in began; 0: never. And when it
 * ends, in milliseconds; INT64_MAX: never. */
int64_t key_limits_first_day(enum config_reset reset, int64_t now_ms);
int64_t key_limits_ends_ms(enum config_reset reset, int64_t now_ms);

#endif
