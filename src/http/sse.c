/*
 * Theory of operation: lines are cut at LF or CR; a CR leaves `skip_lf` set, so that the LF of a
 * pair is dropped also when it comes with the next bytes. A line that lies whole in the caller's
 * bytes is used in place; only the beginning of an unfinished one is kept. Data lines are gathered
 * in `data`, each with an LF before it but the first.
 */
#include "http/sse.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
	SSE_EVENT_MAX = 16 * 1024 * 1024,
	SSE_NAME_MAX = 1024,
	SSE_LINE_EXTRA = 64, /* a field's name, colon and space, beside the data */
};

static const char sse_bom[] = "\xef\xbb\xbf";

struct sse_reader {
	sse_event_fn fn;
	sse_comment_fn comment;
	void *ctx;
	struct buf line; /* the beginning of a line that is not whole yet */
	struct buf data;
	struct buf event;
	size_t max_event;
	unsigned bom; /* bytes of the BOM matched; 4: the start of the stream is past */
	bool skip_lf;
	bool has_data;
	int failed; /* sticks */
};

struct sse_reader *sse_reader_new(
        size_t max_event, sse_event_fn fn, sse_comment_fn comment, void *ctx)
{
	struct sse_reader *r = mem_alloc(sizeof(*r));

	r->max_event = max_event ? max_event : SSE_EVENT_MAX;
	r->fn = fn;
	r->comment = comment;
	r->ctx = ctx;
	buf_init(&r->line, r->max_event + SSE_LINE_EXTRA);
	buf_init(&r->data, r->max_event);
	buf_init(&r->event, SSE_NAME_MAX);
	return r;
}

struct sse_reader *sse_reader_free(struct sse_reader *r)
{
	if (!r)
		return NULL;
	buf_free(&r->line);
	buf_free(&r->data);
	buf_free(&r->event);
	free(r);
	return NULL;
}

/* The bytes are used up: what is not in the middle of something keeps no memory, since the next
 * ones may be long in coming. */
static void sse_rest(struct sse_reader *r)
{
	struct buf *const all[] = {&r->line, &r->data, &r->event};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i]->len == 0)
			buf_free(all[i]);
}

static int sse_dispatch(struct sse_reader *r)
{
	struct str event = {NULL, 0}, data = {r->data.data ? r->data.data : "", r->data.len};
	int result = 0;

	if (r->event.len > 0)
		event = (struct str){r->event.data, r->event.len};
	if (r->has_data)
		result = r->fn(r->ctx, event, data);
	buf_reset(&r->data);
	buf_reset(&r->event);
	r->has_data = false;
	return result;
}

static int sse_field(struct sse_reader *r, struct str name, struct str value)
{
	int result = 0;

	if (str_is(name, "data")) {
		if (r->has_data)
			buf_putc(&r->data, '\n');
		result = buf_append(&r->data, value.p, value.n);
		r->has_data = true;
	} else if (str_is(name, "event")) {
		buf_reset(&r->event);
		result = buf_append(&r->event, value.p, value.n);
	}
	return result;
}

static int sse_line(struct sse_reader *r, struct str line)
{
	const char *colon;
	struct str name = line, value = {"", 0};

	if (line.n == 0)
		return sse_dispatch(r);
	colon = memchr(line.p, ':', line.n);
	if (colon) {
		name.n = (size_t)(colon - line.p);
		value = (struct str){colon + 1, line.n - name.n - 1};
		if (value.n > 0 && value.p[0] == ' ')
			value = (struct str){value.p + 1, value.n - 1};
	}
	if (name.n > 0)
		return sse_field(r, name, value);
	if (r->comment)
		r->comment(r->ctx, value);
	return 0;
}

/*
 * Position of the first LF or CR, or n. Looks in windows that double, so that a line costs what it
 * is long, also where all lines end in CR and a search for LF would run to the end each time.
 */
static size_t sse_line_end(const char *p, size_t n)
{
	size_t begin = 0, window = 64, len;
	const char *lf, *cr;

	while (begin < n) {
		len = n - begin < window ? n - begin : window;
		lf = memchr(p + begin, '\n', len);
		if (lf)
			len = (size_t)(lf - p) - begin;
		cr = memchr(p + begin, '\r', len);
		if (cr)
			return (size_t)(cr - p);
		if (lf)
			return (size_t)(lf - p);
		begin += len;
		window *= 2;
	}
	return n;
}

/* The stream's first bytes: drops a BOM, gives back what only looked like its beginning. */
static int sse_skip_bom(struct sse_reader *r, const char **p, size_t *n)
{
	int result = 0;

	while (*n > 0 && r->bom < 3) {
		if (**p != sse_bom[r->bom]) {
			result = buf_append(&r->line, sse_bom, r->bom);
			r->bom = 4;
			break;
		}
		r->bom++;
		(*p)++;
		(*n)--;
	}
	return result;
}

static int sse_step(struct sse_reader *r, const char **p, size_t *n)
{
	size_t end;
	int result = 0;

	if (r->skip_lf && **p == '\n') {
		(*p)++;
		(*n)--;
	}
	r->skip_lf = false;
	end = sse_line_end(*p, *n);
	/* A line over the bound is refused also where it could be used in place: the cut changes nothing. */
	if (r->line.len > 0 || end == *n || end > r->line.max)
		result = buf_append(&r->line, *p, end);
	if (result || end == *n) {
		*p += *n;
		*n = 0;
		return result;
	}
	r->skip_lf = (*p)[end] == '\r';
	if (r->line.len > 0)
		result = sse_line(r, (struct str){r->line.data, r->line.len});
	else
		result = sse_line(r, (struct str){*p, end});
	buf_reset(&r->line);
	*p += end + 1;
	*n -= end + 1;
	return result;
}

int sse_feed(struct sse_reader *r, const void *data, size_t n, struct error *err)
{
	const char *p = data;
	int result = r->failed;

	if (result)
		return error_set(err, (enum err) - result, "The event stream was given up before.");
	result = sse_skip_bom(r, &p, &n);
	while (!result && n > 0)
		result = sse_step(r, &p, &n);
	r->failed = result;
	/* A line, a name or the data of one event was over its bound; a callback speaks for itself.
	 */
	if (r->line.err || r->data.err || r->event.err)
		error_set(err, (enum err) - result,
		        "An event of the stream is larger than %zu bytes.", r->max_event);
	sse_rest(r);
	return result;
}

bool sse_end(struct sse_reader *r)
{
	/* A BOM cut short is an unfinished line too. */
	bool dropped =
	        r->has_data || r->event.len > 0 || r->line.len > 0 || (r->bom > 0 && r->bom < 3);

	buf_reset(&r->line);
	buf_reset(&r->data);
	buf_reset(&r->event);
	r->has_data = false;
	return dropped;
}

int sse_write(struct buf *out, const char *event, struct str data)
{
	if (sse_line_end(data.p, data.n) < data.n ||
	        (event && sse_line_end(event, strlen(event)) < strlen(event)))
		return -ERR_INVALID;
	if (event) {
		buf_puts(out, "event: ");
		buf_puts(out, event);
		buf_putc(out, '\n');
	}
	buf_puts(out, "data: ");
	buf_append(out, data.p, data.n);
	return buf_puts(out, "\n\n");
}
