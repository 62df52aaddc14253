/*
 * What a chat server says when it refuses, in the shapes that servers use, as an error for our
 * client.
 *
 *     {"error":{"message","type","code"}}   OpenAI and most others; Google sends it inside an array
 *     {"error":"text"}                      Ollama, older servers
 *     {"type":"error","error":{…}}          Anthropic's shape
 *     {"object":"error","message","code"}   older vLLM
 *     {"detail":"text"|[{"msg"}]}           FastAPI
 *     plain text, HTML, nothing             proxies in front
 *
 * Whatever concerns brig's own account there (401, 402, 403) is a 502 for our client: its key is
 * good. Quoted text loses anything that looks like a key or an address of the provider's network.
 */
#include "provider/openai_chat.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <time.h>

#define QUOTE_MAX      320
#define TREE_MAX       ((size_t)8 << 20)
#define RETRY_MAX_MS   ((int64_t)3600 * 1000)
#define BODY_LOOKED_AT ((size_t)64 << 10)

/* What the body said. */
struct said {
	struct str message, type, code;
	int64_t status; /* of a numeric code, or 0 */
	bool is_json;
};

/* ---- reading ---- */

static struct str first_text(const struct json *object, const char *const *keys)
{
	for (; *keys; keys++) {
		struct str s = json_str(json_get(object, *keys));

		if (s.n)
			return s;
	}
	return (struct str){NULL, 0};
}

static void read_said(const struct json *root, struct said *ret)
{
	static const char *const messages[] = {"message", "msg", "detail", "error", NULL};
	const struct json *e;
	const struct json *code;

	if (json_is(root, JSON_ARRAY))
		root = json_first(root);
	e = json_get(root, "error");
	if (!json_is(e, JSON_OBJECT))
		e = root;
	ret->message = first_text(e, messages);
	if (!ret->message.n)
		ret->message = first_text(json_first(json_get(root, "detail")), messages);
	ret->type = json_str(json_get(e, "type"));
	if (str_is(ret->type, "error"))
		ret->type = (struct str){NULL, 0};
	code = json_get(e, "code");
	ret->code = json_str(code);
	if (!json_i64(code, &ret->status) && !json_i64(json_get(e, "status"), &ret->status))
		ret->status = 0;
}

/* ---- quoting ---- */

static bool has_ci(struct str s, const char *needle)
{
	size_t n = strlen(needle);

	for (size_t i = 0; i + n <= s.n; i++)
		if (str_ieq((struct str){s.p + i, n}, str_of(needle)))
			return true;
	return false;
}

static bool is_html(struct str s)
{
	return has_ci(s, "<html") || has_ci(s, "<!doctype") || has_ci(s, "<head") ||
	       has_ci(s, "<body");
}

static bool is_separator(char c)
{
	return c == ' ' || c == '"' || c == '\'' || c == '`' || c == '(' || c == ')' || c == '<' ||
	       c == '>' || c == ',' || c == ';' || c == '[' || c == ']' || c == '{' || c == '}' ||
	       c == '=';
}

static bool is_ipv4(struct str w)
{
	size_t dots = 0, digits = 0, i;

	for (i = 0; i < w.n; i++) {
		if (w.p[i] >= '0' && w.p[i] <= '9') {
			digits++;
		} else if (w.p[i] == '.' && digits) {
			dots++;
			digits = 0;
		} else {
			break;
		}
	}
	return dots == 3 && digits && (i == w.n || w.p[i] == ':' || w.p[i] == '/');
}

static bool is_ipv6(struct str w)
{
	size_t colons = 0;

	for (size_t i = 0; i < w.n; i++) {
		if (w.p[i] == ':')
			colons++;
		else if (!memchr("0123456789abcdefABCDEF.", w.p[i], 23))
			return false;
	}
	return colons >= 2;
}

/* "db-3.internal:8000": a name and a port. */
static bool is_host_port(struct str w)
{
	const char *colon = w.n ? memchr(w.p, ':', w.n) : NULL;
	struct str port;

	if (!colon || colon == w.p)
		return false;
	port = (struct str){colon + 1, w.n - (size_t)(colon + 1 - w.p)};
	while (port.n && (port.p[port.n - 1] == ':' || port.p[port.n - 1] == '.'))
		port.n--;
	return port.n >= 2 && port.n <= 5 && str_in_set(port, "0123456789");
}

/* A random-looking token: long, unbroken, with digits and letters. */
static bool is_token(struct str w)
{
	bool digit = false, upper = false, lower = false;

	if (w.n < 32)
		return false;
	for (size_t i = 0; i < w.n; i++) {
		digit |= w.p[i] >= '0' && w.p[i] <= '9';
		upper |= w.p[i] >= 'A' && w.p[i] <= 'Z';
		lower |= w.p[i] >= 'a' && w.p[i] <= 'z';
	}
	return digit && (upper || lower);
}

static bool is_secret(struct str w)
{
	static const char *const marks[] = {
	        "sk-", "gsk_", "xai-", "AIza", "hf_", "ghp_", "pk-", "eyJ"};

	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		if (str_starts(w, marks[i]))
			return true;
	return is_token(w);
}

/* One sentence of a stranger's, fit to be shown. */
static void quote(struct str s, char *out, size_t size)
{
	struct buf b _cleanup_buf_ = BUF_INIT(BODY_LOOKED_AT * 4);
	bool space = false;

	for (size_t i = 0; i < s.n && b.len < QUOTE_MAX * 2;) {
		struct str w = {s.p + i, 0};
		bool url = false; /* its query is part of it */

		if ((unsigned char)s.p[i] <= ' ' || s.p[i] == 0x7f) {
			space = b.len > 0;
			i++;
			continue;
		}
		if (space)
			buf_putc(&b, ' ');
		space = false;
		if (is_separator(s.p[i])) {
			buf_putc(&b, s.p[i++]);
			continue;
		}
		while (i < s.n && (unsigned char)s.p[i] > ' ' && (url || !is_separator(s.p[i])) &&
		        !memchr("\"'<>", s.p[i], 4)) {
			url |= i >= 2 && w.p <= s.p + i - 2 && memcmp(s.p + i - 2, "://", 3) == 0;
			i++;
		}
		w.n = (size_t)(s.p + i - w.p);
		if (url || is_ipv4(w) || is_ipv6(w) || is_host_port(w))
			buf_puts(&b, "[address]");
		else if (is_secret(w))
			buf_puts(&b, "[hidden]");
		else
			utf8_append_valid(&b, w.p, w.n);
	}
	str_copy(out, size, (struct str){buf_cstr(&b), b.len});
}

/* ---- kinds ---- */

static bool says_any(const struct said *s, const char *const *needles)
{
	for (; *needles; needles++)
		if (has_ci(s->message, *needles) || has_ci(s->code, *needles) ||
		        has_ci(s->type, *needles))
			return true;
	return false;
}

static bool is_context_length(const struct said *s)
{
	static const char *const needles[] = {"context_length_exceeded", "context length",
	        "context window", "context size", "prompt is too long", "input is too long",
	        "maximum number of tokens", "exceed_context_size", "too many input tokens", NULL};

	return says_any(s, needles);
}

struct kind {
	enum err code;
	int http_status;
	const char *type;
	const char *text; /* our sentence */
	bool quoted;      /* followed by what the provider said */
};

static struct kind kind_of(int status, const struct said *s)
{
	static const char *const overload[] = {"overloaded", "capacity", NULL};

	switch (status) {
	case 400:
	case 405:
	case 406:
	case 415:
		return (struct kind){ERR_INVALID, 400, "invalid_request",
		        "the provider refused the request", true};
	case 401:
	case 403:
		return (struct kind){ERR_UPSTREAM, 502, "provider_authentication",
		        "the provider refused the key that this server has for it", false};
	case 402:
		return (struct kind){ERR_UPSTREAM, 502, "provider_payment",
		        "the provider asks this server's account for payment", false};
	case 404:
		if (!s->is_json)
			break;
		return (struct kind){ERR_NOT_FOUND, 404, "model_not_found",
		        "the provider does not know this model", true};
	case 408:
	case 504:
	case 524:
		return (struct kind){
		        ERR_TIMEOUT, 504, "timeout", "the provider took too long", true};
	case 413:
		return (struct kind){ERR_TOO_LARGE, 413, "payload_too_large",
		        "the request is too large for the provider", true};
	case 422:
		return (struct kind){ERR_INVALID, 422, "unprocessable",
		        "the provider refused the request", true};
	case 429:
		return (struct kind){ERR_RATE, 429,
		        has_ci(s->code, "insufficient_quota") ? "insufficient_quota"
		                                              : "rate_limit_exceeded",
		        "the provider's rate limit is reached", true};
	case 503:
	case 529:
		return (struct kind){ERR_UNAVAILABLE, 503, "provider_overloaded",
		        "the provider is overloaded", true};
	default:
		break;
	}
	if (status >= 500 && says_any(s, overload))
		return (struct kind){ERR_UNAVAILABLE, 503, "provider_overloaded",
		        "the provider is overloaded", true};
	return (struct kind){
	        ERR_UPSTREAM, 502, "provider_unavailable", "the provider failed", true};
}

static void fill(int status, const struct said *s, struct error *ret)
{
	struct kind k = kind_of(status, s);
	char quoted[QUOTE_MAX + 1] = "";

	if (k.code == ERR_INVALID && is_context_length(s)) {
		k.type = "context_length_exceeded";
		k.text = "the conversation is longer than the model's context";
	}
	if (k.quoted && s->message.n && !is_html(s->message))
		quote(s->message, quoted, sizeof(quoted));
	*ret = (struct error){.code = k.code, .http_status = k.http_status};
	str_copy(ret->type, sizeof(ret->type), str_of(k.type));
	if (quoted[0])
		str_format(ret->text, sizeof(ret->text), "%s: %s", k.text, quoted);
	else if (k.code == ERR_UPSTREAM && k.quoted && status)
		str_format(ret->text, sizeof(ret->text), "%s with status %d", k.text, status);
	else
		str_copy(ret->text, sizeof(ret->text), str_of(k.text));
}

/* ---- Retry-After ---- */

static int retry_after_ms(struct str s)
{
	char text[64];
	struct tm tm = {0};
	int64_t ms = 0;
	char *end;
	double seconds;

	s = str_trim(s);
	if (!s.n || !str_copy(text, sizeof(text), s))
		return 0;
	if (str_in_set(s, "0123456789.")) {
		seconds = strtod(text, &end);
		if (*end || !(seconds >= 0))
			return 0;
		ms = seconds * 1000 > (double)RETRY_MAX_MS ? RETRY_MAX_MS
		                                           : (int64_t)(seconds * 1000);
	} else {
		const char *rest = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
		int64_t at;

		if (!rest || *rest)
			return 0;
		at = (int64_t)timegm(&tm);
		ms = (at - clock_wall_s()) * 1000;
	}
	if (ms < 0)
		return 0;
	return (int)(ms > RETRY_MAX_MS ? RETRY_MAX_MS : ms);
}

/* ---- entry points ---- */

void openai_chat_error(int status, struct str body, struct str retry_after, struct error *ret)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	struct said s = {0};

	if (body.n > BODY_LOOKED_AT)
		body.n = BODY_LOOKED_AT;
	if (body.n && json_parse(body, TREE_MAX, &doc, NULL) == 0) {
		read_said(json_root(doc), &s);
		s.is_json = true;
	} else if (body.n && !is_html(body)) {
		s.message = body;
	}
	fill(status, &s, ret);
	ret->retry_after_ms = retry_after_ms(retry_after);
}

void openai_chat_error_json(const struct json *root, struct error *ret)
{
	struct said s = {.is_json = true};
	int status = 502;

	read_said(root, &s);
	if (s.status >= 400 && s.status <= 599)
		status = (int)s.status;
	else if (has_ci(s.code, "rate_limit") || has_ci(s.type, "rate_limit") ||
	         has_ci(s.code, "insufficient_quota"))
		status = 429;
	else if (has_ci(s.type, "overloaded") || has_ci(s.code, "overloaded") ||
	         has_ci(s.code, "slow_down"))
		status = 529;
	else if (has_ci(s.type, "invalid_request") || has_ci(s.type, "BadRequest") ||
	         has_ci(s.code, "invalid_prompt") ||
	         is_context_length(&s))
		status = 400;
	fill(status, &s, ret);
}
