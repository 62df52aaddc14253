/*
 * Answers of a provider as case files: NAME.sse or NAME.json is the body of an answer, NAME.events
 * is what must come out. NAME.cut.sse ends with a cut connection. Every stream is fed whole, one
 * byte at a time, in two pieces at every place, and with its line ends as CRLF and as CR.
 */
#ifndef BRIG_TESTS_PROVIDER_STREAM_CASES_H
#define BRIG_TESTS_PROVIDER_STREAM_CASES_H

#include "util.h"

/* suffix: ".sse" or ".json". */
void stream_cases_check(const struct provider *by, const char *dir, const char *suffix);

#endif
