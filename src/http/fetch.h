/*
 * One fetch of the client, for client.c and fetch.c only: fetch.c makes curl's handle out of the
 * caller's options and puts curl's results into words, client.c runs it.
 */
#ifndef BRIG_HTTP_FETCH_H
#define BRIG_HTTP_FETCH_H

#include "base/buf.h"
#include "http/client.h"
#include "http/resolve.h"

#include <curl/curl.h>
#include <event2/event_struct.h>
#include <sys/queue.h>

enum phase { PHASE_RESOLVE, PHASE_CONNECT, PHASE_SEND, PHASE_WAIT, PHASE_READ };

struct http_fetch {
	struct http_client *client;
	TAILQ_ENTRY(http_fetch) all;
	TAILQ_ENTRY(http_fetch) kick;
	TAILQ_ENTRY(http_fetch) dead;
	struct http_fetch_handler h;
	CURL *easy;
	struct curl_slist *headers, *resolve;
	struct http_resolve_wait *lookup;
	char *body;
	size_t body_len, body_off;
	char *host;    /* as the URL has it, in lower case */
	char *place;   /* "host:port", for people */
	const char *refused; /* why an address may not be connected to; static */
	char *failure; /* curl's own words, CURL_ERROR_SIZE; NULL once the answer has begun */
	unsigned port;
	unsigned resolve_ms, connect_ms, wait_ms, idle_ms;
	struct buf head; /* the answer's header lines, until on_head has returned */
	struct event timer;
	uint64_t since_ms;
	uint64_t sent_ns, first_byte_ns;
	uint8_t phase;
	bool is_literal : 1; /* the host is an address */
	bool added : 1;      /* curl has it */
	bool kicked : 1;
	bool head_done : 1;
	bool paused : 1;
	bool held : 1; /* curl keeps bytes that we refused */
	bool cancelled : 1;
	bool coded_twice : 1; /* and given up for it */
	bool again : 1; /* sent a second time */
	bool ended : 1;
};
TAILQ_HEAD(fetch_list, http_fetch);

/* Checks the options and sets all of curl's but the callbacks. f->body is set already. */
int http_fetch_build(struct http_fetch *f, const struct http_fetch_options *o, struct error *err);
void http_fetch_set_addresses(struct http_fetch *f, const struct http_resolve_answer *answer);
/* The answer's head is here, so it will not be sent again: wipes and frees what only the request
 * needed, for a stream may stay open long. */
void http_fetch_forget_request(struct http_fetch *f);
/* What a result of curl's means; code is not CURLE_OK. */
void http_fetch_explain(const struct http_fetch *f, CURLcode code, struct error *err);
struct curl_slist *http_fetch_wipe(struct curl_slist *list); /* overwrites and frees; NULL */

enum {
	HTTP_FETCH_HEAD_MAX = 131072, /* bytes of one answer's head */
	HTTP_FETCH_SMALL_BODY =
	        65536, /* given to curl as a whole; a larger one is read piece by piece */
};

#endif
