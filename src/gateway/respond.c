/*
 * Answers outside of a turn: errors and JSON.
 *
 * Who asks decides the shape. The path comes first, since whoever calls it expects what belongs
 * there; the paths that the dialects share are Anthropic's for a client that sends its version
 * header, and OpenAI's with OpenRouter's added fields for all others.
 */
#include "gateway/guardrails.h"
#include "gateway/internal.h"

#include "base/id.h"

/* Is path the folder, or below it? */
static bool path_within(struct str path, const char *folder)
{
	size_t n = strlen(folder);

	return str_starts(path, folder) && (path.n == n || path.p[n] == '/');
}

enum dialect respond_asks(const struct http_exchange *x)
{
	struct str path = http_request_path(x);

	if (path_within(path, "/v1beta") || path_within(path, "/v1alpha"))
		return DIALECT_GEMINI;
	if (path_within(path, "/api"))
		path = (struct str){path.p + strlen("/api"), path.n - strlen("/api")};
	if (path_within(path, "/v1/messages"))
		return DIALECT_ANTHROPIC;
	if (path_within(path, "/v1/responses"))
		return DIALECT_OPENAI_RESPONSES;
	if (path_within(path, "/v1/chat"))
		return DIALECT_OPENAI_CHAT;
	/* Google's newer SDKs call their API v1 too: a method of a model, or that key, is theirs.
	 */
	if (path_within(path, "/v1/models") &&
	        ((str_is(http_request_method(x), "POST") && memchr(path.p, ':', path.n)) ||
	                http_request_header(x, "x-goog-api-key").p != NULL))
		return DIALECT_GEMINI;
	return http_request_header(x, "anthropic-version").p != NULL ? DIALECT_ANTHROPIC
	                                                             : DIALECT_OPENAI_RESPONSES;
}

void respond_error_body(struct http_exchange *x, enum dialect asks, bool under_v1,
        const char *request_id, const struct error *e, struct buf *out)
{
	char id[40];

	if (asks == DIALECT_GEMINI) {
		api_error_body_google(e, out);
		return;
	}
	if (asks == DIALECT_OPENAI_CHAT) {
		api_error_body_chat(e, under_v1, out);
		return;
	}
	if (asks != DIALECT_ANTHROPIC) {
		api_error_body(e, under_v1, out);
		return;
	}
	if (request_id == NULL) {
		id_make(id, sizeof(id), "req_", 24);
		http_response_header(x, "request-id", id);
		request_id = id;
	}
	api_error_body_anthropic(e, request_id, out);
}

void respond_error_to(struct http_exchange *x, enum dialect asks, bool under_v1,
        const char *request_id, const struct error *e)
{
	struct buf body = BUF_INIT(65536);

	/* Clients made for these APIs would send it again, and meet the same container. */
	if (e->code == ERR_CONFLICT)
		http_response_header(x, "x-should-retry", "false");
	respond_retry_after(x, e);
	respond_error_body(x, asks, under_v1, request_id, e, &body);
	http_respond(
	        x, error_http_status(e), "application/json", (struct str){body.data, body.len});
	buf_free(&body);
}

void respond_blocked(struct http_exchange *x, enum dialect asks, bool under_v1,
        const char *request_id, const struct error *e, const struct guardrails_report *why)
{
	struct buf body = BUF_INIT(262144);
	char id[40];

	if (request_id == NULL && asks == DIALECT_ANTHROPIC) {
		id_make(id, sizeof(id), "req_", 24);
		http_response_header(x, "request-id", id);
		request_id = id;
	}
	guardrails_error_body(why, asks, under_v1, request_id, e, &body);
	http_response_header(x, "x-should-retry", "false");
	http_respond(
	        x, error_http_status(e), "application/json", (struct str){body.data, body.len});
	buf_free(&body);
}

void respond_error(struct http_exchange *x, bool under_v1, const struct error *e)
{
	respond_error_to(x, respond_asks(x), under_v1, NULL, e);
}

void respond_retry_after(struct http_exchange *x, const struct error *e)
{
	char text[24];

	if (e->retry_after_ms <= 0)
		return;
	str_format(text, sizeof(text), "%d",
	        e->retry_after_ms / 1000 + (e->retry_after_ms % 1000 > 0));
	http_response_header(x, "Retry-After", text);
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

bool respond_more(struct http_exchange *x, struct str text, size_t *sent)
{
	while (*sent < text.n && !http_above_high_water(x)) {
		size_t n = text.n - *sent < RESPOND_PIECE ? text.n - *sent : RESPOND_PIECE;

		http_write(x, (struct str){text.p + *sent, n});
		*sent += n;
	}
	if (*sent < text.n)
		return false;
	http_exchange_set_data(x, NULL);
	http_finish(x);
	return true;
}
