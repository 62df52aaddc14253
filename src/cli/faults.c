#include "cli/faults.h"

#include "supervisor/supervisor.h"

#include <stdio.h>

static const char *const states[] = {[SUP_KERNEL_NO_FAULT] = "no known fault",
        [SUP_KERNEL_FAULTY] = "faulty",
        [SUP_KERNEL_UNKNOWN] = "unknown"};

void faults_print(void)
{
	struct sup_fault faults[SUP_MAX_FAULTS];
	char release[SUP_RELEASE_MAX];
	int n, i;
	enum sup_kernel kernel = supervisor_check_kernel(release, faults, SUP_MAX_FAULTS, &n);

	if (kernel == SUP_KERNEL_NO_FAULT)
		printf("kernel %s has none of the faults that brig knows by number\n", release);
	if (kernel == SUP_KERNEL_UNKNOWN)
		printf("kernel %s: its number does not tell which faults are fixed; ask the "
		       "distribution\n",
		        release);
	if (kernel == SUP_KERNEL_FAULTY)
		printf("kernel %s, by its number, has faults; a distribution may have fixed them "
		       "under an older one:\n",
		        release);
	for (i = 0; i < n; i++)
		printf("%-8s %-15s %s; fixed in %s\n", faults[i].shut ? "shut" : "WARNING",
		        faults[i].cve, faults[i].what, faults[i].fixed);
}

void faults_write(struct json_writer *w)
{
	struct sup_fault faults[SUP_MAX_FAULTS];
	char release[SUP_RELEASE_MAX];
	int n, i;
	enum sup_kernel kernel = supervisor_check_kernel(release, faults, SUP_MAX_FAULTS, &n);

	jw_key(w, "kernel");
	jw_object(w);
	jw_kcstr(w, "release", release);
	jw_kcstr(w, "state", states[kernel]);
	jw_key(w, "faults");
	jw_array(w);
	for (i = 0; i < n; i++) {
		jw_object(w);
		jw_kcstr(w, "cve", faults[i].cve);
		jw_kcstr(w, "what", faults[i].what);
		jw_kbool(w, "shut", faults[i].shut);
		jw_kcstr(w, "fixed_in", faults[i].fixed);
		jw_end(w);
	}
	jw_end(w);
	jw_end(w);
}
