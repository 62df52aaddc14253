/*
 * Any JSON as a guardrail: refused with a text, or read; what was read is written so that reading
 * it again and writing that gives the same.
 */
#include "gateway/stored_guardrail.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* NULL: refused. */
static char *form_of(struct str text, size_t *ret_len)
{
	struct stored_guardrail s = {.description = NULL};
	struct buf out = BUF_INIT((size_t)64 << 20);
	struct json_doc *doc = NULL;
	struct error err = {0};
	struct json_writer w;
	char *form = NULL;

	if (json_parse(text, (size_t)64 << 20, &doc, &err) < 0)
		return NULL;
	if (stored_guardrail_read(&s, json_root(doc), &err) == 0) {
		jw_init(&w, &out);
		jw_object(&w);
		stored_guardrail_write(&s, &w);
		jw_end(&w);
		if (jw_done(&w) < 0)
			BUG("a guardrail cannot be written");
		form = buf_steal(&out, ret_len);
	} else if (err.text[0] == 0) {
		BUG("refused without a text");
	}
	stored_guardrail_clear(&s);
	json_doc_free(doc);
	return form;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	size_t len = 0, again_len = 0;
	char *form = form_of((struct str){n > 0 ? (const char *)data : "", n}, &len), *again;

	if (form == NULL)
		return 0;
	again = form_of((struct str){form, len}, &again_len);
	if (again == NULL || !str_eq((struct str){form, len}, (struct str){again, again_len}))
		BUG("what is written is read otherwise");
	free(form);
	free(again);
	return 0;
}
