/*
 * Network namespaces of sandboxes. They are made by us and so owned by the host's user namespace:
 * the sandbox's root has no power over its own network. A child cloned between netns_enter and
 * netns_leave gets the new one. It ends with the sandbox's last process, once the descriptor that
 * waits for the claim and the sockets that egress listens on are closed.
 */
#ifndef BRIG_SUPERVISOR_NETNS_H
#define BRIG_SUPERVISOR_NETNS_H

#include "proto/supervisor.h"
#include "supervisor/sys.h"

/* Makes a namespace with lo up in which any id may bind any port, and puts this thread into it. On
 * failure the thread is where it was. */
int netns_enter(int host_ns, struct fail *f);
/* Returns to the host's namespace; aborts where that fails, since nothing may go on in the wrong
 * one. */
void netns_leave(int host_ns);

#define NETNS_BACKLOG 128 /* connections that wait for egress to take them */

/* What egress listens on, in this order. */
enum { NETNS_UDP_53, NETNS_TCP_53, NETNS_TCP_80, NETNS_TCP_443, NETNS_SOCKETS };
/*
 * Before a guest runs in it: makes those sockets in a namespace, bound to any address, the TCP ones
 * listening, and routes 198.18.0.0/15 to them; with any_address every IPv4 address. IPv6 has no
 * route but that of ::1. On failure none is left open.
 */
int netns_listen(int net_ns, int host_ns, bool any_address, int ret[NETNS_SOCKETS], struct fail *f);

#endif
