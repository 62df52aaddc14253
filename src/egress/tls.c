/* TLS on port 443: the hello's server name must be the name that was dialled; the rest passes
 * unseen. A connection that is refused gets an alert first, so that its client can say more than
 * that the connection broke. */
#include "egress/conn.h"

#include <string.h>

enum { ALERT_ACCESS_DENIED = 49, ALERT_INTERNAL_ERROR = 80, ALERT_UNRECOGNIZED_NAME = 112 };

void egress_tls_look(struct egress_conn *c)
{
	struct egress_hello *h = &c->hello;
	const char *why;
	int r = egress_hello_feed(
	        h, (const uint8_t *)c->in.data + h->seen, c->in.len - h->seen, &why);
	size_t n;

	if (r == 0)
		return;
	if (r < 0) {
		egress_conn_deny(c, 520, why);
		return;
	}
	if (!h->named && c->name) {
		egress_conn_deny(c, 520, "server name missing");
		return;
	}
	n = strlen(h->name);
	if (n > 0 && h->name[n - 1] == '.')
		h->name[n - 1] = '\0';
	if (egress_conn_check_name(c, h->name, "server name"))
		egress_conn_allow(c);
}

void egress_tls_refuse(struct egress_conn *c, bool denied)
{
	bool name = strcmp(c->reason, "server name") == 0;
	uint8_t alert[] = {21, 3, 1, 0, 2, 2, ALERT_INTERNAL_ERROR};

	if (denied)
		alert[6] = name ? ALERT_UNRECOGNIZED_NAME : ALERT_ACCESS_DENIED;
	/* What is no TLS would not understand it. */
	egress_conn_last(
	        c, alert, c->hello.message.len > 0 || c->hello.header[0] == 22 ? sizeof(alert) : 0);
}
