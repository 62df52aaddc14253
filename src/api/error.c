/*
 * Errors as the dialects show them: OpenAI's envelope with OpenRouter's added fields, so that the
 * SDKs of both find what they look for (DESIGN section 9, "errors"), Anthropic's and Google's. All
 * names come from here.
 */
#include "api/api.h"

#include "json/json.h"

/* What an error of this status is called where it has no more exact name. */
static const struct status_names {
	int status;
	const char *type; /* error.type */
	const char *code; /* error.code under /v1; NULL: null */
	const char *name; /* error_type */
} status_names[] = {
        {400, "invalid_request_error", NULL, "invalid_request"},
        {401, "authentication_error", "invalid_api_key", "authentication"},
        {402, "insufficient_quota", "insufficient_quota", "payment_required"},
        {403, "permission_error", "permission_denied", "permission_denied"},
        {404, "invalid_request_error", "not_found", "not_found"},
        {408, "invalid_request_error", "request_timeout", "timeout"},
        {409, "invalid_request_error", "conflict", "invalid_request"},
        {412, "invalid_request_error", NULL, "precondition_failed"},
        {413, "invalid_request_error", "request_too_large", "payload_too_large"},
        {422, "invalid_request_error", NULL, "unprocessable"},
        {429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_exceeded"},
        {499, "invalid_request_error", "request_cancelled", "unmapped"},
        {500, "server_error", "server_error", "server"},
        {502, "server_error", "server_error", "provider_unavailable"},
        {503, "server_error", "server_error", "server"},
        {504, "server_error", "server_error", "timeout"},
        {529, "server_error", "server_is_overloaded", "provider_overloaded"},
};

/* The exact names of errors that OpenRouter knows too: they stand in error_type as they are. */
static const char *const shared_names[] = {
        "context_length_exceeded",
        "max_tokens_exceeded",
        "token_limit_exceeded",
        "string_too_long",
        "content_policy_violation",
        "refusal",
        "invalid_prompt",
        "invalid_image",
        "image_too_large",
        "image_too_small",
        "unsupported_image_format",
        "image_download_failed",
        "image_not_found",
        "provider_overloaded",
        "provider_unavailable",
        "payment_required",
};

static const struct status_names *names_of(const struct error *e)
{
	static const struct status_names other_4xx = {
	        400, "invalid_request_error", NULL, "invalid_request"};
	static const struct status_names other_5xx = {
	        500, "server_error", "server_error", "server"};
	int status = error_http_status(e);

	for (size_t i = 0; i < sizeof(status_names) / sizeof(*status_names); i++)
		if (status_names[i].status == status)
			return &status_names[i];
	return status < 500 ? &other_4xx : &other_5xx;
}

const char *api_error_type(const struct error *e)
{
	return names_of(e)->type;
}

const char *api_error_code(const struct error *e)
{
	return e->type[0] ? e->type : names_of(e)->code;
}

const char *api_error_name(const struct error *e)
{
	for (size_t i = 0; i < sizeof(shared_names) / sizeof(*shared_names); i++)
		if (str_is(str_of(e->type), shared_names[i]))
			return shared_names[i];
	if (e->code == ERR_UPSTREAM && error_http_status(e) == 503)
		return "provider_overloaded";
	return names_of(e)->name;
}

const char *api_error_text(const struct error *e)
{
	/* Their texts name files, calls and processes of this machine. */
	if (e->code == ERR_IO || e->code == ERR_PROTOCOL || e->code == ERR_INTERNAL)
		return "The server met an internal error while it processed the request.";
	return e->text[0] ? e->text : "The request failed.";
}

static void write_openai(const struct error *e, bool under_v1, bool metadata, struct buf *out)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	jw_key(&w, "error");
	jw_object(&w);
	jw_kcstr(&w, "message", api_error_text(e));
	jw_kcstr(&w, "type", api_error_type(e));
	jw_kcstr(&w, "param", e->param[0] ? e->param : NULL);
	if (under_v1)
		jw_kcstr(&w, "code", api_error_code(e));
	else
		jw_ki64(&w, "code", error_http_status(e));
	if (metadata) {
		jw_key(&w, "metadata");
		jw_object(&w);
		jw_kcstr(&w, "error_type", api_error_name(e));
		jw_end(&w);
	}
	jw_end(&w);
	jw_kcstr(&w, "error_type", api_error_name(e));
	jw_end(&w);
}

void api_error_body(const struct error *e, bool under_v1, struct buf *out)
{
	write_openai(e, under_v1, false, out);
}

void api_error_body_chat(const struct error *e, bool under_v1, struct buf *out)
{
	write_openai(e, under_v1, !under_v1, out);
}

/* ---- Anthropic's ---- */

static const char *anthropic_type(int status)
{
	switch (status) {
	case 401:
		return "authentication_error";
	case 402:
		return "billing_error";
	case 403:
		return "permission_error";
	case 404:
		return "not_found_error";
	case 409:
		return "conflict_error";
	case 413:
		return "request_too_large";
	case 429:
		return "rate_limit_error";
	case 504:
		return "timeout_error";
	case 503:
	case 529:
		return "overloaded_error";
	default:
		return status < 500 ? "invalid_request_error" : "api_error";
	}
}

/* The error codes that its SDK makes classes of. */
static bool anthropic_detail(struct str type)
{
	static const char *const names[] = {"file_not_downloadable", "storage_quota_exceeded",
	        "file_expired", "thread_unsupported_request"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (str_is(type, names[i]))
			return true;
	return false;
}

void api_error_body_anthropic(const struct error *e, const char *request_id, struct buf *out)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	jw_kcstr(&w, "type", "error");
	jw_key(&w, "error");
	jw_object(&w);
	jw_kcstr(&w, "type", anthropic_type(error_http_status(e)));
	jw_kcstr(&w, "message", api_error_text(e));
	if (anthropic_detail(str_of(e->type))) {
		jw_key(&w, "details");
		jw_object(&w);
		jw_kcstr(&w, "error_code", e->type);
		jw_end(&w);
	}
	jw_end(&w);
	jw_kcstr(&w, "request_id", request_id);
	jw_end(&w);
}

/* ---- Google's ---- */

static const char *google_status(int status)
{
	switch (status) {
	case 401:
		return "UNAUTHENTICATED";
	case 402:
	case 429:
		return "RESOURCE_EXHAUSTED";
	case 403:
		return "PERMISSION_DENIED";
	case 404:
		return "NOT_FOUND";
	case 405:
	case 501:
		return "UNIMPLEMENTED";
	case 409:
		return "ABORTED";
	case 412:
		return "FAILED_PRECONDITION";
	case 499:
		return "CANCELLED";
	case 502:
	case 503:
	case 529:
		return "UNAVAILABLE";
	case 408:
	case 504:
		return "DEADLINE_EXCEEDED";
	default:
		return status < 500 ? "INVALID_ARGUMENT" : "INTERNAL";
	}
}

/* The reason as its clients know it: in capitals, and a bad key by their own name. */
static void google_reason(const struct error *e, char out[sizeof(e->type)])
{
	size_t i = 0;

	if (str_is(str_of(e->type), "invalid_api_key")) {
		str_copy(out, sizeof(e->type), STR("API_KEY_INVALID"));
		return;
	}
	for (; e->type[i] != 0; i++)
		out[i] = e->type[i] >= 'a' && e->type[i] <= 'z' ? (char)(e->type[i] - 'a' + 'A')
		                                                : e->type[i];
	out[i] = 0;
}

static void google_details(struct json_writer *w, const struct error *e)
{
	char text[sizeof(e->type)];

	jw_key(w, "details");
	jw_array(w);
	if (e->type[0]) {
		google_reason(e, text);
		jw_object(w);
		jw_kcstr(w, "@type", "type.googleapis.com/google.rpc.ErrorInfo");
		jw_kcstr(w, "reason", text);
		jw_kcstr(w, "domain", "brig");
		jw_end(w);
	}
	if (e->param[0]) {
		jw_object(w);
		jw_kcstr(w, "@type", "type.googleapis.com/google.rpc.BadRequest");
		jw_key(w, "fieldViolations");
		jw_array(w);
		jw_object(w);
		jw_kcstr(w, "field", e->param);
		jw_kcstr(w, "description", api_error_text(e));
		jw_end(w);
		jw_end(w);
		jw_end(w);
	}
	if (e->retry_after_ms > 0) {
		str_format(text, sizeof(text), "%d.%03ds", e->retry_after_ms / 1000,
		        e->retry_after_ms % 1000);
		jw_object(w);
		jw_kcstr(w, "@type", "type.googleapis.com/google.rpc.RetryInfo");
		jw_kcstr(w, "retryDelay", text);
		jw_end(w);
	}
	jw_end(w);
}

void api_error_body_google(const struct error *e, struct buf *out)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	jw_key(&w, "error");
	jw_object(&w);
	jw_ki64(&w, "code", error_http_status(e));
	jw_kcstr(&w, "message", api_error_text(e));
	jw_kcstr(&w, "status", google_status(error_http_status(e)));
	if (e->type[0] || e->param[0] || e->retry_after_ms > 0)
		google_details(&w, e);
	jw_end(&w);
	jw_end(&w);
}
