/*
 * The files of the one home that this process sees, as its root. Everything is opened beneath it,
 * and no symbolic link is followed at any place of a path; a guest may rename, replace and link
 * whatever it likes meanwhile. Functions return 0 or a descriptor, or a negative errno with
 * *ret_step set to static text.
 */
#ifndef BRIG_WORKER_HOME_H
#define BRIG_WORKER_HOME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* dir is the home's root. proc: /proc/self/fd, for kernels that give a name to a file without one
 * only through it; -1: not needed. Both become the module's. */
void home_open(int dir, int proc);

/* A folder of it, for listing; "" is the root. No step: the caller's walk goes on without it. */
int home_folder(const char *path);
/* A name in such a folder, itself and not what it may lead to. */
int home_stat_at(int folder, const char *name, struct stat *ret);

/* 0 for a regular file; else EISDIR, ELOOP (a symbolic link), or ENXIO (anything else). */
int home_stat(const char *path, struct stat *ret, const char **ret_step);
/* A descriptor for reading, of a regular file. */
int home_read(const char *path, struct stat *ret, const char **ret_step);
/* A descriptor for writing of a new file without a name; room for size bytes is its own. */
int home_create(uint64_t size, const char **ret_step);
/* Gives it its name. */
int home_link(int file, const char *path, bool only_new, struct stat *ret, const char **ret_step);
int home_delete(const char *path, const char **ret_step);
int home_sync(const char **ret_step);

#endif
