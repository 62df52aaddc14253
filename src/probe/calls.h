/* Probes of the system call filter. Each fills the row that expect_begin() named. */
#ifndef BRIG_PROBE_CALLS_H
#define BRIG_PROBE_CALLS_H

void calls_namespaces(void);
void calls_sockets(void);
void calls_keys(void);
void calls_bpf(void);
void calls_uring(void);
void calls_privileged(void);
void calls_terminal(void);
void calls_architecture(void);

#endif
