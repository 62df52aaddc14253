/*
 * A saver: a worker that sends or takes the whole home, once (proto/worker.h, WORKER_SAVE and
 * WORKER_RESTORE), and ends. It blocks on disk and pipe, and may do more to the tree than a worker
 * that serves; so it is a process of its own.
 */
#ifndef BRIG_WORKER_SAVER_H
#define BRIG_WORKER_SAVER_H

/* Takes one gateway's socket from the control socket, and one request from that. Exits. */
_Noreturn void saver_serve(int control, int home);

#endif
