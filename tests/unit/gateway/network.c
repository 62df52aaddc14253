/* Records of egress, which may have been taken over by what a container sent. */
#include "unit.h"

#include "gateway/network.h"
#include "proto/egress.h"

struct datagram {
	struct egress_record m;
	char label[EGRESS_LABEL_MAX + 8];
};

static struct datagram sound(void)
{
	struct datagram d = {.m = {.h = {.op = EGRESS_RECORD, .size = sizeof(d.m)},
	                             .time_ms = 1000,
	                             .bytes_in = 5,
	                             .bytes_out = 6,
	                             .verdict = EGRESS_ALLOWED,
	                             .port = 443,
	                             .more = 2,
	                             .name = "a.com",
	                             .address = "192.0.2.1",
	                             .reason = ""}};

	memcpy(d.label, "acme/one/box_1", 14);
	d.m.label_len = 14;
	return d;
}

static bool reads(const struct datagram *d)
{
	struct store_network r;

	return network_record_read(d, sizeof(d->m) + d->m.label_len, &r);
}

static void a_sound_one(void **state)
{
	struct datagram d = sound();
	struct store_network r;

	assert_true(network_record_read(&d, sizeof(d.m) + 14, &r));
	assert_string_equal(r.account, "acme");
	assert_string_equal(r.workspace, "one");
	assert_string_equal(r.container, "box_1");
	assert_string_equal(r.name, "a.com");
	assert_true(r.allowed && r.port == 443 && r.bytes_in == 5 && r.bytes_out == 6);
	assert_true(r.more == 2 && r.time_ms == 1000);
	assert_false(network_record_read(&d, sizeof(d.m) + 13, &r));
	assert_false(network_record_read(&d, sizeof(d.m) + 15, &r));
	assert_false(network_record_read(&d, sizeof(d.m) - 1, &r));
	assert_false(network_record_read(&d, 0, &r));
}

static void wrong_fields(void **state)
{
#define WRONG(change)                                                                              \
	do {                                                                                       \
		struct datagram d = sound();                                                       \
		change;                                                                            \
		if (reads(&d))                                                                     \
			fail_msg("taken: %s", #change);                                            \
	} while (0)
	WRONG(d.m.h.op = EGRESS_ADD);
	WRONG(d.m.h.size--);
	WRONG(d.m.verdict = 2);
	WRONG(d.m.time_ms = -1);
	WRONG(d.m.bytes_in = UINT64_MAX);
	WRONG(d.m.bytes_out = (uint64_t)1 << 63);
	WRONG(memset(d.m.name, 'a', sizeof(d.m.name)));
	WRONG(memset(d.m.address, '1', sizeof(d.m.address)));
	WRONG(memset(d.m.reason, 'x', sizeof(d.m.reason)));
	WRONG(d.m.name[1] = '\n');
	WRONG(d.m.reason[0] = '\x1b');
	WRONG(d.m.name[0] = (char)0xff);
	WRONG(d.m.label_len = 0);
	WRONG(d.label[4] = '.');
	WRONG(d.label[8] = '_');
	WRONG(d.label[9] = '/');
	WRONG(d.label[0] = '/');
	WRONG(d.label[13] = '\0');
	WRONG(d.m.label_len = 9);
	WRONG((memset(d.label, 'a', EGRESS_LABEL_MAX), d.m.label_len = EGRESS_LABEL_MAX));
	WRONG((memset(d.label + 9, 'a', 41), d.m.label_len = 50));
}

static void noise(void **state)
{
	struct unit_random r = {0x9e3779b97f4a7c15ULL};
	struct datagram d;
	struct store_network n;
	int taken = 0;

	for (int i = 0; i < 200000; i++) {
		d = sound();
		for (size_t k = 1 + unit_below(&r, 3); k > 0; k--)
			((uint8_t *)&d)[unit_below(&r, sizeof(d.m) + 14)] = (uint8_t)unit_next(&r);
		if (!network_record_read(&d, sizeof(d.m) + 14, &n))
			continue;
		taken++;
		assert_true(strlen(n.account) > 0 && strlen(n.container) <= STORE_ID_MAX);
		assert_true(strlen(n.name) < sizeof(n.name) && strlen(n.reason) < 33);
	}
	assert_true(taken > 1000 && taken < 199000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_sound_one),
	        cmocka_unit_test(wrong_fields),
	        cmocka_unit_test(noise),
	};

	return UNIT_RUN(tests);
}
