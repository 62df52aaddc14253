#include "egress/response.h"

enum response_phase { PHASE_HEAD, PHASE_LENGTH, PHASE_CHUNKS, PHASE_CLOSE };

void egress_response_begin(struct egress_response *r, bool is_head, bool websocket)
{
	buf_free(&r->head);
	memset(r, 0, sizeof(*r));
	buf_init(&r->head, EGRESS_HEAD_MAX);
	r->is_head = is_head;
	r->websocket = websocket;
}

void egress_response_free(struct egress_response *r)
{
	buf_free(&r->head);
}

bool egress_response_begun(const struct egress_response *r)
{
	return r->phase != PHASE_HEAD || r->head.len > 0;
}

/* "HTTP/1.1 200 OK"; 0: malformed. */
static int read_status(struct str line)
{
	if (line.n < 12 || !str_starts(line, "HTTP/1.") || line.p[8] != ' ' ||
	        !str_in_set((struct str){line.p + 9, 3}, "0123456789"))
		return 0;
	if (line.n > 12 && line.p[12] != ' ')
		return 0;
	return (line.p[9] - '0') * 100 + (line.p[10] - '0') * 10 + (line.p[11] - '0');
}

/* Sets the phase that the body's framing asks for. False: it ends with the head. */
static bool read_framing(struct egress_response *r, struct str rest, int status)
{
	struct str line, name, value;
	int lengths = 0, codings = 0;
	bool chunked = false;

	r->phase = PHASE_CLOSE;
	while (egress_head_line(&rest, &line) && line.n > 0) {
		if (!egress_head_field(line, &name, &value))
			return true;
		if (str_ieq(name, STR("content-length"))) {
			if (lengths++ > 0 || !str_to_u64(value, &r->left))
				return true;
		} else if (str_ieq(name, STR("transfer-encoding"))) {
			codings++;
			chunked = str_ieq(value, STR("chunked"));
		}
	}
	if (r->is_head || status == 204 || status == 304)
		return false;
	if (codings > 0 && (codings > 1 || !chunked || lengths > 0))
		return true;
	if (chunked) {
		r->phase = PHASE_CHUNKS;
		egress_chunks_init(&r->chunks);
	} else if (lengths > 0) {
		r->phase = PHASE_LENGTH;
		return r->left > 0;
	}
	return true;
}

/* The head is whole. */
static enum egress_response_result read_head(struct egress_response *r)
{
	struct str rest = {r->head.data, r->head.len}, line;
	enum egress_response_result result = EGRESS_RESPONSE_MORE;
	int status;

	status = egress_head_line(&rest, &line) ? read_status(line) : 0;
	if (status == 0)
		r->phase = PHASE_CLOSE;
	else if (status == 101)
		return r->websocket ? EGRESS_RESPONSE_SWITCHED : EGRESS_RESPONSE_BAD;
	else if (status >= 200 && !read_framing(r, rest, status))
		result = EGRESS_RESPONSE_DONE;
	/* An answer before the answer (1xx) is followed by another head. */
	buf_free(&r->head);
	r->scanned = 0;
	return result;
}

static enum egress_response_result feed_head(
        struct egress_response *r, const char *data, size_t n, size_t *ret_used)
{
	size_t before = r->head.len, fits = EGRESS_HEAD_MAX - before;
	const char *why;
	long end;

	*ret_used = n;
	/* It may have come with much of its body. */
	buf_append(&r->head, data, n < fits ? n : fits);
	end = egress_head_end(r->head.data, r->head.len, &r->scanned, &why);
	if (end < 0 || (end == 0 && r->head.len >= EGRESS_HEAD_MAX)) {
		r->phase = PHASE_CLOSE;
		buf_free(&r->head);
		return EGRESS_RESPONSE_MORE;
	}
	if (end == 0)
		return EGRESS_RESPONSE_MORE;
	*ret_used = (size_t)end - before;
	r->head.len = (size_t)end;
	return read_head(r);
}

enum egress_response_result egress_response_feed(
        struct egress_response *r, const char *data, size_t n, size_t *ret_used)
{
	enum egress_response_result result = EGRESS_RESPONSE_MORE;
	size_t used = 0, piece;
	int done;

	while (used < n && result == EGRESS_RESPONSE_MORE) {
		piece = n - used;
		switch ((enum response_phase)r->phase) {
		case PHASE_HEAD:
			result = feed_head(r, data + used, n - used, &piece);
			break;
		case PHASE_LENGTH:
			piece = piece < r->left ? piece : (size_t)r->left;
			r->left -= piece;
			result = r->left == 0 ? EGRESS_RESPONSE_DONE : EGRESS_RESPONSE_MORE;
			break;
		case PHASE_CHUNKS:
			done = egress_chunks_feed(&r->chunks, data + used, n - used, &piece);
			if (done < 0)
				r->phase = PHASE_CLOSE;
			else if (done > 0)
				result = EGRESS_RESPONSE_DONE;
			break;
		case PHASE_CLOSE:
			break;
		}
		used += piece;
	}
	*ret_used = used;
	return result;
}
