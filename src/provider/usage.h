/* The numbers of a provider's usage object, as any dialect has them. */
#ifndef BRIG_PROVIDER_USAGE_H
#define BRIG_PROVIDER_USAGE_H

#include "conversation/stream.h"
#include "json/json.h"

/* A count of tokens. False where it is not there, or nonsense; *ret then stays as it is. */
bool usage_read_count(const struct json *object, const char *key, uint64_t *ret);
/* What the upstream says it charged: exact where it wrote a plain decimal. */
void usage_read_cost(const struct json *cost, struct usage *u);

#endif
