/*
 * What the parsers of several dialects do alike with what was said before: the content of messages,
 * calls and their results.
 */
#ifndef BRIG_API_INPUT_H
#define BRIG_API_INPUT_H

#include "api/param.h"

typedef int (*input_part_fn)(void *ctx, const struct json *v, const char *path, struct part *part);
/* A string, or an array of parts, each of which part() reads. */
int input_content(struct param_reader *in, const struct json *v, const char *path,
        input_part_fn part, void *ctx, struct part **ret, size_t *ret_n);
/* A part with input_audio: {data, format}. */
int input_audio(struct param_reader *in, const struct json *v, const char *path, struct part *part);

/* The member that names a call, of 1 to `most` characters. */
int input_call_id(struct param_reader *in, const struct json *v, const char *path, const char *key,
        size_t most, struct str *ret);
/* A call's function must have a name. */
int input_check_name(struct param_reader *in, const char *path, struct str name);

/* The first result without a call before it, after conversation_cut_replies() has refused one.
 * False: not found; looking has its price, and so is done among few items only. */
bool input_lone_result(const struct conversation *c, size_t *ret);
/*
 * Puts a result behind each of brig's own calls that has none. One of the client's is refused:
 * refuse() sets the error for item i. add() makes the result, which says why there is none, for the
 * call that was item i; NULL: no memory. Items move, so the replies are cut once more then.
 */
int input_complete_calls(struct param_reader *in, int (*refuse)(void *ctx, size_t i),
        struct item *(*add)(void *ctx, size_t i), void *ctx);

#endif
