/*
 * A guest that has taken over its init, against the gateway's side of a channel. The test is both
 * the supervisor and init; whatever init sends, the command ends with a result or an error, the
 * loop never waits, and the next container is served.
 */
#include "unit/hostile.h"
#include "unit/unit.h"

#include "base/utf8.h"
#include "container/container.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>

#define LOOP_MS 3000

struct bench {
	struct event_base *base;
	struct container_client *client;
	int supervisor; /* our end */
	int init;       /* our end of the channel */
	struct container_hold *hold;
	bool ended, failed;
	char text[1024];
	struct command_end end;
	size_t n_output;
};

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void on_ended(void *ctx, const uint8_t key[SUP_KEY_LEN], enum sup_end why)
{
}

static void on_lost(void *ctx)
{
	fail_msg("the supervisor is lost");
}

static void on_claimed(void *ctx, struct container_hold *hold, const struct error *err)
{
	struct bench *b = ctx;
	b->hold = hold;
	assert_non_null(hold);
}

static void on_output(void *ctx, struct command *c, bool is_stderr, const void *data, size_t n)
{
	struct bench *b = ctx;
	b->n_output += n;
}

static void on_end(
        void *ctx, struct command *c, const struct command_end *end, const struct error *err)
{
	struct bench *b = ctx;
	assert_false(b->ended);
	b->ended = true;
	b->failed = err != NULL;
	b->end = *end;
	if (err)
		str_format(b->text, sizeof(b->text), "%s", err->text);
}

/* Turns the loop until *done; fails where one turn waits. */
static void turn_until(struct bench *b, const bool *done)
{
	uint64_t end = now_ms() + 20 * LOOP_MS;
	while (!*done && now_ms() < end) {
		uint64_t start = now_ms();
		event_base_loop(b->base, EVLOOP_NONBLOCK);
		if (now_ms() - start > LOOP_MS / 2)
			fail_msg("the loop waited %d ms", (int)(now_ms() - start));
		usleep(1000);
	}
	assert_true(*done);
}

static void claim(struct bench *b)
{
	struct container_spec spec = {.hostname = "box"};
	struct sup_claim asked;
	int pair[2];
	bool done = false;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_non_null(container_claim(b->client, &spec, on_claimed, b));
	assert_int_equal(recv(b->supervisor, &asked, sizeof(asked), 0), sizeof(asked));
	struct sup_claimed answer = {.h = {SUP_CLAIMED, sizeof(answer), asked.h.seq}, .hold = 1};
	hostile_send(b->supervisor, &answer, sizeof(answer), &pair[1], 1);
	close(pair[1]);
	b->init = pair[0];
	for (int i = 0; i < 1000 && !done; i++) {
		event_base_loop(b->base, EVLOOP_NONBLOCK);
		done = b->hold != NULL;
	}
	assert_true(done);
}

static void open_bench(struct bench *b)
{
	struct container_client_handler handler = {b, on_ended, on_lost, NULL, NULL};
	int pair[2];
	*b = (struct bench){.base = event_base_new()};
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	b->supervisor = pair[0];
	b->client = container_client_new(b->base, pair[1], &handler);
	claim(b);
}

/* Starts a command and takes its INIT_RUN. Returns its id. */
static uint64_t run(struct bench *b)
{
	static const struct str script = STR("true");
	struct command_options options = {.argv = &script, .argc = 1, .shell = true};
	struct command_handler handler = {b, NULL, on_output, on_end};
	union {
		struct init_run run;
		char bytes[4096];
	} m;
	struct error err;
	b->ended = b->failed = false;
	b->n_output = 0;
	assert_non_null(container_run(b->hold, &options, &handler, &err));
	assert_true(recv(b->init, &m, sizeof(m), 0) > (ssize_t)sizeof(m.run));
	return m.run.id;
}

static void next_container(struct bench *b)
{
	struct sup_hold release;
	container_release(b->hold);
	b->hold = NULL;
	close(b->init);
	assert_int_equal(recv(b->supervisor, &release, sizeof(release), 0), sizeof(release));
	claim(b);
}

static void close_bench(struct bench *b)
{
	container_release(b->hold);
	container_client_free(b->client);
	event_base_free(b->base);
	close(b->init);
	close(b->supervisor);
}

static void send_started(struct bench *b, uint64_t id, const int *fds, size_t n)
{
	struct init_id m = {{INIT_STARTED, sizeof(m), 0}, id};
	hostile_send(b->init, &m, sizeof(m), fds, n);
}

static void send_done(struct bench *b, uint64_t id, uint32_t outcome, uint32_t code)
{
	struct init_done m = {
	        .h = {INIT_DONE, sizeof(m), 0}, .id = id, .outcome = outcome, .code = code};
	hostile_send(b->init, &m, sizeof(m), NULL, 0);
}

static void expect_broken(struct bench *b)
{
	turn_until(b, &b->ended);
	assert_true(b->failed);
	next_container(b);
}

/* Cut, too long, unknown, of another direction, empty. */
static void wrong_messages(void **state)
{
	static const uint16_t none[] = {0, INIT_SETUP, INIT_PREPARED, INIT_READY, INIT_BROKEN,
	        INIT_RUN, INIT_KILL, INIT_DISCARD, INIT_REFUSED + 1, 65535};
	static const struct {
		uint16_t op;
		size_t size;
	} ops[] = {{INIT_STARTED, sizeof(struct init_id)}, {INIT_DONE, sizeof(struct init_done)},
	        {INIT_REFUSED, sizeof(struct init_refused)}};
	static uint8_t bytes[65536];
	struct init_header *h = (struct init_header *)(void *)bytes;
	struct bench b;
	open_bench(&b);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		run(&b);
		*h = (struct init_header){none[i], sizeof(struct init_id), 0};
		hostile_send(b.init, bytes, sizeof(struct init_id), NULL, 0);
		expect_broken(&b);
	}
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		const size_t lens[] = {
		        0, 1, sizeof(*h), ops[i].size - 1, ops[i].size + 1, sizeof(bytes)};
		for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
			run(&b);
			*h = (struct init_header){ops[i].op, (uint16_t)ops[i].size, 0};
			hostile_send(b.init, bytes, lens[k], NULL, 0);
			expect_broken(&b);
		}
	}
	close_bench(&b);
}

/* Outcomes and codes that there are none of, and words that are not text. */
static void lies(void **state)
{
	static const uint32_t wrong[][2] = {{0, 0}, {5, 0}, {UINT32_MAX, 0}, {INIT_EXITED, 256},
	        {INIT_EXITED, UINT32_MAX}, {INIT_SIGNALED, 65}, {INIT_SIGNALED, UINT32_MAX},
	        {INIT_TIMED_OUT, 256}, {INIT_KILLED, UINT32_MAX}};
	struct bench b;
	open_bench(&b);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		send_done(&b, run(&b), wrong[i][0], wrong[i][1]);
		expect_broken(&b);
	}
	uint64_t id = run(&b);
	send_started(&b, id + 1, NULL, 0);
	expect_broken(&b);
	id = run(&b);
	send_done(&b, id + 7, INIT_EXITED, 0); /* of no command: nothing to it */
	struct init_refused refused = {
	        .h = {INIT_REFUSED, sizeof(refused), 0}, .id = id, .errnum = UINT32_MAX};
	memset(refused.step, 0xc3, sizeof(refused.step));
	refused.step[0] = 'x';
	hostile_send(b.init, &refused, sizeof(refused), NULL, 0);
	turn_until(&b, &b.ended);
	assert_true(b.failed);
	for (const char *p = b.text; *p; p++)
		assert_true(*p >= ' ' && *p <= '~');
	id = run(&b);
	send_done(&b, id, INIT_EXITED, 3);
	turn_until(&b, &b.ended);
	assert_false(b.failed);
	assert_int_equal(b.end.code, 3);
	close_bench(&b);
}

/* In the place of the two pipes. */
static void wrong_descriptors(void **state)
{
	struct bench b;
	open_bench(&b);
	for (int kind = 0; kind < 5; kind++)
		for (int way = 0; way < 5; way++) {
			static const size_t counts[] = {1, 2, 3, 5, HOSTILE_MAX_FDS};
			int fds[HOSTILE_MAX_FDS];
			int one = kind == 0   ? open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
			          : kind == 1 ? open("/dev/zero", O_RDWR | O_CLOEXEC)
			          : kind == 2 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)
			          : kind == 3 ? hostile_lingering()
			                      : hostile_nested();
			assert_true(one >= 0);
			for (size_t i = 0; i < counts[way]; i++)
				fds[i] = one;
			send_started(&b, run(&b), fds, counts[way]);
			hostile_close(one);
			expect_broken(&b);
		}
	/* where none belong, and in a channel that is closed with them unread */
	for (int i = 0; i < 2; i++) {
		int one = hostile_lingering();
		uint64_t id = run(&b);
		if (i == 0)
			send_done(&b, id, 0, 0);
		struct init_done m = {
		        .h = {INIT_DONE, sizeof(m), 0}, .id = id, .outcome = INIT_EXITED};
		hostile_send(b.init, &m, sizeof(m), &one, 1);
		hostile_close(one);
		expect_broken(&b);
	}
	close_bench(&b);
}

/* Pipes that wait when they are read, since init has cleared what the gateway has set. */
static void pipes_that_wait(void **state)
{
	int out[2], err[2];
	struct bench b;
	open_bench(&b);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	uint64_t id = run(&b);
	send_started(&b, id, (int[]){out[0], err[0]}, 2);
	for (int i = 0; i < 50; i++) {
		event_base_loop(b.base, EVLOOP_NONBLOCK);
		fcntl(out[0], F_SETFL, 0); /* the same open file */
		assert_int_equal(write(out[1], "x", 1), 1);
	}
	bool all = false;
	for (int i = 0; i < 100 && !all; i++) {
		event_base_loop(b.base, EVLOOP_NONBLOCK);
		all = b.n_output == 50;
	}
	assert_true(all);
	send_done(&b, id, INIT_EXITED, 0);
	turn_until(&b, &b.ended);
	assert_false(b.failed);
	for (int i = 0; i < 2; i++) {
		close(out[i]);
		close(err[i]);
	}
	close_bench(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(wrong_messages),
	        cmocka_unit_test(lies),
	        cmocka_unit_test(wrong_descriptors),
	        cmocka_unit_test(pipes_that_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
