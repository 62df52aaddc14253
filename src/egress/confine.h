/* What the egress process gives up before it meets a guest's first byte. */
#ifndef BRIG_EGRESS_CONFINE_H
#define BRIG_EGRESS_CONFINE_H

#include "base/error.h"

#include <stddef.h>

/* Descriptors up to the hard limit; no core file, no new process, no ptrace. Returns how many
 * descriptors there may be. */
size_t egress_confine_limits(void);
/* No new privileges, then the filter: no path is opened after it. */
int egress_confine_filter(struct error *err);

#endif
