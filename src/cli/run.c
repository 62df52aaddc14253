/*
 * Theory of operation
 *
 * The command's exec is streamed: its bytes come in base64, so that stdout and stderr are the
 * command's own to the byte, and its exit code becomes ours. A container that we made for it is
 * deleted at the end, whatever the end is; Ctrl-C ends the stream, which makes the server kill the
 * command.
 */
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "http/sse.h"
#include "json/json.h"

#include <errno.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MAX_STDIN = 1024 * 1024,
	MAX_EVENT = 64 * 1024 * 1024, /* exec.done holds what was kept of both streams */
	EXIT_TIMEOUT = 124,
	EXIT_OURS = 125, /* brig itself failed, as other runners of commands say it */
	EXIT_PIPE = 141, /* our reader went away: what SIGPIPE would have made of us */
};

struct run {
	struct client client;
	const char *container; /* NULL: a new one */
	struct cli_list allow; /* names it may reach; none given: as the container is */
	char made[128];        /* the new one's id */
	uint64_t timeout_ms;
	bool json;
	char **argv;
	int argc;
	struct buf input;
	bool has_input;
	int exit_code; /* -1: not known yet */
	bool unread;   /* nobody reads our output any more */
	struct error failed;
};

static int write_all(int fd, const char *p, size_t n)
{
	ssize_t w;

	while (n > 0) {
		w = write(fd, p, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -errno;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

/* ---- what comes ---- */

static int take_outcome(struct run *r, const struct json *outcome)
{
	int64_t code;

	if (str_is(json_str(json_get(outcome, "type")), "timeout"))
		r->exit_code = EXIT_TIMEOUT;
	else if (json_i64(json_get(outcome, "exit_code"), &code) && code >= 0 && code <= 255)
		r->exit_code = (int)code;
	if (str_is(json_str(json_get(outcome, "reason")), "memory"))
		fputs("brig: the command went over the container's memory and was killed\n",
		        stderr);
	return 0;
}

static int take_output(struct run *run, const struct json *event, struct error *err)
{
	struct str data = json_str(json_get(event, "data"));
	_cleanup_buf_ struct buf bytes = BUF_INIT(MAX_EVENT);
	bool is_stderr = str_is(json_str(json_get(event, "stream")), "stderr");
	int n, r;

	if (data.n == 0)
		return 0;
	/* Decoding makes three bytes of four; what pads the last are zeros that we drop. */
	if (data.n % 4 != 0 || buf_append(&bytes, data.p, data.n) < 0)
		return error_set(err, ERR_PROTOCOL, "the server sent output that is no base64");
	n = EVP_DecodeBlock(
	        (unsigned char *)bytes.data, (const unsigned char *)data.p, (int)data.n);
	if (n < 0)
		return error_set(err, ERR_PROTOCOL, "the server sent output that is no base64");
	n -= (data.p[data.n - 1] == '=') + (data.p[data.n - 2] == '=');
	r = write_all(is_stderr ? STDERR_FILENO : STDOUT_FILENO, bytes.data, (size_t)n);
	run->unread = r == -EPIPE;
	return r < 0 ? error_errno(err, -r, "writing output") : 0;
}

static void take_failure(struct run *r, const struct json *event)
{
	struct str message = json_str(json_get(json_get(event, "error"), "message"));

	if (message.n)
		error_set(&r->failed, ERR_UNAVAILABLE, "%.*s", (int)message.n, message.p);
}

static int on_event(void *ctx, struct str name, struct str data)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct run *r = ctx;
	const struct json *event;
	struct str type;

	(void)name;
	if (json_parse(data, 8 * MAX_EVENT, &doc, &r->failed) < 0)
		return error_prefix(&r->failed, "the server's stream");
	event = json_root(doc);
	type = json_str(json_get(event, "type"));
	if (str_is(type, "exec.output"))
		return take_output(r, event, &r->failed);
	if (str_is(type, "exec.command_done"))
		return take_outcome(r, json_get(event, "outcome"));
	if (str_is(type, "exec.done"))
		take_failure(r, event);
	return 0;
}

static int on_data(void *ctx, const char *data, size_t n, struct error *err)
{
	return sse_feed(ctx, data, n, err);
}

/* ---- what goes ---- */

static void write_request(const struct run *r, struct buf *out)
{
	struct json_writer w;
	int i;

	jw_init(&w, out);
	jw_object(&w);
	jw_key(&w, "argv");
	jw_array(&w);
	for (i = 0; i < r->argc; i++)
		jw_cstr(&w, r->argv[i]);
	jw_end(&w);
	jw_ki64(&w, "timeout_ms", (int64_t)r->timeout_ms);
	if (r->has_input)
		jw_kstr(&w, "stdin", (struct str){r->input.data, r->input.len});
	if (!r->json) {
		jw_kbool(&w, "stream", true);
		jw_kcstr(&w, "encoding", "base64");
	}
	jw_end(&w);
}

/* Standard input, where it is something to be read: a terminal is not, nor is /dev/null. */
static int read_input(struct run *r, struct error *err)
{
	char piece[16384];
	struct stat st;
	ssize_t n = 1;

	if (isatty(STDIN_FILENO) || fstat(STDIN_FILENO, &st) < 0 || S_ISCHR(st.st_mode))
		return 0;
	while (n > 0) {
		n = read(STDIN_FILENO, piece, sizeof(piece));
		if (n < 0 && errno == EINTR)
			return error_set(err, ERR_CANCELED, "interrupted");
		if (n < 0)
			return error_errno(err, errno, "standard input");
		if (n > 0 && buf_append(&r->input, piece, (size_t)n) < 0)
			return error_set(err, ERR_TOO_LARGE,
			        "standard input is longer than %d bytes", MAX_STDIN);
	}
	if (!utf8_valid(buf_cstr(&r->input), r->input.len))
		return error_set(err, ERR_INVALID, "standard input must be UTF-8 text");
	r->has_input = r->input.len > 0;
	return 0;
}

static void write_container(const struct run *r, struct buf *out)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	if (r->container)
		jw_kcstr(&w, "name", r->container);
	if (r->allow.n) {
		jw_key(&w, "network_policy");
		jw_object(&w);
		jw_kcstr(&w, "type", "allowlist");
		jw_key(&w, "allowed_domains");
		jw_array(&w);
		for (size_t i = 0; i < r->allow.n; i++)
			jw_cstr(&w, r->allow.items[i]);
		jw_end(&w);
		jw_end(&w);
	}
	jw_end(&w);
}

static void print_warnings(const struct json *container)
{
	const struct json *list = json_get(container, "warnings");

	for (const struct json *v = json_first(list); v; v = json_next(v))
		fprintf(stderr, "brig: %.*s\n", (int)json_str(v).n, json_str(v).p);
}

/* Makes one, or gives one that is there another network policy. */
static int make_container(struct run *r, struct error *err)
{
	_cleanup_buf_ struct buf body = BUF_INIT(1 << 20);
	_cleanup_json_ struct json_doc *doc = NULL;
	_cleanup_buf_ struct buf answer = BUF_INIT(1 << 20);
	struct str id;
	int e;

	write_container(r, &body);
	if (buf_error(&body) < 0)
		return error_set(err, ERR_TOO_LARGE, "the names to be allowed are too long");
	e = client_fetch(&r->client, "POST", "/api/v1/containers",
	        (struct str){body.data, body.len}, &answer, err);
	if (e < 0)
		return e;
	e = json_parse((struct str){answer.data, answer.len}, 1 << 20, &doc, err);
	if (e < 0)
		return error_prefix(err, "the server's answer");
	print_warnings(json_root(doc));
	if (r->container)
		return 0;
	id = json_str(json_get(json_root(doc), "id"));
	if (!str_copy(r->made, sizeof(r->made), id) || id.n == 0)
		return error_set(err, ERR_PROTOCOL, "the server made a container without an id");
	r->container = r->made;
	return 0;
}

static void delete_container(struct run *r)
{
	char path[256];
	struct error err = {0};

	if (!r->made[0])
		return;
	str_format(path, sizeof(path), "/api/v1/containers/%s", r->made);
	if (client_request(&r->client, "DELETE", path, (struct str){0}, NULL, NULL, &err) < 0)
		fprintf(stderr, "brig: container %s was not deleted: %s\n", r->made, err.text);
}

static int exec_streamed(struct run *r, const char *path, struct str body, struct error *err)
{
	struct sse_reader *reader = sse_reader_new(MAX_EVENT, on_event, NULL, r);
	int e;

	e = client_request(&r->client, "POST", path, body, on_data, reader, err);
	sse_reader_free(reader);
	if (r->failed.text[0]) {
		*err = r->failed;
		return -(int)err->code;
	}
	if (e == 0 && r->exit_code < 0)
		return error_set(err, ERR_UNAVAILABLE,
		        "the server ended the stream before the command ended");
	return e;
}

static int exec_whole(struct run *r, const char *path, struct str body, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	_cleanup_buf_ struct buf answer = BUF_INIT(MAX_EVENT);
	int e;

	e = client_fetch(&r->client, "POST", path, body, &answer, err);
	if (e < 0)
		return e;
	e = json_parse((struct str){answer.data, answer.len}, 8 * MAX_EVENT, &doc, err);
	if (e < 0)
		return error_prefix(err, "the server's answer");
	take_outcome(r, json_get(json_first(json_get(json_root(doc), "output")), "outcome"));
	buf_putc(&answer, '\n');
	e = write_all(STDOUT_FILENO, answer.data, answer.len);
	if (e < 0)
		return error_errno(err, -e, "writing output");
	return r->exit_code < 0 ? error_set(err, ERR_UNAVAILABLE, "the command did not end") : 0;
}

static int run_command(struct run *r, struct error *err)
{
	_cleanup_buf_ struct buf body = BUF_INIT(32 << 20);
	char path[256];
	int e;

	e = read_input(r, err);
	if (e == 0 && (!r->container || r->allow.n))
		e = make_container(r, err);
	if (e < 0)
		return e;
	write_request(r, &body);
	if (buf_error(&body) < 0)
		return error_set(err, ERR_TOO_LARGE, "the command is too long");
	str_format(path, sizeof(path), "/api/v1/containers/%s/exec", r->container);
	return r->json ? exec_whole(r, path, (struct str){body.data, body.len}, err)
	               : exec_streamed(r, path, (struct str){body.data, body.len}, err);
}

static int run_and_clean(struct run *r)
{
	struct error err = {0};
	int e, sig;

	client_catch_signals();
	signal(SIGPIPE, SIG_IGN); /* a reader that went away must not keep us from deleting */
	e = run_command(r, &err);
	sig = client_caught_signal();
	delete_container(r);
	buf_free(&r->input);
	if (e == 0)
		return r->exit_code;
	if (sig)
		return 128 + sig;
	if (r->unread)
		return EXIT_PIPE;
	cli_fail(&err);
	return EXIT_OURS;
}

int cli_run(int argc, char **argv)
{
	struct run r = {.exit_code = -1, .input = BUF_INIT(MAX_STDIN)};
	const char *data = NULL, *timeout = NULL;
	const struct cli_flag flags[] = {
	        {"--container", "ID", "run in this one (made where it does not exist), and keep it",
	                &r.container, NULL},
	        {"--allow", "DOMAIN",
	                "let it reach this name (or pattern, or \"*\") on ports 80 and 443; may be "
	                "repeated",
	                NULL, NULL},
	        {"--timeout", "MS", "kill the command after so many milliseconds; none by default",
	                &timeout, NULL},
	        {"--json", NULL, "print the server's whole answer at the end", NULL, &r.json},
	        {"--data", "DIR", "the data folder of the server (/var/lib/brig)", &data, NULL},
	};
	const struct cli_usage usage = {
	        .line = "brig run [--container ID] [--allow DOMAIN]… [--timeout MS] [--json] -- "
	                "COMMAND [ARGUMENT…]",
	        .about = "Runs a command in a sandbox of the running server and prints its stdout "
	                 "and stderr as they come.\n"
	                 "Standard input, where it is a file or a pipe, is read first (1 MiB of "
	                 "text at most). Without\n"
	                 "--container a new container is made, and deleted at the end.\n"
	                 "\n"
	                 "Exits with the command's own code; 128 and the signal's number where a "
	                 "signal ended it; 124\n"
	                 "after the timeout; 125 where brig failed.\n"
	                 "The server is found by BRIG_URL and BRIG_KEY, or through its data "
	                 "folder.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	        .list = &r.allow,
	};
	struct error err = {0};
	int end = 0, at;

	at = cli_flags(&usage, argc, argv, &end);
	if (at < 0)
		return end;
	if (at == argc)
		return cli_wrong(&usage, "run needs a command");
	if (timeout && (!str_to_u64(str_of(timeout), &r.timeout_ms) || r.timeout_ms < 1 ||
	                       r.timeout_ms > 86400000))
		return cli_wrong(&usage, "--timeout must be from 1 to 86400000");
	if (r.container && (strlen(r.container) > 40 || !str_in_set(str_of(r.container),
	                                                        "abcdefghijklmnopqrstuvwxyzABCDEFGH"
	                                                        "IJKLMNOPQRSTUVWXYZ0123456789_-")))
		return cli_wrong(&usage, "--container must be 1 to 40 of letters, digits, _ and -");
	if (client_find(&r.client, data, &err) < 0) {
		cli_fail(&err);
		return EXIT_OURS;
	}
	r.argv = argv + at;
	r.argc = argc - at;
	end = run_and_clean(&r);
	client_wipe(&r.client);
	return end;
}
