/* Answers in the dialect of OpenAI's Responses; what is kept raw must be JSON in one line. */
#include "json/json.h"
#include "upstream.h"

static int ignore_json(void *ctx, const struct json_event *ev)
{
	return 0;
}

static void must_be_json(struct str text)
{
	must(!text.n || json_read(text, ignore_json, NULL, NULL) == 0);
	must(!text.n || !memchr(text.p, '\n', text.n));
}

static void check(const struct stream_event *ev)
{
	if (ev->type != STREAM_ITEM_END)
		return;
	must_be_json(ev->raw);
	must_be_json(ev->opaque);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return upstream_fuzz(&provider_openai_responses, check, data, size);
}
