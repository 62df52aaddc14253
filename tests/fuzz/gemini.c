/* Answers in Gemini's dialect; arguments and raw parts must be JSON. */
#include "json/json.h"
#include "upstream.h"

static void check_json(struct str raw)
{
	struct json_doc *doc = NULL;

	must(json_parse(raw, (size_t)256 << 20, &doc, NULL) == 0);
	json_doc_free(doc);
}

static void check(const struct stream_event *ev)
{
	if (ev->type == STREAM_DELTA && ev->item_type == ITEM_CALL) /* they come in one piece */
		check_json(ev->text);
	if (ev->type != STREAM_ITEM_END)
		return;
	must((ev->item_type == ITEM_OTHER) == (ev->raw.n > 0));
	if (ev->raw.n)
		check_json(ev->raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return upstream_fuzz(&provider_gemini, check, data, size);
}
