/* Keys of the store, workspaces, and what keys have spent: the same as the ledger says. */
#include "fixture.h"

#include "record/record.h"

#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define DAY    INT64_C(86400000)

static struct store_key key(const char *hash, const char *account)
{
	struct store_key k = {.created_ms = 5, .requests_per_minute = 7, .containers = 2};

	str_copy(k.hash, sizeof(k.hash), str_of(hash));
	str_copy(k.account, sizeof(k.account), str_of(account));
	str_copy(k.workspace, sizeof(k.workspace), STR("one"));
	str_copy(k.name, sizeof(k.name), STR("team"));
	return k;
}

static size_t list(struct store *s, const char *account, struct store_key **ret)
{
	struct store_key *rows = NULL;
	struct error err;
	size_t n = 0;

	assert_int_equal(store_key_list(s, str_of(account), &rows, &n, &err), 0);
	if (ret)
		*ret = rows;
	else
		free(rows);
	return n;
}

static void made_listed_and_revoked(void **state)
{
	struct fixture *f = *state;
	struct store_key a = key(HASH_A, "acme"), b = key(HASH_B, "other"), *rows;
	struct error err;

	a.has_limit = true;
	a.limit = INT64_MAX;
	a.limit_reset = 3;
	a.disabled_tools = 5;
	a.admin = true;
	assert_int_equal(store_key_create(f->s, &a, &err), 0);
	assert_int_equal(store_key_create(f->s, &b, &err), 0);
	assert_int_equal(store_key_create(f->s, &b, &err), -ERR_CONFLICT);
	assert_int_equal(list(f->s, "acme", &rows), 1);
	assert_memory_equal(rows, &a, sizeof(a));
	free(rows);
	assert_int_equal(list(f->s, NULL, NULL), 2);
	/* Only by its own account, once, and it stays to be seen. */
	assert_int_equal(
	        store_key_revoke(f->s, STR("other"), STR(HASH_A), 9, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_key_revoke(f->s, STR("acme"), STR("x"), 9, &err), -ERR_INVALID);
	assert_int_equal(store_key_revoke(f->s, STR("acme"), STR(HASH_A), 9, &err), 0);
	assert_int_equal(store_key_revoke(f->s, STR("acme"), STR(HASH_A), 11, &err), 0);
	assert_int_equal(list(f->s, NULL, NULL), 1);
	assert_int_equal(list(f->s, "acme", &rows), 1);
	assert_int_equal(rows[0].revoked_ms, 9);
	free(rows);
	assert_int_equal(store_keys_expire(f->s, 9, 10, &err), 0);
	assert_int_equal(store_keys_expire(f->s, 10, 10, &err), 1);
	assert_int_equal(list(f->s, "acme", NULL), 0);
}

static void changed(void **state)
{
	struct fixture *f = *state;
	struct store_key a = key(HASH_A, "acme"), b = key(HASH_B, "acme"), new, *rows;
	struct error err;

	assert_int_equal(store_key_create(f->s, &b, &err), 0);
	assert_int_equal(store_key_create(f->s, &a, &err), 0);
	new = a;
	new.has_limit = true;
	new.limit = 8;
	new.requests_per_minute = 100; /* not asked for */
	assert_int_equal(store_key_change(f->s, STORE_KEY_LIMIT, &new, &err), 0);
	a.has_limit = true;
	a.limit = 8;
	assert_memory_equal(&new, &a, sizeof(a));
	new.limit_reset = 2;
	assert_int_equal(store_key_change(f->s, STORE_KEY_RESET, &new, &err), 0);
	/* A period without a limit: nothing is changed. */
	new.has_limit = false;
	new.containers = 9;
	assert_int_equal(store_key_change(f->s, STORE_KEY_LIMIT | STORE_KEY_CONTAINERS, &new, &err),
	        -ERR_CONFLICT);
	a.limit_reset = 2;
	assert_int_equal(list(f->s, "acme", &rows), 2);
	assert_memory_equal(&rows[0], &a, sizeof(a));
	assert_memory_equal(&rows[1], &b, sizeof(b));
	free(rows);
	/* Of its own account, and in force. */
	str_copy(new.account, sizeof(new.account), STR("other"));
	assert_int_equal(store_key_change(f->s, STORE_KEY_TOOLS, &new, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_key_revoke(f->s, STR("acme"), STR(HASH_A), 9, &err), 0);
	assert_int_equal(store_key_change(f->s, STORE_KEY_TOOLS, &a, &err), -ERR_NOT_FOUND);
}

static void workspaces_are_set_up(void **state)
{
	struct fixture *f = *state;
	struct store_workspace w = {.account = "acme", .name = "one", .created_ms = 3}, *rows;
	struct error err;
	size_t n;

	assert_int_equal(store_workspace_put(f->s, &w, true, &err), 0);
	w.store_content = true;
	assert_int_equal(store_workspace_put(f->s, &w, true, &err), -ERR_CONFLICT);
	w.created_ms = 4;
	assert_int_equal(store_workspace_put(f->s, &w, false, &err), 0);
	assert_int_equal(store_workspace_list(f->s, STR("other"), &rows, &n, &err), 0);
	assert_int_equal(n, 0);
	free(rows);
	assert_int_equal(store_workspace_list(f->s, (struct str){NULL, 0}, &rows, &n, &err), 0);
	assert_true(n == 1 && rows[0].store_content && rows[0].created_ms == 3);
	free(rows);
}

/* ---- spending ---- */

static void put(struct store *s, const char *id, enum store_record_what what,
        enum record_state state, int64_t begin_ms, int64_t cost)
{
	struct record *r = record_new();
	const struct store_record_op op = {what, r};
	struct error err;

	str_copy(r->id, sizeof(r->id), str_of(id));
	record_set(&r->account, STR("acme"));
	record_set(&r->workspace, STR("one"));
	record_set(&r->key_hash, STR(HASH_A));
	r->begin_ms = r->heartbeat_ms = begin_ms;
	r->state = state;
	r->total_cost.pico = cost;
	assert_int_equal(store_records_write(s, STR("g"), &op, 1, &err), 0);
	record_free(r);
}

static int64_t spent(struct store *s, int64_t day)
{
	int64_t ret = -1;
	struct error err;

	assert_int_equal(store_key_spent(s, STR(HASH_A), &day, 1, &ret, &err), 0);
	return ret;
}

static void spending_is_what_was_settled(void **state)
{
	struct fixture *f = *state;
	struct error err;

	assert_int_equal(spent(f->s, 0), 0);
	put(f->s, "a", STORE_RECORD_OPEN, RECORD_OPEN, DAY, 100);
	put(f->s, "a", STORE_RECORD_BEAT, RECORD_OPEN, DAY, 200);
	assert_int_equal(spent(f->s, 0), 0);
	put(f->s, "a", STORE_RECORD_SETTLE, RECORD_SETTLED, DAY, 300);
	assert_int_equal(spent(f->s, 0), 300);
	/* Twice is once; what it was found to cost later counts. */
	put(f->s, "a", STORE_RECORD_SETTLE, RECORD_SETTLED, DAY, 300);
	put(f->s, "a", STORE_RECORD_SETTLE, RECORD_SETTLED, DAY, 250);
	assert_int_equal(spent(f->s, 0), 250);
	/* Without a row before, on another day. */
	put(f->s, "b", STORE_RECORD_SETTLE, RECORD_SETTLED, 2 * DAY + 1, 7);
	assert_int_equal(spent(f->s, 1), 257);
	assert_int_equal(spent(f->s, 2), 7);
	assert_int_equal(spent(f->s, 3), 0);
	/* One that a crash left open counts as far as its heartbeat said. */
	put(f->s, "c", STORE_RECORD_OPEN, RECORD_OPEN, 3 * DAY, 0);
	put(f->s, "c", STORE_RECORD_BEAT, RECORD_OPEN, 3 * DAY, 40);
	assert_int_equal(store_records_recover(f->s, STR("g"), 0, &err), 1);
	assert_int_equal(spent(f->s, 3), 40);
	put(f->s, "c", STORE_RECORD_SETTLE, RECORD_SETTLED, 3 * DAY, 50);
	assert_int_equal(spent(f->s, 3), 50);
	/* Records go, what was spent stays. */
	assert_int_equal(store_records_expire(f->s, 100 * DAY, 10, &err), 3);
	assert_int_equal(spent(f->s, 0), 307);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(made_listed_and_revoked, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(changed, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(workspaces_are_set_up, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(spending_is_what_was_settled, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
