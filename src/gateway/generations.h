/* What the files of generations share: a request's filters, and records as JSON. */
#ifndef BRIG_GATEWAY_GENERATIONS_H
#define BRIG_GATEWAY_GENERATIONS_H

#include "gateway/internal.h"
#include "record/record.h"

/* The filters that a request's query has. Zeroed: none. */
struct generations_filters {
	struct buf texts[12];
	struct store_record_query query; /* points into texts */
};
int generations_filters_read(
        struct generations_filters *f, struct str query, struct error *err); /* clear it always */
void generations_filters_clear(struct generations_filters *f);

/* Members of one record: those that lists have, and the others that are no content. */
void generations_write_row(struct json_writer *w, const struct record *r);
void generations_write_more(struct json_writer *w, const struct record *r);
void generations_write_runs(struct json_writer *w, const char *key, const struct record *r);
/* Those of what a guardrail found. */
void generations_write_hit(struct json_writer *w, const struct record_hit *h);
void generations_write_raw(
        struct json_writer *w, const char *key, const char *raw); /* NULL: null */

#endif
