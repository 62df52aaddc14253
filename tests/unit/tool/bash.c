/* The bash tool: arguments, results, and the session's texts; the last with a bash of this machine.
 */
#include "unit.h"

#include "base/buf.h"
#include "base/mem.h"
#include "json/json.h"
#include "tool/bash_session.h"
#include "tool/tool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct tool_limits limits = {120000, 300000, 16384, 65536, 100};

/* ---- arguments ---- */

static struct tool_call *parse(struct arena *a, const char *arguments, const void *settings)
{
	struct tool_call *call = NULL;
	struct error err = {0};

	if (tool_bash.parse(a, str_of(arguments), settings, &limits, &call, &err) < 0)
		fail_msg("%s: %s", arguments, err.text);
	assert_true(call->session);
	return call;
}

static void test_arguments(void **state)
{
	struct shell_settings s = {.timeout_ms = 1000, .max_output_length = 500};
	struct arena *a = arena_new((size_t)1 << 20);
	struct tool_call *c;

	c = parse(a, "{\"command\":\"ls\"}", NULL);
	assert_int_equal(c->n_commands, 1);
	assert_true(str_is(c->commands[0], "ls") && !c->restart);
	assert_int_equal(c->timeout_ms, 120000);
	c = parse(a, "{\"commands\":[\"a\",\"b\"],\"command\":\"first\",\"timeout_ms\":7}", &s);
	assert_int_equal(c->n_commands, 3);
	assert_true(str_is(c->commands[0], "first") && str_is(c->commands[2], "b"));
	assert_int_equal(c->timeout_ms, 7);
	assert_int_equal(c->output_chars, 500);
	c = parse(a, "{\"commands\":\"one\"}", NULL);
	assert_true(c->n_commands == 1 && str_is(c->commands[0], "one"));
	c = parse(a, "{\"restart\":true}", NULL);
	assert_true(c->restart && c->n_commands == 1 && c->commands[0].n == 0);
	c = parse(a, "{\"restart\":true,\"command\":\"x\",\"commands\":null}", NULL);
	assert_true(c->restart && c->n_commands == 1 && str_is(c->commands[0], "x"));
	arena_free(a);
}

static void test_bad_arguments(void **state)
{
	static const char *const bad[][2] = {
	        {"{}", "command is missing"},
	        {"{\"restart\":false}", "command is missing"},
	        {"{\"commands\":[]}", "command is missing"},
	        {"{\"command\":1}", "must be strings"},
	        {"{\"commands\":[\"a\",null]}", "number 2"},
	        {"{\"commands\":{}}", "list of strings"},
	        {"{\"restart\":1}", "true or false"},
	        {"{\"command\":\"a\\u0000\"}", "NUL"},
	        {"{\"command\":\"a\",\"timeout_ms\":-1}", "above 0"},
	        {"[]", "JSON object with a string called command"},
	        {"{\"comm", "not valid JSON"},
	};
	struct arena *a = arena_new((size_t)1 << 20);

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct tool_call *call = NULL;
		struct error err = {0};

		assert_true(tool_bash.parse(a, str_of(bad[i][0]), NULL, &limits, &call, &err) < 0);
		assert_null(call);
		if (!strstr(err.text, bad[i][1]))
			fail_msg("%s: %s", bad[i][0], err.text);
	}
	arena_free(a);
}

static void test_arguments_written(void **state)
{
	static const char *const same[] = {
	        "{\"command\":\"ls\"}",
	        "{\"commands\":[\"a\",\"b\"],\"timeout_ms\":5,\"max_output_length\":9}",
	        "{\"command\":\"x\",\"restart\":true}",
	};
	struct arena *a = arena_new((size_t)1 << 20);

	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
		struct buf out = BUF_INIT(4096);

		assert_int_equal(tool_bash.write_arguments(parse(a, same[i], NULL), &out), 0);
		assert_string_equal(buf_cstr(&out), same[i]);
		buf_free(&out);
	}
	arena_free(a);
}

static void test_entries(void **state)
{
	struct json_doc *doc = NULL;

	assert_ptr_equal(tool_find(STR("openrouter:bash")), &tool_bash);
	assert_ptr_equal(tool_find(STR("brig:bash")), &tool_bash);
	assert_ptr_equal(tool_find(STR("openrouter:shell")), &tool_shell);
	assert_null(tool_find(STR("bash_20250124")));
	assert_int_equal(json_parse(str_of(tool_bash.schema), 1 << 20, &doc, NULL), 0);
	json_doc_free(doc);
}

/* ---- results ---- */

static void check_text(
        struct command_output *outputs, size_t n, const char *error, const char *want)
{
	struct result r = {.outputs = outputs, .n_outputs = n, .error = str_of(error)};
	struct buf out = BUF_INIT(65536);

	assert_int_equal(tool_bash.result_text(&r, &out), 0);
	assert_string_equal(buf_cstr(&out), want);
	buf_free(&out);
}

/* What a replay brings of several commands is one output: it must read the same. */
static void test_results(void **state)
{
	struct command_output one = {.out = STR("a\n"), .err = STR(""), .exit_code = 3};
	struct command_output several[] = {{.out = STR("a\n")}, {.out = STR("b"), .exit_code = 7},
	        {.out = STR("c\n"), .exit_code = 8}};
	struct command_output joined = {.out = STR("a\nbc\n"), .exit_code = 7};
	struct command_output late = {.out = STR("x"), .outcome = OUTCOME_TIMEOUT};
	struct command_output killed = {.out = STR(""),
	        .exit_code = 137,
	        .signal = STR("SIGKILL"),
	        .reason = STR("memory")};
	struct command_output last_late[] = {
	        {.out = STR("a")}, {.out = STR("x"), .outcome = OUTCOME_TIMEOUT}};
	struct command_output late_joined = {.out = STR("ax"), .exit_code = 124};

	check_text(&one, 1, NULL, "{\"stdout\":\"a\\n\",\"stderr\":\"\",\"exitCode\":3}");
	check_text(several, 3, NULL, "{\"stdout\":\"a\\nbc\\n\",\"stderr\":\"\",\"exitCode\":7}");
	check_text(&joined, 1, NULL, "{\"stdout\":\"a\\nbc\\n\",\"stderr\":\"\",\"exitCode\":7}");
	check_text(&late, 1, NULL,
	        "{\"stdout\":\"x\",\"stderr\":\"\",\"exitCode\":124,\"outcome\":{\"type\":"
	        "\"timeout\"}}");
	check_text(last_late, 2, NULL, "{\"stdout\":\"ax\",\"stderr\":\"\",\"exitCode\":124}");
	check_text(&late_joined, 1, NULL, "{\"stdout\":\"ax\",\"stderr\":\"\",\"exitCode\":124}");
	check_text(&killed, 1, NULL,
	        "{\"stdout\":\"\",\"stderr\":\"\",\"exitCode\":137,\"outcome\":{\"type\":\"exit\","
	        "\"exit_code\":137,\"signal\":\"SIGKILL\",\"reason\":\"memory\"}}");
	check_text(NULL, 0, "Not run.", "{\"error\":\"Not run.\"}");
	check_text(&one, 1, "Died.",
	        "{\"stdout\":\"a\\n\",\"stderr\":\"\",\"exitCode\":3,\"error\":\"Died.\"}");
	check_text(NULL, 0, NULL, "{\"stdout\":\"\",\"stderr\":\"\",\"exitCode\":0}");
}

/* ---- frames ---- */

static struct str input_of(struct bash_session *s)
{
	struct str argv[BASH_SESSION_ARGC], in;

	bash_session_begin(s, STR("x"), argv, &in);
	return in;
}

static enum bash_session_end heard(struct bash_session *s, const char *bytes, size_t n)
{
	input_of(s);
	for (size_t i = 0; i < n; i++) /* in any cut */
		bash_session_hear(s, bytes + i, 1);
	return bash_session_end(s);
}

#define HEARD(s, lit) heard(s, lit, sizeof(lit) - 1)

static bool input_is(struct bash_session *s, const char *want, size_t n)
{
	return str_eq(input_of(s), (struct str){want, n});
}

static void test_frames(void **state)
{
	struct bash_session s;

	bash_session_init(&s);
	assert_true(input_is(&s, "\0\0", 2));
	assert_int_equal(HEARD(&s, ""), BASH_SESSION_AS_BEFORE);
	assert_int_equal(HEARD(&s, "\0S\0a\0b\0E\0"), BASH_SESSION_KEPT);
	assert_true(input_is(&s, "a\0b\0", 4));
	/* Junk around it, an older frame before it. */
	assert_int_equal(
	        HEARD(&s, "bash: warning\n\0S\0o\0l\0E\0 x\0S\0c\0\0E\0more\0"), BASH_SESSION_KEPT);
	assert_true(input_is(&s, "c\0\0", 3));
	/* Cut ones count for nothing. */
	assert_int_equal(HEARD(&s, "\0S\0a\0b\0E"), BASH_SESSION_AS_BEFORE);
	assert_int_equal(HEARD(&s, "\0S\0a\0b\0"), BASH_SESSION_AS_BEFORE);
	assert_int_equal(HEARD(&s, "S\0a\0b\0E\0"), BASH_SESSION_AS_BEFORE);
	assert_int_equal(HEARD(&s, "\0a\0b\0E\0"), BASH_SESSION_AS_BEFORE);
	assert_int_equal(HEARD(&s, "E\0E\0E\0E\0"), BASH_SESSION_AS_BEFORE);
	assert_int_equal(HEARD(&s, "\0\0\0\0\0\0"), BASH_SESSION_AS_BEFORE);
	assert_true(input_is(&s, "c\0\0", 3));
	bash_session_reset(&s);
	assert_true(input_is(&s, "\0\0", 2));
	bash_session_reset(&s);
}

static void test_bounds(void **state)
{
	size_t n = (size_t)3 << 20;
	char *junk = malloc(n);
	struct bash_session s;

	bash_session_init(&s);
	assert_int_equal(HEARD(&s, "\0S\0a\0b\0E\0"), BASH_SESSION_KEPT);
	memset(junk, 'x', n);
	bash_session_hear(&s, junk, n);
	bash_session_hear(&s, "\0S\0a\0b\0E\0", 10);
	assert_int_equal(bash_session_end(&s), BASH_SESSION_TOO_LARGE);
	/* One that is heard whole and is yet too large for a command's standard input. */
	input_of(&s);
	bash_session_hear(&s, "\0S\0", 3);
	bash_session_hear(&s, junk, 1048576 - 1);
	bash_session_hear(&s, "\0\0E\0", 4);
	assert_int_equal(bash_session_end(&s), BASH_SESSION_TOO_LARGE);
	assert_true(input_is(&s, "a\0b\0", 4));
	/* Nothing is slow: ends without beginnings, all through. */
	for (size_t i = 0; i + 1 < 1000000; i += 2)
		memcpy(junk + i, "E", 2);
	input_of(&s);
	bash_session_hear(&s, junk, 1000000);
	assert_int_equal(bash_session_end(&s), BASH_SESSION_AS_BEFORE);
	bash_session_reset(&s);
	free(junk);
}

/* ---- a real bash ---- */

struct ran {
	int code;
	char out[4096];
	enum bash_session_end end;
};

static int memfd_of(struct str bytes)
{
	int fd = memfd_create("state", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes.p, bytes.n), bytes.n);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static void child(struct str argv[BASH_SESSION_ARGC], int in, const int out[2], const int err[2])
{
	char *args[BASH_SESSION_ARGC + 1] = {0};

	for (int i = 0; i < BASH_SESSION_ARGC; i++)
		args[i] = mem_strndup(argv[i].p, argv[i].n);
	if (dup2(in, 0) < 0 || dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0 || chdir("/tmp") < 0)
		_exit(125);
	execvp(args[0], args);
	_exit(126);
}

static struct ran run(struct bash_session *s, const char *command)
{
	struct str argv[BASH_SESSION_ARGC], in;
	struct ran r = {0};
	int out[2], err[2], status, fd;
	char piece[4096];
	ssize_t n;
	pid_t pid;

	bash_session_begin(s, str_of(command), argv, &in);
	fd = memfd_of(in);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0)
		child(argv, fd, out, err);
	assert_true(pid > 0);
	close(fd);
	close(out[1]);
	close(err[1]);
	/* Little is printed here: the state alone may fill its pipe. */
	while ((n = read(err[0], piece, sizeof(piece))) > 0)
		bash_session_hear(s, piece, (size_t)n);
	n = read(out[0], r.out, sizeof(r.out) - 1);
	assert_true(n >= 0);
	close(out[0]);
	close(err[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	r.end = bash_session_end(s);
	return r;
}

static void check(struct bash_session *s, const char *command, const char *out, int code)
{
	struct ran r = run(s, command);

	if (strcmp(r.out, out) != 0 || r.code != code)
		fail_msg("%s: %d: %s", command, r.code, r.out);
}

static void test_real_bash(void **state)
{
	struct bash_session s;

	bash_session_init(&s);
	check(&s, "x=5; cd /; f() { echo \"f $1\"; }; umask 027; set -o noglob; a=(1 '2 3')", "",
	        0);
	check(&s, "echo $x $PWD $(f 1) $(umask) \"${a[1]}\" *; set +f", "5 / f 1 0027 2 3 *\n", 0);
	check(&s, "echo out; echo err >&2; exit 7", "out\nerr\n", 7);
	assert_int_equal(run(&s, "x=6\necho \"unterminated").end, BASH_SESSION_KEPT);
	check(&s, "cat <<EOF >/dev/null 2>&1\nx",
	        "bash: line 2: warning: here-document at line 1 delimited "
	        "by end-of-file (wanted `EOF')\n",
	        0);
	check(&s, "echo $x; x=7; set -e; false; echo no", "6\n", 1);
	check(&s, "echo $x; set +e; false; echo yes", "7\nyes\n", 0);
	assert_int_equal(run(&s, "x=8; exec true").end, BASH_SESSION_AS_BEFORE);
	check(&s, "echo $x", "7\n", 0);
	check(&s, "eval() { :; }; declare() { :; }; builtin() { :; }; x=9", "", 0);
	check(&s, "unset -f eval declare; echo $x; type -t builtin", "9\nbuiltin\n", 0);
	bash_session_reset(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_arguments),
	        cmocka_unit_test(test_bad_arguments),
	        cmocka_unit_test(test_arguments_written),
	        cmocka_unit_test(test_entries),
	        cmocka_unit_test(test_results),
	        cmocka_unit_test(test_frames),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_real_bash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
