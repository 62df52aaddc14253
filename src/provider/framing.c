#include "provider/framing.h"

#include <string.h>

void framing_open(
        struct framing *f, size_t event_max, size_t body_max, sse_event_fn on_event, void *ctx)
{
	f->body = (struct buf)BUF_INIT(body_max);
	f->sse = sse_reader_new(event_max, on_event, NULL, ctx);
}

void framing_close(struct framing *f)
{
	sse_reader_free(f->sse);
	buf_free(&f->body);
}

/* The first byte that is not space or a byte order mark tells what comes. */
static size_t sniff(struct framing *f, const char *data, size_t n)
{
	size_t i = 0;

	while (i < n && memchr(" \t\r\n\xef\xbb\xbf", data[i], 7))
		i++;
	if (i < n)
		f->mode = data[i] == '{' || data[i] == '[' ? FRAMING_JSON : FRAMING_EVENTS;
	return i;
}

const char *framing_feed(struct framing *f, const void *data, size_t n, int *ret)
{
	const char *bytes = data;
	struct error err = {0};
	size_t skip;

	*ret = 0;
	if (f->mode == FRAMING_UNKNOWN) {
		skip = sniff(f, bytes, n);
		bytes += skip;
		n -= skip;
		if (n && *bytes == '<')
			return "the provider answered with a web page";
	}
	if (!n)
		return NULL;
	if (f->mode == FRAMING_JSON)
		return buf_append(&f->body, bytes, n) < 0 ? "the provider's answer is too large"
		                                          : NULL;
	*ret = sse_feed(f->sse, bytes, n, &err);
	/* Where on_event ended the reply nobody reads this. */
	return *ret < 0 ? "the provider sent an event that is too large" : NULL;
}

const char *framing_fault(const struct framing *f)
{
	if (f->good)
		return "the provider's answer ended in the middle";
	return f->malformed ? "the provider's answer is neither JSON nor an event stream"
	                    : "the provider answered with nothing";
}
