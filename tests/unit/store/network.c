/* Records of egress: of whose containers, how many, and how long. */
#include "fixture.h"

#include <sqlite3.h>

static const struct store_scope one = {{"acme", 4}, {"one", 3}};
static const struct store_scope two = {{"acme", 4}, {"two", 3}};

static void make_container(struct store *s, const char *id)
{
	struct store_container c = {.created_ms = 1, .last_used_ms = 1, .memory_mib = 16};
	struct error err;

	str_copy(c.id, sizeof(c.id), str_of(id));
	str_copy(c.name, sizeof(c.name), str_of(id));
	str_copy(c.image, sizeof(c.image), STR("base"));
	assert_true(store_container_create(s, &one, &c, NULL, &err) >= 0);
}

static struct store_network record(const char *id, int64_t time_ms)
{
	struct store_network n = {.time_ms = time_ms,
	        .port = 443,
	        .allowed = true,
	        .bytes_in = 7,
	        .bytes_out = INT64_MAX,
	        .more = 3};

	str_copy(n.account, sizeof(n.account), one.account);
	str_copy(n.workspace, sizeof(n.workspace), one.workspace);
	str_copy(n.container, sizeof(n.container), str_of(id));
	str_copy(n.name, sizeof(n.name), STR("a.com"));
	str_copy(n.address, sizeof(n.address), STR("192.0.2.1"));
	str_copy(n.reason, sizeof(n.reason), STR("why"));
	return n;
}

static size_t count(struct store *s, const struct store_scope *scope, const char *id,
        struct store_network **ret)
{
	struct store_network *rows = NULL;
	struct error err;
	size_t n = 0;

	assert_int_equal(store_network_list(s, scope, str_of(id), 2000, &rows, &n, &err), 0);
	if (ret)
		*ret = rows;
	else
		free(rows);
	return n;
}

static void added_and_listed(void **state)
{
	struct fixture *f = *state;
	struct store_network in[] = {record("c", 5), record("c", 6), record("gone", 7)}, *rows;
	struct error err;

	make_container(f->s, "c");
	assert_int_equal(store_network_add(f->s, in, 3, &err), 0);
	assert_int_equal(count(f->s, &one, "c", &rows), 2);
	assert_int_equal(rows[0].time_ms, 6);
	assert_string_equal(rows[0].name, "a.com");
	assert_string_equal(rows[0].address, "192.0.2.1");
	assert_string_equal(rows[0].reason, "why");
	assert_true(rows[0].allowed && rows[0].port == 443 && rows[0].bytes_in == 7);
	assert_true(rows[0].bytes_out == INT64_MAX && rows[0].more == 3);
	free(rows);
	assert_int_equal(count(f->s, &two, "c", NULL), 0);
	assert_int_equal(count(f->s, &one, "gone", NULL), 0);
}

static void the_newest_are_kept(void **state)
{
	struct fixture *f = *state;
	struct store_network *in = calloc(500, sizeof(*in)), *rows;
	struct error err;

	make_container(f->s, "c");
	make_container(f->s, "d");
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < 500; i++)
			in[i] = record(turn == 0 && i < 10 ? "d" : "c", turn * 500 + i);
		assert_int_equal(store_network_add(f->s, in, 500, &err), 0);
	}
	assert_int_equal(count(f->s, &one, "c", &rows), STORE_NETWORK_MAX);
	assert_int_equal(rows[0].time_ms, 1499);
	assert_int_equal(rows[STORE_NETWORK_MAX - 1].time_ms, 500);
	free(rows);
	assert_int_equal(count(f->s, &one, "d", NULL), 10);
	free(in);
}

static void they_go_with_their_container(void **state)
{
	struct fixture *f = *state;
	struct store_network in = record("c", 5);
	struct error err;

	make_container(f->s, "c");
	assert_int_equal(store_network_add(f->s, &in, 1, &err), 0);
	assert_int_equal(store_container_mark_deleting(f->s, &one, STR("c"), 9, &err), 0);
	/* One of a container that is being deleted is not kept. */
	assert_int_equal(store_network_add(f->s, &in, 1, &err), 0);
	assert_int_equal(count(f->s, &one, "c", NULL), 1);
	assert_int_equal(store_container_delete(f->s, &one, STR("c"), &err), 1);
	assert_int_equal(count(f->s, &one, "c", NULL), 0);
	make_container(f->s, "c");
	assert_int_equal(store_network_add(f->s, &in, 1, &err), 0);
	assert_int_equal(store_container_mark_deleting(f->s, &one, STR("c"), 9, &err), 0);
	make_container(f->s, "c");
	assert_int_equal(count(f->s, &one, "c", NULL), 0);
}

static void old_ones_expire(void **state)
{
	struct fixture *f = *state;
	struct store_network in[] = {record("c", 5), record("c", 6), record("c", 50)};
	struct error err;

	make_container(f->s, "c");
	assert_int_equal(store_network_add(f->s, in, 3, &err), 0);
	assert_int_equal(store_network_expire(f->s, 6, 1, &err), 1);
	assert_int_equal(store_network_expire(f->s, 6, 10, &err), 1);
	assert_int_equal(store_network_expire(f->s, 6, 10, &err), 0);
	assert_int_equal(count(f->s, &one, "c", NULL), 1);
}

static void a_rows_policy(void **state)
{
	struct fixture *f = *state;
	struct store_container c = {0};
	struct error err;

	make_container(f->s, "c");
	assert_int_equal(store_container_network(f->s, &one, STR("c"), STR("{}"), &err), 0);
	assert_int_equal(store_container_get(f->s, &one, STR("c"), &c, &err), 0);
	assert_string_equal(c.network, "{}");
	store_container_clear(&c);
	assert_int_equal(
	        store_container_network(f->s, &two, STR("c"), STR("{}"), &err), -ERR_NOT_FOUND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(added_and_listed, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(the_newest_are_kept, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(they_go_with_their_container, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(old_ones_expire, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(a_rows_policy, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
