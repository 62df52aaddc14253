/*
 * Gateways without a supervisor: for a server that makes no sandboxes and was not started by root.
 * Starts them, starts again what dies, and ends them: nothing here needs any right.
 */
#ifndef BRIG_CLI_PLAIN_H
#define BRIG_CLI_PLAIN_H

#include "base/error.h"
#include "supervisor/supervisor.h"

/* As supervisor_run(). folder: a descriptor of the data folder, of which one server at a time has
 * the lock. */
int plain_run(const struct sup_config *cfg, int folder, sup_spawn_gateway_fn spawn, void *ctx,
        struct error *err);

#endif
