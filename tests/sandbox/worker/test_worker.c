/*
 * The worker, as the real supervisor starts it: what gateways ask of it, what a guest tries
 * meanwhile, and what it cannot reach.
 */
#include "files.h"

#include "unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static void finish(struct node *n)
{
	if (n->pid > 0)
		assert_int_equal(node_stop(n), 0);
	node_check_nothing_left(n);
	node_remove(n);
}

static void put_get_list(void **state)
{
	struct node n;
	union reply r;
	node_make(&n);
	node_start(&n);
	assert_int_equal(files_ask(&n, 0, "a", 0, &r), -1);
	assert_int_equal(r.failed.why, SUP_E_UNKNOWN);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	assert_string_equal(files_names(sock), "");
	files_put(sock, "b/c/d.txt", "deep");
	files_put(sock, "a", "first");
	files_put(sock, "b-", "before the folder");
	files_put(sock, "b0", "behind it");
	assert_string_equal(files_names(sock), "a\nb-\nb/c/d.txt\nb0\n");
	assert_string_equal(files_get(sock, "b/c/d.txt"), "deep");
	files_put(sock, "a", "second");
	assert_string_equal(files_get(sock, "a"), "second");
	assert_int_equal(node_state(&n, "a"), SUP_ST_ASLEEP);

	struct sup_claim c = node_claim(&n, "a");
	int channel = node_claimed(&n, 0, &c, &r);
	assert_true(channel >= 0);
	assert_string_equal(
	        channel_output(channel, "cat a b/c/d.txt; echo live > e"), "seconddeep");
	assert_string_equal(files_get(sock, "e"), "live\n");
	assert_string_equal(
	        channel_output(channel, "stat -c %u:%g:%a:%n a b"), "0:0:644:a\n0:0:755:b\n");
	close(channel);
	close(sock);
	finish(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(put_get_list, node_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
