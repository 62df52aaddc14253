/* The Gemini API as a row of the api seam. */
#include "api/gemini.h"

static void error_body(const struct error *e, bool under_v1, struct buf *out)
{
	(void)under_v1;
	api_error_body_google(e, out);
}

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
        .error_body = error_body,
};
