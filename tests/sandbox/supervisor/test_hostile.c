/*
 * A gateway that was taken over, against the real supervisor: whatever it sends, the supervisor
 * lives, keeps its size, serves the other gateway meanwhile, and changes nothing but that gateway's
 * containers. Run as root; arguments as for test_supervisor.c.
 */
#include "node.h"

#include "unit/hostile.h"
#include "unit/unit.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Gateway 0 is well; each of the others may die four times before that ends the server. */
#define HOSTILE   31
#define GATEWAYS  (HOSTILE + 1)
#define SERVED_MS 15000
/* AddressSanitizer keeps what is freed, for a time, and has its own part of each allocation. */
#ifdef __SANITIZE_ADDRESS__
#define GROWN_KIB 65536
#else
#define GROWN_KIB 3072
#endif

static struct {
	int channel; /* of gateway 0, to its container */
	uint64_t hold;
	int fds;
	long kib;
	uint64_t slowest_ms;
	char folder[16384];
} good;

/* ---- what must not change ---- */

static long count_kib(pid_t pid)
{
	char path[64];
	long all = 0, resident = 0;
	str_format(path, sizeof(path), "/proc/%d/statm", (int)pid);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &all, &resident), 2);
	fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static char *listed;

static int list_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	size_t len = strlen(listed);
	/* What containers have, and the log, comes and goes. */
	if (ftw->level > 1 || strcmp(path + ftw->base, "log") == 0)
		return 0;
	str_format(listed + len, sizeof(good.folder) - len, "%s %o %u %u\n", path + ftw->base,
	        st->st_mode, st->st_uid, st->st_gid);
	return 0;
}

/* Names, owners and modes of what lies in the data folder. */
static void list_folder(const struct node *n, char out[sizeof(good.folder)])
{
	listed = out;
	out[0] = '\0';
	assert_int_equal(nftw(n->cfg.data, list_one, 16, FTW_PHYS | FTW_MOUNT), 0);
}

static void start_good(struct node *n)
{
	union reply r;
	node_make(n);
	n->cfg.gateways = GATEWAYS;
	node_start(n);
	struct sup_claim c = node_claim(n, "good");
	good.channel = node_claimed(n, 0, &c, &r);
	assert_true(good.channel >= 0);
	good.hold = r.claimed.hold;
	channel_output(good.channel, "echo mine > mine");
	good.fds = node_fds(n->pid);
	good.kib = count_kib(n->pid);
	good.slowest_ms = 0;
	list_folder(n, good.folder);
}

/* The other gateway's container answers, a new claim of it and a question are served, in time. */
static void serve_good(struct node *n)
{
	union reply r;
	uint64_t start = now_ms();
	struct sup_claim c = node_claim(n, "good");
	assert_string_equal(channel_output(good.channel, "cat mine"), "mine\n");
	assert_int_equal(node_state(n, "good"), SUP_ST_RUNNING);
	int channel = node_claimed(n, 0, &c, &r);
	assert_true(channel >= 0);
	node_release(n, 0, r.claimed.hold);
	close(channel);
	uint64_t took = now_ms() - start;
	good.slowest_ms = took > good.slowest_ms ? took : good.slowest_ms;
	if (took > SERVED_MS)
		fail_msg("the good gateway waited %d ms", (int)took);
}

static void finish_good(struct node *n)
{
	static char folder[sizeof(good.folder)];
	uint64_t end = now_ms() + NODE_LIMIT_MS;
	serve_good(n);
	/* A lease keeps its namespace once it was used, and one was before. */
	int most = good.fds + (int)n->cfg.n_leases - 1;
	while (node_fds(n->pid) > most && now_ms() < end)
		sleep_ms(20); /* sandboxes on their way out */
	assert_true(node_fds(n->pid) <= most);
	long grown = count_kib(n->pid) - good.kib;
	print_message("  the good gateway waited %d ms at most; grown by %ld KiB\n",
	        (int)good.slowest_ms, grown);
	assert_true(grown < GROWN_KIB);
	list_folder(n, folder);
	assert_string_equal(folder, good.folder);
	close(good.channel);
	node_release(n, 0, good.hold);
	assert_int_equal(node_stop(n), 0);
	node_check_nothing_left(n);
	node_remove(n);
}

/* ---- messages that end their gateway ---- */

static struct {
	uint32_t next;   /* gateway whose turn it is */
	uint32_t killed; /* in all */
	uint32_t rounds;
} hostile;

/* All that were used have lost their sockets; each is started again. */
static void end_round(struct node *n)
{
	uint32_t used = hostile.next - 1;
	for (uint32_t i = 1; i <= used; i++)
		assert_true(channel_is_closed(n->sock[i], SERVED_MS));
	serve_good(n);
	for (uint32_t i = 1; i <= used; i++)
		node_take_gateway(n);
	hostile.next = 1;
	hostile.rounds++;
}

/* Sends what must end the gateway that sent it. */
static void wrong_fds(struct node *n, const void *data, size_t len, const int *fds, size_t n_fds)
{
	hostile_send(n->sock[hostile.next++], data, len, fds, n_fds);
	hostile.killed++;
	if (hostile.next <= HOSTILE)
		return;
	end_round(n);
	if (hostile.rounds < 4)
		return;
	/* Before the fifth death within ten seconds a server of its own. */
	finish_good(n);
	start_good(n);
	hostile.rounds = 0;
}

static void wrong(struct node *n, const void *data, size_t len)
{
	wrong_fds(n, data, len, NULL, 0);
}

static void hostile_start(struct node *n)
{
	start_good(n);
	hostile.next = 1;
	hostile.killed = hostile.rounds = 0;
}

static void hostile_end(struct node *n)
{
	if (hostile.next > 1)
		end_round(n);
	print_message("  %u gateways ended themselves\n", hostile.killed);
	finish_good(n);
}

static const struct {
	uint16_t op;
	uint16_t size;
} ops[] = {{SUP_CLAIM, sizeof(struct sup_claim)}, {SUP_CANCEL, sizeof(struct sup_simple)},
        {SUP_RELEASE, sizeof(struct sup_hold)}, {SUP_SLEEP, sizeof(struct sup_key)},
        {SUP_DELETE, sizeof(struct sup_key)}, {SUP_KEEP, sizeof(struct sup_keep)},
        {SUP_STATUS, sizeof(struct sup_key)}, {SUP_NODE, sizeof(struct sup_simple)}};
#define N_OPS (sizeof(ops) / sizeof(ops[0]))

/* Every op cut, too long, and with a size that is not its own; every op that a gateway may not
 * send; ops that there are none of. */
static void wrong_sizes_and_ops(void **state)
{
	struct node n;
	static uint8_t bytes[65536];
	struct sup_claim c;
	hostile_start(&n);
	c = node_claim(&n, "x");
	struct sup_header *h = (struct sup_header *)(void *)bytes;
	for (size_t i = 0; i < N_OPS; i++) {
		const size_t lens[] = {1, sizeof(*h) - 1, ops[i].size - 1u, ops[i].size + 1u,
		        SUP_MAX_MESSAGE, SUP_MAX_MESSAGE + 1, sizeof(bytes)};
		for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
			memcpy(bytes, &c, sizeof(c));
			*h = (struct sup_header){ops[i].op, ops[i].size, 7};
			wrong(&n, bytes, lens[k]);
		}
		memcpy(bytes, &c, sizeof(c));
		*h = (struct sup_header){ops[i].op, (uint16_t)(ops[i].size + 8), 7};
		wrong(&n, bytes, ops[i].size);
	}
	static const uint16_t none[] = {0, 10, 11, 63, SUP_CLAIMED, SUP_FAILED, SUP_DONE,
	        SUP_STATUS_IS, SUP_FILES_ARE, SUP_ENDED, 70, SUP_NODE_IS, 255, 256 + SUP_CLAIM,
	        65535};
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		*h = (struct sup_header){none[i], sizeof(c), 7};
		wrong(&n, bytes, sizeof(c));
	}
	wrong(&n, bytes, 0);
	hostile_end(&n);
}

/* Each field of a claim just beyond its bound. */
static void wrong_fields(void **state)
{
	struct node n;
	static const char *const names[] = {
	        "", "A", "a_b", "a.b", "a/b", "../a", "\xc3\xa9", "a b", "a\n"};
	hostile_start(&n);
	for (int i = 0; i < 12; i++) {
		struct sup_claim c = node_claim(&n, "x");
		static const uint32_t flags[] = {2, 4, 1u << 31, UINT32_MAX};
		switch (i) {
		case 0:
			c.memory_mib = 15;
			break;
		case 1:
			c.memory_mib = 0;
			break;
		case 2:
			c.cpu_milli = 49;
			break;
		case 3:
			c.processes = 15;
			break;
		case 4:
			c.processes = 32769;
			break;
		case 5:
			c.wait_ms = 60001;
			break;
		case 6:
			c.wait_ms = UINT32_MAX;
			break;
		case 7:
			memset(c.hostname, 'a', sizeof(c.hostname)); /* without an end */
			break;
		default:
			c.flags = flags[i - 8];
		}
		wrong(&n, &c, sizeof(c));
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct sup_claim c = node_claim(&n, "x");
		memset(c.hostname, 0, sizeof(c.hostname));
		memcpy(c.hostname, names[i], strlen(names[i]));
		wrong(&n, &c, sizeof(c));
	}
	struct sup_claim c = node_claim(&n, "x");
	c.hostname[40] = 'x'; /* behind the end */
	wrong(&n, &c, sizeof(c));
	struct sup_keep keep = {.h = {SUP_KEEP, sizeof(keep), 1}, .keep_ms = 31ULL * 86400000 + 1};
	wrong(&n, &keep, sizeof(keep));
	keep.keep_ms = UINT64_MAX;
	wrong(&n, &keep, sizeof(keep));
	hostile_end(&n);
}

/* ---- descriptors ---- */

static int make_kind(int kind, const struct node *n)
{
	switch (kind) {
	case 0:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 1:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 2:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 3:
		return eventfd(0, EFD_CLOEXEC);
	case 4:
		return fcntl(n->sock[hostile.next], F_DUPFD_CLOEXEC, 3); /* a circle */
	case 5:
		return hostile_lingering();
	case 6:
		return hostile_nested();
	default:
		return -1;
	}
}

static void wrong_descriptors(void **state)
{
	struct node n;
	hostile_start(&n);
	for (int kind = 0; kind < 7; kind++)
		for (int with = 0; with < 3; with++) {
			struct sup_claim c = node_claim(&n, "x");
			static const size_t counts[] = {1, 5, HOSTILE_MAX_FDS};
			int fds[HOSTILE_MAX_FDS];
			int one = make_kind(kind, &n);
			assert_true(one >= 0);
			for (size_t i = 0; i < counts[with]; i++)
				fds[i] = one;
			if (kind >= 5 && with == 1) /* different ones */
				for (size_t i = 1; i < counts[with]; i++)
					fds[i] = make_kind(kind, &n);
			wrong_fds(&n, &c, kind == 1 ? 0 : sizeof(c), fds, counts[with]);
			for (size_t i = 1; kind >= 5 && with == 1 && i < counts[with]; i++)
				hostile_close(fds[i]);
			hostile_close(one);
		}
	/* more than are read before the gateway is dropped: they go with its socket */
	for (int i = 0; i < 20; i++) {
		int one = i % 2 ? hostile_lingering() : hostile_nested();
		hostile_send(n.sock[hostile.next], "x", 1, &one, 1);
		hostile_close(one);
	}
	wrong(&n, "x", 1);
	hostile_end(&n);
}

/* Only a sealed memfd is a policy; whatever else comes as one ends its gateway, and nothing waits
 * for its close. */
static void wrong_policies(void **state)
{
	struct node n;
	union reply r;
	hostile_start(&n);
	for (int kind = 0; kind < 8; kind++) {
		struct sup_claim c = node_claim(&n, "x");
		int one = kind == 7 ? memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING)
		                    : make_kind(kind, &n);
		assert_true(one >= 0);
		c.flags = SUP_CLAIM_NETWORK;
		c.policy[3] = 1;
		wrong_fds(&n, &c, sizeof(c), &one, 1);
		hostile_close(one);
	}
	struct sup_claim c = node_claim(&n, "x");
	c.flags = SUP_CLAIM_NETWORK;
	c.policy[3] = 1;
	wrong(&n, &c, sizeof(c)); /* without one */
	int sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(fcntl(sealed, F_ADD_SEALS,
	                         F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE),
	        0);
	/* A supervisor without egress starts nothing that wants network. */
	hostile_send(n.sock[0], &c, sizeof(c), &sealed, 1);
	int fd = -1;
	node_recv(&n, 0, &r, &fd);
	assert_int_equal(r.h.op, SUP_FAILED);
	assert_int_equal(r.failed.why, SUP_E_SYSTEM);
	assert_int_equal(fd, -1);
	close(sealed);
	hostile_end(&n);
}

/* ---- messages without fault ---- */

/* Reads what came for a gateway, and counts the answers by kind. */
static void read_answers(struct node *n, uint32_t gateway, uint32_t count[256])
{
	union {
		struct sup_header h;
		uint8_t bytes[SUP_MAX_MESSAGE];
	} m;
	while (recv(n->sock[gateway], &m, sizeof(m), MSG_DONTWAIT) > 0)
		count[m.h.op & 255]++;
}

static uint32_t await_answers(struct node *n, uint32_t op, uint32_t wanted)
{
	uint32_t count[256] = {0};
	uint64_t end = now_ms() + 3 * NODE_LIMIT_MS;
	while (count[op] < wanted && now_ms() < end) {
		read_answers(n, 1, count);
		sleep_ms(1);
	}
	return count[op];
}

/* What names things that are not there, or another's, changes nothing; numbers beyond this server's
 * settings are refused; a number of a message used twice is answered twice. */
static void sound_and_useless(void **state)
{
	struct node n;
	union reply r;
	start_good(&n);
	struct sup_claim c = node_claim(&n, "x");
	const struct {
		uint32_t image, memory_mib, cpu_milli;
	} beyond[] = {{1, 256, 1000}, {SUP_MAX_IMAGES, 256, 1000}, {UINT32_MAX, 256, 1000},
	        {0, 1025, 1000}, {0, UINT32_MAX, 1000}, {0, 256, 100000000}, {0, 256, UINT32_MAX}};
	for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++) {
		c.image = beyond[i].image;
		c.memory_mib = beyond[i].memory_mib;
		c.cpu_milli = beyond[i].cpu_milli;
		assert_int_equal(node_claimed(&n, 1, &c, &r), -1);
		assert_int_equal(r.failed.why, SUP_E_INVALID);
	}
	c = node_claim(&n, "absent");
	c.flags = SUP_CLAIM_MUST_EXIST;
	assert_int_equal(node_claimed(&n, 1, &c, &r), -1);
	assert_int_equal(r.failed.why, SUP_E_UNKNOWN);
	node_release(&n, 1, good.hold);
	node_release(&n, 1, 0);
	node_release(&n, 1, UINT64_MAX);
	node_key_op(&n, 1, SUP_SLEEP, "good", &r);
	assert_int_equal(r.failed.why, SUP_E_BUSY);
	node_keep(&n, 1, "absent", 31ULL * 86400000, &r);
	assert_int_equal(r.failed.why, SUP_E_UNKNOWN);
	node_key_op(&n, 1, SUP_DELETE, "absent", &r);
	assert_int_equal(r.h.op, SUP_DONE);
	struct sup_key status = {.h = {SUP_STATUS, sizeof(status), 5}};
	for (int i = 0; i < 1000; i++)
		node_send(&n, 1, &status, sizeof(status));
	assert_int_equal(await_answers(&n, SUP_STATUS_IS, 1000), 1000);
	struct sup_simple cancel = {{SUP_CANCEL, sizeof(cancel), 0}};
	for (uint32_t i = 0; i < 1000; i++, cancel.h.seq++)
		node_send(&n, 1, &cancel, sizeof(cancel));
	serve_good(&n);
	assert_int_equal(node_files(&n, "homes"), 1);
	finish_good(&n);
}

/* Takes all there is and gives nothing back; asks for more than may wait; then has everything
 * looked at again and again. The other one's orders go through, and with its end all is free. */
static void takes_all(void **state)
{
	struct node n;
	union reply r;
	char name[16];
	start_good(&n);
	for (uint32_t i = 0; i < n.cfg.live - 1; i++) {
		str_format(name, sizeof(name), "h%u", i);
		struct sup_claim c = node_claim(&n, name);
		int channel = node_claimed(&n, 1, &c, &r);
		assert_true(channel >= 0);
		close(channel);
	}
	struct sup_claim c = node_claim(&n, "");
	c.wait_ms = 60000;
	c.workspace_live = 1;
	for (uint32_t i = 0; i < 3000; i++) {
		memcpy(c.key, &i, sizeof(i));
		c.h.seq = 7;
		node_send(&n, 1, &c, sizeof(c));
	}
	assert_true(await_answers(&n, SUP_FAILED, 1500) >= 1500);
	struct sup_keep keep = {.h = {SUP_KEEP, sizeof(keep), 1}, .keep_ms = 1000};
	memcpy(keep.key, node_claim(&n, "h0").key, sizeof(keep.key));
	for (int round = 0; round < 20; round++) {
		uint32_t count[256] = {0};
		for (int i = 0; i < 200; i++)
			send(n.sock[1], &keep, sizeof(keep), MSG_DONTWAIT | MSG_NOSIGNAL);
		serve_good(&n);
		read_answers(&n, 1, count);
	}
	/* a claim that must wait for room does, and is told in time */
	struct sup_claim late = node_claim(&n, "late");
	late.wait_ms = 300;
	assert_int_equal(node_claimed(&n, 0, &late, &r), -1);
	assert_int_equal(r.failed.why, SUP_E_CAPACITY);
	assert_string_equal(r.failed.step, "no room");
	node_key_op(&n, 0, SUP_DELETE, "h1", &r);
	if (r.h.op == SUP_FAILED)
		fail_msg("delete: %u, %s", r.failed.why, r.failed.step);
	kill(n.gateway[1], SIGKILL);
	node_take_gateway(&n);
	late.wait_ms = 10000;
	int channel = node_claimed(&n, 0, &late, &r);
	assert_true(channel >= 0);
	assert_string_equal(channel_output(channel, "echo late"), "late\n");
	close(channel);
	node_release(&n, 0, r.claimed.hold);
	for (uint32_t i = 0; i < n.cfg.live; i++) {
		str_format(name, sizeof(name), "h%u", i);
		node_key_op(&n, 0, SUP_SLEEP, i + 1 < n.cfg.live ? name : "late", &r);
		if (r.h.op == SUP_FAILED)
			fail_msg("sleep of %s: %u, %s", name, r.failed.why, r.failed.step);
		assert_int_equal(r.h.op, SUP_DONE);
	}
	finish_good(&n);
}

/* Asks without end and never reads: dropped, whatever it asks. */
static void never_reads(void **state)
{
	struct node n;
	start_good(&n);
	for (uint32_t i = 1; i <= 4; i++) {
		struct sup_claim c = node_claim(&n, "good");
		struct sup_keep keep = {.h = {SUP_KEEP, sizeof(keep), 1}};
		struct sup_key key = {.h = {i == 1 ? SUP_STATUS : SUP_SLEEP, sizeof(key), 1}};
		const void *data = i == 3 ? (const void *)&c : i == 4 ? (const void *)&keep : &key;
		size_t len = i == 3 ? sizeof(c) : i == 4 ? sizeof(keep) : sizeof(key);
		uint64_t end = now_ms() + 3 * NODE_LIMIT_MS, next = 0;
		memcpy(key.key, c.key, sizeof(key.key));
		memcpy(keep.key, c.key, sizeof(keep.key));
		while (send(n.sock[i], data, len, MSG_NOSIGNAL) > 0 && now_ms() < end) {
			if (now_ms() < next)
				continue;
			serve_good(&n);
			next = now_ms() + 300;
		}
		assert_true(now_ms() < end);
		node_take_gateway(&n);
	}
	finish_good(&n);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(wrong_sizes_and_ops, node_teardown),
	        cmocka_unit_test_teardown(wrong_fields, node_teardown),
	        cmocka_unit_test_teardown(wrong_descriptors, node_teardown),
	        cmocka_unit_test_teardown(wrong_policies, node_teardown),
	        cmocka_unit_test_teardown(sound_and_useless, node_teardown),
	        cmocka_unit_test_teardown(takes_all, node_teardown),
	        cmocka_unit_test_teardown(never_reads, node_teardown),
	};
	if (geteuid() != 0)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
