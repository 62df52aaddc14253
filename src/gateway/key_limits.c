/*
 * Theory of operation. A row is found by open addressing and never given up, so that no gateway
 * can be left with a row that has become another key's. Sums over the shares are read without a
 * lock: each reader first adds its own part and then reads the others', so of two that come at once
 * at least one sees the other, and a limit is met a little early, never late.
 *
 * Requests: next_us is when the bucket is full again. A request moves it on by the time in which
 * one flows in, and is refused where it would then lie more than a minute ahead.
 */
#include "gateway/key_limits.h"

#include "base/clock.h"

#include <limits.h>
#include <string.h>
#include <time.h>

#define MINUTE_US UINT64_C(60000000)
#define DAY_MS    INT64_C(86400000)

static uint64_t name_of(const struct config_key *key)
{
	uint64_t name;

	memcpy(&name, key->hash, sizeof(name));
	return name != 0 ? name : 1;
}

/* NULL: all are taken. */
static struct key_limits_row *row_of(struct key_limits *l, uint64_t name)
{
	for (uint64_t i = 0; i < KEY_LIMITS_ROWS; i++) {
		uint64_t at = (name + i) % KEY_LIMITS_ROWS;
		uint64_t there = atomic_load(&l->names[at]);

		if (there == 0)
			atomic_store(&l->used, true);
		if (there == name ||
		        (there == 0 && atomic_compare_exchange_strong(&l->names[at], &there, name)))
			return &l->rows[at];
		if (there == name) /* another was quicker */
			return &l->rows[at];
	}
	return NULL;
}

static int no_row(struct error *err)
{
	return error_set(err, ERR_UNAVAILABLE,
	        "This server has counted for %d keys with limits since it was started, which is "
	        "the "
	        "most it can.",
	        KEY_LIMITS_ROWS);
}

void key_limits_start(struct key_limits *l, uint32_t gateway)
{
	for (size_t i = 0; i < KEY_LIMITS_ROWS && atomic_load(&l->used); i++) {
		struct key_limits_share *s = &l->rows[i].shares[gateway];

		if (atomic_load(&l->names[i]) == 0)
			continue;
		atomic_store(&s->dollars, 0);
		atomic_store(&s->containers, 0);
	}
}

/* ---- requests ---- */

int key_limits_request(
        struct key_limits *l, const struct config_key *key, uint64_t now_us, struct error *err)
{
	struct key_limits_row *row;
	uint64_t each, full, next;

	if (key->requests_per_minute == 0)
		return 0;
	row = row_of(l, name_of(key));
	if (row == NULL)
		return no_row(err);
	each = MINUTE_US / key->requests_per_minute;
	full = atomic_load(&row->next_us);
	do {
		next = (full > now_us ? full : now_us) + each;
		if (next > now_us + MINUTE_US) {
			error_set(err, ERR_RATE, "This key may make %u requests a minute.",
			        key->requests_per_minute);
			if (err != NULL)
				err->retry_after_ms =
				        (int)((next - now_us - MINUTE_US + 999) / 1000);
			return -ERR_RATE;
		}
	} while (!atomic_compare_exchange_weak(&row->next_us, &full, next));
	return 0;
}

/* ---- what lasts ---- */

static int64_t dollars_of(const struct key_limits_row *row)
{
	struct money sum = {0};

	for (size_t i = 0; i < KEY_LIMITS_GATEWAYS; i++)
		sum = money_add(sum, (struct money){atomic_load(&row->shares[i].dollars)});
	return sum.pico;
}

static int64_t containers_of(const struct key_limits_row *row)
{
	int64_t sum = 0;

	for (size_t i = 0; i < KEY_LIMITS_GATEWAYS; i++)
		sum += atomic_load(&row->shares[i].containers);
	return sum;
}

int key_limits_take(struct key_limits *l, const struct config_key *key, uint32_t gateway,
        struct money dollars, bool container, struct record_hold *hold, struct money *ret_others,
        struct error *err)
{
	bool counts = container && key->containers > 0;
	struct key_limits_row *row;
	struct key_limits_share *share;
	int64_t dearest;

	*hold = (struct record_hold){.key = 0};
	*ret_others = (struct money){0};
	if (!key->has_limit && !counts)
		return 0;
	row = row_of(l, name_of(key));
	if (row == NULL)
		return no_row(err);
	share = &row->shares[gateway];
	if (counts) {
		atomic_fetch_add(&share->containers, 1);
		if (containers_of(row) > key->containers) {
			atomic_fetch_sub(&share->containers, 1);
			error_set(err, ERR_RATE, "This key may use %u containers at once.",
			        key->containers);
			if (err != NULL)
				err->retry_after_ms = 1000;
			return -ERR_RATE;
		}
	}
	*hold = (struct record_hold){.key = name_of(key), .containers = counts};
	if (!key->has_limit)
		return 0;
	dearest = atomic_load(&row->dearest);
	hold->dollars = dearest > dollars.pico ? dearest : dollars.pico;
	atomic_fetch_add(&share->dollars, hold->dollars);
	ret_others->pico = dollars_of(row) - hold->dollars;
	return 0;
}

void key_limits_grow(
        struct key_limits *l, uint32_t gateway, struct record_hold *hold, struct money cost)
{
	struct key_limits_row *row = hold->key != 0 ? row_of(l, hold->key) : NULL;

	if (row == NULL || hold->dollars == 0 || cost.pico <= hold->dollars)
		return;
	atomic_fetch_add(&row->shares[gateway].dollars, cost.pico - hold->dollars);
	hold->dollars = cost.pico;
}

void key_limits_give(
        struct key_limits *l, uint32_t gateway, struct record_hold *hold, struct money cost)
{
	struct key_limits_row *row = hold->key != 0 ? row_of(l, hold->key) : NULL;
	int64_t dearest;

	if (row == NULL)
		return;
	dearest = atomic_load(&row->dearest);
	while (cost.pico > dearest &&
	        !atomic_compare_exchange_weak(&row->dearest, &dearest, cost.pico))
		;
	atomic_fetch_sub(&row->shares[gateway].dollars, hold->dollars);
	atomic_fetch_sub(&row->shares[gateway].containers, hold->containers);
	*hold = (struct record_hold){.key = 0};
}

/* ---- periods ---- */

static void month_of(int64_t now_ms, int months, int64_t *ret_s)
{
	time_t s = now_ms / 1000;
	struct tm tm;

	gmtime_r(&s, &tm);
	tm = (struct tm){.tm_year = tm.tm_year, .tm_mon = tm.tm_mon + months, .tm_mday = 1};
	*ret_s = timegm(&tm);
}

int64_t key_limits_first_day(enum config_reset reset, int64_t now_ms)
{
	int64_t day = now_ms / DAY_MS, s;

	switch (reset) {
	case CONFIG_RESET_NEVER:
		return 0;
	case CONFIG_RESET_DAILY:
		return day;
	case CONFIG_RESET_WEEKLY:
		return day - (day + 3) % 7; /* 1970 began on a Thursday */
	case CONFIG_RESET_MONTHLY:
		month_of(now_ms, 0, &s);
		return s * 1000 / DAY_MS;
	}
	return 0;
}

int64_t key_limits_ends_ms(enum config_reset reset, int64_t now_ms)
{
	int64_t first = key_limits_first_day(reset, now_ms), s;

	switch (reset) {
	case CONFIG_RESET_NEVER:
		return INT64_MAX;
	case CONFIG_RESET_DAILY:
		return (first + 1) * DAY_MS;
	case CONFIG_RESET_WEEKLY:
		return (first + 7) * DAY_MS;
	case CONFIG_RESET_MONTHLY:
		month_of(now_ms, 1, &s);
		return s * 1000;
	}
	return INT64_MAX;
}
