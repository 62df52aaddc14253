/*
 * Theory of operation
 *
 * One streamed Responses API request with a shell in its tools. Items of the shell are printed
 * whole when they are done (the API shows no part of a command's output before), text as it comes,
 * and the cost at the end.
 */
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "http/sse.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_EVENT = 64 * 1024 * 1024, EXIT_INTERRUPTED = 130 };

struct ask {
	struct client client;
	const char *model, *text, *session, *container;
	bool json, no_shell;
	uint64_t added_ms; /* when the item under way was announced */
	bool in_text;      /* the last byte printed is part of a line of the answer */
	bool ended;
	struct error failed;
};

/* ---- printing ---- */

static void end_line(struct ask *a)
{
	if (a->in_text)
		putchar('\n');
	a->in_text = false;
}

/*
 * Text that a model or a command made. On a terminal its control characters, in one byte or (U+0080
 * to U+009F) in two, become question marks: they could move the cursor, rename the window or worse.
 * In a file or pipe it stays as it is.
 */
static void print_text(struct str s)
{
	size_t i, from = 0;
	bool tty = isatty(STDOUT_FILENO);

	for (i = 0; tty && i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i],
		              next = i + 1 < s.n ? (unsigned char)s.p[i + 1] : 0;
		bool two = c == 0xc2 && next >= 0x80 && next < 0xa0;

		if (!two && ((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t'))
			continue;
		fwrite(s.p + from, 1, i - from, stdout);
		putchar('?');
		i += two;
		from = i + 1;
	}
	fwrite(s.p + from, 1, s.n - from, stdout);
}

/* A stream of a command, each line indented; what ends without a line end gets one. */
static void print_stream(struct str s)
{
	const char *end;

	while (s.n > 0) {
		end = memchr(s.p, '\n', s.n);
		size_t n = end ? (size_t)(end - s.p) : s.n;

		fputs("  ", stdout);
		print_text((struct str){s.p, n});
		putchar('\n');
		n += end != NULL;
		s = (struct str){s.p + n, s.n - n};
	}
}

static void print_outcome(const struct json *outcome)
{
	struct str signal = json_str(json_get(outcome, "signal")),
	           reason = json_str(json_get(outcome, "reason"));
	int64_t code = -1;

	if (str_is(json_str(json_get(outcome, "type")), "timeout"))
		fputs("  [timeout", stdout);
	else if (json_i64(json_get(outcome, "exit_code"), &code))
		printf("  [exit %lld", (long long)code);
	else
		fputs("  [ended", stdout);
	if (signal.n)
		printf(", %.*s", (int)signal.n, signal.p);
	if (reason.n)
		printf(", %.*s", (int)reason.n, reason.p);
	puts("]");
}

static void print_item(struct ask *a, const struct json *item)
{
	const struct json *command = json_first(json_get(json_get(item, "action"), "commands"));
	const struct json *output = json_first(json_get(item, "output"));
	struct str error = json_str(json_get(item, "error")),
	           container = json_str(json_get(item, "container_id"));

	if (!str_is(json_str(json_get(item, "type")), "openrouter:shell"))
		return;
	end_line(a);
	for (; command; command = json_next(command)) {
		fputs("$ ", stdout);
		print_text(json_str(command));
		putchar('\n');
		if (!output)
			continue;
		print_stream(json_str(json_get(output, "stdout")));
		print_stream(json_str(json_get(output, "stderr")));
		print_outcome(json_get(output, "outcome"));
		output = json_next(output);
	}
	if (error.n)
		printf("  [not run: %.*s]\n", (int)error.n, error.p);
	printf("-- %llu ms", (unsigned long long)(clock_mono_ms() - a->added_ms));
	if (container.n)
		printf(", container %.*s", (int)container.n, container.p);
	puts("\n");
}

static struct str number_of(const struct json *object, const char *key)
{
	const struct json *v = json_get(object, key);

	return json_is(v, JSON_NUMBER) ? json_raw(v) : STR("0");
}

static void print_usage_line(const struct json *usage)
{
	struct str cost = number_of(usage, "cost");
	struct str tools = number_of(json_get(usage, "cost_details"), "server_tool_cost");
	struct str in = number_of(usage, "input_tokens"), out = number_of(usage, "output_tokens");

	printf("\n-- cost $%.*s (of which sandbox $%.*s); tokens %.*s in, %.*s out\n", (int)cost.n,
	        cost.p, (int)tools.n, tools.p, (int)in.n, in.p, (int)out.n, out.p);
}

/* ---- events ---- */

static void take_failure(struct ask *a, const struct json *error)
{
	struct str message = json_str(json_get(error, "message"));

	error_set(&a->failed, ERR_UPSTREAM, "%.*s", message.n ? (int)message.n : 20,
	        message.n ? message.p : "the response failed.");
}

static void take_end(struct ask *a, const struct json *response, struct str type)
{
	struct str reason = json_str(json_get(json_get(response, "incomplete_details"), "reason"));

	a->ended = true;
	end_line(a);
	if (a->json) {
		printf("%.*s\n", (int)json_raw(response).n, json_raw(response).p);
		return;
	}
	if (str_is(type, "response.failed"))
		take_failure(a, json_get(response, "error"));
	if (reason.n)
		printf("\n-- incomplete: %.*s\n", (int)reason.n, reason.p);
	print_usage_line(json_get(response, "usage"));
}

static int on_event(void *ctx, struct str name, struct str data)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct ask *a = ctx;
	const struct json *event;
	struct str type, delta;

	(void)name;
	if (str_is(data, "[DONE]"))
		return 0;
	if (json_parse(data, 8 * MAX_EVENT, &doc, &a->failed) < 0)
		return error_prefix(&a->failed, "the server's stream");
	event = json_root(doc);
	type = json_str(json_get(event, "type"));
	if (str_is(type, "response.completed") || str_is(type, "response.incomplete") ||
	        str_is(type, "response.failed")) {
		take_end(a, json_get(event, "response"), type);
	} else if (str_is(type, "error")) {
		take_failure(a, json_get(event, "error") ? json_get(event, "error") : event);
	} else if (a->json) {
		return 0;
	} else if (str_is(type, "response.output_item.added")) {
		a->added_ms = clock_mono_ms();
	} else if (str_is(type, "response.output_item.done")) {
		print_item(a, json_get(event, "item"));
	} else if (str_is(type, "response.output_text.delta")) {
		delta = json_str(json_get(event, "delta"));
		if (delta.n) {
			print_text(delta);
			a->in_text = delta.p[delta.n - 1] != '\n';
		}
	}
	fflush(stdout);
	return 0;
}

static int on_data(void *ctx, const char *data, size_t n, struct error *err)
{
	return sse_feed(ctx, data, n, err);
}

/* ---- the request ---- */

static void write_tools(const struct ask *a, struct json_writer *w)
{
	jw_key(w, "tools");
	jw_array(w);
	jw_object(w);
	jw_kcstr(w, "type", "openrouter:shell");
	if (a->container) {
		jw_key(w, "parameters");
		jw_object(w);
		jw_key(w, "environment");
		jw_object(w);
		jw_kcstr(w, "type", "container_reference");
		jw_kcstr(w, "container_id", a->container);
		jw_end(w);
		jw_end(w);
	}
	jw_end(w);
	jw_end(w);
}

static void write_request(const struct ask *a, struct buf *out)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	jw_kcstr(&w, "model", a->model);
	jw_kcstr(&w, "input", a->text);
	jw_kbool(&w, "stream", true);
	if (a->session)
		jw_kcstr(&w, "session_id", a->session);
	if (!a->no_shell)
		write_tools(a, &w);
	jw_end(&w);
}

static int ask(struct ask *a, struct error *err)
{
	_cleanup_buf_ struct buf body = BUF_INIT(32 << 20);
	struct sse_reader *reader;
	int r;

	write_request(a, &body);
	if (buf_error(&body) < 0)
		return error_set(err, ERR_TOO_LARGE, "the text is too long");
	reader = sse_reader_new(MAX_EVENT, on_event, NULL, a);
	r = client_request(&a->client, "POST", "/api/v1/responses",
	        (struct str){body.data, body.len}, on_data, reader, err);
	sse_reader_free(reader);
	end_line(a);
	if (a->failed.text[0]) {
		*err = a->failed;
		return -(int)err->code;
	}
	if (r == 0 && !a->ended)
		return error_set(
		        err, ERR_UPSTREAM, "the server ended the stream before the answer ended");
	return r;
}

/* TEXT, or standard input where it is "-". */
static int read_text(struct ask *a, struct buf *input, struct error *err)
{
	char piece[16384];
	size_t n;

	if (strcmp(a->text, "-") != 0)
		return 0;
	while ((n = fread(piece, 1, sizeof(piece), stdin)) > 0)
		if (buf_append(input, piece, n) < 0)
			return error_set(err, ERR_TOO_LARGE, "standard input is too long");
	a->text = buf_cstr(input);
	return 0;
}

int cli_ask(int argc, char **argv)
{
	struct ask a = {0};
	_cleanup_buf_ struct buf input = BUF_INIT(16 << 20);
	const char *data = NULL;
	const struct cli_flag flags[] = {
	        {"--session", "ID", "keep the same container over several questions", &a.session,
	                NULL},
	        {"--container", "ID", "use this container", &a.container, NULL},
	        {"--no-shell", NULL, "offer the model no shell", NULL, &a.no_shell},
	        {"--json", NULL, "print the response object only", NULL, &a.json},
	        {"--data", "DIR", "the data folder of the server (/var/lib/brig)", &data, NULL},
	};
	const struct cli_usage usage = {
	        .line = "brig ask [--session ID] [--container ID] [--json] MODEL TEXT",
	        .about = "Asks a model, with a shell at hand: prints each command that it ran, "
	                 "what that printed, how it\n"
	                 "ended and what it took, then the answer and the cost. TEXT may be - for "
	                 "standard input.\n"
	                 "MODEL is PROVIDER/NAME, or a name of brig.yaml; brig/script needs no "
	                 "model: it runs the fenced\n"
	                 "blocks of TEXT.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	};
	struct error err = {0};
	int end = 0, at, r;

	at = cli_flags(&usage, argc, argv, &end);
	if (at < 0)
		return end;
	if (argc - at != 2)
		return cli_wrong(&usage, "ask needs a model and a text");
	a.model = argv[at];
	a.text = argv[at + 1];
	r = read_text(&a, &input, &err);
	if (r == 0)
		r = client_find(&a.client, data, &err);
	if (r == 0) {
		client_catch_signals();
		r = ask(&a, &err);
	}
	client_wipe(&a.client);
	if (r == 0)
		return 0;
	cli_fail(&err);
	return r == -ERR_CANCELED ? EXIT_INTERRUPTED : CLI_FAILED;
}
