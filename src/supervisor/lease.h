/*
 * Leases: ranges of 65,536 ids, each given to one sandbox or worker at a time and returned only
 * when its last process and mount are gone (DESIGN section 7). Lowest free number first, so that
 * few are ever used; for each the user namespace that maps homes to it is made once and kept.
 */
#ifndef BRIG_SUPERVISOR_LEASE_H
#define BRIG_SUPERVISOR_LEASE_H

#include "proto/supervisor.h"
#include "supervisor/supervisor.h"
#include "supervisor/sys.h"

struct lease_table;

/* Of the ranges from number `first` on; numbers of this table begin at 0. cfg outlives it. */
struct lease_table *lease_table_new(const struct sup_config *cfg, uint32_t first, uint32_t n);
struct lease_table *lease_table_free(struct lease_table *t); /* takes NULL; returns NULL */
/* -1 with f where none is free or its namespace cannot be made. */
int lease_take(struct lease_table *t, uint32_t *ret, struct fail *f);
void lease_return(struct lease_table *t, uint32_t lease);
uid_t lease_uid(const struct lease_table *t, uint32_t lease); /* the first of its ids */
int lease_home_userns(
        const struct lease_table *t, uint32_t lease); /* storage range → lease; borrowed */

#endif
