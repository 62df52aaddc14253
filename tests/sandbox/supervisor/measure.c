/*
 * How long the supervisor takes, seen from a gateway, with a container's default sizes, with a pool
 * and without; and what its parts cost, called one by one. Prints microseconds: median, 99th
 * percentile, maximum. Not a test.
 */
#include "node.h"

#include "unit/unit.h"

#include "base/clock.h"
#include "base/str.h"
#include "supervisor/cgroup.h"
#include "supervisor/disk.h"
#include "supervisor/lease.h"
#include "supervisor/netns.h"
#include "supervisor/root.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>

#define MOST 400

struct series {
	const char *name;
	int n;
	double us[MOST];
};
#define SERIES(title)                                                                              \
	{                                                                                          \
		.name = (title)                                                                    \
	}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void report(struct series *s)
{
	qsort(s->us, (size_t)s->n, sizeof(s->us[0]), compare);
	printf("  %-46s %8.0f %8.0f %8.0f  n=%d\n", s->name, s->us[s->n / 2],
	        s->us[s->n * 99 / 100], s->us[s->n - 1], s->n);
}

static double now_us(void)
{
	return (double)clock_mono_ns() / 1e3;
}

static void add(struct series *s, double start)
{
	if (s->n < MOST)
		s->us[s->n++] = now_us() - start;
}

static int claim(struct node *n, const char *name, union reply *r, struct series *s)
{
	struct sup_claim c = node_claim(n, name);
	double start = now_us();
	int channel = node_claimed(n, 0, &c, r);
	if (channel < 0)
		fail_msg("%s", r->failed.step);
	add(s, start);
	return channel;
}

static void from_outside(int rounds, uint32_t pool)
{
	struct series created = SERIES("claim of a new container"),
	              first = SERIES("its first command (true)"),
	              live = SERIES("claim of a live, frozen one"),
	              second = SERIES("a command in a live one (true)"),
	              asleep = SERIES("sleep, until done"),
	              woken = SERIES("claim of an asleep one"),
	              woken_first = SERIES("its first command (true)"),
	              removed = SERIES("delete, until done");
	struct node n;
	union reply r;
	node_make(&n);
	n.cfg.home_mib = 5120;
	n.cfg.scratch_mib = 4096;
	n.cfg.memory_mib = n.cfg.max_memory_mib = 1024;
	n.cfg.n_leases = n.cfg.live = 16;
	n.cfg.pool = pool;
	node_start(&n);
	sleep_ms(500);
	for (int i = 0; i < rounds; i++) {
		int channel = claim(&n, "a", &r, &created);
		double start = now_us();
		channel_output(channel, "true");
		add(&first, start);
		start = now_us();
		channel_output(channel, "true");
		add(&second, start);
		close(channel);
		node_release(&n, 0, r.claimed.hold);
		node_await_state(&n, "a", SUP_ST_FROZEN);
		channel = claim(&n, "a", &r, &live);
		close(channel);
		node_release(&n, 0, r.claimed.hold);
		node_await_state(&n, "a", SUP_ST_FROZEN);
		start = now_us();
		node_key_op(&n, 0, SUP_SLEEP, "a", &r);
		add(&asleep, start);
		channel = claim(&n, "a", &r, &woken);
		start = now_us();
		channel_output(channel, "true");
		add(&woken_first, start);
		close(channel);
		node_release(&n, 0, r.claimed.hold);
		start = now_us();
		node_key_op(&n, 0, SUP_DELETE, "a", &r);
		add(&removed, start);
		sleep_ms(50); /* the pool fills again */
	}
	printf("seen by a gateway, pool of %u                          p50      p99      max us\n",
	        pool);
	report(&created);
	report(&first);
	report(&woken);
	report(&woken_first);
	report(&live);
	report(&second);
	report(&asleep);
	report(&removed);
	node_stop(&n);
	node_remove(&n);
}

static void parts(int rounds)
{
	static struct series group = SERIES("cgroups: make"), limit = SERIES("cgroups: limits"),
	                     net = SERIES("network namespace"),
	                     make = SERIES("home: copy, attach, mount, map"),
	                     again = SERIES("home: attach, mount, map"),
	                     root = SERIES("root: copy, attach, mount scratch, overlay"),
	                     dev = SERIES("dev: clone, map"),
	                     users = SERIES("user namespace for a lease (once for each)"),
	                     gone = SERIES("unmount both, release"),
	                     drop = SERIES("cgroups: remove");
	struct node n;
	struct fail f;
	struct error err;
	struct disk *d;
	struct cgroup_host h;
	node_make(&n);
	n.cfg.home_mib = 5120;
	n.cfg.scratch_mib = 4096;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
	        disk_open(&n.cfg, &d, &err) < 0 ||
	        cgroup_find(n.cfg.data, n.cfg.cgroups, &h, &err) < 0 || cgroup_start(&h, &err) < 0)
		fail_msg("%s", err.text);
	int host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int own = sys_userns(0, sup_uid_lease(&n.cfg, 0));
	uint8_t key[SUP_KEY_LEN] = {1};
	for (int i = 0; i < rounds; i++) {
		struct cgroup_limits limits = {1 << 30, 512, 1000};
		struct home *home = NULL;
		struct image scratch = IMAGE_NONE;
		char name[16];
		int mnt, top, tree;
		bool created;
		str_format(name, sizeof(name), "m%d", i);
		double start = now_us();
		int storage = sys_userns(sup_uid_storage(&n.cfg), sup_uid_lease(&n.cfg, 0));
		add(&users, start);
		start = now_us();
		assert_int_equal(cgroup_make(&h, name, sup_uid_lease(&n.cfg, 0), &f), 0);
		add(&group, start);
		start = now_us();
		assert_int_equal(cgroup_limit(&h, name, &limits, &f), 0);
		add(&limit, start);
		start = now_us();
		assert_int_equal(netns_enter(host, &f), 0);
		netns_leave(host);
		add(&net, start);
		start = now_us();
		assert_int_equal(root_dev_mount(own, &tree, &f), 0);
		add(&dev, start);
		close(tree);
		start = now_us();
		assert_int_equal(disk_home_mount(d, key, storage, &home, &mnt, &created, &f), 0);
		assert_true(created);
		add(&make, start);
		start = now_us();
		assert_int_equal(
		        disk_root_mount(d, 0, own, sup_uid_lease(&n.cfg, 0), &scratch, &top, &f),
		        0);
		add(&root, start);
		start = now_us();
		close(mnt);
		close(top);
		while (!disk_home_release(d, &home) || !image_release(&scratch))
			sched_yield();
		add(&gone, start);
		start = now_us();
		assert_int_equal(disk_home_mount(d, key, storage, &home, &mnt, &created, &f), 0);
		add(&again, start);
		close(mnt);
		while (!disk_home_release(d, &home))
			sched_yield();
		disk_home_delete(d, key);
		start = now_us();
		while (cgroup_remove(&h, name) < 0)
			sched_yield();
		add(&drop, start);
		close(storage);
	}
	printf("parts, called one by one\n");
	report(&users);
	report(&group);
	report(&limit);
	report(&net);
	report(&dev);
	report(&make);
	report(&again);
	report(&root);
	report(&gone);
	report(&drop);
	close(own);
	close(host);
	cgroup_stop(&h);
	disk_free(d);
	node_remove(&n);
}

static int rounds;

static void measure(void **state)
{
	from_outside(rounds, 0);
	from_outside(rounds, 4);
	parts(rounds);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(measure, node_teardown)};
	rounds = argc > 1 ? atoi(argv[1]) : 100;
	if (geteuid() != 0 || rounds < 1 || rounds > MOST) {
		fprintf(stderr, "usage (as root): measure [rounds, at most %d]\n", MOST);
		return 2;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
