/*
 * An init that lies, against the real supervisor: this program is linked with evil_init.c in init's
 * place. Whatever it says, the claim is answered, others are served meanwhile, and nothing of the
 * sandbox is left. Run as root.
 */
#include "evil_init.h"
#include "node.h"

#include "unit/unit.h"

#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

static void choose(const struct node *n, enum evil way)
{
	char path[64], text[32];
	str_format(path, sizeof(path), "/proc/%d/timerslack_ns", (int)n->pid);
	str_format(text, sizeof(text), "%d", EVIL_SLACK + (int)way);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* Takes the answer to the claim of `seq`, asking meanwhile for something else. */
static void await_answer(struct node *n, uint32_t seq, union reply *r, int *ret_fd)
{
	uint64_t end = now_ms() + 3 * NODE_LIMIT_MS;
	for (;;) {
		if (now_ms() > end)
			fail_msg("no answer");
		if (node_quiet(n, 0, 20)) {
			union reply other;
			uint64_t start = now_ms();
			node_key_op(n, 1, SUP_STATUS, "other", &other);
			if (now_ms() - start > NODE_LIMIT_MS / 3)
				fail_msg("another gateway waited %d ms", (int)(now_ms() - start));
			continue;
		}
		node_recv(n, 0, r, ret_fd);
		if (r->h.op != SUP_ENDED && r->h.seq == seq)
			return;
	}
}

static void await_ended(struct node *n, uint64_t generation)
{
	union reply r;
	int fd;
	do
		node_recv(n, 0, &r, &fd);
	while (r.h.op != SUP_ENDED || r.ended.generation != generation);
	assert_int_equal(r.ended.why, SUP_END_INIT_DIED);
}

static void lies(void **state)
{
	struct node n;
	union reply r;
	int fd, before = 0;
	node_make(&n);
	n.cfg.gateways = 2;
	node_start(&n);
	for (int way = 0; way < EVIL_N; way++) {
		char name[16];
		str_format(name, sizeof(name), "c%d", way);
		choose(&n, (enum evil)way);
		struct sup_claim c = node_claim(&n, name);
		uint64_t start = now_ms();
		node_send(&n, 0, &c, sizeof(c));
		await_answer(&n, c.h.seq, &r, &fd);
		bool good = way == EVIL_NOT || way >= EVIL_LATE_READY;
		if (good != (r.h.op == SUP_CLAIMED))
			fail_msg("way %d: answer %u", way, r.h.op);
		print_message("  way %2d: %s%s, %d ms\n", way, good ? "claimed" : "failed at ",
		        good ? "" : r.failed.step, (int)(now_ms() - start));
		if (good) {
			uint64_t generation = r.claimed.generation;
			close(fd);
			if (way == EVIL_NOT)
				node_release(&n, 0, r.claimed.hold);
			else
				await_ended(&n, generation);
			node_key_op(&n, 0, SUP_SLEEP, name, &r);
			assert_int_equal(r.h.op, SUP_DONE);
		} else {
			assert_int_equal(r.failed.why, SUP_E_SYSTEM);
			for (const char *p = r.failed.step; *p; p++)
				assert_true(*p >= ' ' && *p <= '~');
		}
		uint64_t end = now_ms() + 2 * NODE_LIMIT_MS;
		while (node_inits(&n) && now_ms() < end)
			sleep_ms(10);
		if (way == EVIL_NOT)
			before = node_fds(n.pid);
	}
	uint64_t end = now_ms() + NODE_LIMIT_MS;
	int most = before + (int)n.cfg.n_leases - 1; /* each keeps its namespace once it was used */
	while (node_fds(n.pid) > most && now_ms() < end)
		sleep_ms(10);
	assert_true(node_fds(n.pid) <= most);
	assert_int_equal(node_stop(&n), 0);
	node_check_nothing_left(&n);
	node_remove(&n);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(lies, node_teardown),
	};
	if (geteuid() != 0)
		return 77;
	return cmocka_run_group_tests_name("evil_init", tests, NULL, NULL);
}
