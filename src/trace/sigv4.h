/* Amazon's signature version 4 for S3, one request, by libcrypto. Private to trace. */
#ifndef BRIG_TRACE_SIGV4_H
#define BRIG_TRACE_SIGV4_H

#include "base/str.h"
#include "trace/trace.h"

struct sigv4 {
	struct str access_key_id, secret_key, region;
	const char *method;
	struct str host; /* as the header will say it */
	struct str path; /* as it is sent: encoded, from the first slash */
	struct str body;
	/* All of them are signed; values without spaces around. Names in any case. */
	const struct trace_header *headers;
	size_t n_headers;
	int64_t now_ms;
};

/* "20261130T093000Z", and 64 hex digits. */
void sigv4_date(int64_t now_ms, char out[17]);
void sigv4_hash(struct str body, char out[65]);
/* Appends the value of the header Authorization. headers must hold x-amz-date and
 * x-amz-content-sha256 as the two functions above give them. The buffer's error. */
int sigv4_sign(const struct sigv4 *s, struct buf *out);

#endif
