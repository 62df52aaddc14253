/* Answers in Anthropic's dialect; raw blocks must be JSON objects. */
#include "json/json.h"
#include "upstream.h"

static void check(const struct stream_event *ev)
{
	struct json_doc *doc = NULL;

	if (ev->type != STREAM_ITEM_END || !ev->raw.n)
		return;
	must(json_parse(ev->raw, (size_t)256 << 20, &doc, NULL) == 0);
	must(json_is(json_root(doc), JSON_OBJECT));
	json_doc_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return upstream_fuzz(&provider_anthropic, check, data, size);
}
