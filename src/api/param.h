/*
 * Reading the members of a request, with exact errors.
 *
 * Every function takes an object, the object's own path ("tools[0]", "" for the body) and a key,
 * and fails with -ERR_INVALID, the member's path in err->param and an OpenAI error code in
 * err->type. An absent member and null are the same and leave the output as "not given" ({NULL,0},
 * -1, NULL). Strings that come out live as long as the conversation, numbers are their text in the
 * body.
 */
#ifndef BRIG_API_PARAM_H
#define BRIG_API_PARAM_H

#include "base/error.h"
#include "base/str.h"
#include "conversation/conversation.h"
#include "json/json.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PARAM_PATH = 128 };

struct param_reader {
	struct conversation *conversation;
	struct str body; /* owned by the conversation; the tree was made from it */
	struct error *err;
};

/* "PATH[N]" and "PATH.KEY"; cut where they do not fit. */
void param_index(char out[PARAM_PATH], const char *path, size_t n);
void param_join(char out[PARAM_PATH], const char *path, const char *key);

/* Sets the error of PATH.KEY (key NULL: of PATH). type: "invalid_value", "unknown_parameter", … */
int param_fail(struct param_reader *r, enum err code, const char *type, const char *path,
        const char *key, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* The two most common ones. */
int param_fail_type(struct param_reader *r, const struct json *v, const char *path, const char *key,
        const char *wanted);
int param_fail_missing(struct param_reader *r, const char *path, const char *key);
int param_fail_memory(struct param_reader *r);
/*
 * Keeps in *reason, where there is none yet, why no provider of another dialect can serve the
 * request (turn_request.only_here). 0 or -ERR_NOMEM.
 */
int param_only_here(struct param_reader *r, struct error **reason, const char *type,
        const char *path, const char *key, const char *fmt, va_list ap)
        __attribute__((format(printf, 6, 0)));

/* At most 64 bytes of a text, for use in a message with %s. */
struct param_shown {
	char text[72];
};
struct param_shown param_show(struct str s);

/* A string value's text, kept for the conversation's life; 0 or -ERR_NOMEM. */
int param_keep(struct param_reader *r, const struct json *string, struct str *ret);

/* max_chars 0: no limit. */
int param_str(struct param_reader *r, const struct json *object, const char *path, const char *key,
        size_t max_chars, struct str *ret);
/* One of a NULL-terminated list. */
int param_choice(struct param_reader *r, const struct json *object, const char *path,
        const char *key, const char *const *allowed, struct str *ret);
int param_bool(struct param_reader *r, const struct json *object, const char *path, const char *key,
        int *ret);
int param_number(struct param_reader *r, const struct json *object, const char *path,
        const char *key, double least, double most, struct str *ret_text);
/* A whole number. ret_text and ret may be NULL. */
int param_whole(struct param_reader *r, const struct json *object, const char *path,
        const char *key, int64_t least, int64_t most, struct str *ret_text, int64_t *ret);
int param_container(struct param_reader *r, const struct json *object, const char *path,
        const char *key, enum json_type type, const struct json **ret);
/* The same for members that must be there. */
int param_need_str(struct param_reader *r, const struct json *object, const char *path,
        const char *key, struct str *ret);
int param_need_container(struct param_reader *r, const struct json *object, const char *path,
        const char *key, enum json_type type, const struct json **ret);

#endif
