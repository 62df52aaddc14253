/*
 * The pool of sandboxes made ahead of use, in the real supervisor. Run as root.
 * BRIG_TEST_CGROUPS=v1 forces version 1; arguments name the tests to run (all without any).
 * $BRIG_TEST_SBX is the helper that runs inside.
 */
#include "node.h"

#include "unit/unit.h"

#include "base/str.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>

#define POOLED "\"pooled\":1"
#define COLD   "\"pooled\":0"

static void make(struct node *n, uint32_t live, uint32_t pool)
{
	node_make(n);
	n->cfg.n_leases = n->cfg.live = live;
	n->cfg.pool = pool;
}

static void finish(struct node *n)
{
	if (n->pid > 0)
		assert_int_equal(node_stop(n), 0);
	node_check_nothing_left(n);
	node_remove(n);
}

/* Until there are so many inits in all, and so many homes without a name. */
static void await_inits(struct node *n, int inits, int homes)
{
	uint64_t end = now_ms() + NODE_LIMIT_MS;
	while (node_inits(n) != inits || node_files(n, "scratch") != homes) {
		if (now_ms() > end)
			fail_msg("%d inits and %d homes, not %d and %d", node_inits(n),
			        node_files(n, "scratch"), inits, homes);
		sleep_ms(5);
	}
	sleep_ms(100); /* the last one has its root and has said so */
}

static int claim_ok(struct node *n, const char *name, union reply *r)
{
	struct sup_claim c = node_claim(n, name);
	int channel = node_claimed(n, 0, &c, r);
	if (channel < 0)
		fail_msg("claim of %s failed: %u, %s, %s", name, r->failed.why, r->failed.step,
		        strerror((int)r->failed.errnum));
	return channel;
}

static void make_idle(struct node *n, const char *name)
{
	union reply r;
	int channel = claim_ok(n, name, &r);
	channel_output(channel, "echo was here > mark");
	close(channel);
	node_release(n, 0, r.claimed.hold);
	node_await_state(n, name, SUP_ST_FROZEN);
}

/* ---- claims ---- */

static void claims_come_from_the_pool(void **state)
{
	struct node n;
	union reply r;
	make(&n, 12, 3);
	node_start(&n);
	await_inits(&n, 3, 3);
	for (int i = 0; i < 5; i++) {
		char name[8], out[256];
		str_format(name, sizeof(name), "p%d", i);
		struct sup_claim c = node_claim(&n, name);
		str_format(c.hostname, sizeof(c.hostname), "host-%d", i);
		c.memory_mib = 64;
		c.processes = 32;
		int channel = node_claimed(&n, 0, &c, &r);
		assert_true(channel >= 0);
		assert_int_equal(r.claimed.how, SUP_CREATED);
		/* what the request chose holds */
		channel_run(channel, "hostname; cat /etc/hostname; grep -o host-. /etc/hosts", out,
		        sizeof(out));
		char expected[64];
		str_format(expected, sizeof(expected), "%s\n%s\n%s\n", c.hostname, c.hostname,
		        c.hostname);
		assert_string_equal(out, expected);
		assert_string_equal(
		        channel_output(channel, "grep MemTotal /proc/meminfo; df -m /tmp /dev/shm "
		                                "| awk 'NR>1 {print $2}'"),
		        "MemTotal:          65536 kB\n32\n16\n");
		assert_int_equal(
		        channel_run(channel, "dd if=/dev/zero of=/dev/null bs=200M count=1", out,
		                sizeof(out)),
		        1000 + SIGKILL);
		assert_true(channel_run(channel, "for i in $(seq 100); do sleep 5 & done; wait",
		                    out, sizeof(out)) != 0);
		close(channel);
		node_release(&n, 0, r.claimed.hold);
		await_inits(&n, 3 + i + 1, 3);
	}
	assert_int_equal(node_logged(&n, POOLED), 5);
	assert_int_equal(node_logged(&n, COLD), 0);
	finish(&n);
}

/* The homes without a name, of which there are so many. */
static void list_homes(const struct node *n, int homes, char ret_names[][64])
{
	char path[sizeof(n->cfg.data) + 16];
	str_format(path, sizeof(path), "%s/scratch", n->cfg.data);
	DIR *dir = opendir(path);
	assert_non_null(dir);
	int found = 0;
	for (struct dirent *e; (e = readdir(dir));)
		if (e->d_name[0] != '.' && found++ < homes)
			str_format(ret_names[found - 1], sizeof(ret_names[0]), "%s", e->d_name);
	closedir(dir);
	assert_int_equal(found, homes);
}

static void an_old_home_comes_along(void **state)
{
	struct node n;
	union reply r;
	char homes[2][64], path[sizeof(n.cfg.data) + 80];
	make(&n, 12, 2);
	node_start(&n);
	await_inits(&n, 2, 2);
	make_idle(&n, "a");
	node_key_op(&n, 0, SUP_SLEEP, "a", &r);
	await_inits(&n, 2, 2);
	list_homes(&n, 2, homes);
	int channel = claim_ok(&n, "a", &r);
	assert_int_equal(r.claimed.how, SUP_WOKEN);
	assert_string_equal(channel_output(channel, "cat mark"), "was here\n");
	for (int i = 0; i < 2; i++) { /* no new home was taken for it */
		str_format(path, sizeof(path), "%s/scratch/%s", n.cfg.data, homes[i]);
		assert_int_equal(access(path, F_OK), 0);
	}
	assert_int_equal(node_files(&n, "homes"), 1);
	close(channel);
	assert_int_equal(node_logged(&n, POOLED), 2);
	finish(&n);
}

/* Whatever one leaves, neither the next one sees it nor one that was made at the same time. */
static void nothing_is_shared(void **state)
{
	static const char look[] =
	        "ls -A /workspace/home /tmp /dev/shm /dev/mqueue /var /root; ls /etc | wc -l; "
	        "ps | grep -c [s]leep; "
	        "sbx find; umask; env | sort; cat /proc/sys/kernel/hostname; ip -o addr | wc -l";
	struct node n;
	union reply r;
	char clean[4096];
	make(&n, 12, 3);
	node_start(&n);
	await_inits(&n, 3, 3);
	int channel = claim_ok(&n, "clean", &r);
	assert_int_equal(channel_run(channel, look, clean, sizeof(clean)), 0);
	close(channel);
	channel = claim_ok(&n, "a", &r);
	channel_output(channel,
	        "for d in /workspace/home /tmp /dev/shm /var /root /etc; do echo x > $d/left; "
	        "done; "
	        "umask 0; export LEFT=1; sbx leave; (sleep 1000 >/dev/null 2>&1 &); "
	        "echo x >> /etc/passwd; rm /bin/vi");
	assert_string_equal(channel_output(channel, "sbx find"), "socket\nshm\nqueue\nsemaphore\n");
	int other = claim_ok(&n, "b", &r);
	assert_string_equal(channel_output(other, look), clean);
	assert_string_equal(channel_output(other, "cat /etc/passwd; ls /bin/vi"),
	        "root:x:0:0:root:/root:/bin/sh\n/bin/vi\n");
	close(other);
	/* its ids go round, and come to another once it has gone */
	for (int i = 0; i < 6; i++) {
		char name[8];
		str_format(name, sizeof(name), "s%d", i);
		close(channel);
		node_key_op(&n, 0, SUP_DELETE, i ? name : "a", &r);
		assert_int_equal(r.h.op, SUP_DONE);
		await_inits(&n, i ? 3 + 2 : 3 + 2, 3);
		str_format(name, sizeof(name), "s%d", i + 1);
		channel = claim_ok(&n, name, &r);
		assert_string_equal(channel_output(channel, look), clean);
		channel_output(channel, "sbx leave; echo x > /tmp/left; echo x > /dev/shm/left");
		await_inits(&n, 3 + 3, 3);
	}
	close(channel);
	assert_int_equal(node_logged(&n, COLD), 0);
	finish(&n);
}

/* More at once than there are: all are served, and then there are as many as before. */
static void burst(void **state)
{
	struct node n;
	make(&n, 16, 4);
	node_start(&n);
	await_inits(&n, 4, 4);
	for (int round = 0; round < 3; round++) {
		uint64_t generation[10];
		for (int i = 0; i < 10; i++) {
			char name[16];
			str_format(name, sizeof(name), "b%d-%d", round, i);
			struct sup_claim c = node_claim(&n, name);
			c.wait_ms = 20000;
			node_send(&n, 0, &c, sizeof(c));
		}
		for (int i = 0; i < 10; i++) {
			union reply r;
			int channel;
			node_recv(&n, 0, &r, &channel);
			if (r.h.op == SUP_ENDED) {
				i--;
				continue;
			}
			assert_int_equal(r.h.op, SUP_CLAIMED);
			assert_int_equal(r.claimed.how, SUP_CREATED);
			generation[i] = r.claimed.generation;
			for (int k = 0; k < i; k++)
				assert_true(generation[k] != generation[i]);
			assert_string_equal(
			        channel_output(channel, "echo x > f; ls | wc -l"), "1\n");
			close(channel);
			node_release(&n, 0, r.claimed.hold);
		}
	}
	/* 30 were asked for and 16 live: the last ones; the pool made room for them */
	assert_true(node_logged(&n, POOLED) >= 4);
	assert_int_equal(node_logged(&n, POOLED) + node_logged(&n, COLD), 30);
	assert_int_equal(node_files(&n, "homes"), 30);
	finish(&n);
}

/* ---- room ---- */

static void pool_makes_room(void **state)
{
	struct node n;
	union reply r;
	char name[8];
	make(&n, 8, 64); /* a quarter at most: two */
	node_start(&n);
	await_inits(&n, 2, 2);
	for (int i = 0; i < 8; i++) {
		str_format(name, sizeof(name), "m%d", i);
		make_idle(&n, name);
		await_inits(&n, i < 6 ? i + 3 : 8, 2); /* fills up again only while there is room */
	}
	for (int i = 0; i < 8; i++) { /* nobody had to go */
		str_format(name, sizeof(name), "m%d", i);
		assert_int_equal(node_state(&n, name), SUP_ST_FROZEN);
	}
	/* now somebody has to; and one that goes makes room for the pool */
	close(claim_ok(&n, "m8", &r));
	assert_int_equal(node_state(&n, "m0"), SUP_ST_ASLEEP);
	node_key_op(&n, 0, SUP_DELETE, "m1", &r);
	await_inits(&n, 8, 2);
	/* other images are made room for as well */
	struct sup_claim c = node_claim(&n, "x");
	c.image = 1;
	assert_int_equal(node_claimed(&n, 0, &c, &r), -1);
	assert_int_equal(r.failed.why, SUP_E_INVALID);
	finish(&n);
}

static void images_have_their_own(void **state)
{
	struct node n;
	union reply r;
	char script[3 * sizeof(n.cfg.data)], name[8];
	make(&n, 8, 2);
	str_format(script, sizeof(script),
	        "cd %s && mkdir root && cd root && mkdir bin proc dev tmp etc root workspace usr "
	        "var "
	        "&& cp /bin/busybox bin/busybox && for i in sh cat ls; do ln -s busybox bin/$i; "
	        "done "
	        "&& echo other > what && cd .. && mkfs.erofs images/other.erofs root >/dev/null && "
	        "rm -rf root",
	        n.cfg.data);
	assert_int_equal(system(script), 0);
	str_format(n.cfg.images[1], sizeof(n.cfg.images[1]), "other.erofs");
	node_start(&n);
	await_inits(&n, 2, 2);
	for (int i = 0; i < 4; i++) {
		str_format(name, sizeof(name), "i%d", i);
		struct sup_claim c = node_claim(&n, name);
		c.image = 1;
		int channel = node_claimed(&n, 0, &c, &r);
		assert_true(channel >= 0);
		assert_string_equal(channel_output(channel, "cat /what"), "other\n");
		close(channel);
		await_inits(&n, 2 + i + 1, 2);
		sleep_ms(300);
	}
	/* the first had no other choice; then the pool knew */
	assert_true(node_logged(&n, COLD) >= 1 && node_logged(&n, POOLED) >= 2);
	int channel = claim_ok(&n, "first image", &r);
	assert_string_equal(channel_output(channel, "ls /what 2>/dev/null || echo none"), "none\n");
	close(channel);
	finish(&n);
}

static void without_pool(void **state)
{
	struct node n;
	union reply r;
	make(&n, 12, 0);
	node_start(&n);
	sleep_ms(300);
	assert_int_equal(node_inits(&n), 0);
	assert_int_equal(node_files(&n, "scratch"), 0);
	make_idle(&n, "a");
	sleep_ms(300);
	assert_int_equal(node_inits(&n), 1);
	assert_int_equal(node_files(&n, "scratch"), 0);
	node_key_op(&n, 0, SUP_SLEEP, "a", &r);
	assert_int_equal(node_logged(&n, COLD), 1);
	assert_int_equal(node_logged(&n, POOLED), 0);
	finish(&n);
}

static unsigned long ticks_of(pid_t pid)
{
	char path[64], line[1024];
	unsigned long user, kernel;
	str_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	assert_int_equal(
	        sscanf(strrchr(line, ')') + 1,
	                " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel),
	        2);
	return user + kernel;
}

static void an_idle_pool_costs_nothing(void **state)
{
	struct node n;
	make(&n, 16, 4);
	node_start(&n);
	await_inits(&n, 4, 4);
	bool idle = false;
	/* What a busy machine's last one still had to do is done after a moment. */
	for (int tries = 0; tries < 20 && !idle; tries++) {
		uint64_t before = node_ticks(&n, NULL);
		unsigned long used = ticks_of(n.pid);
		sleep_ms(1500);
		idle = node_ticks(&n, NULL) == before && ticks_of(n.pid) - used <= 2;
	}
	assert_true(idle);
	finish(&n);
}

/* ---- death ---- */

static pid_t find_maker(const struct node *n)
{
	char path[512], line[64];
	pid_t found = 0;
	DIR *dir = opendir("/proc");
	for (struct dirent *e; (e = readdir(dir));) {
		int parent = 0;
		str_format(path, sizeof(path), "/proc/%s/status", e->d_name);
		FILE *f = atoi(e->d_name) > 0 ? fopen(path, "r") : NULL;
		if (!f)
			continue;
		bool named = fgets(line, sizeof(line), f) && strstr(line, "brig: maker");
		while (fgets(line, sizeof(line), f))
			sscanf(line, "PPid: %d", &parent);
		fclose(f);
		if (named && parent == n->pid)
			found = atoi(e->d_name);
	}
	closedir(dir);
	return found;
}

static bool kill_one(void *ctx, pid_t pid)
{
	kill(pid, SIGKILL);
	return *(bool *)ctx;
}

static void pooled_ones_die(void **state)
{
	struct node n;
	union reply r;
	make(&n, 16, 4);
	node_start(&n);
	await_inits(&n, 4, 4);
	bool all = false;
	for (int i = 0; i < 4; i++) {
		char name[8];
		str_format(name, sizeof(name), "d%d", i);
		all = i == 3;
		node_each_process(&n, kill_one, &all);
		/* nobody who claims now notices */
		int channel = claim_ok(&n, name, &r);
		assert_int_equal(r.claimed.how, SUP_CREATED);
		assert_string_equal(channel_output(channel, "echo x > f; ls"), "f\n");
		close(channel);
		node_key_op(&n, 0, SUP_DELETE, name, &r);
		await_inits(&n, 4, 4);
	}
	/* Told of by the pool, or by the claim that met it first. Of the four that were killed at
	 * once one may have been the container deleted before, on its way out. */
	assert_true(node_logged(&n, "init ended") >= 3);
	/* and so with what makes the disks */
	for (int i = 0; i < 3; i++) {
		pid_t maker = find_maker(&n);
		assert_true(maker > 0);
		kill(maker, SIGKILL);
		close(claim_ok(&n, i ? "y" : "x", &r));
		node_key_op(&n, 0, SUP_DELETE, i ? "y" : "x", &r);
		uint64_t end = now_ms() + NODE_LIMIT_MS;
		while ((find_maker(&n) == 0 || find_maker(&n) == maker) && now_ms() < end)
			sleep_ms(5);
		await_inits(&n, 4, 4);
	}
	finish(&n);
}

static void killed_and_started_again(void **state)
{
	struct node n;
	union reply r;
	make(&n, 16, 4);
	for (int i = 0; i < 6; i++) {
		node_start(&n);
		if (i % 2)
			await_inits(&n, 4, 4);
		else
			sleep_ms(7 * i); /* in the midst of making them */
		node_kill(&n);
		uint64_t end = now_ms() + NODE_LIMIT_MS;
		while (node_inits(&n) > 0 && now_ms() < end)
			sleep_ms(5);
		assert_int_equal(node_inits(&n), 0); /* they saw its end */
	}
	node_start(&n);
	await_inits(&n, 4, 4);
	close(claim_ok(&n, "a", &r));
	finish(&n);
}

static void stops_at_any_time(void **state)
{
	struct node n;
	make(&n, 16, 4);
	for (int i = 0; i < 8; i++) {
		node_start(&n);
		sleep_ms(i * 6);
		assert_int_equal(node_stop(&n), 0);
		node_check_nothing_left(&n);
	}
	node_start(&n);
	await_inits(&n, 4, 4);
	finish(&n);
}

/* Nothing can be made: it is tried less and less often, claims say why, and it is made good. */
static void backs_off(void **state)
{
	struct node n;
	union reply r;
	char script[sizeof(n.cfg.data) + 64];
	make(&n, 16, 4);
	node_start(&n);
	assert_int_equal(node_stop(&n), 0);
	str_format(script, sizeof(script), "chattr +i %s/scratch", n.cfg.data);
	assert_int_equal(system(script), 0);
	node_start(&n);
	sleep_ms(2000);
	assert_in_range(node_logged(&n, "pool_failed"), 2, 6); /* at 0, 0.1, 0.3, 0.7, 1.5 s */
	struct sup_claim c = node_claim(&n, "a");
	int channel = node_claimed(&n, 0, &c, &r);
	str_format(script, sizeof(script), "chattr -i %s/scratch", n.cfg.data);
	assert_int_equal(system(script), 0);
	assert_int_equal(channel, -1);
	assert_int_equal(r.failed.why, SUP_E_SYSTEM);
	await_inits(&n, 4, 4);
	close(claim_ok(&n, "a", &r));
	assert_int_equal(r.claimed.how, SUP_CREATED);
	finish(&n);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(claims_come_from_the_pool, node_teardown),
	        cmocka_unit_test_teardown(an_old_home_comes_along, node_teardown),
	        cmocka_unit_test_teardown(nothing_is_shared, node_teardown),
	        cmocka_unit_test_teardown(burst, node_teardown),
	        cmocka_unit_test_teardown(pool_makes_room, node_teardown),
	        cmocka_unit_test_teardown(images_have_their_own, node_teardown),
	        cmocka_unit_test_teardown(without_pool, node_teardown),
	        cmocka_unit_test_teardown(an_idle_pool_costs_nothing, node_teardown),
	        cmocka_unit_test_teardown(pooled_ones_die, node_teardown),
	        cmocka_unit_test_teardown(killed_and_started_again, node_teardown),
	        cmocka_unit_test_teardown(stops_at_any_time, node_teardown),
	        cmocka_unit_test_teardown(backs_off, node_teardown),
	};
	if (geteuid() != 0 || access("/bin/busybox", X_OK) < 0) {
		fprintf(stderr, "skipped: needs root and /bin/busybox (package busybox-static)\n");
		return 77;
	}
	if (!getenv("BRIG_TEST_SBX")) {
		fprintf(stderr, "BRIG_TEST_SBX names no helper\n");
		return 2;
	}
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
