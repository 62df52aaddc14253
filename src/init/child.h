/* A command's process between fork and exec. */
#ifndef BRIG_INIT_CHILD_H
#define BRIG_INIT_CHILD_H

#include "init/command.h"

struct child_pipes {
	int output, error, report; /* write ends */
};

/* Never returns: becomes the command, or writes a struct command_report and exits. */
_Noreturn void child_run(const struct command *c, const struct command_setup *setup,
        const struct child_pipes *pipes);

#endif
