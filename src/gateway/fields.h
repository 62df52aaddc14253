/*
 * Reading the JSON body of a direct-use request: each getter checks the type and the bounds and, at
 * the first thing that is wrong, keeps one error with its path. Strings point into the document.
 */
#ifndef BRIG_GATEWAY_FIELDS_H
#define BRIG_GATEWAY_FIELDS_H

#include "base/error.h"
#include "json/json.h"

#include <stdbool.h>
#include <stdint.h>

struct fields {
	struct json_doc *doc;
	const struct json *root;
	bool failed;
	struct error error;
};

/* Parses an object; an empty body counts as {}. allowed: names that may occur, NULL-terminated;
 * another is an error. */
void fields_open(struct fields *f, struct str body, const char *const *allowed);
void fields_close(struct fields *f);
/* Keeps the first error. */
void fields_fail(struct fields *f, const char *param, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* Absent or null leaves the default. */
void fields_bool(struct fields *f, const char *name, bool *v);
void fields_str(struct fields *f, const char *name, size_t max, struct str *v);
void fields_u64(struct fields *f, const char *name, uint64_t least, uint64_t most, uint64_t *v);
/* An array of strings (NULL where absent). */
const struct json *fields_strings(struct fields *f, const char *name, size_t most);
/* An object of string values (NULL where absent). */
const struct json *fields_map(struct fields *f, const char *name, size_t most);

#endif
