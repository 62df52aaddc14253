/*
 * Faults of Linux kernels that let a container out, or let one change what another reads, by the
 * number of the running one. A number is a hint and no proof: distributions carry fixes under older
 * numbers, and no list is ever complete. So nothing is refused on its word.
 */
#ifndef BRIG_SUPERVISOR_KERNEL_H
#define BRIG_SUPERVISOR_KERNEL_H

#include "supervisor/supervisor.h"

/*
 * Judges a kernel by uname(2)'s release and version. Fills rows with the faults that its number
 * has, at most max; *ret_n is how many. KERNEL_UNKNOWN where the number says nothing: it cannot be
 * read, or is a distribution's own (6.8.0-117-generic).
 */
enum sup_kernel kernel_judge(
        const char *release, const char *version, struct sup_fault *rows, int max, int *ret_n);

#endif
