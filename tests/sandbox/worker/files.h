/*
 * A gateway's side of proto/worker.h for tests: one question at a time, with the answer taken
 * apart. What breaks the protocol fails the test.
 */
#ifndef BRIG_TEST_FILES_H
#define BRIG_TEST_FILES_H

#include "../supervisor/node.h"

#include "proto/worker.h"

#define FILES_LIMIT_MS 30000

struct file {
	char *path; /* NUL-terminated; path_len bytes */
	size_t path_len;
	uint64_t size, inode, ctime_ns, mtime_ns;
	uint32_t mode;
};

struct answer {
	bool gone;  /* the socket ended before the answer did */
	int errnum; /* of FAILED; 0: DONE, or CREATED */
	char step[52];
	uint32_t flags; /* of DONE */
	uint64_t handle;
	int fd; /* -1: none; the caller's */
	struct file *files;
	size_t n_files;
};
void answer_clear(struct answer *a);

/* Asks the supervisor; the socket, or -1 with why in *ret. */
int files_ask(struct node *n, uint32_t gateway, const char *name, uint32_t flags, union reply *ret);
/* The same, and fails without. */
int files_open(struct node *n, const char *name, uint32_t flags);

/* Sends a message; returns its seq. */
uint32_t files_send(int sock, const void *fixed, size_t size, const char *path, size_t path_len);
/* Takes the answer to it. */
struct answer files_await(int sock, uint32_t seq);

struct answer files_list(int sock, const char *after, uint32_t limit);
struct answer files_recent(int sock, uint64_t since_ns, uint32_t limit, uint32_t budget_us);
struct answer files_path(int sock, enum worker_op op, const char *path); /* STAT, OPEN, DELETE */
struct answer files_create(int sock, uint64_t size);
struct answer files_link(int sock, uint64_t handle, const char *path, uint32_t flags);
struct answer files_drop(int sock, uint64_t handle);
struct answer files_sync(int sock);

/* Makes a file of this text; expects no failure. */
void files_put(int sock, const char *path, const char *text);
/* What the file holds (at most 4,095 bytes), NUL-terminated; NULL where it cannot be opened. */
const char *files_get(int sock, const char *path);
/* The paths of a list from the start, each with a newline behind it. */
const char *files_names(int sock);

#endif
