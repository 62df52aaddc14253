/* What uses limits up: each a program of its own, judged by whoever started it. */
#ifndef BRIG_PROBE_LOAD_H
#define BRIG_PROBE_LOAD_H

/* Daemons that ignore signals and write "." to standard output until they are killed. */
int load_tree(void);
/* Fill the row that expect_begin() named. */
void load_processes(unsigned long limit);
void load_cpu(unsigned long milli);
/* Takes memory until it is killed; returns 1 where it is not. */
int load_memory(void);

#endif
