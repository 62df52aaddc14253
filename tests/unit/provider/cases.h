/* Folders of cases, the same for every provider. */
#ifndef BRIG_TESTS_PROVIDER_CASES_H
#define BRIG_TESTS_PROVIDER_CASES_H

#include "load.h"

/*
 * Each file of the folder with this suffix (".sse" or ".json") is the body of an answer;
 * NAME.events is what must come out. NAME.cut.sse ends with a cut connection. Every stream is fed
 * whole, one byte at a time, in two pieces at every place, and with its line ends as CRLF and as
 * CR. A case whose NAME.request is there belongs to that conversation (load.c), all others to
 * `def`; NULL: to none.
 */
void cases_answers(const struct provider *p, const char *dir, const char *suffix, const char *def);
/* Whatever emit returns ends the parsing, at every event, and comes back from feed or end. */
void cases_emit_can_stop(const struct provider *p, const char *path, const char *request);

/*
 * Each NAME.json of the folder is a conversation; NAME.body is the exact request, or "error: …"
 * where none can be made. Conversations that do not say so are for p.
 */
void cases_requests(const struct provider *p, const char *dir, const char *path);
/* The elements of the request's list `key`, without the closing bracket; malloc'ed. */
char *cases_list_of(const struct provider *p, const char *path, size_t n_items, const char *key);
/*
 * The rule that keeps caches warm: whatever is said later, the messages of an earlier request stand
 * at the front byte for byte. The case's items are cut where a request is made: after a message of
 * the user, and where every call has its result. end: bytes that an earlier list may end with and a
 * later one go on from.
 */
void cases_prefixes(const struct provider *p, const char *path, const char *key, const char *end);

#endif
