/*
 * The commands of a turn's tool calls, in the turn's container.
 *
 * The container is claimed at the first call and held until the turn is done; the request's files
 * are copied in before the first command. Commands of a call run one after the other; what each
 * prints goes through two collectors, which keep it within the limit and say which bytes are sure
 * to stay. A collector's limit in characters is also kept below an eighth of the bytes the call may
 * still show (two streams, four bytes a character), so that the byte limit of DESIGN section 8
 * holds whatever is printed.
 *
 * Commands of a bash call go on in one session (tool/bash_session.h): their standard error is the
 * session's state, and what is left of the call's time and characters is for the next one.
 */
#include "gateway/turn_run.h"

#include "base/id.h"
#include "base/utf8.h"
#include "gateway/idempotency.h"
#include "gateway/keeping.h"
#include "gateway/saving.h"

#include <stdlib.h>

#define RESTART_NONCE 8

static void run_next(struct turn_run *t);

/* The end of the call under way. failed: why the sandbox gave up, or NULL. */
static void run_finish(struct turn_run *t, const char *failed)
{
	struct turn_event ev = {
	        .type = failed != NULL ? TURN_TOOL_FAILED : TURN_TOOL_DONE,
	        .call = t->run.call,
	        .text = str_of(failed),
	};

	if (failed == NULL)
		run_files_ask(t, t->run.call);
	t->run.call = NULL;
	t->run.out = collector_free(t->run.out);
	t->run.err = collector_free(t->run.err);
	turn_run_feed(t, &ev);
}

/*
 * The container went live with another policy (or image, or memory) after this request was checked
 * against it. Nothing has run, so where nothing was sent either the request is answered as it would
 * have been then; an answer that has begun can only show a call that failed.
 */
static bool run_conflict(struct turn_run *t, const struct error *err)
{
	const struct shell_settings *s =
	        t->request.shell != NULL ? t->request.shell->settings : NULL;
	struct turn_event ev = {.type = TURN_TOOL_FAILED, .call = t->run.call};
	struct turn_totals totals;
	struct error e;

	turn_totals(t->turn, clock_mono_ms(), &totals);
	if (err->code != ERR_CONFLICT || s == NULL || s->network == NULL || t->request.stream ||
	        t->answered || t->x == NULL || totals.commands_started)
		return false;
	error_param(&e, ERR_CONFLICT, s->network_path,
	        "The container is live with another network policy, image or memory; what is asked "
	        "for applies once it is asleep.");
	http_response_header(t->x, "X-Should-Retry", "false");
	ev.refused = &e;
	ev.text = str_of(e.text);
	t->run.call = NULL;
	turn_run_feed(t, &ev);
	return true;
}

static void feed_output(struct turn_run *t, bool is_stderr, struct buf *live)
{
	struct turn_event ev = {
	        .type = TURN_TOOL_OUTPUT,
	        .call = t->run.call,
	        .command = t->run.index,
	        .is_stderr = is_stderr,
	        .text = {live->data, live->len},
	};

	if (live->len > 0)
		turn_run_feed(t, &ev);
}

static bool is_session(const struct turn_run *t)
{
	return t->run.call->call.parsed->session;
}

static void on_output(void *ctx, struct command *c, bool is_stderr, const void *data, size_t n)
{
	struct turn_run *t = ctx;
	_cleanup_buf_ struct buf live = BUF_INIT((size_t)1 << 20);

	if (is_stderr && is_session(t)) {
		bash_session_hear(&t->run.session, data, n);
		return;
	}
	collector_feed(is_stderr ? t->run.err : t->run.out, data, n, &live);
	/* What is scanned is shown once all of it is there. */
	if (!t->rules->tools)
		feed_output(t, is_stderr, &live);
}

static void output_fill(struct turn_run *t, const struct command_end *end, struct command_output *o)
{
	struct run *r = &t->run;

	o->out = collector_text(r->out);
	o->err = collector_text(r->err);
	o->out_truncated = collector_truncated(r->out);
	o->err_truncated = collector_truncated(r->err);
	o->out_chars = collector_chars(r->out);
	o->err_chars = collector_chars(r->err);
	o->done = true;
	if (end->outcome == INIT_TIMED_OUT || (end->outcome == INIT_KILLED && r->timed_out)) {
		o->outcome = OUTCOME_TIMEOUT;
	} else {
		o->outcome = OUTCOME_EXIT;
		o->exit_code = command_exit_code(end);
	}
	if (end->outcome == INIT_SIGNALED)
		o->signal = str_of(command_signal_name(end->code));
	if (end->memory)
		o->reason = STR("memory");
}

/* The command of a session has ended: what it left is what the next one begins with. */
static void session_ended(struct turn_run *t)
{
	static const char too_large[] = "What the session is to keep (variables and functions) is "
	                                "over 1 MiB: it is as it was "
	                                "before this command.\n";

	if (bash_session_end(&t->run.session) == BASH_SESSION_TOO_LARGE)
		collector_feed(t->run.out, too_large, sizeof(too_large) - 1, NULL);
}

/* What model and client see of a text that was held back: scanned, and then at once. */
static void guard_output(struct turn_run *t, struct str *text, struct buf *live)
{
	_cleanup_buf_ struct buf scanned = BUF_INIT((size_t)1 << 20);
	size_t before = t->tool_guard.scan.n_hits;

	if (guardrails_tool_output(t->rules, *text, &t->tool_guard, &scanned))
		*text = (struct str){scanned.data, scanned.len};
	buf_reset(live);
	buf_append(live, text->p, text->n);
	*text = (struct str){live->data, live->len};
	guardrails_log(&t->tool_guard, t->who.id, before);
}

/* What the collectors still held back goes out; then the command's result. */
static void command_ended(struct turn_run *t, const struct command_end *end)
{
	struct command_output o = {0};
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 20);
	_cleanup_buf_ struct buf err = BUF_INIT((size_t)1 << 20);
	struct turn_event ev = {.type = TURN_TOOL_COMMAND,
	        .call = t->run.call,
	        .command = t->run.index,
	        .output = &o};

	recording_command_ended(t);
	if (is_session(t))
		session_ended(t);
	collector_end(t->run.out, &out);
	collector_end(t->run.err, &err);
	output_fill(t, end, &o);
	if (t->rules->tools) {
		guard_output(t, &o.out, &out);
		guard_output(t, &o.err, &err);
	}
	feed_output(t, false, &out);
	if (t->run.call != NULL)
		feed_output(t, true, &err);
	if (t->run.call == NULL)
		return; /* the turn was cancelled meanwhile */
	size_t used = o.out.n + o.err.n;
	size_t shown = utf8_count(o.out.p, o.out.n);

	t->run.session_chars -=
	        shown < t->run.session_chars ? (uint32_t)shown : t->run.session_chars;

	t->run.output_left -= used < t->run.output_left ? (uint32_t)used : t->run.output_left;
	turn_run_feed(t, &ev);
}

/* What model and client may read: which step of ours failed, and how, is for the log. */
static const char *failure_text(const struct error *err)
{
	log_text(LOG_WARN, "sandbox_failed", "%s", err->text);
	return strcmp(err->type, "init") == 0 ? err->text : api_error_text(err);
}

static void on_end(
        void *ctx, struct command *c, const struct command_end *end, const struct error *err)
{
	struct turn_run *t = ctx;

	t->run.command = NULL;
	t->run.unsynced = t->run.unsynced || end->unsynced;
	if (t->g->saving != NULL) {
		uint8_t key[SUP_KEY_LEN];

		row_key(t->key, str_of(t->request.container_id), key);
		saving_changed(t->g->saving, key);
	}
	if (err != NULL && err->code != ERR_INVALID) {
		/* init or the supervisor is gone: this command's output so far is its result, the
		 * rest never ran. */
		container_release(t->run.hold);
		t->run.hold = NULL;
		bash_session_reset(&t->run.session);
		run_finish(t, failure_text(err));
		return;
	}
	struct command_end refused = {.outcome = INIT_EXITED, .code = 126};

	if (err != NULL) {
		/* The shell could not be started (a directory that has gone): what a shell would
		 * say. */
		struct collector *where = is_session(t) ? t->run.out : t->run.err;

		collector_feed(where, err->text, strlen(err->text), NULL);
		collector_feed(where, "\n", 1, NULL);
		end = &refused;
	}
	command_ended(t, end);
	if (t->run.call == NULL)
		return;
	t->run.index++;
	run_next(t);
}

/* How a session's command is run. False: the call's time is up. */
static bool session_options(struct turn_run *t, struct str argv[BASH_SESSION_ARGC],
        struct command_options *o, uint32_t *chars)
{
	const struct tool_call *tc = t->run.call->call.parsed;
	uint64_t now = clock_mono_ms();

	if (now >= t->run.session_until_ms)
		return false;
	bash_session_begin(&t->run.session, tc->commands[t->run.index], argv, &o->stdin_data);
	o->argv = argv;
	o->argc = BASH_SESSION_ARGC;
	o->shell = false;
	o->timeout_ms = (uint32_t)(t->run.session_until_ms - now);
	*chars = *chars < t->run.session_chars ? *chars : t->run.session_chars;
	return true;
}

static void run_next(struct turn_run *t)
{
	const struct tool_call *tc = t->run.call->call.parsed;
	const struct command_handler h = {.ctx = t, .on_output = on_output, .on_end = on_end};
	uint32_t chars = t->run.output_left / 8;
	struct command_options o = {.argc = 1, .shell = true, .timeout_ms = tc->timeout_ms};
	struct str argv[BASH_SESSION_ARGC];
	struct error e;

	if (t->run.index == tc->n_commands || t->run.timed_out) {
		run_finish(t, NULL);
		return;
	}
	if (chars > tc->output_chars)
		chars = tc->output_chars;
	o.argv = &tc->commands[t->run.index];
	if (tc->session && !session_options(t, argv, &o, &chars)) {
		run_finish(t, NULL);
		return;
	}
	collector_free(t->run.out);
	collector_free(t->run.err);
	t->run.out = collector_new(chars);
	t->run.err = collector_new(chars);
	o.env = t->run.env;
	o.envc = t->run.n_env;
	o.durable = t->g->config->container.durable_power;
	t->run.stands = false;
	t->run.command = container_run(t->run.hold, &o, &h, &e);
	if (t->run.command == NULL) {
		run_finish(t, e.text);
	} else {
		recording_command(t);
		run_apply_pause(t);
	}
}

static void run_begin(struct turn_run *t)
{
	struct turn_event ev = {
	        .type = TURN_TOOL_STARTED,
	        .call = t->run.call,
	        .started_container = t->run.started_container,
	        .container_id = t->run.moved_to,
	};
	const struct tool_call *tc = t->run.call->call.parsed;

	t->run.session_until_ms = clock_mono_ms() + tc->timeout_ms;
	t->run.session_chars = tc->output_chars;
	idempotency_ran(t->x);
	run_files_begin(t);
	turn_run_feed(t, &ev);
	recording_run_started(t);
	if (t->run.call != NULL && t->run.hold != NULL)
		run_next(t);
}

static void on_attached(void *ctx, const struct error *err)
{
	struct turn_run *t = ctx;

	t->run.claiming = false;
	if (err != NULL) {
		run_finish(t, failure_text(err));
		return;
	}
	t->run.attach = documents_attach_free(t->run.attach);
	run_begin(t);
}

/* The container is there: the files come first, then the commands. */
static void run_prepare(struct turn_run *t)
{
	if (t->run.attach == NULL) {
		run_begin(t);
		return;
	}
	t->run.claiming = true;
	documents_attach_copy(t->run.attach, t->run.key, on_attached, t);
}

static void on_claimed(void *ctx, struct container_hold *hold, const struct error *err)
{
	struct turn_run *t = ctx;

	t->run.claiming = false;
	if (err != NULL) {
		t->run.hold = NULL;
		if (!run_conflict(t, err))
			run_finish(t, failure_text(err));
		return;
	}
	t->run.started_container = container_hold_how(hold) != SUP_WAS_LIVE;
	keeping_claimed(t->g, t->key, t->request.container_id, hold);
	run_prepare(t);
}

static void on_row(void *ctx, const struct store_container *row, const struct error *err)
{
	struct turn_run *t = ctx;
	struct arena *a = t->request.conversation->arena;
	struct container_spec spec;
	struct error e;

	t->run.reading--;
	if (!t->run.claiming || t->run.hold != NULL) {
		turn_run_reap(t); /* the call that asked has ended, or another one had the answer */
		return;
	}
	if (err != NULL) {
		t->run.claiming = false;
		run_finish(t, "The container's settings could not be read.");
		return;
	}
	t->run.env = arena_alloc(a, ENV_ROW_MAX * sizeof(*t->run.env));
	t->run.n_env = t->run.env != NULL ? env_of_row(row, a, t->run.env) : 0;
	if (row_spec(t->g, t->key, row, &spec, &e) < 0) {
		t->run.claiming = false;
		run_finish(t, failure_text(&e));
		return;
	}
	memcpy(t->run.key, spec.key, sizeof(t->run.key));
	t->run.hold = container_claim(t->g->containers, &spec, on_claimed, t);
	container_spec_clear(&spec);
}

static void read_row(struct turn_run *t)
{
	const struct shell_settings *s =
	        t->request.shell != NULL ? t->request.shell->settings : NULL;

	if (!row_read(t->g, t->key, str_of(t->request.container_id), s != NULL ? s->network : NULL,
	            on_row, t)) {
		t->run.claiming = false;
		run_finish(t, "The server has too much to do.");
		return;
	}
	t->run.reading++;
}

/* Reading the row makes the policy asked for its own: not where it cannot apply. */
static void on_status(void *ctx, const struct container_status *st, const struct error *err)
{
	struct turn_run *t = ctx;
	const struct shell_settings *s = t->request.shell->settings;
	uint8_t wanted[16];
	struct error e;

	t->run.reading--;
	if (!t->run.claiming || t->run.hold != NULL) {
		turn_run_reap(t);
		return;
	}
	row_policy(t->g, t->key, str_of(t->request.container_id), str_of(s->network), wanted);
	if (st == NULL || (st->state != SUP_ST_RUNNING && st->state != SUP_ST_FROZEN) ||
	        memcmp(wanted, st->policy, sizeof(wanted)) == 0) {
		read_row(t);
		return;
	}
	t->run.claiming = false;
	error_set(&e, ERR_CONFLICT, "The container is live with another network policy.");
	if (!run_conflict(t, &e))
		run_finish(t, failure_text(&e));
}

static void run_claim(struct turn_run *t)
{
	const struct shell_settings *s =
	        t->request.shell != NULL ? t->request.shell->settings : NULL;
	uint8_t key[SUP_KEY_LEN];

	t->run.claiming = true;
	if (s == NULL || s->network == NULL) {
		read_row(t);
		return;
	}
	row_key(t->key, str_of(t->request.container_id), key);
	t->run.reading++;
	container_ask_status(t->g->containers, key, on_status, t);
}

/*
 * A bash call asks for a new beginning: the session's state is dropped, and the turn goes on in a
 * new container, whose id is the request's with a suffix.
 */
static void run_restart(struct turn_run *t)
{
	char *id = t->request.container_id, suffix[16];
	size_t room = sizeof(t->request.container_id) - 1, keep = strlen(id);
	bool ok = true;

	id_make(suffix, sizeof(suffix), "-r", RESTART_NONCE);
	if (keep > room - strlen(suffix))
		keep = room - strlen(suffix);
	str_format(id + keep, room + 1 - keep, "%s", suffix);
	t->run.moved_to = conversation_copy(t->request.conversation, str_of(id), &ok);
	container_release(t->run.hold);
	t->run.hold = NULL;
	bash_session_reset(&t->run.session);
}

void run_start(struct turn_run *t, struct item *call, uint32_t output_bytes)
{
	t->run.call = call;
	t->run.index = 0;
	recording_run(t, call);
	t->run.output_left = output_bytes;
	if (t->run.session.state.max == 0)
		bash_session_init(&t->run.session);
	if (call->call.parsed->restart)
		run_restart(t);
	if (t->run.hold == NULL) {
		run_claim(t);
		return;
	}
	t->run.started_container = false;
	run_prepare(t);
}

void run_pause(struct turn_run *t, bool paused)
{
	t->run.paused = paused;
	run_apply_pause(t);
}

void run_apply_pause(struct turn_run *t)
{
	bool stand = t->run.paused || t->blocked;

	if (t->run.command == NULL || stand == t->run.stands)
		return;
	t->run.stands = stand;
	command_pause(t->run.command, stand);
}

void run_kill(struct turn_run *t, bool as_timeout)
{
	if (!as_timeout) {
		run_release(t);
		return;
	}
	t->run.timed_out = true;
	if (t->run.command != NULL) {
		command_kill(t->run.command);
	} else if (t->run.claiming) {
		container_release(t->run.hold);
		t->run.hold = NULL;
		t->run.claiming = false;
		t->run.attach = documents_attach_free(t->run.attach);
		run_finish(t, "The time of the turn was up before the container was there.");
	}
}

void run_release(struct turn_run *t)
{
	container_release(t->run.hold);
	t->run.attach = documents_attach_free(t->run.attach);
	collector_free(t->run.out);
	collector_free(t->run.err);
	bash_session_reset(&t->run.session);
	t->run.hold = NULL;
	t->run.command = NULL;
	t->run.call = NULL;
	t->run.out = t->run.err = NULL;
	t->run.claiming = false;
}
