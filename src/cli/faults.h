/* What is known of the running kernel's faults (supervisor/kernel.h), for people and as JSON. */
#ifndef BRIG_CLI_FAULTS_H
#define BRIG_CLI_FAULTS_H

#include "json/json.h"

/* A line for each, or one that says that there is none or that it is unknown. */
void faults_print(void);
/* Member "kernel" of the object that is open. */
void faults_write(struct json_writer *w);

#endif
