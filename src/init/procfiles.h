/*
 * The few files of /proc that would show the host instead of the container: meminfo, cpuinfo, stat,
 * uptime, loadavg, version, cmdline, swaps, boot_id and core_pattern. Each is a small file of
 * init's own, bound read-only over /proc's, and rewritten when a command starts. What they say
 * about time used comes from the `run` group (v2) or from reaped children, about memory from the
 * memory group, as far as it can be read.
 */
#ifndef BRIG_INIT_PROCFILES_H
#define BRIG_INIT_PROCFILES_H

#include <stdint.h>

#define PROCFILES_MAX_KEPT 12

/*
 * Makes the files in the directory `files` and binds them over those of the fresh procfs at `proc`.
 * run and oom are the descriptors of INIT_SETUP; must be called while the host's /proc is still in
 * place, since the memory group's other files are found by the name of oom. Returns 0 or a negative
 * errno.
 */
int procfiles_prepare(int files, int proc, int run, int oom);

/* Sets what a container has, and starts its clock. The files say so from the first
 * procfiles_write() on. */
void procfiles_claim(uint32_t memory_mib, uint32_t cpu_milli);

/* Rewrites them. running: commands at this moment; started: since the claim. */
void procfiles_write(uint32_t running, uint64_t started);

/* Whole processors that the container is shown. */
uint32_t procfiles_processors(void);

/* The descriptors that this module needs to keep, at most PROCFILES_MAX_KEPT. Returns how many. */
int procfiles_kept(int *fds);

#endif
