/*
 * The server's insides, shared by server.c, conn.c, request.c and response.c only.
 *
 * A server owns connections, a connection owns at most one exchange. An exchange is made at the
 * first byte of a request's head and announced to the handler (on_head) when the head is whole;
 * only an announced one gets on_gone. Callbacks are made from conn_run alone, which runs from the
 * event loop and never from within a call of the public functions; those only mark what is to
 * happen (conn_kick).
 */
#ifndef BRIG_HTTP_CONN_H
#define BRIG_HTTP_CONN_H

#include "http/body.h"
#include "http/parse.h"
#include "http/record.h"
#include "http/server.h"

#include <event2/event_struct.h>
#include <netinet/in.h>
#include <sys/queue.h>
#include <sys/uio.h>

enum conn_state {
	CONN_HEAD,   /* between requests, or in a head */
	CONN_BODY,   /* the exchange's body is being read */
	CONN_WAIT,   /* nothing to read before the answer is out */
	CONN_DRAIN,  /* answered; the small rest of the body is thrown away */
	CONN_UPGRADED, /* bytes go to the handler and from it as they are */
	CONN_LINGER, /* answered and shut down; what still comes is thrown away, so that no reset
	                overtakes the answer */
};

enum conn_timer {
	TIMER_NONE,
	TIMER_HEAD,
	TIMER_BODY,
	TIMER_IDLE,
	TIMER_WRITE,
	TIMER_LINGER,
	TIMER_N
};

union conn_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct http_conn {
	struct event event; /* edge-triggered, for the connection's whole life */
	struct http_server *server;
	TAILQ_ENTRY(http_conn) all;
	TAILQ_ENTRY(http_conn) timed;
	TAILQ_ENTRY(http_conn) ready;
	uint64_t deadline_ms;
	struct http_exchange *x;
	struct buf in; /* read and not used yet: pipelined requests, or a paused body's bytes */
	size_t in_off;
	struct buf out; /* what the kernel has not taken; owns no memory while empty */
	size_t out_off;
	uint64_t drain_left;
	union conn_address peer;
	uint8_t state;
	uint8_t timer;
	uint8_t why; /* enum http_gone, with dead */
	bool readable : 1;
	bool writable : 1;
	bool hung_up : 1; /* the peer sends no more */
	bool dead : 1;    /* to be closed by the next conn_run */
	bool reset : 1;   /* with dead: close with a reset */
	bool running : 1;
	bool queued : 1;
	bool close : 1; /* after this exchange */
	/* What happened since the timer was set. */
	bool fresh : 1; /* another exchange began or ended */
	bool moved_in : 1;
	bool moved_out : 1;
};
TAILQ_HEAD(conn_list, http_conn);

/* record.c */
struct recorder {
	struct http_record record;
	size_t max;
	http_record_fn fn;
	void *ctx;
	bool ended; /* the answer is whole */
	bool holds; /* and its end is not to be sent yet */
	bool is_whole;
	struct buf whole; /* of an answer in one piece: what will be sent */
};

struct http_exchange {
	struct http_conn *conn;
	void *data;
	char *peer_text;
	uint64_t begun_ns; /* when the head was whole */
	int status;        /* of the answer; 0: none has begun */
	struct http_note note;
	struct http_parse_head head;
	struct buf body;
	size_t body_max;
	uint64_t decoded;   /* body bytes so far */
	uint64_t body_left; /* wire bytes of a body with Content-Length */
	struct http_parse_chunk chunk;
	struct http_body *decoder;
	size_t charged; /* counted in the server's in_flight, the decoder's share with it */
	size_t decoder_charged;
	size_t taken;              /* of charged: a body that the handler has taken over */
	struct buf headers;        /* added by the handler */
	struct recorder *recorder; /* NULL: the answer is not recorded */
	uint64_t answer_left;      /* of an answer with a known length */
	bool announced : 1;
	bool over : 1;    /* on_gone is being called */
	bool pieces : 1;  /* the body goes to on_body */
	bool discard : 1; /* the body goes nowhere */
	bool paused : 1;
	bool wire_done : 1; /* the body's last byte was read (not yet decoded, perhaps) */
	bool expecting : 1; /* "100 Continue" is owed */
	bool started : 1;
	bool finished : 1;
	bool chunked_answer : 1;
	bool sized_answer : 1;
	bool is_head : 1; /* method HEAD, kept when the head is released */
	bool no_body : 1; /* HEAD, 204, 304 */
	bool above : 1;   /* above high water */
	bool upgraded : 1;
};

struct listener {
	struct event event;
	TAILQ_ENTRY(listener) link;
};

struct http_server {
	struct event_base *base;
	struct http_server_options o;
	struct http_handler h;
	TAILQ_HEAD(, listener) listeners;
	struct conn_list conns;
	struct conn_list ready;
	struct conn_list timed[TIMER_N];
	struct event ready_event; /* fires in the next loop step */
	struct event timer_event;
	struct event accept_event; /* ends a pause after EMFILE */
	uint64_t timer_at_ms;      /* when timer_event fires; 0: not armed */
	size_t n_conns, n_exchanges;
	size_t in_flight;
	bool draining;
	bool accepting; /* the listeners' events are in */
	bool in_callback;
	size_t budget;   /* bytes that the connection which runs may still take in this step */
	struct buf head; /* of the answer being written */
	int64_t date_s;
	char date[40];
	char scratch[65536]; /* what was read last; used up or saved before the next callback
	                        returns */
	char decoded[16384];
};

/* server.c */
void http_server_forget(struct http_server *s, struct http_conn *c); /* takes it from every list */
void http_server_queue(struct http_server *s, struct http_conn *c);
void http_server_set_timer(struct http_server *s, struct http_conn *c, enum conn_timer t);
const char *http_server_date(struct http_server *s);

/* conn.c */
static inline size_t http_conn_pending(const struct http_conn *c)
{
	return c->out.len - c->out_off;
}
struct http_conn *http_conn_new(
        struct http_server *s, evutil_socket_t fd, const union conn_address *peer);
void http_conn_run(struct http_conn *c); /* may free c */
void http_conn_timeout(struct http_conn *c);
void http_conn_kick(
        struct http_conn *c); /* run it in the next loop step, if it is not running now */
void http_conn_close(struct http_conn *c);
/* No more for this client: the next run closes the connection and says why. */
void http_conn_give_up(struct http_conn *c, enum http_gone why);
/* Sends what waits and then iov; what the kernel does not take is kept. */
void http_conn_send(struct http_conn *c, const struct iovec *iov, size_t n_iov, bool later);

/* response.c */
void http_response_refuse(struct http_exchange *x, int status, const char *text);
bool http_response_keeps(const struct http_exchange *x);

/* Sends an answer in one piece, but for its end. */
void http_response_whole(
        struct http_exchange *x, int status, const char *content_type, struct str body);

/* record.c: x may have no recorder */
void http_record_head(struct http_exchange *x, int status, const char *content_type);
void http_record_body(struct http_exchange *x, struct str data);
bool http_record_hold(struct http_exchange *x); /* true: the end is not to be sent now */
struct recorder *http_record_free(struct recorder *c);

/* request.c */
void http_request_free_decoder(struct http_exchange *x);
struct http_exchange *http_request_free(struct http_exchange *x);

#endif
