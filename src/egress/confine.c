#include "egress/confine.h"

#include "egress_filter.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DESCRIPTORS_WANTED = 131072 };

size_t egress_confine_limits(void)
{
	struct rlimit files, none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	setrlimit(RLIMIT_NPROC, &none);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return 256;
	files.rlim_cur = files.rlim_max < DESCRIPTORS_WANTED ? files.rlim_max : DESCRIPTORS_WANTED;
	setrlimit(RLIMIT_NOFILE, &files);
	return getrlimit(RLIMIT_NOFILE, &files) < 0 ? 256 : files.rlim_cur;
}

int egress_confine_filter(struct error *err)
{
	/* The kernel only reads it; its type is older than const. */
	struct sock_fprog program = {.len = sizeof(seccomp_egress) / sizeof(seccomp_egress[0]),
	        .filter = (struct sock_filter *)(uintptr_t)seccomp_egress};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_errno(err, errno, "no_new_privs");
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
	            &program) != 0)
		return error_errno(err, errno, "seccomp");
	return 0;
}
