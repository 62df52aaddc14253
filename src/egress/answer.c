#include "egress/answer.h"

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

enum { HEAD = 12, TYPE_A = 1, TYPE_AAAA = 28, CLASS_IN = 1, RECORD_HEAD = 10 };

static unsigned get16(const uint8_t *p)
{
	return (unsigned)(p[0] << 8 | p[1]);
}

size_t egress_answer_question(
        const char *name, int family, uint16_t id, uint8_t out[EGRESS_QUESTION_MAX])
{
	size_t at = HEAD, n = strlen(name);

	if (n == 0 || n > 253)
		return 0;
	memset(out, 0, HEAD);
	out[0] = (uint8_t)(id >> 8);
	out[1] = (uint8_t)id;
	out[2] = 1; /* recursion is wanted */
	out[5] = 1;
	while (*name) {
		size_t label = strcspn(name, ".");

		if (label == 0 || label > 63)
			return 0;
		out[at++] = (uint8_t)label;
		memcpy(out + at, name, label);
		at += label;
		name += label + (name[label] == '.');
	}
	out[at++] = 0;
	out[at++] = 0;
	out[at++] = family == AF_INET ? TYPE_A : TYPE_AAAA;
	out[at++] = 0;
	out[at++] = CLASS_IN;
	return at;
}

/* Over a name, whose pointer is never followed. Returns where it ends; 0: beyond the message. */
static size_t skip_name(const uint8_t *p, size_t len, size_t at)
{
	while (at < len) {
		if (p[at] == 0)
			return at + 1;
		if (p[at] >= 0xc0)
			return at + 2 <= len ? at + 2 : 0;
		if (p[at] > 63)
			return 0;
		at += 1u + p[at];
	}
	return 0;
}

/* Names may come back in another case. */
static bool same_question(const uint8_t *a, const uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t x = a[i], y = b[i];

		if (x >= 'A' && x <= 'Z')
			x = (uint8_t)(x - 'A' + 'a');
		if (x != y)
			return false;
	}
	return true;
}

int egress_answer_read(const uint8_t *answer, size_t len, const uint8_t *question,
        size_t question_len, uint8_t *out, int max)
{
	unsigned type = question[question_len - 3], records;
	size_t at = question_len, size = type == TYPE_A ? 4 : 16;
	int n = 0;

	if (len < question_len || memcmp(answer, question, 2) != 0 || !(answer[2] & 0x80) ||
	        (answer[2] & 0x02) || (answer[3] & 0x0f) || get16(answer + 4) != 1 ||
	        !same_question(answer + HEAD, question + HEAD, question_len - HEAD))
		return -1;
	records = get16(answer + 6);
	for (unsigned i = 0; i < records; i++) {
		size_t data;

		at = skip_name(answer, len, at);
		if (at == 0 || len - at < RECORD_HEAD)
			return -1;
		data = get16(answer + at + 8);
		if (len - at - RECORD_HEAD < data)
			return -1;
		if (get16(answer + at) == type && get16(answer + at + 2) == CLASS_IN) {
			if (data != size)
				return -1;
			if (n < max)
				memcpy(out + size * (size_t)n++, answer + at + RECORD_HEAD, size);
		}
		at += RECORD_HEAD + data;
	}
	return n;
}
