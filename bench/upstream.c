/*
 * A fake upstream for measuring: speaks four dialects over HTTP/1.1 on one epoll loop, answers at
 * once, keeps connections. It is no server for anything else: it believes its client.
 *
 *     upstream PORT_FILE
 *
 * What it answers depends on the request's path, which a provider's base_url chooses:
 *     /text/v1/chat/completions   a short text (a stream when "stream":true is in the body, else JSON)
 *     /idle/v1/chat/completions   the head and one chunk of a stream, and then nothing
 *     /loop/v1/chat/completions   a call of `shell` with the command `true`, LOOP times in a row, then a
 *                                 text; measures from the last byte of a call to the first byte of the next
 *                                 request
 *     GET /stats                  those times in microseconds, one a line; forgets them
 *     /text/v1/responses, /text/v1/messages, /text/v1beta/models/…   the same short text in those dialects
 *     /many/…                     the same in MANY pieces, to see what one event costs
 *     /paced/v1/chat/completions  a piece every PACE_MS, each with the time of its sending: "@<ns>@"
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define LOOP      20
#define MAX_FDS   32768
#define MAX_TIMES 1000000
#define MANY      200
#define PACE_MS   100
#define MAX_OUT   262144

struct conn {
	char *in;
	size_t len, cap;
	bool begun; /* the first bytes of a request are here */
	bool paced; /* gets a piece now and then */
};

static struct conn conns[MAX_FDS];
static uint32_t *times;
static size_t n_times;
static uint64_t call_sent_ns; /* the last byte of the last call; 0: none waits */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void send_all(int fd, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t w = send(fd, data, n, MSG_NOSIGNAL);

		if (w < 0 && errno == EAGAIN) {
			usleep(100);
			continue;
		}
		if (w <= 0)
			return;
		data += w;
		n -= (size_t)w;
	}
}

static void send_chunked(int fd, const char *head, const char *const *chunks, size_t n, bool end)
{
	static char out[MAX_OUT];
	size_t len = (size_t)snprintf(out, sizeof(out), "%s", head);

	for (size_t i = 0; i < n; i++)
		len += (size_t)snprintf(out + len, sizeof(out) - len, "%zx\r\n%s\r\n", strlen(chunks[i]), chunks[i]);
	if (end)
		len += (size_t)snprintf(out + len, sizeof(out) - len, "0\r\n\r\n");
	send_all(fd, out, len);
}

#define SSE_HEAD                                                                                  \
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
#define CHUNK(delta, finish)                                                                      \
	"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","        \
	"\"choices\":[{\"index\":0,\"delta\":" delta ",\"finish_reason\":" finish "}]}\n\n"
#define USAGE                                                                                     \
	"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","        \
	"\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\"total_tokens\":12}}\n\n"

/* One short answer in one dialect: what comes first, one piece of text, what comes last, and the whole. */
struct dialect {
	const char *path; /* in the request's */
	const char *first[4], *piece, *last[8];
	const char *whole;
};

#define EVENT(name, fields) "event: " name "\ndata: {\"type\":\"" name "\"," fields "}\n\n"
#define R_USAGE                                                                                   \
	"\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{\"cached_tokens\":0},"               \
	"\"output_tokens\":3,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":12}"
#define R_ITEM(status, content)                                                                   \
	"{\"type\":\"message\",\"id\":\"msg_1\",\"status\":\"" status                               \
	"\",\"role\":\"assistant\",\"content\":[" content "]}"
#define R_PART(text) "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[]}"
#define R_RESPONSE(status, output)                                                                \
	"{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":1,\"status\":\"" status                \
	"\",\"model\":\"m\",\"error\":null,\"output\":[" output "]," R_USAGE "}"
#define M_MESSAGE(content, stop)                                                                  \
	"{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":["      \
	content "],\"stop_reason\":" stop ",\"stop_sequence\":null,"                                 \
	"\"usage\":{\"input_tokens\":9,\"output_tokens\":3}}"
#define G_RESPONSE(parts, finish)                                                                 \
	"{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[" parts "]}" finish                  \
	",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":3,"         \
	"\"totalTokenCount\":12},\"modelVersion\":\"m\",\"responseId\":\"r\"}"

static const struct dialect dialects[] = {
        {
                .path = "/chat/completions",
                .piece = CHUNK("{\"role\":\"assistant\",\"content\":\"Hello there.\"}", "null"),
                .last = {CHUNK("{}", "\"stop\""), USAGE, "data: [DONE]\n\n"},
                .whole = "{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\","
                         "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                         "\"Hello there.\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,"
                         "\"completion_tokens\":3,\"total_tokens\":12}}",
        },
        {
                .path = "/responses",
                .first = {EVENT("response.created", "\"sequence_number\":0,\"response\":" R_RESPONSE("in_progress", "")),
                        EVENT("response.output_item.added",
                                "\"sequence_number\":1,\"output_index\":0,\"item\":" R_ITEM("in_progress", "")),
                        EVENT("response.content_part.added",
                                "\"sequence_number\":2,\"item_id\":\"msg_1\",\"output_index\":0,"
                                "\"content_index\":0,\"part\":" R_PART(""))},
                .piece = EVENT("response.output_text.delta",
                        "\"sequence_number\":3,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,"
                        "\"delta\":\"Hello there.\""),
                .last = {EVENT("response.output_text.done",
                                 "\"sequence_number\":4,\"item_id\":\"msg_1\",\"output_index\":0,"
                                 "\"content_index\":0,\"text\":\"Hello there.\""),
                        EVENT("response.content_part.done",
                                "\"sequence_number\":5,\"item_id\":\"msg_1\",\"output_index\":0,"
                                "\"content_index\":0,\"part\":" R_PART("Hello there.")),
                        EVENT("response.output_item.done",
                                "\"sequence_number\":6,\"output_index\":0,\"item\":" R_ITEM(
                                        "completed", R_PART("Hello there."))),
                        EVENT("response.completed",
                                "\"sequence_number\":7,\"response\":" R_RESPONSE(
                                        "completed", R_ITEM("completed", R_PART("Hello there."))))},
                .whole = R_RESPONSE("completed", R_ITEM("completed", R_PART("Hello there."))),
        },
        {
                .path = "/messages",
                .first = {EVENT("message_start", "\"message\":" M_MESSAGE("", "null")),
                        EVENT("content_block_start",
                                "\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}")},
                .piece = EVENT("content_block_delta",
                        "\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello there.\"}"),
                .last = {EVENT("content_block_stop", "\"index\":0"),
                        EVENT("message_delta",
                                "\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},"
                                "\"usage\":{\"output_tokens\":3}"),
                        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
                .whole = M_MESSAGE("{\"type\":\"text\",\"text\":\"Hello there.\"}", "\"end_turn\""),
        },
        {
                .path = "enerateContent", /* generate… and streamGenerate… */
                .piece = "data: " G_RESPONSE("{\"text\":\"Hello there.\"}", "") "\r\n\r\n",
                .last = {"data: " G_RESPONSE("{\"text\":\"\"}", ",\"finishReason\":\"STOP\"") "\r\n\r\n"},
                .whole = G_RESPONSE("{\"text\":\"Hello there.\"}", ",\"finishReason\":\"STOP\""),
        },
};

static const struct dialect *dialect_of(const char *head)
{
	const char *end = strchr(head, '\r');
	size_t n = end != NULL ? (size_t)(end - head) : strlen(head);

	for (size_t i = 1; i < sizeof(dialects) / sizeof(dialects[0]); i++)
		if (memmem(head, n, dialects[i].path, strlen(dialects[i].path)) != NULL)
			return &dialects[i];
	return &dialects[0];
}

static void answer_text(int fd, const struct dialect *d, bool stream, size_t pieces)
{
	const char *chunks[16 + MANY];
	char out[4096];
	size_t n = 0;

	if (!stream) {
		int len = snprintf(out, sizeof(out),
		        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		        strlen(d->whole), d->whole);

		send_all(fd, out, (size_t)len);
		return;
	}
	for (size_t i = 0; i < 4 && d->first[i] != NULL; i++)
		chunks[n++] = d->first[i];
	for (size_t i = 0; i < pieces; i++)
		chunks[n++] = d->piece;
	for (size_t i = 0; i < 8 && d->last[i] != NULL; i++)
		chunks[n++] = d->last[i];
	send_chunked(fd, SSE_HEAD, chunks, n, true);
}

/* ---- streams with a piece now and then ---- */

static void pace(void)
{
	char text[512], out[640];

	for (int fd = 0; fd < MAX_FDS; fd++) {
		if (!conns[fd].paced)
			continue;
		int n = snprintf(text, sizeof(text),
		        "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
		        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"@%llu@\"},\"finish_reason\":null}]}\n\n",
		        (unsigned long long)now_ns());

		n = snprintf(out, sizeof(out), "%x\r\n%s\r\n", (unsigned)n, text);
		send_all(fd, out, (size_t)n);
	}
}

static void answer_idle(int fd)
{
	static const char *const chunks[] = {CHUNK("{\"role\":\"assistant\",\"content\":\"Hello\"}", "null")};

	send_chunked(fd, SSE_HEAD, chunks, 1, false);
}

static void answer_paced(int fd)
{
	answer_idle(fd);
	conns[fd].paced = true;
}

static void answer_call(int fd)
{
	static const char *const chunks[] = {
	        CHUNK("{\"role\":\"assistant\",\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":\"function\","
	              "\"function\":{\"name\":\"shell\",\"arguments\":\"{\\\"commands\\\":[\\\"true\\\"]}\"}}]}",
	                "null"),
	        CHUNK("{}", "\"tool_calls\""), USAGE, "data: [DONE]\n\n"};

	send_chunked(fd, SSE_HEAD, chunks, 4, true);
	call_sent_ns = now_ns();
}

static size_t count(const char *hay, size_t n, const char *needle)
{
	size_t found = 0, m = strlen(needle);
	const char *p = hay;

	while ((p = memmem(p, n - (size_t)(p - hay), needle, m)) != NULL) {
		found++;
		p += m;
	}
	return found;
}

static void answer_stats(int fd)
{
	char *out = malloc(n_times * 12 + 256);
	size_t len = 0;
	char head[128];

	for (size_t i = 0; i < n_times; i++)
		len += (size_t)sprintf(out + len, "%u\n", times[i]);
	int h = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", len);

	send_all(fd, head, (size_t)h);
	send_all(fd, out, len);
	free(out);
	n_times = 0;
}

static void answer(int fd, const char *head, const char *body, size_t body_len)
{
	if (strncmp(head, "GET /stats", 10) == 0)
		answer_stats(fd);
	else if (strncmp(head, "POST /idle/", 11) == 0)
		answer_idle(fd);
	else if (strncmp(head, "POST /paced/", 12) == 0)
		answer_paced(fd);
	else if (strncmp(head, "POST /loop/", 11) == 0 && count(body, body_len, "\"role\":\"tool\"") < LOOP)
		answer_call(fd);
	else
		answer_text(fd, dialect_of(head),
		        memmem(body, body_len, "\"stream\":true", 13) != NULL ||
		                strstr(head, ":streamGenerate") != NULL,
		        strncmp(head, "POST /many/", 11) == 0 ? MANY : 1);
}

/* Handles the requests that are whole. */
static void conn_work(int fd)
{
	struct conn *c = &conns[fd];

	for (;;) {
		char *end = c->len > 0 ? memmem(c->in, c->len, "\r\n\r\n", 4) : NULL;
		size_t body = 0;

		if (end == NULL)
			return;
		*end = 0;
		const char *length = strcasestr(c->in, "content-length:");

		if (length != NULL)
			body = strtoul(length + 15, NULL, 10);
		size_t head = (size_t)(end - c->in) + 4;

		if (c->len < head + body) {
			*end = '\r';
			return;
		}
		answer(fd, c->in, c->in + head, body);
		memmove(c->in, c->in + head + body, c->len - head - body);
		c->len -= head + body;
		c->begun = false;
	}
}

static void conn_read(int ep, int fd)
{
	struct conn *c = &conns[fd];

	for (;;) {
		if (c->cap - c->len < 16384) {
			c->cap = c->cap == 0 ? 32768 : c->cap * 2;
			c->in = realloc(c->in, c->cap);
		}
		ssize_t n = recv(fd, c->in + c->len, c->cap - c->len - 1, 0);

		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL);
			close(fd);
			free(c->in);
			*c = (struct conn){0};
			return;
		}
		if (!c->begun && call_sent_ns != 0 && n_times < MAX_TIMES) {
			times[n_times++] = (uint32_t)((now_ns() - call_sent_ns) / 1000);
			call_sent_ns = 0;
		}
		c->begun = true;
		c->len += (size_t)n;
	}
	conn_work(fd);
}

static int listen_any(const char *port_file)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	FILE *f;

	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 4096) < 0 ||
	        getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		die("listen");
	f = fopen(port_file, "w");
	if (f == NULL || fprintf(f, "%u\n", ntohs(sa.sin_port)) < 0 || fclose(f) != 0)
		die(port_file);
	return fd;
}

int main(int argc, char **argv)
{
	struct epoll_event ev[256], want = {.events = EPOLLIN};
	const struct itimerspec every = {{0, PACE_MS * 1000000}, {0, PACE_MS * 1000000}};
	int one = 1, listener, timer, ep = epoll_create1(EPOLL_CLOEXEC);
	uint64_t ticks;

	if (argc != 2) {
		fprintf(stderr, "usage: upstream PORT_FILE\n");
		return 2;
	}
	times = calloc(MAX_TIMES, sizeof(*times));
	listener = listen_any(argv[1]);
	want.data.fd = listener;
	epoll_ctl(ep, EPOLL_CTL_ADD, listener, &want);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timer < 0 || timerfd_settime(timer, 0, &every, NULL) < 0)
		die("timerfd");
	want.data.fd = timer;
	epoll_ctl(ep, EPOLL_CTL_ADD, timer, &want);
	for (;;) {
		int n = epoll_wait(ep, ev, 256, -1);

		for (int i = 0; i < n; i++) {
			if (ev[i].data.fd == timer) {
				if (read(timer, &ticks, sizeof(ticks)) == sizeof(ticks))
					pace();
				continue;
			}
			if (ev[i].data.fd != listener) {
				conn_read(ep, ev[i].data.fd);
				continue;
			}
			int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

			if (fd < 0)
				continue;
			if (fd >= MAX_FDS) {
				close(fd);
				continue;
			}
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			want.data.fd = fd;
			epoll_ctl(ep, EPOLL_CTL_ADD, fd, &want);
		}
	}
}
