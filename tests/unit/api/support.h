/*
 * What the tests of src/api share: files of cases, and a text form of what a request was understood
 * as.
 *
 * A file holds cases; one begins with "### name", its sections with "--- kind". Lines before the
 * first section are for the reader. With UPDATE_CASES=1 in the environment the expected sections
 * are written anew, to be read before they are committed.
 */
#ifndef BRIG_TEST_API_SUPPORT_H
#define BRIG_TEST_API_SUPPORT_H

#include "unit.h"

#include "api/api.h"
#include "base/buf.h"
#include "config/config.h"

struct section {
	char *kind;
	char *text; /* without the newline at its end */
};

struct test_case {
	char *name;
	char *intro;
	struct section *sections;
	size_t n;
};

/* NULL where the case has no such section. */
const char *case_text(const struct test_case *c, const char *kind);
typedef void (*case_fn)(const struct test_case *c, struct buf *ret_got);
/* Runs each case of the file and compares what it gives with its last section. Returns how many
 * there are. */
size_t cases_run(const char *path, case_fn fn);
/* Those of several files of a folder; the list ends with NULL. */
size_t cases_run_all(const char *folder, const char *const *files, case_fn fn);

/* The defaults of a server, with "key=value" words applied: sandbox=off, region=eu, tool_calls=5.
 */
struct config test_config(const char *words);
/* Parses a body (copied). */
int test_parse(const char *body, const char *session_header, const struct config *config,
        bool under_v1, struct turn_request *ret, struct error *err);
typedef int (*parse_fn)(
        const char *body, const struct config *config, struct turn_request *ret, struct error *err);
/* A body that is cut anywhere is an error, and nothing of it stays; all of it is none. Of `bad` a
 * caller may not care why. */
void test_cuts(parse_fn parse, const char *body, const char *bad);
/* malloc'ed; some of its characters are written with escapes. */
char *test_long_text(size_t n);
void dump_request(const struct turn_request *r, struct buf *out);
void dump_item(const struct item *it, bool with_reply, struct buf *out);
void dump_error(const struct error *e, bool under_v1, struct buf *out);
struct buf test_buf(void);

#endif
