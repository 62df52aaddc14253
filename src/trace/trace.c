/* What is small and public. See trace.h. */
#include "trace/trace.h"

#include "base/id.h"
#include "trace/context.h"
#include "trace/filter.h"

static const char *const type_names[TRACE_TYPES] = {
        [TRACE_OTEL_COLLECTOR] = "otel-collector",
        [TRACE_WEBHOOK] = "webhook",
        [TRACE_LANGFUSE] = "langfuse",
        [TRACE_BRAINTRUST] = "braintrust",
        [TRACE_ARIZE] = "arize",
        [TRACE_GRAFANA] = "grafana",
        [TRACE_S3] = "s3",
};

const char *trace_type_name(enum trace_type t)
{
	return type_names[t];
}

void trace_root_ids(const struct record *r, char trace_id[33], char span_id[17])
{
	struct context c;

	context_open(&c, r);
	memcpy(trace_id, c.trace_id, sizeof(c.trace_id));
	context_close(&c);
	context_span_id(r, "request", 0, 0, span_id);
}

/* ---- which records ---- */

static bool in_region(const struct trace_destination *d, const char *region)
{
	struct str here = str_of(region ? region : "global");

	if (str_is(here, "eu"))
		here = STR("europe");
	for (size_t i = 0; i < d->n_regions; i++)
		if (str_is(here, d->regions[i]))
			return true;
	return false;
}

static bool of_key(const struct trace_destination *d, const struct record *r)
{
	for (size_t i = 0; i < d->n_key_hashes; i++)
		if (r->key_hash && strcmp(d->key_hashes[i], r->key_hash) == 0)
			return true;
	return d->n_key_hashes == 0;
}

/* The hash of a session, or else of a trace, is spread evenly over [0, 2^32). */
static bool sampled(const struct trace_destination *d, const struct record *r)
{
	struct str by = str_of(r->session_id);
	char trace_id[33], span_id[17];
	uint8_t hash[32];
	uint64_t at;

	if (d->sampling_ppm >= 1000000)
		return true;
	if (by.n == 0) {
		trace_root_ids(r, trace_id, span_id);
		by = str_of(trace_id);
	}
	id_sha256_parts((const struct str[]){STR("brig sample"), by}, 2, hash);
	at = (uint64_t)hash[0] << 24 | (uint64_t)hash[1] << 16 | (uint64_t)hash[2] << 8 | hash[3];
	return at * 1000000 < (uint64_t)d->sampling_ppm << 32;
}

bool trace_wanted(const struct trace_destination *d, const struct record *r, const char *region)
{
	if (!d->enabled || !in_region(d, region) || !of_key(d, r))
		return false;
	if (d->workspace && (!r->workspace || strcmp(d->workspace, r->workspace) != 0))
		return false;
	return sampled(d, r) && filter_holds(d->filter, r);
}

bool trace_test_passed(const struct trace_destination *d, int status)
{
	return (status >= 200 && status < 300) || (d->type == TRACE_WEBHOOK && status == 400);
}
