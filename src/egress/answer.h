/*
 * A name server's answer, as it came over TCP: the addresses of one kind in it. The name server is
 * the operator's, and still its bytes are taken for hostile. Pure.
 */
#ifndef BRIG_EGRESS_ANSWER_H
#define BRIG_EGRESS_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#define EGRESS_QUESTION_MAX 300

/* The message that asks for a name's addresses (lower case, no trailing dot): AF_INET or AF_INET6.
 * Returns its length; 0: no such name can be asked for. */
size_t egress_answer_question(
        const char *name, int family, uint16_t id, uint8_t out[EGRESS_QUESTION_MAX]);

/*
 * The addresses in the answer to just that question, 4 or 16 bytes each, as many as there are up to
 * max. -1: it is no answer to it, malformed, or an error. Aliases are not followed by name:
 * whatever addresses stand in the answer are the name's.
 */
int egress_answer_read(const uint8_t *answer, size_t len, const uint8_t *question,
        size_t question_len, uint8_t *out, int max);

#endif
