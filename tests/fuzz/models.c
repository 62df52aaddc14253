/*
 * The first byte says whose list of models it is, the rest is the answer of a provider. Whatever it
 * says: names are ones that requests can have, and what names the next page can be asked for.
 */
#include "provider/models.h"

#include "base/utf8.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool good)
{
	if (!good)
		abort();
}

static void take(void *ctx, const struct provider_model *m)
{
	must(m->id.n > 0 && m->id.n <= PROVIDER_MODEL_NAME && utf8_valid(m->id.p, m->id.n));
	for (size_t i = 0; i < m->id.n; i++)
		must((unsigned char)m->id.p[i] > ' ' && m->id.p[i] != 0x7f);
	must(m->name.n == 0 || utf8_valid(m->name.p, m->name.n));
	++*(size_t *)ctx;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum dialect dialects[] = {
	        DIALECT_OPENAI_CHAT, DIALECT_OPENAI_RESPONSES, DIALECT_ANTHROPIC, DIALECT_GEMINI};
	struct config_provider p = {.api_key = (char[]){"key"}};
	struct provider_request pr;
	struct buf after = BUF_INIT(4096);
	struct error err = {0};
	size_t n = 0;

	if (size == 0)
		return 0;
	p.dialect = dialects[data[0] % 4];
	if (provider_models_read(p.dialect, (struct str){(const char *)data + 1, size - 1}, take,
	            &n, &after, &err) < 0)
		must(n == 0 && after.len == 0 && err.text[0] != 0);
	else if (after.len > 0) {
		must(provider_models_request(&p, (struct str){after.data, after.len}, &pr));
		for (const char *c = pr.path; *c != 0; c++)
			must(*c > ' ' && *c < 0x7f);
		provider_request_free(&pr);
	}
	buf_free(&after);
	return 0;
}
