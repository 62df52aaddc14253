/* Which records a destination wants: compiled `filter_rules`. Immutable: any thread. Private to
 * trace. */
#ifndef BRIG_TRACE_FILTER_H
#define BRIG_TRACE_FILTER_H

#include "base/error.h"
#include "json/json.h"
#include "record/record.h"

#define FILTER_GROUPS_MAX 20
#define FILTER_RULES_MAX  20 /* of a group */
#define FILTER_VALUE_MAX  4096

struct trace_filter;

/* v: the object {enabled, groups}. Paths in err->param begin with "filter_rules". */
int filter_new(const struct json *v, struct trace_filter **ret, struct error *err);
struct trace_filter *filter_free(struct trace_filter *f); /* takes NULL */
/* Do all groups hold? A disabled filter, and NULL, hold always. */
bool filter_holds(const struct trace_filter *f, const struct record *r);

#endif
