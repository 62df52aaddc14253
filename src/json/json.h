/*
 * JSON, strictly RFC 8259: a reader that reports events, a tree over it, and a writer.
 *
 * The reader and the tree never recurse, know the byte offset and length of every value, keep
 * number text as it stands and refuse a NUL in a key; the tree also refuses a key that appears
 * twice in one object, compared as decoded. A byte order mark and invalid UTF-8 are refused; a lone
 * surrogate escape reads as U+FFFD. Limits: depth 128 (beyond it -ERR_INVALID), 1,000,000 values,
 * keys not counted (-ERR_TOO_LARGE) (DESIGN section 8). An error shows at most 40 bytes of the
 * input. The source text must outlive the tree. One thread at a time for one tree.
 */
#ifndef BRIG_JSON_JSON_H
#define BRIG_JSON_JSON_H

#include "base/buf.h"
#include "base/error.h"
#include "base/money.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_MAX_DEPTH  128
#define JSON_MAX_VALUES 1000000

/* ---- events ---- */

enum json_event_type {
	JSON_EV_OBJECT_BEGIN,
	JSON_EV_OBJECT_END,
	JSON_EV_ARRAY_BEGIN,
	JSON_EV_ARRAY_END,
	JSON_EV_KEY,    /* raw: the string with its quotes */
	JSON_EV_STRING, /* raw: the string with its quotes */
	JSON_EV_NUMBER, /* raw: the digits as they stand */
	JSON_EV_TRUE,
	JSON_EV_FALSE,
	JSON_EV_NULL,
};

struct json_event {
	enum json_event_type type;
	size_t offset;  /* of the first byte */
	struct str raw; /* for begin events: the one bracket */
	bool escaped;   /* a key or string that has a backslash in it */
};

/* Return 0 to go on, a negative enum err to stop with it. */
typedef int (*json_event_fn)(void *ctx, const struct json_event *ev);

/* Reads one whole text. err->text says what is wrong and "at byte N (line L, column C)"; bytes
 * count from 0, lines and columns (characters) from 1. Stopped by fn, it returns fn's result and
 * leaves err. */
int json_read(struct str text, json_event_fn fn, void *ctx, struct error *err);
/* Decodes an event's raw string (quotes included) into out, which has room for raw.n - 2 bytes; no
 * NUL is added. Returns the length. Only for what json_read() reported. */
size_t json_unescape(struct str raw, char *out);

/* Appends a whole text in one form: no space between tokens, strings escaped as json_write_str()
 * does, numbers and the order of keys as they stand. json_read()'s result, or that of the buffer;
 * then nothing is appended. */
int json_compact(struct str text, struct buf *out);

/* ---- tree ---- */

enum json_type {
	JSON_NULL,
	JSON_FALSE,
	JSON_TRUE,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT
};

struct json_doc;
struct json; /* one value; lives as long as its document */

/* max_bytes bounds the tree's memory (not the text's), with what is needed only while reading.
 * -ERR_INVALID, -ERR_TOO_LARGE or -ERR_NOMEM. About 48 bytes for an element, 64 for a member. */
int json_parse(struct str text, size_t max_bytes, struct json_doc **ret_doc, struct error *err);
struct json_doc *json_doc_free(struct json_doc *doc); /* takes NULL, returns NULL */
static inline void json_doc_cleanup(struct json_doc **d)
{
	*d = json_doc_free(*d);
}
#define _cleanup_json_ __attribute__((cleanup(json_doc_cleanup)))

const struct json *json_root(const struct json_doc *doc);
size_t json_doc_memory(const struct json_doc *doc); /* bytes that the tree takes */

/* All of these take NULL (an absent value) and then answer as written. */
enum json_type json_type(const struct json *v);          /* NULL: JSON_NULL */
bool json_is(const struct json *v, enum json_type type); /* false for an absent value */
bool json_is_bool(const struct json *v);
bool json_bool(const struct json *v);   /* true only for JSON_TRUE */
bool json_absent(const struct json *v); /* absent or null: the same for most API fields */
/* Decoded text of a string, NOT NUL-terminated (it may lie in the source); else {NULL, 0}. */
struct str json_str(const struct json *v);
struct str json_raw(const struct json *v); /* its bytes in the source, without surrounding space */
size_t json_offset(const struct json *v);  /* of the first byte in the source */
/* False unless it is a number that is whole and in range; 3.0 and 1e2 count. */
bool json_i64(const struct json *v, int64_t *ret);
/* False unless it is a number that is finite as a double. */
bool json_double(const struct json *v, double *ret);
size_t json_count(const struct json *v); /* elements or members; else 0 */
/* The member with this key, or NULL. O(members). */
const struct json *json_get(const struct json *object, const char *key);
/* The i-th element, or NULL. O(i): prefer json_first() and json_next(). */
const struct json *json_at(const struct json *array, size_t i);
/* The first element or member value, or NULL. */
const struct json *json_first(const struct json *container);
const struct json *json_next(const struct json *v); /* its next sibling, or NULL */
/* Of a member value; else {NULL, 0}. The key as decoded, NOT NUL-terminated; and with its quotes,
 * in the source. */
struct str json_key(const struct json *member);
struct str json_key_raw(const struct json *member);

/* ---- writer ---- */

/* Appends a JSON string with quotes. Input bytes that are not UTF-8 become U+FFFD. Escapes: the two
 * mandatory characters, \b \f \n \r \t, \u00xx for other controls; nothing else (not "/", not
 * U+2028). */
int json_write_str(struct buf *out, struct str s);
/* The same without the quotes, for text that is written in pieces cut at character boundaries. */
int json_write_str_part(struct buf *out, struct str s);

/*
 * A small state machine that puts the commas. Calls are unchecked against a schema, but a key
 * outside an object, or an end that is missing at jw_done(), is a BUG. Errors stick in the buffer.
 */
struct json_writer {
	struct buf *out;
	int depth;
	bool need_comma;
	bool after_key;
	uint64_t is_object[JSON_MAX_DEPTH / 64 + 1];
};

void jw_init(struct json_writer *w, struct buf *out);
void jw_object(struct json_writer *w);
void jw_array(struct json_writer *w);
void jw_end(struct json_writer *w);       /* ends the innermost object or array */
int jw_done(const struct json_writer *w); /* BUG while an end is missing; else the buffer's error */
void jw_key(struct json_writer *w, const char *key);
void jw_key_str(struct json_writer *w, struct str key);
void jw_str(struct json_writer *w, struct str s);   /* {NULL, 0} writes "" */
void jw_cstr(struct json_writer *w, const char *s); /* NULL writes null */
void jw_i64(struct json_writer *w, int64_t v);
void jw_bool(struct json_writer *w, bool v);
void jw_null(struct json_writer *w);
/* A value that is JSON text already and is not checked; {NULL, 0} writes null. */
void jw_raw(struct json_writer *w, struct str raw);
/* Key and value in one go. */
void jw_kstr(struct json_writer *w, const char *key, struct str s);
void jw_kcstr(struct json_writer *w, const char *key, const char *s);
void jw_ki64(struct json_writer *w, const char *key, int64_t v);
void jw_kbool(struct json_writer *w, const char *key, bool v);
void jw_knull(struct json_writer *w, const char *key);
void jw_kraw(struct json_writer *w, const char *key, struct str raw);
void jw_kmoney(struct json_writer *w, const char *key, struct money m); /* a number, exact */
/* The same where the value is not empty; else nothing. */
void jw_kstr_given(struct json_writer *w, const char *key, struct str s);
void jw_kraw_given(struct json_writer *w, const char *key, struct str raw);
void jw_ktime(struct json_writer *w, const char *key, int64_t wall_ms); /* ISO 8601; 0: null */

/* ---- rope: a JSON text that is written in pieces ---- */

/*
 * Text whose large strings are borrowed, so that an event of many megabytes costs a few hundred
 * bytes until the client drains (DESIGN section 4, point 8). Literal bytes are copied in; a string
 * added by rope_escaped() is borrowed and escaped only when pulled. Pull stops at character
 * boundaries.
 */
struct rope;
struct rope *rope_new(void);
struct rope *rope_free(struct rope *r);
/* These three: 0, -ERR_NOMEM, or -ERR_TOO_LARGE where 4 MiB of literals wait already. */
int rope_literal(struct rope *r, struct str bytes); /* copied */
/* Not copied, not escaped: must outlive the rope. */
int rope_borrowed(struct rope *r, struct str bytes);
/* Not copied, written as json_write_str_part() does: must outlive the rope. */
int rope_escaped(struct rope *r, struct str text);
size_t rope_left(const struct rope *r); /* 0 when all was pulled; else a lower bound in bytes */
/* Appends about `room` bytes (at most room + 8, at least 1 while something is left). */
int rope_pull(struct rope *r, struct buf *out, size_t room);

#endif
