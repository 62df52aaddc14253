/* The command line as a client: finds a running server and asks it over HTTP. */
#ifndef BRIG_CLI_CLIENT_H
#define BRIG_CLI_CLIENT_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct client {
	char url[2048]; /* no slash at the end */
	char key[4200];
};

/* BRIG_URL and BRIG_KEY; what of them is not set is read from the data folder (flag, BRIG_DATA,
 * default). */
int client_find(struct client *c, const char *data_flag, struct error *err);
void client_wipe(struct client *c);

/* Takes a piece of a good answer's body. Anything but 0 ends the request with that negative enum
 * err. */
typedef int (*client_data_fn)(void *ctx, const char *data, size_t n, struct error *err);

/*
 * One request. body: JSON or {NULL, 0}. fn gets the answer where its status is 2xx; else err is the
 * server's own message, and -ERR_… goes with its status. -ERR_CANCELED when Ctrl-C or SIGTERM came
 * (see client_catch_signals).
 */
int client_request(const struct client *c, const char *method, const char *path, struct str body,
        client_data_fn fn, void *ctx, struct error *err);
/* A body that is read while it is sent: head, the file, tail. */
struct client_upload {
	const char *content_type;
	struct str head, tail;
	int file;
	int64_t size;  /* of the file; -1: unknown */
	uint64_t sent; /* of the three together: start with 0 */
};
struct client_call {
	const char *method, *path;
	struct client_upload *upload;
	client_data_fn fn;
	/* Called often. total: bytes, 0 where that is not known. NULL: not at all. */
	void (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *ctx; /* of both */
};
/* The same as client_request(), for what is long. */
int client_transfer(const struct client *c, const struct client_call *call, struct error *err);
/* client_request() into a buffer. */
int client_fetch(const struct client *c, const char *method, const char *path, struct str body,
        struct buf *out, struct error *err);

/* From now on SIGINT and SIGTERM end the request under way, not the process. */
void client_catch_signals(void);
/* The signal that came, or 0; forgets it, so that a last request can go through. */
int client_caught_signal(void);

#endif
