/* The data folder, as `serve` lays it out: who owns what, the first key, the server's address. */
#ifndef BRIG_CLI_FOLDER_H
#define BRIG_CLI_FOLDER_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Makes <path> (0711), images, homes, scratch and templates (0700), and gateway (0700, owned by
 * `gateway` where we are root) where they are missing, and sees that nobody else can write there
 * and that the gateway can get to its own. Returns a descriptor of <path>, close-on-exec, or a
 * negative enum err.
 */
int folder_prepare(const char *path, uid_t gateway, struct error *err);

/* Finds the first key, or makes it: <folder>/key, 0600. Only its SHA-256 is given back. */
int folder_first_key(int folder, uint8_t ret_hash[32], struct error *err);

/* Writes <folder>/url (0644), whole or not at all; takes it away where it is still that one. */
int folder_write_url(int folder, const char *url);
void folder_remove_url(int folder, const char *url);

/* Reads a small file of the folder into buf, without its line end. False where there is none. */
bool folder_read_line(const char *path, const char *name, char *buf, size_t size);

#endif
