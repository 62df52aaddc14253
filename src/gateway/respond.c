/* Answers outside of a dialect: errors and JSON. */
#include "gateway/internal.h"

#include "base/id.h"

void respond_error(struct http_exchange *x, bool under_v1, const struct error *e)
{
	struct buf body = BUF_INIT(65536);
	char text[24];

	if (e->retry_after_ms > 0) {
		str_format(text, sizeof(text), "%d", (e->retry_after_ms + 999) / 1000);
		http_response_header(x, "Retry-After", text);
	}
	/* Clients made for these APIs would send it again, and meet the same container. */
	if (e->code == ERR_CONFLICT)
		http_response_header(x, "x-should-retry", "false");
	if (http_request_header(x, "anthropic-version").p != NULL) {
		char id[40];

		id_make(id, sizeof(id), "req_", 24);
		http_response_header(x, "request-id", id);
		api_error_body_anthropic(e, id, &body);
	} else {
		api_error_body(e, under_v1, &body);
	}
	http_respond(
	        x, error_http_status(e), "application/json", (struct str){body.data, body.len});
	buf_free(&body);
}

void respond_json(struct http_exchange *x, int status, struct buf *body)
{
	struct error e;

	if (buf_error(body) == 0) {
		http_respond(x, status, "application/json", (struct str){body->data, body->len});
		return;
	}
	error_set(&e, ERR_INTERNAL, "The answer is too large.");
	respond_error(x, false, &e);
}
