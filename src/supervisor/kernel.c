/*
 * The table holds what is known to be exploitable from a place like a container and is not older
 * than the oldest kernel that brig runs on; the numbers are those of the kernel project's own CVE
 * records. `fixed` names, for each series that got the fix, the first release with it. A series
 * between `since` and `mainline` that is not named never got it.
 */
#include "supervisor/kernel.h"

#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

struct number {
	unsigned int major, minor, patch;
};

/* It came to 6.1 and 6.6 late, with another fix. */
#define COLLECTOR "UNIX sockets' collector frees what is in use"

static const struct fault {
	const char *cve, *what;
	bool shut; /* the system call filter shuts the way to it */
	struct number since, mainline;
	struct number fixed[8];
} faults[] = {
        {"CVE-2023-3269", "StackRot: use after free when a stack grows", false, {6, 1, 0},
                {6, 5, 0}, {{6, 1, 37}, {6, 3, 11}, {6, 4, 1}}},
        {"CVE-2025-38236", "use after free in UNIX sockets' urgent data", false, {5, 15, 0},
                {6, 16, 0}, {{6, 1, 143}, {6, 6, 96}, {6, 12, 36}, {6, 15, 5}}},
        {"CVE-2025-39977", "use after free in futex requeueing", false, {5, 15, 0}, {6, 17, 0},
                {{6, 1, 155}, {6, 6, 109}, {6, 12, 50}, {6, 16, 10}}},
        {"CVE-2026-23394", COLLECTOR, false, {6, 1, 141}, {6, 2, 0}, {{6, 1, 183}}},
        {"CVE-2026-23394", COLLECTOR, false, {6, 6, 93}, {7, 0, 0},
                {{6, 6, 142}, {6, 12, 92}, {6, 18, 23}, {6, 19, 10}}},
        {"CVE-2026-31431", "Copy Fail: crypto sockets write to files' cached pages", true,
                {4, 14, 0}, {7, 0, 0},
                {{6, 1, 170}, {6, 6, 137}, {6, 12, 85}, {6, 18, 22}, {6, 19, 12}}},
        {"CVE-2026-31554", "use after free in futex requeueing by two flags", false, {6, 7, 0},
                {7, 0, 0}, {{6, 12, 80}, {6, 18, 21}, {6, 19, 11}}},
        {"CVE-2026-43284", "Dirty Frag: IPsec writes to files' cached pages", true, {4, 11, 0},
                {7, 1, 0}, {{6, 1, 172}, {6, 6, 138}, {6, 12, 87}, {6, 18, 28}, {7, 0, 5}}},
        {"CVE-2026-43499", "GhostLock: futex requeueing leaves a pointer to a dead stack", false,
                {2, 6, 39}, {7, 1, 0},
                {{6, 1, 175}, {6, 6, 140}, {6, 12, 86}, {6, 18, 27}, {7, 0, 4}}},
};

static int compare(const struct number *a, const struct number *b)
{
	if (a->major != b->major)
		return a->major < b->major ? -1 : 1;
	if (a->minor != b->minor)
		return a->minor < b->minor ? -1 : 1;
	return (a->patch > b->patch) - (a->patch < b->patch);
}

/* Reads "6.1.158…"; *ret_rest is what follows. */
static bool read_number(const char *text, struct number *ret, const char **ret_rest)
{
	int n = 0;
	*ret = (struct number){0};
	if (sscanf(text, "%3u.%4u.%5u%n", &ret->major, &ret->minor, &ret->patch, &n) == 3) {
		*ret_rest = text + n;
		return true;
	}
	ret->patch = 0;
	bool ok = sscanf(text, "%3u.%4u%n", &ret->major, &ret->minor, &n) == 2;
	*ret_rest = text + n;
	return ok;
}

/*
 * The number in the kernel project's own counting. Debian's release has none (6.1.0-41-amd64) but
 * its version tells it ("… Debian 6.1.158-1 (…)"). Another's x.y.0-N counts builds of its own.
 */
static bool find_number(const char *release, const char *version, struct number *ret)
{
	static const char debian[] = " Debian ";
	const char *rest, *at = strstr(version, debian);
	if (at && read_number(at + sizeof(debian) - 1, ret, &rest))
		return true;
	if (!read_number(release, ret, &rest))
		return false;
	return !(ret->patch == 0 && rest[0] == '-' && isdigit((unsigned char)rest[1]));
}

static const struct number *fix_of_series(const struct fault *f, const struct number *n)
{
	for (size_t i = 0; i < sizeof(f->fixed) / sizeof(f->fixed[0]); i++)
		if (f->fixed[i].major == n->major && f->fixed[i].minor == n->minor)
			return &f->fixed[i];
	return NULL;
}

enum sup_kernel kernel_judge(
        const char *release, const char *version, struct sup_fault *rows, int max, int *ret_n)
{
	struct number have;
	*ret_n = 0;
	if (!find_number(release, version, &have))
		return SUP_KERNEL_UNKNOWN;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]) && *ret_n < max; i++) {
		const struct fault *f = &faults[i];
		const struct number *fix = fix_of_series(f, &have);
		if (compare(&have, &f->since) < 0 || compare(&have, &f->mainline) >= 0 ||
		        (fix && compare(&have, fix) >= 0))
			continue;
		struct sup_fault *row = &rows[(*ret_n)++];
		*row = (struct sup_fault){.cve = f->cve, .what = f->what, .shut = f->shut};
		if (!fix)
			fix = &f->mainline;
		str_format(row->fixed, sizeof(row->fixed), "%u.%u.%u", fix->major, fix->minor,
		        fix->patch);
	}
	return *ret_n ? SUP_KERNEL_FAULTY : SUP_KERNEL_NO_FAULT;
}

enum sup_kernel supervisor_check_kernel(
        char release[SUP_RELEASE_MAX], struct sup_fault *rows, int max, int *ret_n)
{
	struct utsname u;
	*ret_n = 0;
	str_copy(release, SUP_RELEASE_MAX, STR("unknown"));
	if (uname(&u) < 0)
		return SUP_KERNEL_UNKNOWN;
	str_copy(release, SUP_RELEASE_MAX, str_of(u.release));
	return kernel_judge(u.release, u.version, rows, max, ret_n);
}
