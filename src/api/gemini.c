/* The Gemini API as a row of the api seam. */
#include "api/gemini.h"

const struct api api_gemini = {
        .name = "gemini",
        .speaks = DIALECT_GEMINI,
        .parse = gemini_parse,
        .open = gemini_stream_open,
        .emit = gemini_stream_emit,
        .left = gemini_stream_left,
        .pull = gemini_stream_pull,
        .keepalive = gemini_stream_keepalive,
        .close = gemini_stream_close,
        .status = gemini_stream_status,
};
