/* Destinations and the outbox: who gets what, in which order, and what is forgotten. */
#include "fixture.h"

#include "record/record.h"

static const struct store_scope one = {{"acme", 4}, {"one", 3}};
static const struct store_scope two = {{"acme", 4}, {"two", 3}};

static struct record *make(const struct store_scope *scope, const char *id, enum record_state state)
{
	struct record *r = record_new();

	str_copy(r->id, sizeof(r->id), str_of(id));
	record_set(&r->account, scope->account);
	record_set(&r->workspace, scope->workspace);
	record_set(&record_add_command(record_add_run(r))->command, STR("echo"));
	record_set(&r->request, STR("{\"input\":\"question\"}"));
	r->state = state;
	r->store_content = true;
	r->begin_ms = r->heartbeat_ms = 1000;
	return r;
}

static void put(struct store *s, const struct store_scope *scope, const char *id,
        enum store_record_what what)
{
	struct record *r =
	        make(scope, id, what == STORE_RECORD_SETTLE ? RECORD_SETTLED : RECORD_OPEN);
	const struct store_record_op op = {what, r};
	struct error err;

	assert_int_equal(store_records_write(s, STR("g"), &op, 1, &err), 0);
	record_free(r);
}

static int make_destination(
        struct store *s, const struct store_scope *scope, const char *id, const char *type)
{
	static char body[] = "{\"a\":1}";
	struct store_destination d = {
	        .enabled = true, .created_ms = 5, .updated_ms = 5, .body = body};
	struct error err;

	str_copy(d.id, sizeof(d.id), str_of(id));
	str_copy(d.type, sizeof(d.type), str_of(type));
	return store_destination_create(s, scope, &d, &err);
}

/* Its number; 0: it is not there. */
static int64_t number_of(struct store *s, const char *id)
{
	struct store_destination *list = NULL;
	struct error err;
	size_t n = 0;
	int64_t ret = 0;

	assert_int_equal(store_destination_list(s, NULL, &list, &n, &err), 0);
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i].id, id) == 0)
			ret = list[i].n;
	store_destinations_free(list, n);
	return ret;
}

/* The ids of what waits, with a space behind each; "-" for a record that has gone. */
static const char *waiting(struct store *s, const char *id)
{
	static char text[4096];
	struct store_delivery *list = NULL;
	struct error err;
	size_t n = 0;

	text[0] = 0;
	assert_int_equal(
	        store_outbox_read(s, number_of(s, id), true, 100, 1 << 20, &list, &n, &err), 0);
	for (size_t i = 0; i < n; i++) {
		strncat(text, list[i].record ? list[i].record->id : "-", 100);
		strncat(text, " ", 2);
		assert_true(i == 0 || list[i].seq > list[i - 1].seq);
	}
	store_deliveries_free(list, n);
	return text;
}

static void only_its_own(void **state)
{
	struct fixture *f = *state;
	struct store_destination fixed = {.enabled = true, .type = "webhook", .id = "all"};
	struct error err;

	put(f->s, &one, "before", STORE_RECORD_SETTLE);
	assert_int_equal(make_destination(f->s, &one, "d1", "webhook"), 0);
	assert_int_equal(make_destination(f->s, &two, "d2", "webhook"), 0);
	assert_int_equal(store_destinations_fix(f->s, &fixed, 1, 100, &err), 0);
	put(f->s, &one, "a", STORE_RECORD_OPEN);
	assert_string_equal(waiting(f->s, "d1"), "");
	put(f->s, &one, "b", STORE_RECORD_SETTLE); /* never opened */
	put(f->s, &one, "a", STORE_RECORD_SETTLE);
	put(f->s, &two, "c", STORE_RECORD_SETTLE);
	put(f->s, &two, "c", STORE_RECORD_SETTLE); /* written once more: it has ended already */
	assert_string_equal(waiting(f->s, "d1"), "b a ");
	assert_string_equal(waiting(f->s, "d2"), "c ");
	assert_string_equal(waiting(f->s, "all"), "b a c ");
}

static void recovered_ones_too(void **state)
{
	struct fixture *f = *state;
	struct error err;

	make_destination(f->s, &one, "d", "webhook");
	put(f->s, &one, "a", STORE_RECORD_OPEN);
	put(f->s, &one, "b", STORE_RECORD_OPEN);
	assert_int_equal(store_records_recover(f->s, STR("g"), 0, &err), 2);
	assert_string_equal(waiting(f->s, "d"), "a b ");
	/* Its gateway was not dead after all: what it says is sent too. */
	put(f->s, &one, "a", STORE_RECORD_SETTLE);
	assert_string_equal(waiting(f->s, "d"), "a b a ");
}

static void done_dropped_and_counted(void **state)
{
	struct fixture *f = *state;
	struct store_outbox_count *counts = NULL;
	struct store_delivery *list = NULL;
	struct error err;
	size_t n = 0;
	int64_t d;
	char id[8];

	make_destination(f->s, &one, "d", "webhook");
	make_destination(f->s, &one, "e", "s3");
	d = number_of(f->s, "d");
	for (int i = 0; i < 5; i++) {
		str_format(id, sizeof(id), "r%d", i);
		put(f->s, &one, id, STORE_RECORD_SETTLE);
	}
	assert_int_equal(store_outbox_read(f->s, d, false, 2, 1 << 20, &list, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_true(list[0].record->request == NULL);
	assert_true(list[0].record->runs[0].commands[0].command == NULL);
	assert_int_equal(store_outbox_done(f->s, d, list[1].seq, &err), 0);
	store_deliveries_free(list, n);
	assert_string_equal(waiting(f->s, "d"), "r2 r3 r4 ");
	assert_int_equal(store_outbox_drop(f->s, d, 1, &err), 1);
	assert_string_equal(waiting(f->s, "d"), "r3 r4 ");
	assert_string_equal(waiting(f->s, "e"), "r0 r1 r2 r3 r4 ");
	assert_int_equal(store_outbox_counts(f->s, &counts, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_true(counts[0].destination == d && counts[0].rows == 2 && counts[1].rows == 5);
	free(counts);
	/* A batch ends with the record that fills it. */
	assert_int_equal(store_outbox_read(f->s, d, true, 10, 1, &list, &n, &err), 0);
	assert_int_equal(n, 1);
	store_deliveries_free(list, n);
}

static void records_that_have_gone(void **state)
{
	struct fixture *f = *state;
	struct error err;

	make_destination(f->s, &one, "d", "webhook");
	put(f->s, &one, "a", STORE_RECORD_SETTLE);
	assert_int_equal(store_records_expire(f->s, 2000, 10, &err), 1);
	assert_string_equal(waiting(f->s, "d"), "- ");
	/* Its number is another tenant's now. */
	put(f->s, &two, "secret", STORE_RECORD_SETTLE);
	assert_string_equal(waiting(f->s, "d"), "- ");
}

static void changed_and_removed(void **state)
{
	struct fixture *f = *state;
	struct store_destination d = {0};
	struct error err;

	make_destination(f->s, &one, "d", "webhook");
	assert_int_equal(store_destination_get(f->s, &two, STR("d"), &d, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_destination_get(f->s, &one, STR("d"), &d, &err), 0);
	assert_string_equal(d.body, "{\"a\":1}");
	assert_false(d.waiting);
	put(f->s, &one, "a", STORE_RECORD_SETTLE);
	d.enabled = false;
	d.updated_ms = 6;
	assert_int_equal(store_destination_update(f->s, &two, &d, 5, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_destination_update(f->s, &one, &d, 4, &err), -ERR_CONFLICT);
	assert_int_equal(store_destination_update(f->s, &one, &d, 5, &err), 0);
	store_destination_clear(&d);
	put(f->s, &one, "b", STORE_RECORD_SETTLE); /* not for one that is switched off */
	assert_string_equal(waiting(f->s, "d"), "a ");
	assert_int_equal(store_destination_delete(f->s, &two, STR("d"), &err), -ERR_NOT_FOUND);
	assert_int_equal(store_destination_delete(f->s, &one, STR("d"), &err), 0);
	assert_int_equal(store_destination_delete(f->s, &one, STR("d"), &err), -ERR_NOT_FOUND);
	assert_string_equal(waiting(f->s, "d"), "");
	/* A new one has another number: it does not get what waited for that one. */
	make_destination(f->s, &one, "d", "webhook");
	assert_string_equal(waiting(f->s, "d"), "");
}

static void five_of_a_type(void **state)
{
	struct fixture *f = *state;
	char id[8];

	for (int i = 0; i < 5; i++) {
		str_format(id, sizeof(id), "d%d", i);
		assert_int_equal(make_destination(f->s, &one, id, "webhook"), 0);
	}
	assert_int_equal(make_destination(f->s, &one, "d5", "webhook"), -ERR_CONFLICT);
	assert_int_equal(make_destination(f->s, &one, "d6", "s3"), 0);
	assert_int_equal(make_destination(f->s, &two, "d7", "webhook"), 0);
}

static void fixed_ones(void **state)
{
	struct fixture *f = *state;
	static char workspace[] = "two";
	struct store_destination list[] = {
	        {.enabled = true, .type = "webhook", .id = "x"},
	        {.enabled = true, .type = "s3", .id = "y", .workspace = workspace},
	};
	struct store_destination d;
	struct error err;

	make_destination(f->s, &one, "d", "webhook");
	assert_int_equal(store_destinations_fix(f->s, list, 2, 100, &err), 0);
	put(f->s, &one, "a", STORE_RECORD_SETTLE);
	put(f->s, &two, "b", STORE_RECORD_SETTLE);
	assert_string_equal(waiting(f->s, "y"), "b ");
	/* The clock went back meanwhile. */
	assert_int_equal(store_destinations_fix(f->s, list, 1, 50, &err), 0);
	assert_string_equal(waiting(f->s, "x"), "a b ");
	assert_int_equal(number_of(f->s, "y"), 0);
	assert_true(number_of(f->s, "d") > 0);
	/* Not a tenant's. */
	assert_int_equal(store_destination_get(f->s, &one, STR("x"), &d, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_destination_delete(f->s, &one, STR("x"), &err), -ERR_NOT_FOUND);
	assert_int_equal(store_destinations_fix(f->s, NULL, 0, 200, &err), 0);
	assert_int_equal(number_of(f->s, "x"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(only_its_own, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(recovered_ones_too, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(done_dropped_and_counted, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(records_that_have_gone, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(changed_and_removed, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(five_of_a_type, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(fixed_ones, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
