/*
 * The JSON form of OTLP's common parts (opentelemetry-proto, docs/specification.md): attributes,
 * ids and times, as exactly one text each. Private to trace.
 */
#ifndef BRIG_TRACE_OTLP_H
#define BRIG_TRACE_OTLP_H

#include "base/money.h"
#include "json/json.h"

#include <stdbool.h>
#include <stdint.h>

/* Attributes, inside an array that is open. An absent text ({NULL,0}, NULL) is no attribute. */
void otlp_str(struct json_writer *w, const char *key, struct str value);
void otlp_cstr(struct json_writer *w, const char *key, const char *value);
void otlp_int(struct json_writer *w, const char *key, int64_t value);
void otlp_count(struct json_writer *w, const char *key, uint64_t value); /* capped at INT64_MAX */
void otlp_bool(struct json_writer *w, const char *key, bool value);
void otlp_money(struct json_writer *w, const char *key, struct money value); /* a double */
void otlp_seconds(struct json_writer *w, const char *key, int64_t ms);       /* a double */
void otlp_list(struct json_writer *w, const char *key, struct str only); /* a list of one text */
/* A value of a client's: texts, whole numbers, numbers and booleans as themselves, the rest as its
 * JSON text. null is no attribute. */
void otlp_json(struct json_writer *w, struct str key, const struct json *value);

/* Members of an object that is open. */
void otlp_time(struct json_writer *w, const char *key, int64_t ms); /* nanoseconds as a text */

#endif
