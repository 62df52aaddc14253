/* Replies: how a replayed conversation cuts back, and the ids that carry the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/id.h"
#include "conversation/conversation.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * A script is one character an item: u user message, m assistant message, r reasoning, c call, o
 * the client's result, s a server tool's result. A digit behind it is a mark; an o or s belongs to
 * the last call with that letter. Letters A to Z after a call or result are its id. "u cA1 cB1 oA
 * oB m"
 */
static struct item *add(struct conversation *c, const char *token)
{
	static const struct tool *const server = (const struct tool *)1;
	char kind = token[0];
	struct item *it = conversation_add(c, kind == 'c'                  ? ITEM_CALL
	                                      : kind == 'o' || kind == 's' ? ITEM_RESULT
	                                      : kind == 'r'                ? ITEM_REASONING
	                                                                   : ITEM_MESSAGE);
	char text[40] = "";
	const char *mark = token + 1 + (kind == 'c' || kind == 'o' || kind == 's');
	bool ok = true;

	assert_non_null(it);
	it->role = kind == 'u' ? ROLE_USER : ROLE_ASSISTANT;
	if (kind == 'c' || kind == 'o' || kind == 's')
		snprintf(text, sizeof(text), *mark ? "s%s_call%c" : "%scall%c", mark, token[1]);
	else if (*mark)
		snprintf(text, sizeof(text), "msg_s%s_x", mark);
	struct str id = text[0] ? conversation_copy(c, str_of(text), &ok) : (struct str){NULL, 0};

	if (it->type == ITEM_CALL)
		it->call.public_id = id;
	else if (it->type == ITEM_RESULT)
		it->result.public_id = id;
	else
		it->id = id;
	if (kind == 's')
		it->result.tool = server;
	return it;
}

/* Reads a script, cuts it, and gives the replies as letters: items of one reply share one, '.' has
 * none. */
static void cut(const char *script, const char *expected)
{
	struct conversation *c = conversation_new(1 << 20);
	char *copy = mem_strdup(script), *save = NULL, got[64] = "";
	uint32_t numbers[64];
	size_t n_numbers = 0;
	struct error err;

	for (char *t = strtok_r(copy, " ", &save); t != NULL; t = strtok_r(NULL, " ", &save))
		add(c, t);
	assert_int_equal(conversation_cut_replies(c, &err), 0);
	for (size_t i = 0; i < c->n_items; i++) {
		uint32_t r = c->items[i]->reply;
		size_t k = 0;

		if (r == REPLY_NONE) {
			got[i] = '.';
			continue;
		}
		assert_true(r < c->next_reply);
		while (k < n_numbers && numbers[k] != r)
			k++;
		if (k == n_numbers)
			numbers[n_numbers++] = r;
		got[i] = (char)('a' + k);
	}
	if (strcmp(got, expected) != 0)
		fail_msg("%s: expected %s, got %s", script, expected, got);
	for (size_t k = 0; k < n_numbers; k++) {
		size_t index = 0, seen = 0, want = 0;

		while (conversation_reply_item(c, numbers[k], &index) != NULL)
			seen++;
		for (size_t i = 0; i < c->n_items; i++)
			want += c->items[i]->reply == numbers[k];
		assert_int_equal(seen, want);
	}
	free(copy);
	conversation_free(c);
}

static void test_cut(void **state)
{
	cut("u m", ".a");
	cut("u r m", ".aa");
	cut("u m u m", ".a.b");
	cut("u m cA oA m", ".aa.b");
	cut("u cA cB oA oB m", ".aa..b");
	cut("u cA oA cB oB", ".a.b.");
	/* Marks: our own call with its result inside, a client's call of the same reply behind it.
	 */
	cut("u cA0 sA0 cB0 oB0 m", ".a.a.b");
	cut("u cA0 sA0 cB1 sB1 m", ".a.b.c");
	cut("u r m cA0 sA0 r m", ".aaa.bb");
	/* Call and output alternate, and the mark says that it was one reply. */
	cut("u cA3 oA3 cB3 oB3", ".a.a.");
	cut("u m cA2 cB2 oA2 oB2 m7", ".aaa..b");
	/* A marked message behind its calls is of the same reply; an unmarked one is not. */
	cut("u cA2 m2 oA2", ".aa.");
	cut("u cA2 m oA2", ".ab.");
	/* Never across what the user said. */
	cut("u cA2 oA2 u cB2 oB2", ".a..b.");
	/* Ids that come back. */
	cut("u cA oA cA oA m", ".a.b.c");
}

static void test_results(void **state)
{
	struct conversation *c = conversation_new(1 << 20);
	struct error err;

	add(c, "u");
	add(c, "oA");
	assert_int_equal(conversation_cut_replies(c, &err), -ERR_INVALID);
	assert_non_null(strstr(err.text, "callA"));
	conversation_free(c);

	c = conversation_new(1 << 20);
	struct item *first = add(c, "cA"), *r1 = add(c, "oA"), *second = add(c, "cA"),
	            *r2 = add(c, "oA");

	assert_int_equal(conversation_cut_replies(c, &err), 0);
	assert_ptr_equal(conversation_call_result(c, first), r1);
	assert_ptr_equal(conversation_call_result(c, second), r2);
	add(c, "oA");
	assert_int_equal(conversation_cut_replies(c, &err), -ERR_INVALID);
	conversation_free(c);
}

static void test_ids(void **state)
{
	char out[65];
	bool hashed;

	conversation_public_id(3, STR("call_abc"), true, out, &hashed);
	assert_string_equal(out, "s3_call_abc");
	assert_false(hashed);
	assert_true(str_is(conversation_upstream_id(str_of(out), true), "call_abc"));
	assert_int_equal(conversation_id_reply(str_of(out)), 3);
	/* Exactly 40 fits, 41 does not, and neither does a character of another kind. */
	conversation_public_id(12, STR("abcdefghijklmnopqrstuvwxyz0123456789"), true, out, &hashed);
	assert_false(hashed);
	assert_int_equal(strlen(out), 40);
	conversation_public_id(
	        12, STR("abcdefghijklmnopqrstuvwxyz0123456789x"), true, out, &hashed);
	assert_true(hashed);
	assert_true(strlen(out) <= 40);
	assert_int_equal(conversation_id_reply(str_of(out)), 12);
	assert_null(conversation_upstream_id(str_of(out), true).p);
	conversation_public_id(0, STR("call|x"), true, out, &hashed);
	assert_true(hashed);
	conversation_public_id(99999, STR("call|x"), true, out, &hashed);
	assert_true(strlen(out) <= 40);
	/* Without a server tool an id is the client's business. */
	conversation_public_id(3, STR("call|x"), false, out, &hashed);
	assert_string_equal(out, "call|x");
	assert_true(str_is(conversation_upstream_id(STR("s3_x"), false), "s3_x"));
	/* Item ids, and things that only look like marks. */
	assert_int_equal(conversation_id_reply(STR("msg_s4_abc")), 4);
	assert_int_equal(conversation_id_reply(STR("msg_abc")), REPLY_NONE);
	assert_int_equal(conversation_id_reply(STR("s04_abc")), REPLY_NONE);
	assert_int_equal(conversation_id_reply(STR("s_abc")), REPLY_NONE);
	assert_int_equal(conversation_id_reply(STR("s123456_abc")), REPLY_NONE);
	assert_int_equal(conversation_id_reply(STR("")), REPLY_NONE);
}

/* 200,000 results and as many calls must not take quadratic time: this test would run for minutes.
 */
static void test_many(void **state)
{
	struct conversation *c = conversation_new((size_t)512 << 20);
	struct error err;
	bool ok = true;
	char text[32];

	for (int i = 0; i < 200000; i++) {
		struct item *call = conversation_add(c, ITEM_CALL);

		snprintf(text, sizeof(text), "call_%d", i);
		call->role = ROLE_ASSISTANT;
		call->call.public_id = conversation_copy(c, str_of(text), &ok);
	}
	for (int i = 0; i < 200000; i++)
		conversation_add(c, ITEM_RESULT)->result.public_id = c->items[i]->call.public_id;
	assert_true(ok);
	assert_int_equal(conversation_cut_replies(c, &err), 0);
	for (size_t i = 0; i < 200000; i++)
		assert_ptr_equal(conversation_call_result(c, c->items[i]), c->items[200000 + i]);
	conversation_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_cut),
	        cmocka_unit_test(test_results),
	        cmocka_unit_test(test_ids),
	        cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
