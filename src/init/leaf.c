/*
 * A leaf is an open directory and a number for its name. Idle leaves that are known to be empty
 * wait in `spare`, at most SPARE_MAX of them. A leaf whose command left processes behind goes to
 * `lingering`; each leaf_give() looks at the next few of those, so that emptied ones come back
 * although nobody watches them.
 *
 * The directory is init's own (the supervisor gave it init's id), so no capability is needed for
 * any of this, and none of it can be reached by a path from inside the sandbox.
 */
#include "init/leaf.h"

#include "init/sys.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>

#define SPARE_MAX    16
#define SWEEP        4  /* lingering leaves looked at each time */
#define KILL_ROUNDS  4  /* v1: lists read in one round before the others get a turn */
#define FREEZE_LOOKS 50 /* v1: how often to look whether the freezer has them all */

struct leaf {
	int dir;
	uint32_t number;
	bool killed;
};

static struct {
	int run;
	enum init_cgroups kind;
	uint32_t next_number;
	uint32_t n_leaves;
	struct leaf *spare[SPARE_MAX];
	uint32_t n_spare;
	struct leaf *lingering[LEAF_MAX];
	uint32_t n_lingering;
	uint32_t sweep_at;
} leaves;

static int file_write(const struct leaf *leaf, const char *name, const char *text)
{
	int fd = openat(leaf->dir, name, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	return sys_close(fd, n < 0) ? -errno : 0;
}

/* At most size - 1 bytes, NUL-terminated; "" when the file cannot be read. */
static void file_read(const struct leaf *leaf, const char *name, char *buf, size_t size)
{
	int fd = openat(leaf->dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	if (fd >= 0) {
		n = read(fd, buf, size - 1);
		close(fd);
	}
	buf[n < 0 ? 0 : n] = 0;
}

bool leaf_is_empty(const struct leaf *leaf)
{
	char text[128];

	if (leaves.kind != INIT_CG_V1) {
		file_read(leaf, "cgroup.events", text, sizeof text);
		return strstr(text, "populated 0") != NULL;
	}
	/* An empty file and one that cannot be read look alike, so ask for the latter. */
	file_read(leaf, "freezer.state", text, sizeof text);
	if (!*text)
		return false;
	file_read(leaf, "cgroup.procs", text, sizeof text);
	return !*text;
}

static void leaf_name(const struct leaf *leaf, char name[static 16])
{
	snprintf(name, 16, "%u", leaf->number);
}

static int leaf_make(struct leaf **ret)
{
	char name[16];
	struct leaf *leaf;
	int rc;

	if (leaves.n_leaves >= LEAF_MAX)
		return -EAGAIN;
	leaf = malloc(sizeof *leaf);
	if (!leaf)
		return -ENOMEM;
	*leaf = (struct leaf){.number = leaves.next_number++};
	leaf_name(leaf, name);
	if (mkdirat(leaves.run, name, 0755) < 0) {
		rc = -errno;
		free(leaf);
		return rc;
	}
	leaf->dir = openat(leaves.run, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (leaf->dir < 0) {
		rc = -errno;
		unlinkat(leaves.run, name, AT_REMOVEDIR);
		free(leaf);
		return rc;
	}
	leaves.n_leaves++;
	*ret = leaf;
	return 0;
}

/* What a process makes there belongs to its file system ids, of which root may choose any. */
int leaf_open(int run, enum init_cgroups kind, uint32_t init_uid)
{
	int rc;

	leaves.run = run;
	leaves.kind = kind;
	setfsgid(init_uid);
	setfsuid(init_uid);
	rc = leaf_make(&leaves.spare[0]);
	setfsuid(0);
	setfsgid(0);
	leaves.n_spare = rc == 0;
	return rc;
}

int leaf_kept(void)
{
	return leaves.spare[0]->dir;
}

/*
 * An empty leaf becomes a spare one, or goes. One that was killed always goes: Linux 6.18 counts
 * kills in a group, compares with the count of the parent's group when a child is born in it, and
 * kills the child.
 */
static void leaf_retire(struct leaf *leaf)
{
	char name[16];

	if (leaves.n_spare < SPARE_MAX && !leaf->killed) {
		leaves.spare[leaves.n_spare++] = leaf;
		return;
	}
	leaf_name(leaf, name);
	if (unlinkat(leaves.run, name, AT_REMOVEDIR) < 0 && errno == EBUSY) {
		/* Its last process is not quite gone: a later sweep comes by. */
		leaves.lingering[leaves.n_lingering++] = leaf;
		return;
	}
	close(leaf->dir);
	free(leaf);
	leaves.n_leaves--;
}

static void leaf_sweep(uint32_t n)
{
	while (n-- && leaves.n_lingering) {
		uint32_t at = leaves.sweep_at++ % leaves.n_lingering;
		struct leaf *leaf = leaves.lingering[at];

		if (!leaf_is_empty(leaf))
			continue;
		leaves.lingering[at] = leaves.lingering[--leaves.n_lingering];
		leaf_retire(leaf);
	}
}

int leaf_take(struct leaf **ret)
{
	if (!leaves.n_spare && leaves.n_leaves >= LEAF_MAX)
		leaf_sweep(leaves.n_lingering);
	if (!leaves.n_spare)
		return leaf_make(ret);
	*ret = leaves.spare[--leaves.n_spare];
	return 0;
}

void leaf_give(struct leaf *leaf)
{
	if (leaf_is_empty(leaf))
		leaf_retire(leaf);
	else
		leaves.lingering[leaves.n_lingering++] = leaf;
	leaf_sweep(SWEEP);
}

pid_t leaf_fork(const struct leaf *leaf)
{
	struct clone_args args = {.exit_signal = SIGCHLD};
	pid_t pid;

	if (leaves.kind != INIT_CG_V1) {
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)leaf->dir;
	}
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	return pid < 0 ? -errno : pid;
}

int leaf_enter(const struct leaf *leaf)
{
	return leaves.kind == INIT_CG_V1 ? file_write(leaf, "tasks", "0") : 0;
}

/* Sends SIGKILL to each process that the open cgroup.procs lists. Returns how many there were. */
static int kill_listed(int fd)
{
	char buf[4096];
	pid_t pid = 0;
	int count = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof buf)) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] != '\n') {
				pid = pid * 10 + (buf[i] - '0');
				continue;
			}
			/* 0: a process outside our pid namespace, which cannot be; never kill(0).
			 */
			if (pid > 1)
				kill(pid, SIGKILL);
			count++;
			pid = 0;
		}
	}
	return count;
}

/*
 * Frozen, nobody forks while the list is read and nobody's number is taken anew; the signals then
 * meet all of them when they thaw. A process that the freezer cannot stop yet only costs a further
 * round.
 */
static void kill_v1(const struct leaf *leaf)
{
	char state[32];

	file_write(leaf, "freezer.state", "FROZEN");
	for (int i = 0; i < FREEZE_LOOKS; i++) {
		file_read(leaf, "freezer.state", state, sizeof state);
		if (!strncmp(state, "FROZEN", 6))
			break;
	}
	for (int i = 0; i < KILL_ROUNDS; i++) {
		int fd = openat(leaf->dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
		int count = 0;

		if (fd >= 0) {
			count = kill_listed(fd);
			close(fd);
		}
		file_write(leaf, "freezer.state", "THAWED");
		if (!count)
			break;
	}
}

void leaf_kill(struct leaf *leaf)
{
	leaf->killed = true;
	if (leaves.kind == INIT_CG_V1)
		kill_v1(leaf);
	else
		file_write(leaf, "cgroup.kill", "1");
}
