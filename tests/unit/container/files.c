/*
 * The worker's client against a supervisor and workers that are this test: what it asks, what it
 * makes of good answers, of none, and of every kind of bad one.
 */
#include "unit.h"

#include "base/mem.h"
#include "container/files.h"
#include "packet/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct event_base *base;
static struct container_client *client;
static int sup; /* the supervisor's end */
static const uint8_t key[SUP_KEY_LEN] = {7};

/* ---- what was told ---- */

static struct told {
	int n;
	enum err code;
	char type[48];
	char paths[256]; /* each with a blank behind it, as far as they fit */
	size_t n_files;
	bool more, partial;
	int fd;
	struct container_upload *upload;
} told;

static void tell(void *ctx, const struct container_files_result *r, const struct error *err)
{
	int n = told.n;

	assert_ptr_equal(ctx, &told);
	told = (struct told){.n = n + 1, .fd = -1};
	if (err != NULL) {
		assert_null(r);
		told.code = err->code;
		str_copy(told.type, sizeof(told.type), str_of(err->type));
		return;
	}
	for (size_t i = 0; i < r->n_files && strlen(told.paths) < sizeof(told.paths) - 1; i++)
		snprintf(told.paths + strlen(told.paths), sizeof(told.paths) - strlen(told.paths),
		        "%.*s ", (int)r->files[i].path.n, r->files[i].path.p);
	told.n_files = r->n_files;
	told.more = r->more;
	told.partial = r->partial;
	told.fd = r->fd;
	told.upload = r->upload;
}

static void on_ended(void *ctx, const uint8_t k[SUP_KEY_LEN], enum sup_end why)
{
}

static void on_lost(void *ctx)
{
}

static int setup(void **state)
{
	const struct container_client_handler h = {NULL, on_ended, on_lost, NULL, NULL};
	int pair[2];

	base = event_base_new();
	assert_return_code(
	        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), errno);
	sup = pair[0];
	client = container_client_new(base, pair[1], &h);
	told = (struct told){.fd = -1};
	return 0;
}

static int teardown(void **state)
{
	container_client_free(client);
	event_base_free(base);
	close(sup);
	return 0;
}

static void turn(void)
{
	for (int i = 0; i < 8; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
}

/* ---- the supervisor's and the worker's part ---- */

union message {
	struct sup_files files;
	struct worker_header h;
	struct worker_list list;
	struct worker_recent recent;
	struct worker_path path;
	struct worker_link link;
	struct worker_handle handle;
	char bytes[8192];
};

/* The next thing asked at sock; false: there is none. */
static bool asked(int sock, union message *m, size_t *ret_n)
{
	struct packet p;
	int r = packet_receive(sock, MSG_DONTWAIT, m, sizeof(*m), 0, &p);

	if (r == -EAGAIN)
		return false;
	assert_int_equal(r, 1);
	if (ret_n != NULL)
		*ret_n = p.len;
	return true;
}

static void sup_answer_failed(uint32_t seq, enum sup_error why)
{
	const struct sup_failed f = {{SUP_FAILED, sizeof(f), seq}, (uint32_t)why, 0, ""};

	assert_return_code(packet_send(sup, &f, sizeof(f), NULL, 0, NULL, 0), errno);
	turn();
}

/* Answers a question for a container's files; returns the worker's end. */
static int sup_answer(bool create)
{
	struct sup_simple a = {{SUP_FILES_ARE, sizeof(a), 0}};
	union message m;
	int pair[2];

	turn();
	assert_true(asked(sup, &m, NULL));
	assert_int_equal(m.files.h.op, SUP_FILES);
	assert_memory_equal(m.files.key, key, sizeof(key));
	assert_int_equal(m.files.flags, create ? SUP_FILES_CREATE : 0);
	assert_return_code(
	        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), errno);
	a.h.seq = m.files.h.seq;
	assert_return_code(packet_send(sup, &a, sizeof(a), NULL, 0, &pair[1], 1), errno);
	close(pair[1]);
	turn();
	return pair[0];
}

static void say(int sock, const void *m, size_t n, const char *path, size_t path_len, int fd)
{
	assert_return_code(packet_send(sock, m, n, path, path_len, &fd, fd >= 0), errno);
}

static void say_entry(int sock, uint32_t seq, const char *path, int fd)
{
	struct worker_entry e = {.h = {WORKER_ENTRY, sizeof(e), seq}, .size = 3};

	e.path_len = (uint32_t)strlen(path);
	say(sock, &e, sizeof(e), path, strlen(path), fd);
}

static void say_done(int sock, uint32_t seq, uint32_t flags)
{
	struct worker_done d = {{WORKER_DONE, sizeof(d), seq}, flags, 0};

	say(sock, &d, sizeof(d), NULL, 0, -1);
	turn();
}

static void say_failed(int sock, uint32_t seq, int errnum)
{
	struct worker_failed f = {
	        .h = {WORKER_FAILED, sizeof(f), seq}, .errnum = (uint32_t)errnum, .step = "x"};

	say(sock, &f, sizeof(f), NULL, 0, -1);
	turn();
}

static void say_created(int sock, uint32_t seq, uint64_t handle, int fd)
{
	struct worker_handle h = {{WORKER_CREATED, sizeof(h), seq}, handle};

	say(sock, &h, sizeof(h), NULL, 0, fd);
	turn();
}

static int regular(void)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	assert_return_code(fd, errno);
	return fd;
}

static bool hung_up(int sock)
{
	char c;

	return recv(sock, &c, 1, MSG_DONTWAIT) == 0;
}

/* ---- good answers ---- */

static void test_a_list(void **state)
{
	union message m;
	size_t n;

	container_ask_list(client, key, STR("b"), 2, tell, &told);
	assert_int_equal(told.n, 0);
	int w = sup_answer(false);

	assert_true(asked(w, &m, &n));
	assert_int_equal(m.h.op, WORKER_LIST);
	assert_int_equal(m.list.limit, 2);
	assert_int_equal(n, sizeof(m.list) + 1);
	assert_int_equal(m.bytes[sizeof(m.list)], 'b');
	say_entry(w, m.h.seq, "c", -1);
	say_entry(w, m.h.seq, "d/e", -1);
	say_done(w, m.h.seq, WORKER_MORE);
	assert_int_equal(told.n, 1);
	assert_string_equal(told.paths, "c d/e ");
	assert_true(told.more);

	/* The same link serves the next one. */
	container_ask_recent(client, key, 5, 10, 1000, tell, &told);
	turn();
	assert_false(asked(sup, &m, NULL));
	assert_true(asked(w, &m, NULL));
	assert_int_equal(m.h.op, WORKER_RECENT);
	say_done(w, m.h.seq, WORKER_PARTIAL);
	assert_int_equal(told.n, 2);
	assert_true(told.partial && !told.more && told.paths[0] == 0);
	close(w);
}

static void test_a_list_of_long_paths_ends_early(void **state)
{
	char path[WORKER_PATH_MAX + 1];
	union message m;

	container_ask_list(client, key, (struct str){NULL, 0}, 50, tell, &told);
	int w = sup_answer(false);

	assert_true(asked(w, &m, NULL));
	memset(path, 'p', WORKER_PATH_MAX);
	path[WORKER_PATH_MAX] = 0;
	for (int i = 0; i < 50; i++) {
		say_entry(w, m.h.seq, path, -1);
		turn();
	}
	assert_int_equal(told.n, 0);
	say_done(w, m.h.seq, 0);
	assert_int_equal(told.n, 1);
	assert_int_equal(told.code, 0);
	assert_true(told.more);
	assert_int_equal(told.n_files, 32);
	close(w);
}

static void test_open_gives_a_descriptor(void **state)
{
	union message m;
	int file = regular();

	container_ask_open(client, key, STR("a/b"), tell, &told);
	int w = sup_answer(false);

	assert_true(asked(w, &m, NULL));
	assert_int_equal(m.h.op, WORKER_OPEN);
	assert_memory_equal(m.bytes + sizeof(m.path), "a/b", 3);
	say_entry(w, m.h.seq, "a/b", file);
	say_done(w, m.h.seq, 0);
	assert_int_equal(told.n, 1);
	assert_true(told.fd >= 0);
	close(told.fd);
	close(file);
	close(w);
}

static void test_an_upload(void **state)
{
	union message m;
	int file = regular();

	container_ask_create(client, key, 99, tell, &told);
	int w = sup_answer(true);

	assert_true(asked(w, &m, NULL));
	assert_int_equal(m.h.op, WORKER_CREATE);
	say_created(w, m.h.seq, 4711, file);
	assert_non_null(told.upload);
	close(told.fd);
	assert_non_null(container_upload_link(told.upload, STR("x"), tell, &told));
	assert_true(asked(w, &m, NULL));
	assert_int_equal(m.h.op, WORKER_LINK);
	assert_int_equal(m.link.handle, 4711);
	say_entry(w, m.h.seq, "x", -1);
	say_done(w, m.h.seq, 0);
	assert_string_equal(told.paths, "x ");

	container_ask_create(client, key, 0, tell, &told);
	assert_true(asked(w, &m, NULL));
	say_created(w, m.h.seq, 4712, file);
	close(told.fd);
	container_upload_drop(told.upload);
	assert_true(asked(w, &m, NULL));
	assert_int_equal(m.h.op, WORKER_DROP);
	assert_int_equal(m.handle.handle, 4712);
	close(file);
	close(w);
}

static void test_failures_in_the_callers_terms(void **state)
{
	static const struct {
		enum worker_op op;
		int errnum;
		enum err code;
		const char *type;
	} rows[] = {
	        {WORKER_STAT, ENOENT, ERR_NOT_FOUND, ""},
	        {WORKER_STAT, ELOOP, ERR_NOT_FOUND, ""},
	        {WORKER_STAT, EISDIR, ERR_NOT_FOUND, ""},
	        {WORKER_STAT, ENAMETOOLONG, ERR_NOT_FOUND, ""},
	        {WORKER_STAT, EIO, ERR_IO, ""},
	        {WORKER_CREATE, ENOSPC, ERR_TOO_LARGE, "home_full"},
	        {WORKER_CREATE, EDQUOT, ERR_TOO_LARGE, "home_full"},
	        {WORKER_CREATE, EMFILE, ERR_UNAVAILABLE, ""},
	};
	union message m;

	container_ask_stat(client, key, STR("a"), tell, &told);
	int w = sup_answer(false);

	assert_true(asked(w, &m, NULL));
	say_failed(w, m.h.seq, ENOENT);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].op == WORKER_STAT)
			container_ask_stat(client, key, STR("a"), tell, &told);
		else
			container_ask_create(client, key, 0, tell, &told);
		assert_true(asked(w, &m, NULL));
		say_failed(w, m.h.seq, rows[i].errnum);
		assert_int_equal(told.n, i + 2);
		assert_int_equal(told.code, rows[i].code);
		assert_string_equal(told.type, rows[i].type);
	}
	close(w);
}

/* ---- no home, no worker ---- */

static void test_no_home(void **state)
{
	union message m;

	container_ask_list(client, key, (struct str){NULL, 0}, 9, tell, &told);
	turn();
	assert_true(asked(sup, &m, NULL));
	sup_answer_failed(m.files.h.seq, SUP_E_UNKNOWN);
	assert_int_equal(told.n, 1);
	assert_int_equal(told.code, 0);
	assert_string_equal(told.paths, "");

	container_ask_stat(client, key, STR("a"), tell, &told);
	container_ask_create(client, key, 0, NULL, NULL);
	turn();
	assert_true(asked(sup, &m, NULL));
	assert_int_equal(m.files.flags, 0);
	sup_answer_failed(m.files.h.seq, SUP_E_UNKNOWN);
	assert_int_equal(told.n, 2);
	assert_int_equal(told.code, ERR_NOT_FOUND);
	/* For the new file a home is made. */
	close(sup_answer(true));

	container_ask_create(client, key, 0, tell, &told);
	turn();
	while (asked(sup, &m, NULL)) /* the other one again, as its worker has gone */
		sup_answer_failed(m.files.h.seq, SUP_E_DISK);
	assert_int_equal(told.code, ERR_UNAVAILABLE);
}

static void test_a_worker_that_goes_is_asked_once_more(void **state)
{
	union message m;

	container_ask_stat(client, key, STR("a"), tell, &told);
	int w = sup_answer(false);

	assert_true(asked(w, &m, NULL));
	close(w);
	turn();
	assert_int_equal(told.n, 0);
	w = sup_answer(false);
	assert_true(asked(w, &m, NULL));
	assert_memory_equal(m.bytes + sizeof(m.path), "a", 1);
	close(w);
	turn();
	assert_int_equal(told.n, 1);
	assert_int_equal(told.code, ERR_UNAVAILABLE);
	assert_false(asked(sup, &m, NULL));
}

static void test_an_upload_goes_with_its_worker(void **state)
{
	union message m;
	int file = regular();

	for (int linking = 0; linking < 2; linking++) {
		container_ask_create(client, key, 0, tell, &told);
		int w = sup_answer(true);

		assert_true(asked(w, &m, NULL));
		say_created(w, m.h.seq, 1, file);
		close(told.fd);
		if (linking)
			assert_non_null(container_upload_link(told.upload, STR("x"), tell, &told));
		close(w);
		turn();
		if (!linking)
			assert_null(container_upload_link(told.upload, STR("x"), tell, &told));
		assert_false(asked(sup, &m, NULL));
	}
	assert_int_equal(told.n, 3);
	assert_int_equal(told.code, ERR_UNAVAILABLE);
	close(file);
}

static void test_cancelled(void **state)
{
	union message m;
	int file = regular();

	container_ask_cancel(container_ask_stat(client, key, STR("a"), tell, &told));
	struct container_ask *create = container_ask_create(client, key, 0, tell, &told);
	struct container_ask *open = container_ask_open(client, key, STR("a"), tell, &told);
	int w = sup_answer(false);

	assert_true(asked(w, &m, NULL));
	assert_int_equal(m.h.op, WORKER_CREATE);
	container_ask_cancel(create);
	say_created(w, m.h.seq, 5, file);
	assert_true(asked(w, &m, NULL));
	assert_int_equal(m.h.op, WORKER_OPEN);
	container_ask_cancel(open);
	say_entry(w, m.h.seq, "a", file);
	say_done(w, m.h.seq, 0);
	assert_true(asked(w, &m, NULL)); /* what nobody wanted any more */
	assert_int_equal(m.h.op, WORKER_DROP);
	assert_int_equal(m.handle.handle, 5);
	assert_false(hung_up(w));
	assert_int_equal(told.n, 0);
	close(file);
	close(w);
}

/* ---- bad answers ---- */

/* Each is said in answer to a stat, an open, a list of one, and a create, and must end the link. */
static void say_bad(int which, int w, uint32_t seq, enum worker_op op)
{
	struct worker_entry e = {.h = {WORKER_ENTRY, sizeof(e), seq}, .path_len = 1};
	struct worker_done d = {{WORKER_DONE, sizeof(d), seq}, 0, 0};
	int fds[2];

	switch (which) {
	case 0: /* no answer */
		say(w, "x", 1, NULL, 0, -1);
		break;
	case 1:
		d.h.op = 999;
		say(w, &d, sizeof(d), NULL, 0, -1);
		break;
	case 2: /* a question */
		d.h.op = WORKER_STAT;
		say(w, &d, sizeof(d), NULL, 0, -1);
		break;
	case 3:
		d.h.size = 4;
		say(w, &d, sizeof(d), NULL, 0, -1);
		break;
	case 4: /* less path than it says, and more */
		e.path_len = 2;
		say(w, &e, sizeof(e), "a", 1, -1);
		break;
	case 5:
		say(w, &e, sizeof(e), "ab", 2, -1);
		break;
	case 6:
		e.path_len = 3;
		say(w, &e, sizeof(e), "../", 3, -1);
		break;
	case 7:
		say(w, &e, sizeof(e), "/", 1, -1);
		break;
	case 8:
		say(w, &e, sizeof(e), "", 1, -1);
		break;
	case 9: /* more than was asked for */
		say_entry(w, seq, "a", -1);
		say_entry(w, seq, "b", -1);
		break;
	case 10: /* a descriptor that is no regular file */
		assert_return_code(pipe2(fds, O_CLOEXEC), errno);
		if (op == WORKER_CREATE)
			say_created(w, seq, 1, fds[0]);
		else
			say_entry(w, seq, "a", fds[0]);
		close(fds[0]);
		close(fds[1]);
		break;
	case 11: /* done with nothing, or for what is not done so */
		if (op == WORKER_LIST)
			d.h.size = 0;
		say(w, &d, sizeof(d), NULL, 0, -1);
		break;
	case 12: /* another question's answer */
		fds[0] = regular();
		if (op == WORKER_CREATE)
			say_entry(w, seq, "a", fds[0]);
		else
			say_created(w, seq, 1, fds[0]);
		close(fds[0]);
		break;
	case 13: /* a descriptor where none belongs */
		fds[0] = regular();
		say(w, &d, sizeof(d), NULL, 0, fds[0]);
		close(fds[0]);
		break;
	}
}

static void test_bad_answers_end_the_link(void **state)
{
	static const enum worker_op ops[] = {WORKER_STAT, WORKER_OPEN, WORKER_LIST, WORKER_CREATE};
	union message m;

	for (int which = 0; which < 14; which++) {
		for (int i = 0; i < 4; i++) {
			int before = told.n, w = -1;

			if (ops[i] == WORKER_STAT)
				container_ask_stat(client, key, STR("a"), tell, &told);
			else if (ops[i] == WORKER_OPEN)
				container_ask_open(client, key, STR("a"), tell, &told);
			else if (ops[i] == WORKER_LIST)
				container_ask_list(
				        client, key, (struct str){NULL, 0}, 1, tell, &told);
			else
				container_ask_create(client, key, 0, tell, &told);
			for (int again = 0; again < 2; again++) {
				w = sup_answer(ops[i] == WORKER_CREATE);
				assert_true(asked(w, &m, NULL));
				assert_int_equal(told.n, before);
				say_bad(which, w, m.h.seq, ops[i]);
				turn();
				if (!hung_up(w))
					fail_msg("answer %d to %d was taken", which, ops[i]);
				close(w);
			}
			assert_int_equal(told.n, before + 1);
			assert_int_equal(told.code, ERR_UNAVAILABLE);
		}
	}
}

static void test_paths(void **state)
{
	static const char *const good[] = {"a", "a/b", "...", ".a", "a.", "..a/b..", "\xff\n"};
	static const char *const bad[] = {
	        "", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/..", "a/../b"};
	char longest[WORKER_PATH_MAX + 1];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(container_path_valid(str_of(good[i])));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(container_path_valid(str_of(bad[i])));
	assert_false(container_path_valid((struct str){"a\0b", 3}));
	memset(longest, 'x', sizeof(longest));
	assert_true(container_path_valid((struct str){longest, WORKER_PATH_MAX}));
	assert_false(container_path_valid((struct str){longest, WORKER_PATH_MAX + 1}));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	        TEST(test_a_list),
	        TEST(test_a_list_of_long_paths_ends_early),
	        TEST(test_open_gives_a_descriptor),
	        TEST(test_an_upload),
	        TEST(test_failures_in_the_callers_terms),
	        TEST(test_no_home),
	        TEST(test_a_worker_that_goes_is_asked_once_more),
	        TEST(test_an_upload_goes_with_its_worker),
	        TEST(test_cancelled),
	        TEST(test_bad_answers_end_the_link),
	        TEST(test_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
