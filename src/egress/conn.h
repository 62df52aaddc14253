/* One connection of a container, for conn.c (its life and its bytes), tls.c and http.c (what is
 * asked of its bytes). */
#ifndef BRIG_EGRESS_CONN_H
#define BRIG_EGRESS_CONN_H

#include "base/buf.h"
#include "egress/head.h"
#include "egress/hello.h"
#include "egress/internal.h"
#include "egress/response.h"

#include <stdbool.h>

/* What waits to be judged; above, no more is read. */
#define EGRESS_CONN_IN_MAX 65536

enum egress_conn_state {
	EGRESS_CONN_HEAD,    /* the TLS hello or the first HTTP head is awaited */
	EGRESS_CONN_RESOLVE, /* it was allowed */
	EGRESS_CONN_DIAL,
	EGRESS_CONN_OPEN,
	EGRESS_CONN_LINGER, /* a last answer goes out; what comes in is dropped */
	EGRESS_CONN_OVER,   /* to be freed when the callback ends */
};

enum egress_http_phase {
	EGRESS_HTTP_HEAD,   /* of the next request */
	EGRESS_HTTP_LENGTH, /* body, with bytes left */
	EGRESS_HTTP_CHUNKS,
	EGRESS_HTTP_WAIT,   /* for the end of the answer */
	EGRESS_HTTP_LAST,   /* no request may follow */
	EGRESS_HTTP_OPAQUE, /* a websocket */
};

struct egress_http {
	enum egress_http_phase phase;
	bool waiting; /* an answer is owed */
	size_t scanned;
	struct egress_head head;
	uint64_t left;
	struct egress_chunks chunks;
	struct egress_response response;
};

enum egress_tls_phase {
	EGRESS_TLS_HELLO,  /* not judged yet */
	EGRESS_TLS_ANSWER, /* the server's first message decides whether another hello follows */
	EGRESS_TLS_SECOND, /* it asked for one */
	EGRESS_TLS_PASS,
};

struct egress_tls {
	enum egress_tls_phase phase;
	struct egress_hello hello;
	uint8_t answer[43]; /* how the server's first record begins: as far as the random */
	uint8_t answer_len;
};

struct egress_side {
	int fd; /* -1: none */
	struct event rd, wr;
	struct buf out; /* what the socket did not take yet */
	bool eof;       /* it sends no more */
	bool shut;      /* we send no more */
	bool broken;    /* it takes no more */
};

struct egress_conn {
	TAILQ_ENTRY(egress_conn) link;
	struct egress_container *container;
	struct egress_name *name;     /* that was dialled; NULL: an address without one */
	union address dialled; /* by the container */
	uint16_t port;                /* 80 or 443 */
	enum egress_conn_state state;
	struct egress_side client, server;
	struct event timer;
	uint64_t began_ms, allowed_ms, active_ms;
	struct buf in; /* from the container, not let through yet */
	union {
		struct egress_tls tls;
		struct egress_http http;
	};
	struct egress_lookup *lookup;
	union address addresses[EGRESS_RESOLVE_MAX];
	size_t n_addresses, at;
	size_t lingered;
	uint64_t bytes_in, bytes_out;
	bool refused; /* by a limit, before anything was read */
	bool recorded;
	uint32_t verdict;
	int64_t verdict_ms;
	const char *reason; /* static text */
	const char *rule;   /* the deny pattern, or NULL */
};

/* The name or address that was dialled, for people. */
void egress_conn_target(const struct egress_conn *c, char out[EGRESS_NAME_MAX + 1]);
/* Whether a TLS server name ("": none was sent) or Host may be used on this connection; else denied
 * and false. */
bool egress_conn_check_name(struct egress_conn *c, const char *name, const char *mismatch);
/* The head was allowed: resolves and dials. */
void egress_conn_allow(struct egress_conn *c);
/* Denied: tells the container in its protocol's own way and ends. status is HTTP's. */
void egress_conn_deny(struct egress_conn *c, int status, const char *reason);
/* Allowed, and still it does not work: status 502 or 504. */
void egress_conn_fail(struct egress_conn *c, int status, const char *reason);
/* Ends at once, with a reset on both sides. */
void egress_conn_abort(struct egress_conn *c, const char *reason);
/* Ends in good order once all that is for the container went out. */
void egress_conn_finish(struct egress_conn *c);
/* A last message to the container, then the end. */
void egress_conn_last(struct egress_conn *c, const void *data, size_t n);
/* To the server (with the first bytes of it counted) or the container. */
void egress_conn_to_server(struct egress_conn *c, const void *data, size_t n);
void egress_conn_to_client(struct egress_conn *c, const void *data, size_t n);

/* tls.c: looks at c->in; denies or allows once the hello is whole. */
void egress_tls_look(struct egress_conn *c);
void egress_tls_opened(struct egress_conn *c);
void egress_tls_from_client(struct egress_conn *c, const char *data, size_t n);
void egress_tls_from_server(struct egress_conn *c, const uint8_t *data, size_t n);
void egress_tls_refuse(struct egress_conn *c, bool denied);

/* http.c: goes on with c->in as far as it may. */
void egress_http_begin(struct egress_conn *c);
void egress_http_end(struct egress_conn *c);
void egress_http_go_on(struct egress_conn *c);
void egress_http_from_client(struct egress_conn *c, const char *data, size_t n);
void egress_http_from_server(struct egress_conn *c, const char *data, size_t n);
void egress_http_refuse(struct egress_conn *c, int status);

#endif
