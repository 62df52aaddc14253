/* Responses, the chains they make, and idempotency keys. */
#include "fixture.h"

static const struct store_scope one = {{"acme", 4}, {"one", 3}};
static const struct store_scope two = {{"acme", 4}, {"two", 3}};
static const uint64_t plenty = 1 << 30;

static int put_more(struct store *s, const char *id, const char *previous, bool running,
        const char *text, uint64_t quota)
{
	char object[4096];
	struct error err;
	int n = snprintf(object, sizeof(object), "{\"id\":\"%s\",\"output\":[{\"id\":\"m_%s\"}]}%s",
	        id, id, text);
	const char *output = strstr(object, "[{");
	struct store_response_item item = {.at = (size_t)(output + 1 - object)};
	struct store_response r = {.id = str_of(id),
	        .previous = str_of(previous),
	        .running = running,
	        .object = {object, (size_t)n},
	        .output_at = (size_t)(output - object),
	        .items = &item,
	        .n_items = 1,
	        .input = STR("\"asked\""),
	        .n_input = 1,
	        .created_ms = 1,
	        .expires_ms = 1000};
	char name[64];

	snprintf(name, sizeof(name), "m_%s", id);
	item.id = str_of(name);
	item.len = strlen("{\"id\":\"\"}") + strlen(name);
	r.output_len = item.len + 2;
	return store_response_put(s, &one, &r, quota, &err);
}

static void put(struct store *s, const char *id, const char *previous)
{
	assert_int_equal(put_more(s, id, previous, false, "", plenty), 1);
}

static int get(struct store *s, const char *id, int64_t now)
{
	struct store_response_text t = {0};
	struct error err;
	int r = store_response_get(s, &one, str_of(id), now, &t, &err);

	free(t.object);
	return r;
}

/* The ids of a chain, "a b c"; or the error. */
static int chain(struct store *s, const char *id, int64_t now, uint64_t max, char out[64])
{
	struct store_chain c = {0};
	struct error err;
	int r = store_response_chain(s, &one, str_of(id), now, max, &c, &err);

	out[0] = 0;
	for (size_t i = 0; i < c.n; i++) {
		size_t n = strlen(out);

		snprintf(out + n, 64 - n, "%s%s", i > 0 ? " " : "", c.links[i].id);
		assert_string_equal(c.links[i].input, "\"asked\"");
		assert_int_equal(c.links[i].output[0], '[');
	}
	if (r == 0)
		assert_int_equal(c.n_items, 2 * c.n);
	store_chain_clear(&c);
	return r;
}

static void kept_and_found(void **state)
{
	struct fixture *f = *state;
	struct store_response_text t;
	struct error err;
	char *item;
	size_t len;

	put(f->s, "a", NULL);
	assert_int_equal(store_response_get(f->s, &one, STR("a"), 5, &t, &err), 0);
	assert_string_equal(t.object, "{\"id\":\"a\",\"output\":[{\"id\":\"m_a\"}]}");
	assert_false(t.running);
	free(t.object);
	assert_int_equal(store_response_item(f->s, &one, STR("m_a"), 5, &item, &len, &err), 0);
	assert_string_equal(item, "{\"id\":\"m_a\"}");
	free(item);
	assert_int_equal(store_response_get(f->s, &two, STR("a"), 5, &t, &err), -ERR_NOT_FOUND);
	assert_int_equal(
	        store_response_item(f->s, &two, STR("m_a"), 5, &item, &len, &err), -ERR_NOT_FOUND);
	assert_int_equal(get(f->s, "a", 1000), -ERR_NOT_FOUND);
	assert_int_equal(store_response_item(f->s, &one, STR("m_a"), 1000, &item, &len, &err),
	        -ERR_NOT_FOUND);
	/* A second end of the same id changes nothing. */
	assert_int_equal(put_more(f->s, "a", NULL, false, " ", plenty), 0);
}

static void events_are_kept(void **state)
{
	struct fixture *f = *state;
	char bytes[] = "e\0e";
	struct store_response_events e = {.bytes = bytes, .len = 3, .from = 7}, got = {0};
	struct error err;

	assert_int_equal(store_response_events_put(f->s, &one, STR("a"), &e, plenty, &err), 0);
	assert_int_equal(put_more(f->s, "a", NULL, true, "", plenty), 1);
	assert_int_equal(store_response_events_put(f->s, &one, STR("a"), &e, plenty, &err), 0);
	put(f->s, "a", NULL);
	assert_int_equal(store_response_events_get(f->s, &one, STR("a"), 5, &got, &err), 0);
	assert_null(got.bytes);
	assert_int_equal(store_response_events_put(f->s, &two, STR("a"), &e, plenty, &err), 0);
	assert_int_equal(store_response_events_put(f->s, &one, STR("a"), &e, plenty, &err), 1);
	assert_int_equal(store_response_events_put(f->s, &one, STR("a"), &e, plenty, &err), 0);
	assert_int_equal(store_response_events_get(f->s, &one, STR("a"), 5, &got, &err), 0);
	assert_int_equal(got.len, 3);
	assert_memory_equal(got.bytes, "e\0e", 3);
	assert_int_equal(got.from, 7);
	free(got.bytes);
	assert_int_equal(
	        store_response_events_get(f->s, &two, STR("a"), 5, &got, &err), -ERR_NOT_FOUND);
	assert_int_equal(
	        store_response_events_get(f->s, &one, STR("a"), 1000, &got, &err), -ERR_NOT_FOUND);
}

/* They count: the oldest responses make room for them. */
static void events_take_room(void **state)
{
	struct fixture *f = *state;
	char bytes[8192] = {0};
	struct store_response_events e = {.bytes = bytes, .len = sizeof(bytes)};
	struct error err;

	put(f->s, "a", NULL);
	put(f->s, "b", NULL);
	put(f->s, "c", NULL);
	assert_int_equal(store_response_events_put(f->s, &one, STR("b"), &e, 11000, &err), 1);
	assert_int_equal(get(f->s, "a", 5), -ERR_NOT_FOUND);
	assert_int_equal(get(f->s, "b", 5), 0);
}

static void running_comes_to_its_end(void **state)
{
	struct fixture *f = *state;
	struct store_response_text t;
	struct error err;

	assert_int_equal(put_more(f->s, "a", NULL, true, "", plenty), 1);
	assert_int_equal(store_response_get(f->s, &one, STR("a"), 5, &t, &err), 0);
	assert_true(t.running);
	free(t.object);
	put(f->s, "a", NULL);
	assert_int_equal(store_response_get(f->s, &one, STR("a"), 5, &t, &err), 0);
	assert_false(t.running);
	free(t.object);
	assert_int_equal(put_more(f->s, "b", NULL, true, "", plenty), 1);
	assert_int_equal(store_response_delete(f->s, &one, STR("b"), 5, &err), 0);
	assert_int_equal(get(f->s, "b", 5), -ERR_NOT_FOUND);
}

static void chains(void **state)
{
	struct fixture *f = *state;
	struct error err;
	char text[64];

	put(f->s, "a", NULL);
	put(f->s, "b", "a");
	put(f->s, "c", "b");
	put(f->s, "d", "a");
	assert_int_equal(chain(f->s, "c", 5, plenty, text), 0);
	assert_string_equal(text, "a b c");
	assert_int_equal(chain(f->s, "d", 5, plenty, text), 0);
	assert_string_equal(text, "a d");
	assert_int_equal(chain(f->s, "c", 5, 20, text), -ERR_TOO_LARGE);
	assert_int_equal(chain(f->s, "x", 5, plenty, text), -ERR_NOT_FOUND);
	/* What a later one needs stays, unseen. */
	assert_int_equal(store_response_delete(f->s, &one, STR("b"), 5, &err), 0);
	assert_int_equal(store_response_delete(f->s, &one, STR("b"), 5, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_response_delete(f->s, &one, STR("a"), 5, &err), 0);
	assert_int_equal(get(f->s, "a", 5), -ERR_NOT_FOUND);
	assert_int_equal(chain(f->s, "b", 5, plenty, text), -ERR_NOT_FOUND);
	assert_int_equal(chain(f->s, "c", 5, plenty, text), 0);
	assert_string_equal(text, "a b c");
	/* It goes with the last that does: then nothing is left to expire. */
	assert_int_equal(store_response_delete(f->s, &one, STR("c"), 5, &err), 0);
	assert_int_equal(chain(f->s, "d", 5, plenty, text), 0);
	assert_int_equal(store_response_delete(f->s, &one, STR("d"), 5, &err), 0);
	assert_int_equal(store_responses_expire(f->s, 2000, 100, &err), 0);
}

static void expiry_begins_at_the_last(void **state)
{
	struct fixture *f = *state;
	struct error err;

	put(f->s, "a", NULL);
	put(f->s, "b", "a");
	assert_int_equal(store_responses_expire(f->s, 999, 100, &err), 0);
	assert_int_equal(store_responses_expire(f->s, 1000, 100, &err), 1);
	assert_int_equal(store_responses_expire(f->s, 1000, 100, &err), 1);
	assert_int_equal(store_responses_expire(f->s, 1000, 100, &err), 0);
}

static void the_oldest_make_room(void **state)
{
	struct fixture *f = *state;
	char id[8], text[64];

	for (int i = 0; i < 60; i++) {
		snprintf(id, sizeof(id), "r%d", i);
		assert_int_equal(put_more(f->s, id, NULL, false, "", 50000), 1);
	}
	assert_int_equal(get(f->s, "r0", 5), -ERR_NOT_FOUND);
	assert_int_equal(get(f->s, "r59", 5), 0);
	/* A chain whose beginning has gone is none. */
	put(f->s, "a", NULL);
	put(f->s, "b", "a");
	for (int i = 60; i < 140; i++) {
		snprintf(id, sizeof(id), "r%d", i);
		assert_int_equal(put_more(f->s, id, i == 139 ? "b" : NULL, false, "", 50000), 1);
	}
	assert_int_equal(chain(f->s, "r139", 5, plenty, text), -ERR_NOT_FOUND);
	assert_int_equal(put_more(f->s, "big", NULL, false, "", 500), -ERR_TOO_LARGE);
}

/* ---- idempotency keys ---- */

static int claim(struct store *s, uint8_t key, uint8_t request, bool harmless, int64_t now,
        struct store_answer *ret)
{
	uint8_t k[32] = {key}, q[32] = {request};
	struct store_claim c = {.key = k,
	        .request = q,
	        .holder = STR("node/0"),
	        .harmless = harmless,
	        .now_ms = now,
	        .expires_ms = now + 100};
	struct store_answer a = {0};
	struct error err;
	int r = store_idempotency_claim(s, &one, &c, ret ? ret : &a, &err);

	store_answer_clear(&a);
	return r;
}

static void finish(struct store *s, uint8_t key, const char *body, uint64_t quota)
{
	uint8_t k[32] = {key};
	char *text = body ? strdup(body) : NULL;
	struct store_answer a = {
	        .status = 200, .type = "text/plain", .body = text, .len = body ? strlen(body) : 0};
	struct error err;

	assert_int_equal(store_idempotency_finish(s, &one, k, &a, quota, &err), 0);
	free(text);
}

static void claimed_once(void **state)
{
	struct fixture *f = *state;
	struct store_answer a;
	uint8_t key[32] = {2};
	struct error err;

	assert_int_equal(claim(f->s, 1, 7, false, 5, NULL), STORE_CLAIM_NEW);
	assert_int_equal(claim(f->s, 1, 7, false, 6, NULL), STORE_CLAIM_RUNS);
	assert_int_equal(claim(f->s, 1, 8, false, 6, NULL), STORE_CLAIM_OTHER);
	finish(f->s, 1, "answer", plenty);
	assert_int_equal(claim(f->s, 1, 7, false, 7, &a), STORE_CLAIM_DONE);
	assert_string_equal(a.body, "answer");
	assert_string_equal(a.type, "text/plain");
	assert_int_equal(a.status, 200);
	store_answer_clear(&a);
	assert_int_equal(claim(f->s, 1, 7, false, 105, NULL), STORE_CLAIM_NEW);
	/* Released, cut, and not kept. */
	assert_int_equal(claim(f->s, 2, 7, false, 5, NULL), STORE_CLAIM_NEW);
	assert_true(store_idempotency_release(f->s, &one, key, &err) >= 0);
	assert_int_equal(claim(f->s, 2, 9, false, 5, NULL), STORE_CLAIM_NEW);
	assert_true(store_idempotency_cut(f->s, &one, key, &err) >= 0);
	assert_true(store_idempotency_release(f->s, &one, key, &err) >= 0);
	assert_int_equal(claim(f->s, 2, 9, false, 5, NULL), STORE_CLAIM_CUT);
	assert_int_equal(claim(f->s, 3, 9, false, 5, NULL), STORE_CLAIM_NEW);
	finish(f->s, 3, NULL, plenty);
	assert_int_equal(claim(f->s, 3, 9, false, 5, NULL), STORE_CLAIM_LOST);
	assert_true(store_idempotency_expire(f->s, 1000, 100, &err) == 3);
}

static void what_the_dead_ran(void **state)
{
	struct fixture *f = *state;
	struct error err;

	assert_int_equal(claim(f->s, 1, 7, false, 5, NULL), STORE_CLAIM_NEW);
	assert_int_equal(claim(f->s, 2, 7, true, 5, NULL), STORE_CLAIM_NEW);
	assert_int_equal(store_idempotency_recover(f->s, STR("node/1"), &err), 0);
	assert_int_equal(claim(f->s, 1, 7, false, 5, NULL), STORE_CLAIM_RUNS);
	assert_int_equal(store_idempotency_recover(f->s, STR("node/0"), &err), 0);
	assert_int_equal(claim(f->s, 1, 7, false, 5, NULL), STORE_CLAIM_CUT);
	assert_int_equal(claim(f->s, 2, 7, true, 5, NULL), STORE_CLAIM_NEW);
}

static void old_answers_make_room(void **state)
{
	struct fixture *f = *state;

	for (uint8_t i = 0; i < 40; i++) {
		assert_int_equal(claim(f->s, i, 7, false, 5 + i, NULL), STORE_CLAIM_NEW);
		finish(f->s, i, "0123456789", 200);
	}
	assert_int_equal(claim(f->s, 0, 7, false, 60, NULL), STORE_CLAIM_LOST);
	struct store_answer a;

	assert_int_equal(claim(f->s, 39, 7, false, 60, &a), STORE_CLAIM_DONE);
	store_answer_clear(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(kept_and_found, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(events_are_kept, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(events_take_room, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(running_comes_to_its_end, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(chains, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(expiry_begins_at_the_last, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(the_oldest_make_room, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(claimed_once, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(what_the_dead_ran, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(old_answers_make_room, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
