#include "unit/unit.h"

#include "packet/packet.h"

#include <string.h>
#include <sys/socket.h>

/* What the other end had not read when it closed does not hide what it sent. */
static void last_words_of_one_that_did_not_read(void **state)
{
	char text[16];
	struct packet p;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(packet_send(pair[0], "unread", 6, NULL, 0, NULL, 0), 0);
	assert_int_equal(packet_send(pair[1], "first", 5, NULL, 0, NULL, 0), 0);
	assert_int_equal(packet_send(pair[1], "last", 4, NULL, 0, NULL, 0), 0);
	close(pair[1]);
	assert_int_equal(packet_receive(pair[0], MSG_DONTWAIT, text, sizeof(text), 0, &p), 1);
	assert_true(p.len == 5 && memcmp(text, "first", 5) == 0);
	assert_int_equal(packet_receive(pair[0], MSG_DONTWAIT, text, sizeof(text), 0, &p), 1);
	assert_true(p.len == 4 && memcmp(text, "last", 4) == 0);
	assert_int_equal(packet_receive(pair[0], MSG_DONTWAIT, text, sizeof(text), 0, &p), 0);
	close(pair[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(last_words_of_one_that_did_not_read),
	};
	return UNIT_RUN(tests);
}
