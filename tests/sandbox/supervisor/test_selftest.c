/*
 * The self-test over images that have next to nothing, on each kind of control groups, and with
 * rules taken away that only the supervisor's side can take: limits that are not set, a freezer
 * that does not freeze. (Those of the inside are taken away in tests/cli/test_selftest.py.) Run as
 * root. BRIG_TEST_CGROUPS=v1 forces version 1.
 */
#include "node.h"

#include "unit/unit.h"

#include "base/str.h"
#include "supervisor/selftest.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_all(const struct sup_probe *rows)
{
	for (int i = 0; i < SUP_N_PROBES; i++)
		if (!sup_probe_holds(&rows[i]))
			fail_msg("%s: %s", rows[i].name, rows[i].seen);
}

static void check_no_trace(struct node *n)
{
	char path[sizeof(n->cfg.data) + 16];
	str_format(path, sizeof(path), "%s/selftest", n->cfg.data);
	assert_int_equal(access(path, F_OK), -1);
	node_check_nothing_left(n);
	node_remove(n);
}

static void all_hold(void **state)
{
	struct sup_probe rows[SUP_N_PROBES];
	struct error err = {0};
	struct node n;
	node_make(&n);
	if (supervisor_selftest(&n.cfg, rows, &err) < 0)
		fail_msg("%s", err.text);
	expect_all(rows);
	check_no_trace(&n);
}

/* Nothing of the image is used, so an image without any file will do. */
static void nothing_of_the_image_is_needed(void **state)
{
	struct sup_probe rows[SUP_N_PROBES];
	struct error err = {0};
	char script[512];
	struct node n;
	node_make(&n);
	str_format(script, sizeof(script),
	        "cd %s && mkdir none && mkfs.erofs images/empty.erofs none >/dev/null 2>&1 && "
	        "rmdir none",
	        n.cfg.data);
	assert_int_equal(system(script), 0);
	str_format(n.cfg.images[0], sizeof(n.cfg.images[0]), "empty.erofs");
	if (supervisor_selftest(&n.cfg, rows, &err) < 0)
		fail_msg("%s", err.text);
	expect_all(rows);
	check_no_trace(&n);
}

static void a_broken_image_is_an_error(void **state)
{
	struct sup_probe rows[SUP_N_PROBES];
	struct error err = {0};
	char path[sizeof(((struct node *)0)->cfg.data) + 32];
	struct node n;
	node_make(&n);
	str_format(path, sizeof(path), "%s/images/base.erofs", n.cfg.data);
	assert_int_equal(truncate(path, 1000), 0);
	assert_true(supervisor_selftest(&n.cfg, rows, &err) < 0);
	assert_non_null(strstr(err.text, "base.erofs"));
	check_no_trace(&n);
}

static void a_server_tests_itself_at_each_start(void **state)
{
	union reply r;
	struct node n;
	node_make(&n);
	n.cfg.untested = false;
	for (int i = 1; i <= 2; i++) {
		node_start(&n);
		assert_int_equal(node_logged(&n, "\"event\":\"selftest\""), i);
		assert_int_equal(node_inits(&n), 0);
		struct sup_claim c = node_claim(&n, "a");
		int channel = node_claimed(&n, 0, &c, &r);
		assert_string_equal(channel_output(channel, "echo held"), "held\n");
		close(channel);
		assert_int_equal(node_files(&n, "homes"), 1);
		assert_int_equal(node_stop(&n), 0);
	}
	check_no_trace(&n);
}

/* ---- rules taken away ---- */

static int set_nothing(
        const struct cgroup_host *h, const char *name, const struct cgroup_limits *limits)
{
	return 0;
}

static int freeze_nothing(const struct cgroup_host *h, const char *group, bool on)
{
	return 0;
}

struct broken {
	int code;
	struct error err;
	struct sup_probe rows[SUP_N_PROBES];
};

/* In a child, with the supervisor's own parts but for those of `limit` and `tree` that are given.
 */
static void probe_broken(struct sup_config *cfg, struct broken *b, bool limit, bool tree)
{
	struct sandbox_host h = {.init_image = -1, .worker_image = -1, .net_ns = -1};
	struct cgroup_limit_ops no_limit;
	struct cgroup_tree_ops no_tree;
	for (int i = 0; i < CGH_N; i++)
		h.cgroup.parent[i] = h.cgroup.root[i] = -1;
	b->code = -1;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
	        disk_open(cfg, &h.disk, &b->err) < 0 ||
	        cgroup_find(cfg->data, cfg->cgroups, &h.cgroup, &b->err) < 0 ||
	        cgroup_start(&h.cgroup, &b->err) < 0 || sandbox_host_open(cfg, &h, &b->err) < 0)
		_exit(1);
	const struct cgroup_limit_ops *real_limit = h.cgroup.limit;
	const struct cgroup_tree_ops *real_tree = h.cgroup.tree;
	no_limit = *real_limit;
	no_limit.set = set_nothing;
	no_tree = *real_tree;
	no_tree.freeze = freeze_nothing;
	h.cgroup.limit = limit ? &no_limit : real_limit;
	h.cgroup.tree = tree ? &no_tree : real_tree;
	b->code = selftest_probe(&h, b->rows, &b->err);
	h.cgroup.limit = real_limit;
	h.cgroup.tree = real_tree;
	cgroup_stop(&h.cgroup);
	sandbox_host_close(&h);
	disk_free(h.disk);
	_exit(0);
}

static void expect_failed(bool limit, bool tree, const enum probe_number *wanted, int n_wanted)
{
	struct node n;
	node_make(&n);
	struct broken *b =
	        mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(b != MAP_FAILED);
	pid_t pid = fork();
	if (pid == 0)
		probe_broken(&n.cfg, b, limit, tree);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status || b->code < 0)
		fail_msg("status %d: %s", status, b->err.text);
	for (int i = 0; i < n_wanted; i++)
		if (b->rows[wanted[i]].state != PROBE_FAILED)
			fail_msg("%s held: %s", b->rows[wanted[i]].name, b->rows[wanted[i]].seen);
	for (int i = 0; i < SUP_N_PROBES; i++) {
		bool named = false;
		for (int k = 0; k < n_wanted; k++)
			named = named || wanted[k] == (enum probe_number)i;
		/* A busy machine sees to the limit of processor time itself. */
		bool may = limit && i == PROBE_CPU;
		if (!named && !may && !sup_probe_holds(&b->rows[i]))
			fail_msg("%s too: %s", b->rows[i].name, b->rows[i].seen);
	}
	munmap(b, sizeof(*b));
	check_no_trace(&n);
}

static void limits_that_are_not_set(void **state)
{
	static const enum probe_number wanted[] = {PROBE_PIDS, PROBE_MEMORY};
	expect_failed(true, false, wanted, 2);
}

static void a_freezer_that_does_not_freeze(void **state)
{
	static const enum probe_number wanted[] = {PROBE_FREEZE};
	expect_failed(false, true, wanted, 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(all_hold, node_teardown),
	        cmocka_unit_test_teardown(nothing_of_the_image_is_needed, node_teardown),
	        cmocka_unit_test_teardown(a_broken_image_is_an_error, node_teardown),
	        cmocka_unit_test_teardown(a_server_tests_itself_at_each_start, node_teardown),
	        cmocka_unit_test_teardown(limits_that_are_not_set, node_teardown),
	        cmocka_unit_test_teardown(a_freezer_that_does_not_freeze, node_teardown),
	};
	if (geteuid() != 0 || access("/bin/busybox", X_OK) < 0) {
		fprintf(stderr, "skipped: needs root and /bin/busybox (package busybox-static)\n");
		return 77;
	}
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("selftest", tests, NULL, NULL);
}
