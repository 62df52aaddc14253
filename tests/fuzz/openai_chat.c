/* Answers in the dialect of OpenAI's chat completions. */
#include "upstream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return upstream_fuzz(&provider_openai_chat, NULL, data, size);
}
