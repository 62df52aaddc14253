/* What the requests of several dialects have in common. */
#ifndef BRIG_PROVIDER_REQUEST_H
#define BRIG_PROVIDER_REQUEST_H

#include "conversation/conversation.h"
#include "json/json.h"

/* Is the base URL at this origin ("https://api.openai.com")? */
bool request_is_to(const char *base_url, const char *origin);
/* malloc'ed and ended by NULL. api_key, or NULL: its value goes behind `field` ("x-api-key: "). */
char **request_headers(const char *field, const char *api_key);

bool request_is_text(const struct part *p);
bool request_is_attachment(const struct part *p);

/* Writes "arguments": as the model wrote them, except where they are no JSON, since servers that
 * parse the history would refuse the whole conversation for it. */
void request_write_arguments(struct json_writer *w, struct str raw);

#define REQUEST_NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
enum { REQUEST_NAME_MAX = 128 };
/*
 * Writes "name", that of a called tool. A name that a model made up may hold what servers refuse in
 * a history: it is made of the characters in `set`, at most `most` of them (up to
 * REQUEST_NAME_MAX). A declared one never changes.
 */
void request_write_name(struct json_writer *w, const struct conversation *c, struct str name,
        const char *set, size_t most);

#endif
