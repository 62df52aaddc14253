/* The Anthropic Messages API as a row of the api seam. */
#include "api/messages.h"

const struct api api_messages = {
        .name = "messages",
        .speaks = DIALECT_ANTHROPIC,
        .parse = messages_parse,
        .open = messages_stream_open,
        .emit = messages_stream_emit,
        .left = messages_stream_left,
        .pull = messages_stream_pull,
        .keepalive = messages_stream_keepalive,
        .close = messages_stream_close,
        .status = messages_stream_status,
};
