/* Host checks, for supervisor_run itself; brig doctor calls supervisor_check_host. */
#ifndef BRIG_SUPERVISOR_CHECK_H
#define BRIG_SUPERVISOR_CHECK_H

#include "supervisor/supervisor.h"

/* 0, or an error that names every required feature that this host lacks. */
int check_required(const struct sup_config *cfg, struct error *err);

#endif
