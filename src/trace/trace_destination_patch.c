/*
 * Changing a destination. It is made by merging texts: the destination as the store has it, with
 * the members that were given in place of its own, is read like a new one; so no rule can hold for
 * one and not for the other.
 */
#include "trace/trace_destination.h"

#include "base/mem.h"

enum { MERGED_MAX = 1 << 20 };

/* Writes the members of `old`, those of `patch` in their place, and what only patch has. */
static void merge(struct json_writer *w, const struct json *old, const struct json *patch,
        void (*write)(struct json_writer *w, const struct json *was, const struct json *is,
                const struct trace_destination *d),
        const struct trace_destination *d)
{
	for (int pass = 0; pass < 2; pass++) {
		const struct json *from = pass == 0 ? old : patch, *other = pass == 0 ? patch : old;

		for (const struct json *c = json_first(from); c; c = json_next(c)) {
			const struct json *same = json_first(other);

			while (same && !str_eq(json_key(same), json_key(c)))
				same = json_next(same);
			if (pass == 1 && same)
				continue;
			jw_key_str(w, json_key(c));
			write(w, pass == 0 ? c : NULL, pass == 0 ? same : c, d);
		}
	}
}

/* Either may be NULL, not both. A mask that comes back stands for the secret that it masks. */
static void write_value(struct json_writer *w, const struct json *was, const struct json *is,
        const struct trace_destination *d)
{
	(void)d;
	jw_raw(w, json_raw(is ? is : was));
}

static bool is_mask_of(const struct json *is, const struct json *was)
{
	char text[16];

	if (!json_is(was, JSON_STRING) || !json_is(is, JSON_STRING))
		return false;
	trace_destination_mask(json_str(was), text);
	return str_is(json_str(is), text);
}

static void write_header(struct json_writer *w, const struct json *was, const struct json *is,
        const struct trace_destination *d)
{
	write_value(w, was, is && is_mask_of(is, was) ? was : is, d);
}

/* Headers are given whole: those not given are gone. */
static void write_headers(struct json_writer *w, const struct json *was, const struct json *is)
{
	jw_object(w);
	for (const struct json *c = json_first(is); c; c = json_next(c)) {
		const struct json *same = json_first(was);

		while (same && !str_eq(json_key(same), json_key(c)))
			same = json_next(same);
		jw_key_str(w, json_key(c));
		write_header(w, same, c, NULL);
	}
	jw_end(w);
}

static void write_config_member(struct json_writer *w, const struct json *was,
        const struct json *is, const struct trace_destination *d)
{
	if (json_is(is, JSON_OBJECT))
		write_headers(w, was, is);
	else if (is && trace_destination_is_secret(d->type, json_key(is)) && is_mask_of(is, was))
		write_value(w, was, was, d);
	else
		write_value(w, was, is, d);
}

static void write_member(struct json_writer *w, const struct json *was, const struct json *is,
        const struct trace_destination *d)
{
	if (json_is(was, JSON_OBJECT) && json_is(is, JSON_OBJECT) &&
	        str_is(json_key(was), "config")) {
		jw_object(w);
		merge(w, was, is, write_config_member, d);
		jw_end(w);
	} else {
		write_value(w, was, is, d);
	}
}

static int check_fixed(
        const struct trace_destination *d, const struct json *patch, struct error *err)
{
	const struct json *type = json_get(patch, "type"), *ws = json_get(patch, "workspace_id");

	if (!json_is(patch, JSON_OBJECT))
		return error_param(err, ERR_INVALID, "", "must be an object");
	if (type && !str_is(json_str(type), trace_type_name(d->type)))
		return error_param(err, ERR_INVALID, "type", "type: cannot be changed");
	if (ws && !(d->workspace && str_is(json_str(ws), d->workspace)))
		return error_param(
		        err, ERR_INVALID, "workspace_id", "workspace_id: cannot be changed");
	return 0;
}

static int merge_texts(const struct trace_destination *d, const struct json *patch,
        struct buf *merged, struct error *err)
{
	_cleanup_json_ struct json_doc *old = NULL;
	_cleanup_buf_ struct buf plain = BUF_INIT(MERGED_MAX);
	struct json_writer w;
	int r;

	jw_init(&w, &plain);
	jw_object(&w);
	trace_destination_write(&w, d, TRACE_PLAIN);
	jw_end(&w);
	r = jw_done(&w);
	if (r == 0)
		r = json_parse((struct str){plain.data, plain.len}, 16 * MERGED_MAX, &old, err);
	if (r == 0) {
		jw_init(&w, merged);
		jw_object(&w);
		merge(&w, json_root(old), patch, write_member, d);
		jw_end(&w);
		r = jw_done(&w);
	}
	if (plain.data)
		mem_wipe(plain.data, plain.len);
	return r;
}

int trace_destination_patch(const struct trace_destination *d, const struct json *patch,
        struct trace_destination **ret, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	_cleanup_buf_ struct buf merged = BUF_INIT(2 * MERGED_MAX);
	int r = check_fixed(d, patch, err);

	if (r < 0)
		return r;
	r = merge_texts(d, patch, &merged, err);
	if (r == -ERR_TOO_LARGE)
		r = error_set(err, ERR_TOO_LARGE, "The destination is too large.");
	if (r == 0)
		r = json_parse((struct str){merged.data, merged.len}, 16 * MERGED_MAX, &doc, err);
	if (r == 0)
		r = trace_destination_parse(json_root(doc), ret, err);
	if (merged.data)
		mem_wipe(merged.data, merged.len);
	return r;
}
