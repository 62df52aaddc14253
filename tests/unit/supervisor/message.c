/* The gate between gateways and the supervisor: every field at its bound and past it, sizes, ops,
 * descriptors, and random datagrams, of which only sound ones may pass. */
#include "unit/unit.h"

#include "supervisor/message.h"

#include <string.h>

static union message claim(void)
{
	union message m;
	memset(&m, 0, sizeof(m));
	m.claim = (struct sup_claim){
	        .h = {.op = SUP_CLAIM, .size = sizeof(m.claim), .seq = 7},
	        .memory_mib = 256,
	        .cpu_milli = 1000,
	        .processes = 512,
	        .wait_ms = 10000,
	        .hostname = "box-1",
	};
	return m;
}

static const char *check(const union message *m)
{
	return message_check(m, m->h.size, 0);
}

static void sound_messages_pass(void **state)
{
	static const struct {
		uint16_t op;
		size_t size;
	} all[] = {
	        {SUP_CANCEL, sizeof(struct sup_simple)},
	        {SUP_RELEASE, sizeof(struct sup_hold)},
	        {SUP_SLEEP, sizeof(struct sup_key)},
	        {SUP_DELETE, sizeof(struct sup_key)},
	        {SUP_KEEP, sizeof(struct sup_keep)},
	        {SUP_STATUS, sizeof(struct sup_key)},
	        {SUP_FILES, sizeof(struct sup_files)},
	        {SUP_NODE, sizeof(struct sup_simple)},
	};
	union message m = claim();
	assert_null(check(&m));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		memset(&m, 0, sizeof(m));
		m.h.op = all[i].op;
		m.h.size = (uint16_t)all[i].size;
		assert_null(check(&m));
	}
}

static void numbers_have_bounds(void **state)
{
	static const struct {
		size_t at;
		uint32_t good[2];
		uint32_t bad[2];
		const char *name;
	} field[] = {
	        {offsetof(struct sup_claim, memory_mib), {16, UINT32_MAX}, {15, 0}, "memory_mib"},
	        {offsetof(struct sup_claim, cpu_milli), {50, UINT32_MAX}, {49, 0}, "cpu_milli"},
	        {offsetof(struct sup_claim, processes), {16, 32768}, {15, 32769}, "processes"},
	        {offsetof(struct sup_claim, wait_ms), {0, 60000}, {60001, UINT32_MAX}, "wait_ms"},
	        {offsetof(struct sup_claim, flags), {0, SUP_CLAIM_MUST_EXIST},
	                {8, SUP_CLAIM_ANY_ADDRESS}, "flags"},
	};
	for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); i++)
		for (int k = 0; k < 2; k++) {
			union message m = claim();
			memcpy(m.bytes + field[i].at, &field[i].good[k], 4);
			assert_null(check(&m));
			memcpy(m.bytes + field[i].at, &field[i].bad[k], 4);
			assert_string_equal(check(&m), field[i].name);
		}
}

static void keep_has_a_bound(void **state)
{
	union message m;
	memset(&m, 0, sizeof(m));
	m.keep.h = (struct sup_header){.op = SUP_KEEP, .size = sizeof(m.keep)};
	m.keep.keep_ms = 31ULL * 24 * 3600 * 1000;
	assert_null(check(&m));
	m.keep.keep_ms++;
	assert_string_equal(check(&m), "keep_ms");
	m.keep.keep_ms = UINT64_MAX;
	assert_string_equal(check(&m), "keep_ms");
}

static void files_flags(void **state)
{
	union message m;
	memset(&m, 0, sizeof(m));
	m.files.h = (struct sup_header){.op = SUP_FILES, .size = sizeof(m.files)};
	m.files.flags = SUP_FILES_CREATE | SUP_FILES_TREE;
	assert_null(check(&m));
	m.files.flags = 4;
	assert_string_equal(check(&m), "flags");
	m.files.flags = 0;
	m.files.pad = 1;
	assert_string_equal(check(&m), "flags");
}

static void host_names(void **state)
{
	static const char *const good[] = {"a", "0", "-", "abc-123"};
	static const char *const bad[] = {
	        "", "A", "a.b", "a_b", "a/b", "a b", "\xc3\xa9", "a\n", "a%s"};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		union message m = claim();
		memset(m.claim.hostname, 0, sizeof(m.claim.hostname));
		memcpy(m.claim.hostname, good[i], strlen(good[i]));
		assert_null(check(&m));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		union message m = claim();
		memset(m.claim.hostname, 0, sizeof(m.claim.hostname));
		memcpy(m.claim.hostname, bad[i], strlen(bad[i]));
		assert_string_equal(check(&m), "hostname");
	}
	union message m = claim();
	memset(m.claim.hostname, 'a', 63);
	m.claim.hostname[63] = '\0';
	assert_null(check(&m));
	m.claim.hostname[63] = 'a'; /* no end */
	assert_string_equal(check(&m), "hostname");
	m = claim();
	m.claim.hostname[40] = 'x'; /* something after the end */
	assert_string_equal(check(&m), "hostname");
}

static void wrong_sizes(void **state)
{
	for (uint32_t op = 0; op <= 200; op++)
		for (size_t len = 0; len <= SUP_MAX_MESSAGE + 8; len++) {
			union message m = claim();
			m.h.op = (uint16_t)op;
			m.h.size = (uint16_t)len;
			size_t right = op == SUP_CLAIM ? sizeof(struct sup_claim)
			               : op == SUP_CANCEL || op == SUP_NODE
			                       ? sizeof(struct sup_simple)
			               : op == SUP_RELEASE ? sizeof(struct sup_hold)
			               : op == SUP_KEEP    ? sizeof(struct sup_keep)
			               : op == SUP_FILES   ? sizeof(struct sup_files)
			               : op == SUP_SLEEP || op == SUP_DELETE || op == SUP_STATUS
			                       ? sizeof(struct sup_key)
			                       : SIZE_MAX;
			memset(m.bytes + sizeof(struct sup_header) + SUP_KEY_LEN, 0,
			        op == SUP_KEEP || op == SUP_FILES ? 8 : 0);
			assert_int_equal(message_check(&m, len, 0) == NULL, len == right);
			/* the header says another size than came */
			m.h.size = (uint16_t)(len + 1);
			assert_non_null(message_check(&m, len, 0));
		}
}

/* What the supervisor says must not be said to it. */
static void answers_are_refused(void **state)
{
	for (uint16_t op = SUP_CLAIMED; op <= SUP_NODE_IS; op++) {
		union message m = claim();
		m.h.op = op;
		assert_string_equal(check(&m), "op");
	}
}

static void descriptors_are_refused(void **state)
{
	union message m = claim();
	for (size_t n = 1; n <= 5; n++)
		assert_string_equal(message_check(&m, sizeof(m.claim), n), "a descriptor");
}

/* One descriptor comes with one kind of claim, and with that always. */
static void claims_of_network(void **state)
{
	union message m = claim();
	m.claim.flags = SUP_CLAIM_NETWORK;
	memset(m.claim.policy, 0, sizeof(m.claim.policy));
	assert_string_equal(message_check(&m, sizeof(m.claim), true), "policy");
	m.claim.policy[15] = 1;
	assert_null(message_check(&m, sizeof(m.claim), true));
	assert_string_equal(message_check(&m, sizeof(m.claim), false), "no descriptor");
	m.claim.flags |= SUP_CLAIM_ANY_ADDRESS | SUP_CLAIM_MUST_EXIST;
	assert_null(message_check(&m, sizeof(m.claim), true));
	m.h.op = SUP_STATUS;
	assert_string_equal(message_check(&m, sizeof(m.claim), true), "a descriptor");
	m = claim();
	m.claim.flags = UINT32_MAX;
	assert_string_equal(message_check(&m, sizeof(m.claim), true), "flags");
}

/* A second opinion, written apart: what passed is within every bound. */
static void assert_sound(const union message *m, size_t len)
{
	assert_int_equal(m->h.size, len);
	assert_true(m->h.op >= SUP_CLAIM && m->h.op <= SUP_NODE);
	if (m->h.op == SUP_KEEP)
		assert_true(m->keep.keep_ms <= 31ULL * 86400000);
	if (m->h.op == SUP_FILES) {
		assert_true(m->files.flags <= (SUP_FILES_CREATE | SUP_FILES_TREE));
		assert_int_equal(m->files.pad, 0);
	}
	if (m->h.op != SUP_CLAIM)
		return;
	const struct sup_claim *c = &m->claim;
	assert_true(c->memory_mib >= 16 && c->cpu_milli >= 50);
	assert_true(c->processes >= 16 && c->processes <= 32768 && c->wait_ms <= 60000);
	assert_true(c->flags <= 1); /* the others need a descriptor */
	assert_int_equal(c->hostname[63], 0);
	size_t n = strspn(c->hostname, "abcdefghijklmnopqrstuvwxyz0123456789-");
	assert_true(n > 0);
	assert_int_equal(n, strlen(c->hostname));
}

static void random_datagrams(void **state)
{
	struct unit_random r = {0x9e3779b97f4a7c15ULL};
	int passed = 0;
	for (int i = 0; i < 300000; i++) {
		union message m = claim();
		size_t len = sizeof(m.claim);
		if (i % 3 == 0) { /* noise with a plausible head */
			for (size_t k = 0; k < sizeof(m.bytes); k++)
				m.bytes[k] = (uint8_t)unit_next(&r);
			m.h.op = (uint16_t)unit_below(&r, 80);
			len = unit_below(&r, sizeof(m.bytes) + 1);
			m.h.size = (uint16_t)(unit_below(&r, 4) ? len : unit_below(&r, 600));
		} else { /* a sound one with a few bytes changed */
			size_t changes = 1 + unit_below(&r, 4);
			for (size_t k = 0; k < changes; k++)
				m.bytes[unit_below(&r, sizeof(m.claim))] = (uint8_t)unit_next(&r);
		}
		if (message_check(&m, len, 0))
			continue;
		assert_sound(&m, len);
		passed++;
	}
	assert_true(passed > 1000); /* the test reached both sides */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sound_messages_pass),
	        cmocka_unit_test(numbers_have_bounds),
	        cmocka_unit_test(keep_has_a_bound),
	        cmocka_unit_test(files_flags),
	        cmocka_unit_test(host_names),
	        cmocka_unit_test(wrong_sizes),
	        cmocka_unit_test(answers_are_refused),
	        cmocka_unit_test(descriptors_are_refused),
	        cmocka_unit_test(claims_of_network),
	        cmocka_unit_test(random_datagrams),
	};
	return UNIT_RUN(tests);
}
