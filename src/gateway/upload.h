/*
 * One file out of a multipart/form-data request, while it arrives: to a writer on the pool, with
 * back-pressure towards the client, so that an upload of any size costs a few hundred KiB. Beside
 * the file named "file" there may be short fields of text.
 *
 *     upload_begin()  in the route's begin(): the body stands still
 *     upload_go()     when there is somewhere to write to; then
 *     write()         on the pool, one call at a time, in order
 *     done()          exactly once, from the loop, with no write under way
 *
 * The upload owns the exchange until done(), which gives it back unanswered; it is freed when
 * done() returns.
 */
#ifndef BRIG_GATEWAY_UPLOAD_H
#define BRIG_GATEWAY_UPLOAD_H

#include "gateway/internal.h"

#define UPLOAD_FIELDS_MAX 8

struct upload;

struct upload_handler {
	void *ctx;
	/* Pool: the file's next bytes. 0 or -err, with err filled: the upload then ends with it. */
	int (*write)(void *ctx, struct str bytes, struct error *err);
	/* The whole body has come and was written (err NULL), or this is why not. x: to be
	 * answered, or NULL: the client has gone (err is ERR_CANCELED then). Never from inside
	 * another of these functions but upload_fail(). */
	void (*done)(void *ctx, struct upload *u, struct http_exchange *x, const struct error *err);
};

struct upload_options {
	const char *const *fields; /* names of text fields that may occur, NULL-terminated */
	uint64_t max_file;         /* bytes; above it the end is ERR_TOO_LARGE */
};

/* For the route's begin(), with *max_body as that got it. NULL: it was answered (no multipart body,
 * or too many uploads at once), and done() is never called. */
struct upload *upload_begin(struct request *r, const struct upload_options *o,
        const struct upload_handler *h, size_t *max_body);
/* How large the file can be at most, by the request's head; 0: that says nothing. */
uint64_t upload_expected(const struct upload *u);
void upload_go(struct upload *u);
/* It cannot be taken: ends with err, perhaps at once. */
void upload_fail(struct upload *u, const struct error *err);

/* In done(): what there was. {NULL,0}: there was no such field, or nothing was said. */
struct str upload_field(const struct upload *u, const char *name);
struct str upload_filename(const struct upload *u);
struct str upload_type(const struct upload *u); /* the file's Content-Type */
bool upload_has_file(const struct upload *u);   /* a part named "file" has come */
uint64_t upload_size(const struct upload *u);

/* route.c: a piece of the body of x, n 0: its end. */
void upload_feed(struct http_exchange *x, const void *data, size_t n);

#endif
