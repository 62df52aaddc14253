/* The Chat Completions API as a row of the api seam. */
#include "api/chat.h"

const struct api api_chat = {
        .name = "chat",
        .speaks = DIALECT_OPENAI_CHAT,
        .parse = chat_parse,
        .open = chat_stream_open,
        .emit = chat_stream_emit,
        .left = chat_stream_left,
        .pull = chat_stream_pull,
        .keepalive = chat_stream_keepalive,
        .close = chat_stream_close,
        .status = chat_stream_status,
};
