/*
 * Reads a Responses stream as the strictest client does (openai-node's accumulator) and fails the
 * test at the first thing that would make it give up: framing, sequence numbers, unknown types, ids
 * that change, indexes with gaps, texts that are not the sum of their pieces, items left open.
 */
#ifndef BRIG_TEST_API_CHECKER_H
#define BRIG_TEST_API_CHECKER_H

#include "base/str.h"
#include "json/json.h"

/* The last response object of the stream: its document must be freed. */
struct json_doc *check_stream(struct str sse);

#endif
