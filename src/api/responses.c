/* The OpenAI Responses API as a row of the api seam. */
#include "api/responses.h"

const struct api api_responses = {
        .name = "responses",
        .speaks = DIALECT_OPENAI_RESPONSES,
        .parse = responses_parse,
        .open = responses_stream_open,
        .emit = responses_stream_emit,
        .left = responses_stream_left,
        .pull = responses_stream_pull,
        .keepalive = responses_stream_keepalive,
        .close = responses_stream_close,
        .object = responses_stream_object,
        .status = responses_stream_status,
};
