/* resolv.conf and hosts, as people and programs write them. */
#include "unit.h"

#include "base/buf.h"
#include "egress/sources.h"

static void servers(void **state)
{
	union address a[EGRESS_SERVERS_MAX];
	_cleanup_buf_ struct buf many = BUF_INIT(4096);
	char text[48];

	assert_int_equal(egress_servers_read(STR(""), a), 0);
	assert_int_equal(
	        egress_servers_read(STR("search a\n# nameserver 1.1.1.1\nnameserver\nnameserver "
	                                "x\nnameserver fe80::1%eth0\nnameservers 1.1.1.1\n"),
	                a),
	        0);
	assert_int_equal(egress_servers_read(STR("\tnameserver\t 10.0.0.1 \r\nnameserver "
	                                         "::1#x\nnameserver 10.0.0.2 10.0.0.3"),
	                         a),
	        3);
	address_text(&a[0], text);
	assert_string_equal(text, "10.0.0.1");
	assert_int_equal(address_port(&a[0]), 53);
	address_text(&a[1], text);
	assert_string_equal(text, "::1");
	assert_int_equal(address_port(&a[1]), 53);
	address_text(&a[2], text);
	assert_string_equal(text, "10.0.0.2");
	for (int i = 0; i < 20; i++)
		buf_puts(&many, "nameserver 10.0.0.1\n");
	assert_int_equal(
	        egress_servers_read((struct str){many.data, many.len}, a), EGRESS_SERVERS_MAX);
}

static void hosts(void **state)
{
	struct egress_hosts *h = egress_hosts_read(
	        STR("127.0.0.1 localhost\n\n10.0.0.1\tA.test  b.test. # c.test\n#10.0.0.2 d.test\n"
	            "2001:db8::1 a.test\n10.0.0.3 a.test\n300.1.1.1 e.test\n10.0.0.4\n"
	            "10.0.0.5 bad/name 10.0.0.6 f.test\n10.0.0.7 last.test"));
	union address a[4];
	char text[48];

	assert_int_equal(egress_hosts_count(h), 7);
	assert_int_equal(egress_hosts_find(h, "a.test", 443, a, 4), 3);
	address_text(&a[0], text);
	assert_string_equal(text, "10.0.0.1");
	address_text(&a[1], text);
	assert_string_equal(text, "10.0.0.3");
	address_text(&a[2], text);
	assert_string_equal(text, "2001:db8::1");
	assert_int_equal(address_port(&a[0]), 443);
	assert_int_equal(address_port(&a[2]), 443);
	assert_int_equal(egress_hosts_find(h, "a.test", 443, a, 1), 1);
	assert_int_equal(egress_hosts_find(h, "b.test", 80, a, 4), 1);
	assert_int_equal(egress_hosts_find(h, "f.test", 80, a, 4), 1);
	assert_int_equal(egress_hosts_find(h, "last.test", 80, a, 4), 1);
	assert_int_equal(egress_hosts_find(h, "c.test", 80, a, 4), 0);
	assert_int_equal(egress_hosts_find(h, "d.test", 80, a, 4), 0);
	assert_int_equal(egress_hosts_find(h, "e.test", 80, a, 4), 0);
	assert_int_equal(egress_hosts_find(h, "bad/name", 80, a, 4), 0);
	egress_hosts_free(h);
	assert_null(egress_hosts_free(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(servers), cmocka_unit_test(hosts)};

	return UNIT_RUN(tests);
}
