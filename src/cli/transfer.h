/* Files to and from a container, with a line of progress on standard error where that is a
 * terminal. */
#ifndef BRIG_CLI_TRANSFER_H
#define BRIG_CLI_TRANSFER_H

#include "cli/client.h"

/* Appends "/api/v1/containers/ID/files/FILE_ID", or without the file where path is NULL. container
 * may be any text: what is no id is refused. */
int transfer_path(struct buf *out, const char *container, const char *path, struct error *err);

/*
 * Gets one file. to: where it is to be ("-": standard output; a folder: into it), or NULL: under
 * its own name, here. What is written takes its name when it is whole. Prints what it did as JSON
 * where that is wished.
 */
int transfer_get(const struct client *c, const char *container, const char *path, const char *to,
        bool json, struct error *err);
/* Puts one file ("-": standard input). path: its name there, or NULL: its own. Prints the server's
 * object where JSON is wished. */
int transfer_put(const struct client *c, const char *container, const char *from, const char *path,
        bool json, struct error *err);

#endif
