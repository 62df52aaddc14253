/*
 * The files API of containers (DESIGN section 9): what its files share.
 *
 *     container_files.c           list, get, delete; finding the container
 *     container_files_content.c   GET …/content
 *     container_files_upload.c    POST of a file
 *     container_files_attach.c    POST of the id of a document
 */
#ifndef BRIG_GATEWAY_CONTAINER_FILES_H
#define BRIG_GATEWAY_CONTAINER_FILES_H

#include "container/files.h"
#include "gateway/internal.h"

/* err NULL: there is a container of this id in the key's workspace, it counts as used, and its home
 * is on this machine if it has one. */
typedef void (*container_files_found_fn)(void *ctx, const struct error *err);
/* fn is called from the loop, always; an id that cannot be is as unknown as any other. */
void container_files_find(struct gateway *g, const struct config_key *key, struct str id,
        container_files_found_fn fn, void *ctx);

/* Files of the container were changed through this API: then() when that will outlast a crash. From
 * the loop, perhaps from inside this call. err: it is not saved, in words for the client. */
void container_files_changed(struct gateway *g, const uint8_t key[SUP_KEY_LEN],
        container_files_found_fn then, void *ctx);

/* Appends the object of one file. */
void container_files_write(
        struct json_writer *w, const char *container, const struct container_file *f);

/* GET …/content of the file of an open descriptor, which is taken over, as is the exchange. path is
 * copied. */
void container_files_send(
        struct gateway *g, struct http_exchange *x, bool under_v1, int fd, struct str path);

#endif
