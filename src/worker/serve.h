/*
 * What a worker does once it is confined: gateways' sockets, their requests, the answers. One
 * thread, one loop; walks are made in slices, so that no request waits for another's.
 */
#ifndef BRIG_WORKER_SERVE_H
#define BRIG_WORKER_SERVE_H

/* Until the control socket ends. Exits the process. */
_Noreturn void serve(int control);

#endif
