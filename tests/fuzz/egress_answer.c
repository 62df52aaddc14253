/* A name server's answer over TCP: whatever it says, no more than there is room for is taken, and
 * only of what was asked. */
#include "base/error.h"
#include "egress/answer.h"

#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	for (int v6 = 0; v6 < 2; v6++) {
		uint8_t question[EGRESS_QUESTION_MAX], out[2 * 16 + 1];
		size_t len = egress_answer_question(
		        "a.example", v6 ? AF_INET6 : AF_INET, 0x0102, question);
		size_t taken = v6 ? 32 : 8;
		int found;

		memset(out, 0xa5, sizeof(out));
		found = egress_answer_read(data, n, question, len, out, 2);
		if (found < -1 || found > 2)
			BUG("%d addresses", found);
		if (found >= 0 && (n < len || memcmp(data, question, 2) != 0))
			BUG("no answer to the question");
		for (size_t i = found >= 0 ? (size_t)found * taken / 2 : taken; i < sizeof(out);
		        i++)
			if (out[i] != 0xa5)
				BUG("byte %zu was written", i);
	}
	return 0;
}
