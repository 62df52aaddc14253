/* What the provider tests share: files, and canonical events as text. */
#ifndef BRIG_TESTS_PROVIDER_UTIL_H
#define BRIG_TESTS_PROVIDER_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "provider/openai_chat.h"
#include "provider/provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *file_read(const char *path, size_t *ret_len); /* fails the test when it is not there */
/* Compares with the file; with UPDATE_CASES set in the environment writes it instead. */
void file_expect(const char *path, struct str got);
/* Names in a folder that end in suffix, sorted; NULL-terminated. */
char **folder_list(const char *dir, const char *suffix);
void folder_list_free(char **names);

/*
 * Turns events into lines and checks the grammar of conversation/stream.h on the way: items one at
 * a time, no empty delta, nothing after the end. Ids that brig made up read <minted>.
 */
struct dump {
	struct buf text;
	bool begun, open, over;
	int stop_after; /* return -ERR_CANCELED from this event on; 0: never */
	int n_events;
};
void dump_init(struct dump *d);
void dump_free(struct dump *d);
int dump_event(void *ctx, const struct stream_event *ev);

#endif
