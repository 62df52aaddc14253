/*
 * The names that a container has asked for, each with the address of 198.18.0.0/15 that stands for
 * it there. At most 4,096: then the one that was asked for least recently and has no connection
 * gives its place up, and its successor gets another address. 198.18.0.0/20 stands for no name: a
 * resolver's own address can lie there.
 */
#ifndef BRIG_EGRESS_NAMES_H
#define BRIG_EGRESS_NAMES_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define EGRESS_NAMES_MAX 4096

struct egress_names;
struct egress_name; /* one of them */

struct egress_names *egress_names_new(void);
struct egress_names *egress_names_free(struct egress_names *n); /* no name may be held */

/* The address (host order) that stands for the name; 0: all places are held by connections. */
uint32_t egress_names_address(struct egress_names *n, struct str name);
/* Whether an address is of the range, whatever it stands for. */
bool egress_names_range(uint32_t address);
/* The name that an address stands for, held until let go; NULL: none. */
struct egress_name *egress_names_hold(struct egress_names *n, uint32_t address);
void egress_names_release(struct egress_names *n, struct egress_name *name);
const char *egress_names_text(const struct egress_name *name);

#endif
