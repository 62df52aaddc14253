/*
 * The end of an exchange: on_gone comes exactly once (serve.c checks it for every exchange of every
 * test), soon, with the right reason, whatever the client does and whatever the handler calls in
 * whichever callback.
 */
#include "serve.h"

#include <sys/socket.h>
#include <time.h>

#define HOST    "Host: a\r\n"
#define GET(p)  "GET " p " HTTP/1.1\r\n" HOST "\r\n"
#define POST(p) "POST " p " HTTP/1.1\r\n" HOST

static void say(int fd, const char *text)
{
	assert_true(socket_send(fd, text, strlen(text)));
}

/* ---- the client leaves ---- */

enum leave { LEAVE_CLOSE, LEAVE_HALF, LEAVE_RESET, LEAVE_N };

static void leave(int *fd, enum leave how)
{
	if (how == LEAVE_CLOSE)
		close(*fd);
	else if (how == LEAVE_RESET)
		socket_reset(*fd);
	else
		assert_int_equal(shutdown(*fd, SHUT_WR), 0);
	if (how != LEAVE_HALF)
		*fd = -1;
}

static bool pause_at_once(struct record *r, struct http_exchange *x, enum hook where)
{
	if (where == HOOK_HEAD || where == HOOK_BODY)
		http_body_pause(x, true);
	return false;
}

/* Where an exchange can be when its client leaves. */
static const struct situation {
	const char *name;
	const char *bytes;
	bool paused;  /* the handler does not want the body */
	bool blocked; /* the answer does not fit into the kernel's buffers */
} situations[] = {
        {"waiting for the answer", GET("/open"), false, false},
        {"waiting, with a body", POST("/open") "Content-Length: 2\r\n\r\nhi", false, false},
        {"streaming", GET("/stream"), false, false},
        {"streaming to a client that reads nothing", GET("/stream"), false, true},
        {"waiting, another request behind", GET("/open") GET("/smuggled"), false, false},
        {"in a body", POST("/echo") "Content-Length: 20\r\n\r\nhi", false, false},
        {"in a chunked body", POST("/echo") "Transfer-Encoding: chunked\r\n\r\n5\r\nhe", false,
                false},
        {"in a body that is paused", POST("/pieces") "Content-Length: 20\r\n\r\nhi", true, false},
        {"in a body that is paused, all of it sent", POST("/pieces") "Content-Length: 2\r\n\r\nhi",
                true, false},
        {"in a body in pieces", POST("/pieces") "Content-Length: 20\r\n\r\nhi", false, false},
        {"before 100-continue was used",
                POST("/echo") "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", false, false},
};

static void run_situation(const struct situation *s, enum leave how)
{
	static char piece[1 << 20];
	struct record *r;
	uint64_t begin;
	size_t i;
	int fd;

	serve_start(NULL);
	serve.hook = s->paused ? pause_at_once : NULL;
	fd = socket_connect(serve.port);
	say(fd, s->bytes);
	LOOP_UNTIL(serve.n_records == 1, 60000);
	r = serve.records[0];
	for (i = 0; s->blocked && i < 16; i++)
		http_write(r->x, (struct str){piece, sizeof(piece)});
	loop_ms(10);
	assert_int_equal(r->n_gone, 0);
	begin = clock_mono_ms();
	leave(&fd, how);
	while (r->n_gone == 0 && clock_mono_ms() < begin + 60000)
		loop_once();
	if (r->n_gone != 1 || r->why != HTTP_GONE_CLIENT)
		fail_msg("%s, leaving %d: %zu times, because %d", s->name, how, r->n_gone, r->why);
	assert_true(clock_mono_ms() - begin < 5000);
	assert_int_equal(serve_count("/smuggled"), 0);
	assert_int_equal(http_server_connections(serve.server), 0);
	if (fd >= 0)
		close(fd);
	serve_stop();
}

static void test_client_leaves(void **state)
{
	size_t i;
	enum leave how;

	for (i = 0; i < sizeof(situations) / sizeof(situations[0]); i++)
		for (how = 0; how < LEAVE_N; how++)
			run_situation(&situations[i], how);
}

/* A half-closed client that is answered within the same step gets its answer. */
static void test_half_closed_and_answered_at_once(void **state)
{
	_cleanup_buf_ struct buf in = BUF_INIT(65536);
	int fd;

	serve_start(NULL);
	fd = socket_connect(serve.port);
	say(fd, GET("/echo") GET("/echo"));
	shutdown(fd, SHUT_WR);
	assert_true(socket_read_all(fd, &in, 60000));
	assert_int_equal(count_of(&in, "200 OK"), 2);
	close(fd);
	serve_stop();
}

/* Bytes that nobody reads must not keep the loop busy, nor hide that the client leaves. */
static void test_unread_bytes_do_not_spin(void **state)
{
	static char junk[32768];
	uint64_t cpu, end;
	size_t sent = 0;
	int fd;

	serve_start(NULL);
	fd = socket_connect(serve.port);
	say(fd, GET("/open"));
	LOOP_UNTIL(serve.n_records == 1, 60000);
	cpu = cpu_ms();
	for (end = clock_mono_ms() + 300; clock_mono_ms() < end;) {
		/* Not so much that the kernel's buffers are full: the end would stand behind it. */
		if (sent < sizeof(junk) && send(fd, junk, 512, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
			sent += 512;
		loop_once();
	}
	assert_true(cpu_ms() - cpu < 200);
	assert_int_equal(serve.records[0]->n_gone, 0);
	close(fd);
	LOOP_UNTIL(serve.records[0]->n_gone == 1, 60000);
	assert_int_equal(serve.records[0]->why, HTTP_GONE_CLIENT);
	serve_stop();
}

/* ---- the handler acts in each callback ---- */

static enum hook act_where;
static enum action {
	ACT_ABORT,
	ACT_ANSWER,
	ACT_START_AND_ABORT,
	ACT_START_AND_FINISH,
	ACT_TWICE,
	ACT_N
} act;
static size_t n_acts;

/* Everything may be called on an exchange that is over; nothing of it does anything. */
static void call_everything(struct http_exchange *x)
{
	size_t n;

	http_write(x, STR("late"));
	http_finish(x);
	http_abort(x);
	http_body_pause(x, true);
	http_body_pause(x, false);
	assert_int_equal(http_pending(x), 0);
	assert_false(http_above_high_water(x));
	free(http_request_take_body(x, &n));
	http_request_release(x);
	(void)http_request_target(x);
	(void)http_exchange_peer(x);
}

static bool do_act(struct record *r, struct http_exchange *x, enum hook where)
{
	if (where != act_where || (where == HOOK_BODY && r->n_pieces + r->n_ends > 1) ||
	        (where == HOOK_DRAIN && r->n_drains > 1))
		return where == HOOK_BODY && http_started(x);
	n_acts++;
	if (where == HOOK_GONE) {
		call_everything(x);
		return true;
	}
	if (http_started(x) && act != ACT_ABORT) {
		http_finish(x);
		return true;
	}
	switch (act) {
	case ACT_ABORT:
		http_abort(x);
		call_everything(x);
		break;
	case ACT_ANSWER:
		http_respond(x, 200, NULL, STR("acted"));
		break;
	case ACT_START_AND_ABORT:
		http_respond_start(x, 200, NULL);
		http_write(x, STR("acted"));
		http_abort(x);
		http_abort(x);
		break;
	case ACT_START_AND_FINISH:
		http_respond_start(x, 200, NULL);
		http_write(x, STR("acted"));
		http_finish(x);
		http_finish(x);
		http_write(x, STR("late"));
		break;
	case ACT_TWICE:
		http_body_pause(x, true);
		http_respond(x, 200, NULL, STR("acted"));
		http_body_pause(x, false);
		http_abort(x);
		break;
	case ACT_N:
		break;
	}
	return true;
}

static void run_act(enum hook where, enum action action)
{
	static char piece[1 << 20];
	_cleanup_buf_ struct buf in = BUF_INIT(256u << 20);
	struct record *r;
	bool whole = action == ACT_ANSWER || action == ACT_START_AND_FINISH;
	size_t i;
	int fd;

	serve_start(NULL);
	act_where = where;
	act = action;
	n_acts = 0;
	serve.hook = do_act;
	fd = socket_connect(serve.port);
	if (where == HOOK_DRAIN)
		say(fd, GET("/stream"));
	else if (where == HOOK_BODY)
		say(fd, POST("/pieces") "Content-Length: 5\r\n\r\nhello");
	else
		say(fd, POST("/echo") "Content-Length: 5\r\n\r\nhello");
	LOOP_UNTIL(serve.n_records == 1, 60000);
	r = serve.records[0];
	for (i = 0; where == HOOK_DRAIN && i < 16; i++)
		http_write(r->x, (struct str){piece, sizeof(piece)});
	LOOP_UNTIL((socket_read(fd, &in), r->n_gone == 1), 60000);
	assert_true(n_acts > 0);
	loop_ms(5);
	socket_read(fd, &in);
	assert_false(holds(&in, "late"));
	if (where == HOOK_GONE || (where == HOOK_DRAIN && action != ACT_ABORT))
		assert_int_equal(r->why, HTTP_GONE_DONE);
	else if (where != HOOK_DRAIN)
		assert_int_equal(r->why, whole ? HTTP_GONE_DONE : HTTP_GONE_ABORTED);
	if (where != HOOK_GONE && where != HOOK_DRAIN && whole)
		assert_int_equal(count_of(&in, "acted"), 1);
	if (action == ACT_START_AND_ABORT && where != HOOK_DRAIN && where != HOOK_GONE)
		assert_false(holds(&in, "\r\n0\r\n")); /* no clean end */
	close(fd);
	loop_ms(5);
	assert_int_equal(http_server_connections(serve.server), 0);
	serve_stop();
}

static void test_handler_acts_in_each_callback(void **state)
{
	enum hook where;
	enum action action;

	for (where = HOOK_HEAD; where <= HOOK_GONE; where++)
		for (action = 0; action < ACT_N; action++)
			run_act(where, action);
}

/* A second exchange is acted upon from the callbacks of a first. */
static bool act_on_other(struct record *r, struct http_exchange *x, enum hook where)
{
	struct record *other = serve.records[0];

	if (strcmp(r->path, "/echo") != 0 || where != HOOK_REQUEST || !other->x)
		return false;
	http_respond_start(other->x, 200, NULL);
	http_write(other->x, STR("from elsewhere"));
	http_finish(other->x);
	assert_int_equal(other->n_gone, 0); /* never from inside the call */
	return false;
}

static void test_answer_from_another_callback(void **state)
{
	_cleanup_buf_ struct buf a_in = BUF_INIT(65536), b_in = BUF_INIT(65536);
	int a, b;

	serve_start(NULL);
	serve.hook = act_on_other;
	a = socket_connect(serve.port);
	say(a, GET("/open"));
	LOOP_UNTIL(serve.n_records == 1, 60000);
	b = socket_connect(serve.port);
	say(b, GET("/echo"));
	LOOP_UNTIL((socket_read(a, &a_in), holds(&a_in, "from elsewhere\r\n0\r\n\r\n")), 60000);
	LOOP_UNTIL(serve.records[0]->n_gone == 1, 60000);
	assert_int_equal(serve.records[0]->why, HTTP_GONE_DONE);
	/* The connection goes on. */
	say(a, GET("/echo"));
	LOOP_UNTIL((socket_read(a, &a_in), holds(&a_in, "empty")), 60000);
	close(a);
	close(b);
	serve_stop();
}

static void test_no_callback_from_inside_a_call(void **state)
{
	struct record *r;
	int fd;

	serve_start(NULL);
	fd = socket_connect(serve.port);
	say(fd, GET("/stream"));
	LOOP_UNTIL(serve.n_records == 1, 60000);
	r = serve.records[0];
	socket_reset(fd);
	/* The write finds out before the loop does. */
	http_write(r->x, STR("a"));
	http_write(r->x, STR("b"));
	assert_int_equal(r->n_gone, 0);
	http_finish(r->x);
	http_abort(r->x);
	assert_int_equal(r->n_gone, 0);
	loop_ms(5);
	assert_int_equal(r->n_gone, 1);
	assert_int_equal(r->why, HTTP_GONE_CLIENT);
	serve_stop();
}

static void test_close_delimited_abort_is_a_reset(void **state)
{
	char byte[4096];
	int fd;

	serve_start(NULL);
	fd = socket_connect(serve.port);
	say(fd, "GET /stream HTTP/1.0\r\n\r\n");
	LOOP_UNTIL(serve.n_records == 1, 60000);
	http_write(serve.records[0]->x, STR("half"));
	loop_ms(10);
	assert_true(recv(fd, byte, sizeof(byte), 0) > 0);
	http_abort(serve.records[0]->x);
	loop_ms(10);
	assert_int_equal(recv(fd, byte, sizeof(byte), 0), -1);
	close(fd);
	serve_stop();
}

/* ---- the server goes ---- */

static void test_server_freed_in_every_situation(void **state)
{
	static char piece[1 << 20];
	int fds[sizeof(situations) / sizeof(situations[0]) + 3];
	size_t i, j, n = 0;

	serve_start(NULL);
	for (i = 0; i < sizeof(situations) / sizeof(situations[0]); i++) {
		serve.hook = situations[i].paused ? pause_at_once : NULL;
		fds[n] = socket_connect(serve.port);
		say(fds[n++], situations[i].bytes);
		LOOP_UNTIL(serve.n_records == i + 1, 60000);
		for (j = 0; situations[i].blocked && j < 16; j++)
			http_write(serve.records[i]->x, (struct str){piece, sizeof(piece)});
	}
	fds[n] = socket_connect(serve.port); /* idle */
	n++;
	fds[n] = socket_connect(serve.port); /* in a head */
	say(fds[n++], "GET /");
	fds[n] = socket_connect(serve.port); /* refused, and lingering */
	say(fds[n++], "GET\r\n");
	loop_ms(10);
	assert_int_equal(http_server_connections(serve.server), n);
	serve.server = http_server_free(serve.server);
	for (i = 0; i < serve.n_records; i++) {
		assert_int_equal(serve.records[i]->n_gone, 1);
		assert_int_equal(serve.records[i]->why, HTTP_GONE_ABORTED);
	}
	for (i = 0; i < n; i++)
		close(fds[i]);
	serve_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_client_leaves),
	        cmocka_unit_test(test_half_closed_and_answered_at_once),
	        cmocka_unit_test(test_unread_bytes_do_not_spin),
	        cmocka_unit_test(test_handler_acts_in_each_callback),
	        cmocka_unit_test(test_answer_from_another_callback),
	        cmocka_unit_test(test_no_callback_from_inside_a_call),
	        cmocka_unit_test(test_close_delimited_abort_is_a_reset),
	        cmocka_unit_test(test_server_freed_in_every_situation),
	};

	return UNIT_RUN(tests);
}
