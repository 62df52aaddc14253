/*
 * The log: one JSON object a line on standard error, written with one write(2) so that lines of
 * several processes never mix. Values are escaped by us; a key never is the caller's input. Secrets
 * have no printer and so cannot reach it. A line is at most 8 KiB: what does not fit is cut, and
 * the line then ends in "cut":true and still is one JSON object. Thread-safe.
 */
#ifndef BRIG_BASE_LOG_H
#define BRIG_BASE_LOG_H

#include "base/str.h"

#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log_field {
	const char *key;
	struct str text; /* used when text.p is not NULL */
	int64_t number;
};
static inline struct str log_text_of(const char *s)
{
	return str_of(s ? s : ""); /* NULL would print as the number 0 */
}
#define LOG_S(k, s) ((struct log_field){.key = (k), .text = log_text_of(s)})
#define LOG_N(k, v) ((struct log_field){.key = (k), .number = (int64_t)(v)})

void log_init(const char *process,
        enum log_level least); /* process: "gateway", "supervisor", … (static text) */
void log_event(enum log_level level, const char *event, const struct log_field *fields, size_t n);
#define LOG(level, event, ...)                                                                     \
	log_event((level), (event), (const struct log_field[]){__VA_ARGS__},                       \
	        sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))
/* A line with no fields, or text made by printf. */
void log_text(enum log_level level, const char *event, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

#endif
