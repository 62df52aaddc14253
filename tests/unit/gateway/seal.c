/* Sealed state opens for the provider, model and account it was made for, and for nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/id.h"
#include "gateway/internal.h"

#include <stdlib.h>
#include <unistd.h>

static struct gateway *gateway_with_key(void)
{
	static struct gateway g;

	id_random(g.seal_key, sizeof(g.seal_key));
	return &g;
}

static void seal(struct gateway *g, struct str bytes, struct buf *out)
{
	assert_int_equal(seal_close(g, STR("openrouter"), STR("m/x"), STR("acme"), bytes, out), 0);
}

static bool open_as(struct gateway *g, const char *provider, const char *model, const char *account,
        struct str sealed, struct buf *out)
{
	return seal_open(g, str_of(provider), str_of(model), str_of(account), sealed, out);
}

static void test_round_trip(void **state)
{
	struct gateway *g = gateway_with_key();
	char bytes[300];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 7);
	for (size_t n = 0; n <= sizeof(bytes); n++) {
		struct buf sealed = BUF_INIT(4096), back = BUF_INIT(4096);

		seal(g, (struct str){bytes, n}, &sealed);
		assert_true(str_starts((struct str){sealed.data, sealed.len}, "brig1."));
		assert_true(str_in_set((struct str){sealed.data + 6, sealed.len - 6},
		        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"));
		assert_true(open_as(g, "openrouter", "m/x", "acme",
		        (struct str){sealed.data, sealed.len}, &back));
		assert_int_equal(back.len, n);
		if (n > 0)
			assert_memory_equal(back.data, bytes, n);
		buf_free(&sealed);
		buf_free(&back);
	}
}

static void test_bound_to_its_place(void **state)
{
	struct gateway *g = gateway_with_key();
	struct buf sealed = BUF_INIT(4096), back = BUF_INIT(4096);
	struct str s;

	seal(g, STR("secret"), &sealed);
	s = (struct str){sealed.data, sealed.len};
	assert_false(open_as(g, "openai", "m/x", "acme", s, &back));
	assert_false(open_as(g, "openrouter", "m/y", "acme", s, &back));
	assert_false(open_as(g, "openrouter", "m/x", "other", s, &back));
	/* Lengths are part of it: moving a character from one to the next changes it. */
	assert_false(open_as(g, "openrouterm", "/x", "acme", s, &back));
	assert_int_equal(back.len, 0);
	buf_free(&sealed);
	buf_free(&back);
}

static void test_forgery(void **state)
{
	struct gateway *g = gateway_with_key();
	struct buf sealed = BUF_INIT(4096), back = BUF_INIT(4096);

	seal(g, STR("secret"), &sealed);
	for (size_t i = 0; i < sealed.len; i++) {
		char before = sealed.data[i];

		sealed.data[i] = before == 'A' ? 'B' : 'A';
		/* The last digit holds spare bits, which may change without changing the bytes. */
		if (i + 1 < sealed.len)
			assert_false(open_as(g, "openrouter", "m/x", "acme",
			        (struct str){sealed.data, sealed.len}, &back));
		sealed.data[i] = before;
	}
	for (size_t n = 0; n < sealed.len; n++)
		assert_false(open_as(
		        g, "openrouter", "m/x", "acme", (struct str){sealed.data, n}, &back));
	assert_false(open_as(g, "openrouter", "m/x", "acme", STR("brig1.!!!!"), &back));
	assert_false(open_as(g, "openrouter", "m/x", "acme", (struct str){NULL, 0}, &back));
	buf_free(&sealed);
	buf_free(&back);
}

static void test_one_key_for_all(void **state)
{
	char dir[] = "/tmp/brig-seal-XXXXXX", path[64];
	struct gateway_options o = {.state_dir = mkdtemp(dir)};
	struct gateway a = {.options = &o}, b = {.options = &o};
	struct error err;

	assert_non_null(o.state_dir);
	assert_int_equal(seal_key_load(&a, &err), 0);
	assert_int_equal(seal_key_load(&b, &err), 0);
	assert_memory_equal(a.seal_key, b.seal_key, 32);
	str_format(path, sizeof(path), "%s/seal.key", dir);
	assert_int_equal(truncate(path, 31), 0);
	assert_int_equal(seal_key_load(&b, &err), -ERR_IO);
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_round_trip),
	        cmocka_unit_test(test_bound_to_its_place),
	        cmocka_unit_test(test_forgery),
	        cmocka_unit_test(test_one_key_for_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
