/*
 * How a probe says what it saw. One row at a time is being filled: it stands as held until the
 * first expectation fails; then its `seen` tells that one and those after it, as far as there is
 * room.
 */
#ifndef BRIG_PROBE_EXPECT_H
#define BRIG_PROBE_EXPECT_H

#include "proto/probe.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* From here on what is expected goes to this row. */
void expect_begin(struct probe_row *row);

void expect_that(bool held, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* rc of a system call that must have failed with one of two errors (errno). */
void expect_refused(long rc, int one, int other, const char *what);
/* What a row says that holds. Later expectations may still fail it. */
void expect_seen(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The subject is not there on this machine. */
void expect_absent(const char *why);

/* A small file's text, NUL-terminated; its length, or -1 with errno. */
ssize_t expect_read(const char *path, char *buf, size_t size);
/* The word behind `key` in lines "key:\tword" of a text; "" where there is none. */
const char *expect_field(const char *text, const char *key, char word[64]);

#endif
