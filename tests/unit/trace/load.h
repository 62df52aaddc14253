/* Records out of JSON, for tests: members by the names that struct record has. */
#ifndef BRIG_UNIT_TRACE_LOAD_H
#define BRIG_UNIT_TRACE_LOAD_H

#include "json/json.h"
#include "record/record.h"

#include <stdbool.h>

/* Aborts on a member that is not known. */
struct record *load_record(const struct json *v);
/* A file's whole text; aborts where there is none. */
char *load_file(const char *folder, const char *name, size_t *ret_len);

#endif
