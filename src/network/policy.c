#include "network/policy.h"

#include "base/id.h"
#include "network/pattern.h"
#include "proto/egress.h"

#include <stdio.h>
#include <stdlib.h>

_Static_assert(POLICY_DOMAINS_MAX == EGRESS_ALLOW_MAX, "egress takes what a request may give");

/* ---- from a request ---- */

static int refuse(struct error *err, const char *path, const char *key, const char *text)
{
	char param[128];

	snprintf(param, sizeof(param), "%s%s%s", path, key ? "." : "", key ? key : "");
	return error_param(err, ERR_INVALID, param, "%s: %s", param, text);
}

static int refuse_key(struct error *err, const char *path, struct str key)
{
	char param[128];

	/* What does not fit is cut: the key may be as long as its sender likes. */
	snprintf(param, sizeof(param), "%s.%.*s", path, (int)(key.n < 64 ? key.n : 64), key.p);
	return error_param(err, ERR_INVALID, param, "Unknown parameter: %s.", param);
}

static int refuse_entry(
        struct error *err, const char *path, size_t i, struct str entry, const char *text)
{
	char param[128];
	int shown = (int)(entry.n < 80 ? entry.n : 80);

	snprintf(param, sizeof(param), "%s.allowed_domains[%zu]", path, i);
	/* Only what is a pattern's is shown as it is: the rest may be cut within a character. */
	for (int k = 0; k < shown; k++)
		if (entry.p[k] < 0x20 || entry.p[k] > 0x7e)
			shown = k;
	return error_param(err, ERR_INVALID, param, "%s: \"%.*s\" %s.", param, shown,
	        entry.p ? entry.p : "", text);
}

static int domains_check(
        const struct json *list, const char *path, struct json_writer *w, struct error *err)
{
	size_t i = 0;

	for (const struct json *v = json_first(list); v; v = json_next(v), i++) {
		struct str entry = json_str(v);
		const char *wrong =
		        json_is(v, JSON_STRING) ? pattern_fault(entry) : "is not a string";

		if (wrong)
			return refuse_entry(err, path, i, entry, wrong);
		jw_str(w, entry);
	}
	return 0;
}

static int allowlist_check(
        const struct json *v, const char *path, struct buf *out, struct error *err)
{
	const struct json *list = json_get(v, "allowed_domains");
	struct json_writer w;
	int r;

	if (!json_is(list, JSON_ARRAY) || json_count(list) == 0)
		return refuse(err, path, "allowed_domains",
		        "must be an array of 1 to 50 names or patterns of hosts.");
	if (json_count(list) > POLICY_DOMAINS_MAX)
		return refuse_entry(err, path, POLICY_DOMAINS_MAX,
		        json_str(json_at(list, POLICY_DOMAINS_MAX)),
		        "is one too many: at most 50 names and patterns are taken");
	jw_init(&w, out);
	jw_object(&w);
	jw_kcstr(&w, "type", "allowlist");
	jw_key(&w, "allowed_domains");
	jw_array(&w);
	r = domains_check(list, path, &w, err);
	jw_end(&w);
	jw_end(&w);
	if (r == 0 && buf_error(out) < 0)
		return error_set(err, ERR_NOMEM, "The request is too large.");
	return r;
}

int policy_check(const struct json *v, const char *path, struct buf *out, struct error *err)
{
	struct str type = json_str(json_get(v, "type"));
	bool disabled = str_is(type, "disabled");

	if (!json_is(v, JSON_OBJECT))
		return refuse(err, path, NULL, "must be an object with a type.");
	if (!disabled && !str_is(type, "allowlist"))
		return refuse(err, path, "type", "must be \"disabled\" or \"allowlist\".");
	for (const struct json *m = json_first(v); m; m = json_next(m)) {
		if (str_is(json_key(m), "type"))
			continue;
		if (!str_is(json_key(m), "allowed_domains"))
			return refuse_key(err, path, json_key(m));
		if (disabled && !json_absent(m))
			return refuse(err, path, "allowed_domains",
			        "a policy of type \"disabled\" allows none; leave it out.");
	}
	return disabled ? 0 : allowlist_check(v, path, out, err);
}

/* ---- the text ---- */

/* Fills names, which live as long as *ret_doc. -1: not a text of ours. */
static int read_text(struct str text, struct json_doc **ret_doc,
        struct str names[POLICY_DOMAINS_MAX], size_t *ret_n)
{
	const struct json *list;
	struct error err;
	size_t n = 0;

	if (json_parse(text, (size_t)1 << 20, ret_doc, &err) < 0)
		return -1;
	list = json_get(json_root(*ret_doc), "allowed_domains");
	for (const struct json *v = json_first(list); v; v = json_next(v)) {
		if (n == POLICY_DOMAINS_MAX || pattern_fault(json_str(v)))
			return -1;
		names[n++] = json_str(v);
	}
	*ret_n = n;
	return n > 0 ? 0 : -1;
}

static bool is_allowed(const struct policy_rules *rules, struct str name)
{
	for (size_t i = 0; i < rules->n_allow; i++)
		if (pattern_covers(str_of(rules->allow[i]), name))
			return true;
	return rules->n_allow == 0;
}

int policy_within(
        struct str text, const struct policy_rules *rules, const char *path, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct str names[POLICY_DOMAINS_MAX];
	size_t n = 0;

	if (text.n == 0)
		return 0;
	if (read_text(text, &doc, names, &n) < 0)
		return error_set(err, ERR_INTERNAL, "a network policy cannot be read");
	for (size_t i = 0; i < n; i++)
		if (!is_allowed(rules, names[i]))
			return refuse_entry(err, path, i, names[i],
			        "is not within what this server's operator allows containers to "
			        "reach");
	return 0;
}

static int by_bytes(const void *a, const void *b)
{
	const struct str *x = a, *y = b;
	int order = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

	return order ? order : (x->n > y->n) - (x->n < y->n);
}

int policy_lines(struct str text, const struct policy_rules *rules, struct str label,
        struct buf *out, uint8_t ret_hash[16], bool *ret_all)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct str names[POLICY_DOMAINS_MAX];
	uint8_t hash[32];
	size_t n = 0, head;

	if (read_text(text, &doc, names, &n) < 0)
		return -ERR_INVALID;
	qsort(names, n, sizeof(*names), by_bytes);
	*ret_all = false;
	for (size_t i = 0; i < n; i++)
		*ret_all = *ret_all || (str_is(names[i], "*") && is_allowed(rules, names[i]));
	buf_printf(out, "label %.*s\n", (int)label.n, label.p);
	head = out->len;
	if (rules->allow_private)
		buf_puts(out, "private\n");
	if (*ret_all)
		buf_puts(out, "all\n");
	for (size_t i = 0; i < n && !*ret_all; i++)
		if (is_allowed(rules, names[i]) && (i == 0 || !str_eq(names[i], names[i - 1])))
			buf_printf(out, "allow %.*s\n", (int)names[i].n, names[i].p);
	for (size_t i = 0; i < rules->n_deny; i++)
		buf_printf(out, "deny %s\n", rules->deny[i]);
	if (buf_error(out) < 0)
		return -ERR_INVALID;
	id_sha256((struct str){out->data + head, out->len - head}, hash);
	hash[0] |= 1; /* all zero is no policy */
	memcpy(ret_hash, hash, 16);
	return 0;
}

size_t policy_warnings(struct str text, policy_warning_fn fn, void *ctx)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct str names[POLICY_DOMAINS_MAX];
	size_t n = 0, warned = 0;

	if (text.n == 0 || read_text(text, &doc, names, &n) < 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		const char *why = pattern_lookalikes(names[i]);
		char sentence[512];

		if (!why)
			continue;
		snprintf(sentence, sizeof(sentence), "allowed_domains: \"%.*s\": %s.",
		        (int)names[i].n, names[i].p, why);
		fn(ctx, sentence);
		warned++;
	}
	return warned;
}
