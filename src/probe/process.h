/* Probes of what a command is: ids, rights, limits, and the processes around it. Each fills the row
 * that expect_begin() named. */
#ifndef BRIG_PROBE_PROCESS_H
#define BRIG_PROBE_PROCESS_H

/* first: the outside id of root inside. */
void process_ids(unsigned long first);
void process_privileges(void);
void process_capabilities(void);
void process_seccomp(void);
void process_descriptors(void);
void process_limits(void);
void process_others(void);
void process_processors(unsigned long allowed);
void process_init(void);

#endif
