/*
 * Documents: the files that a workspace keeps (`/files`), apart from those in containers. A row in
 * the store, the content in a blob; see store.h and blob.h. Everything here belongs to the loop's
 * thread unless said, and callbacks come from the loop, never from inside the call that asked.
 *
 *     documents.c          GET and DELETE /files, shapes     documents_upload.c   POST /files
 *     documents_put.c      making one, on the pool           documents_content.c  its content
 *     documents_promote.c  one made from a container's file  documents_sniff.c    what it is
 *     documents_attach.c   file_ids: into a container        documents_collect.c  unused blobs
 *     documents_inline.c   file_id: into a conversation
 */
#ifndef BRIG_GATEWAY_DOCUMENTS_H
#define BRIG_GATEWAY_DOCUMENTS_H

#include "gateway/internal.h"

#define DOCUMENTS_ID_PREFIX  "or_file_"
#define DOCUMENTS_ATTACH_MAX 20  /* file_ids of one request */
#define DOCUMENTS_INLINE_MAX 100 /* files that one conversation names */

struct rules;
struct guardrails_report;

/* ---- routes ---- */

bool documents_upload(struct request *r, size_t *max_body); /* begin() of the route */
void documents_list(struct request *r);
void documents_get(struct request *r);
void documents_delete(struct request *r);
void documents_content(struct request *r);

/* ---- shapes ---- */

/* Who asks: `anthropic-version` is Anthropic's SDK, /v1 or OpenAI's user agent OpenAI's. */
enum documents_shape { DOCUMENTS_OPENROUTER, DOCUMENTS_OPENAI, DOCUMENTS_ANTHROPIC };
enum documents_shape documents_shape(const struct http_exchange *x, bool under_v1);
/* -ERR_PERMISSION where a request names another workspace than its key's; -ERR_INVALID where it
 * names a provider to keep the file. */
int documents_check_scope(struct request *r, struct error *err);
/* The object of one document. */
void documents_write(
        struct json_writer *w, const struct store_document *d, enum documents_shape shape);

/* ---- promoting ---- */

/* d is NULL when err is not, and for the call only. */
typedef void (*documents_fn)(void *ctx, const struct store_document *d, const struct error *err);
/*
 * Makes a document, downloadable and kept for ever, from a regular file: fd, open for reading at
 * its beginning, is taken over. name: its path, any bytes; what a filename may not hold becomes
 * "_". ERR_TOO_LARGE, ERR_PERMISSION (the workspace is full), ERR_UNAVAILABLE (no room, or too much
 * to do), ERR_IO. then() is called exactly once.
 */
void documents_promote(struct gateway *g, const struct config_key *key, int fd, struct str name,
        documents_fn then, void *ctx);

/* ---- file_ids: into a container ---- */

struct documents_attach;
typedef void (*documents_attach_fn)(void *ctx, const struct error *err);
/*
 * Looks up the documents that a request brings into a container. Blocks; on a pool thread. One that
 * is no document of the workspace, or more than DOCUMENTS_ATTACH_MAX, is -ERR_INVALID, with its
 * place below `path` as param: "file_ids[3]".
 */
int documents_attach_find(struct gateway *g, const struct config_key *key, const struct str *ids,
        size_t n, const char *path, struct documents_attach **ret, struct error *err);
/*
 * Copies them into the container's home, each as "<last 8 of its id>-<its name>", but for those
 * that are there already. Wakes nothing. then() is called once; when there was an error this may be
 * tried again. n is at least 1.
 */
void documents_attach_copy(struct documents_attach *a, const uint8_t container[SUP_KEY_LEN],
        documents_attach_fn then, void *ctx);
/* Once it is copied: the path of the last document, in the home. */
const char *documents_attach_path(const struct documents_attach *a);
/* In any phase: then() is not called any more. Takes NULL; returns NULL. */
struct documents_attach *documents_attach_free(struct documents_attach *a);

/* ---- file_id: into a conversation ---- */

struct documents_inline {
	struct gateway *g;
	const struct config_key *key;
	enum dialect speaks;              /* the body's */
	size_t n_history;                 /* as in api_request */
	const struct rules *rules;        /* that the texts of documents are scanned by: */
	struct guardrails_report *report; /* what was found, the body's too */
	bool keeps_body;                  /* the body as it was stays, beside the new one */
	size_t *charged; /* takes what the two need beyond the body, counted in history_bytes */
};
/* May it name any? Then documents_inline() may block. */
bool documents_inline_wanted(struct str body);
/*
 * 1: *ret is the body with the content of the documents that its conversation names, malloc'ed. 0:
 * it names none. -ERR_INVALID: one that is no document of the workspace, or more than
 * DOCUMENTS_INLINE_MAX; -ERR_TOO_LARGE: more than a body may have; -ERR_PERMISSION: a guardrail
 * blocks; -ERR_UNAVAILABLE: no memory for it now. On a pool thread.
 */
int documents_inline(const struct documents_inline *in, struct str body, char **ret,
        size_t *ret_len, struct error *err);

/* ---- collecting ---- */

/* Removes the blob where no document has it. Blocks; on a pool thread. 1: gone, 0: it is in use. */
int documents_drop_blob(struct gateway *g, struct str blob, struct error *err);
/*
 * For the keeper: removes documents whose time is over, and blobs that no document has. What is
 * younger than an hour is left alone. Blocks; on a pool thread. Returns how many blobs it removed.
 */
int documents_collect(struct gateway *g, struct error *err);

#endif
