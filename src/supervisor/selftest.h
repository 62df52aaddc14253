/* The self-test (proto/probe.h) on the sandboxes of a supervisor that is starting. */
#ifndef BRIG_SUPERVISOR_SELFTEST_H
#define BRIG_SUPERVISOR_SELFTEST_H

#include "supervisor/sandbox.h"

/* Makes every probe, in two scratch sandboxes that are gone when it returns. 0 with all of rows
 * filled; an error where the sandboxes could not be made or taken away. The sandboxes' numbers are
 * the last two that there are. */
int selftest_probe(struct sandbox_host *h, struct sup_probe rows[SUP_N_PROBES], struct error *err);
/* 0, or an error that names every probe that does not hold. */
int selftest_check(struct sandbox_host *h, struct error *err);

#endif
