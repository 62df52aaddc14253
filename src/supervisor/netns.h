/*
 * Network namespaces of sandboxes. They are made by us and so owned by the host's user namespace:
 * the sandbox's root has no power over its own network. A child cloned between netns_enter and
 * netns_leave gets the new one; nothing else holds it, so it ends with the sandbox's last process.
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

#endif
