#include "unit.h"

#include "base/address.h"

#include <arpa/inet.h>
#include <string.h>

static union address make(const char *text, uint16_t port)
{
	union address a = {0};

	if (strchr(text, ':')) {
		a.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
		assert_int_equal(inet_pton(AF_INET6, text, &a.in6.sin6_addr), 1);
	} else {
		a.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
		assert_int_equal(inet_pton(AF_INET, text, &a.in.sin_addr), 1);
	}
	return a;
}

/* The first and last address of each range, and their neighbours. */
static void edges(void **state)
{
	static const char *const OPEN[] = {"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255",
	        "100.128.0.0", "126.255.255.255", "128.0.0.0", "168.63.129.15", "168.63.129.17",
	        "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255",
	        "192.0.1.0", "192.0.3.0", "192.88.98.255", "192.88.100.0", "192.167.255.255",
	        "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0",
	        "203.0.112.255", "203.0.114.0", "223.255.255.255", "2001:200::", "2606:4700::1",
	        "2001:db7:ffff::", "2001:db9::", "3ffe::1", "2002:0808:0808::1", "64:ff9b::8.8.8.8",
	        "3fff:1000::"};
	static const char *const PRIVATE[] = {"10.0.0.0", "10.255.255.255", "127.0.0.2",
	        "127.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255",
	        "fc00::", "fdff:ffff::1", "192.0.2.0", "198.51.100.255", "203.0.113.0",
	        "2001:db8::", "3fff::"};
	static const char *const NEVER[] = {"0.0.0.0", "0.255.255.255", "100.64.0.0",
	        "100.127.255.255", "168.63.129.16", "169.254.0.0", "169.254.255.255", "192.0.0.0",
	        "192.0.0.255", "192.88.99.0", "198.18.0.0", "198.19.255.255", "224.0.0.0",
	        "239.255.255.255", "240.0.0.0", "255.255.255.255", "::", "::2", "::ffff:8.8.8.8",
	        "::8.8.8.8", "100::1", "64:ff9b::127.0.0.1", "64:ff9b::192.168.0.1",
	        "64:ff9b::1:8.8.8.8", "64:ff9b:1::1", "2002:a00:1::", "2002:a9fe:a9fe::1",
	        "2002:7f00:1::", "2001::", "2001:1ff:ffff::", "4000::", "fe80::1", "febf::1",
	        "fec0::1", "ff00::", "fd00:ec2::254", "fd20:ce::254", "1fff::"};
	struct address_own *own = address_own_new(NULL, 0);
	union address a;

	for (size_t i = 0; i < sizeof(OPEN) / sizeof(OPEN[0]); i++) {
		a = make(OPEN[i], 443);
		if (address_refused(own, &a, false))
			fail_msg("%s: %s", OPEN[i], address_refused(own, &a, false));
	}
	for (size_t i = 0; i < sizeof(PRIVATE) / sizeof(PRIVATE[0]); i++) {
		a = make(PRIVATE[i], 443);
		if (!address_refused(own, &a, false) ||
		        address_refused(own, &a, true))
			fail_msg("%s", PRIVATE[i]);
	}
	for (size_t i = 0; i < sizeof(NEVER) / sizeof(NEVER[0]); i++) {
		a = make(NEVER[i], 443);
		if (!address_refused(own, &a, true))
			fail_msg("%s", NEVER[i]);
	}
	address_own_free(own);
}

static void own_ports(void **state)
{
	uint16_t ports[] = {443, 8484};
	struct address_own *own = address_own_new(ports, 2);
	union address a = make("127.0.0.1", 443), b = make("127.0.0.77", 443),
	                     c = make("127.0.0.1", 80), d = make("::1", 443);

	assert_non_null(address_refused(own, &a, true));
	assert_non_null(address_refused(own, &b, true));
	assert_null(address_refused(own, &c, true));
	assert_non_null(address_refused(own, &d, true));
	address_own_free(own);
}

static void mapped(void **state)
{
	union address a = make("::ffff:10.1.2.3", 80);
	char text[48];

	address_unmap(&a);
	assert_int_equal(a.sa.sa_family, AF_INET);
	address_text(&a, text);
	assert_string_equal(text, "10.1.2.3");
	assert_int_equal(address_port(&a), 80);
	assert_int_equal(address_len(&a), sizeof(a.in));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(edges), cmocka_unit_test(own_ports), cmocka_unit_test(mapped)};

	return UNIT_RUN(tests);
}
