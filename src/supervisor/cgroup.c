/*
 * Finding the hierarchies, and what is the same in all of them.
 *
 * /proc/self/mountinfo says where each hierarchy is mounted and which group of it stands at the
 * mount point; /proc/self/cgroup says which group we are in. Ours lies below that group, so that a
 * service manager's limits on brig hold for its sandboxes as well. Version 2 does not allow this in
 * a group that holds others' processes, such as a login's: cgroup_v2.c.
 */
#include "supervisor/cgroup.h"

#include "base/id.h"
#include "base/log.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX 262144

static const char *const hierarchy_names[CGH_N] = {"", "freezer", "memory", "pids", "cpu"};

/* True when the comma-separated list holds name. */
static bool list_has(const char *list, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ",") == n && strncmp(p, name, n) == 0)
			return true;
	return false;
}

/* Path of our group in one hierarchy, out of the text of /proc/self/cgroup: "4:memory:/path". */
static bool own_group(const char *text, enum cgroup_hierarchy which, char *out, size_t size)
{
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *list = strchr(line, ':');
		const char *path = list ? strchr(list + 1, ':') : NULL;
		if (!path || path > line + strcspn(line, "\n"))
			continue;
		char names[128];
		str_copy(names, sizeof(names), (struct str){list + 1, (size_t)(path - list - 1)});
		bool v2 = line[0] == '0' && names[0] == '\0';
		if (which == CGH_V2 ? v2 : list_has(names, hierarchy_names[which]))
			return str_copy(out, size, (struct str){path + 1, strcspn(path + 1, "\n")});
	}
	return false;
}

struct mount_line {
	char root[4096], point[4096], type[64], options[1024];
};

/* "36 35 98:0 /root /point rw,… shared:1 - type source options" */
static bool mount_parse(const char *line, struct mount_line *ret)
{
	const char *field[16];
	size_t n = 0, dash = 0;
	size_t end = strcspn(line, "\n");
	for (const char *p = line; p < line + end && n < 16; p += *p == ' ') {
		if (*p == '-' && p[1] == ' ')
			dash = n;
		field[n++] = p;
		p += strcspn(p, " \n");
	}
	if (n < 10 - 1 || dash == 0 || dash + 3 >= n)
		return false;
	const struct {
		char *to;
		size_t size, at;
	} take[] = {{ret->root, sizeof(ret->root), 3}, {ret->point, sizeof(ret->point), 4},
	        {ret->type, sizeof(ret->type), dash + 1},
	        {ret->options, sizeof(ret->options), dash + 3}};
	for (size_t i = 0; i < 4; i++)
		if (!str_copy(take[i].to, take[i].size,
		            (struct str){field[take[i].at], strcspn(field[take[i].at], " \n")}))
			return false;
	return true;
}

/* Opens the folder of our own group below a mount point that shows the hierarchy from `root` on.
 * -1: from outside our cgroup namespace on, so that the kernel would refuse what we do there. */
static int open_own(const char *point, const char *root, const char *own)
{
	size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
	char path[8300];
	if (strncmp(root, "/..", 3) == 0)
		return -1;
	bool below = strncmp(own, root, n) == 0 && (own[n] == '/' || own[n] == '\0') &&
	             !strstr(own, "/..");
	str_format(path, sizeof(path), "%s%s", point, below ? own + n : "");
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int read_proc(const char *name, char **ret)
{
	char *text = malloc(TEXT_MAX);
	ssize_t n = text ? sys_read_at(AT_FDCWD, name, text, TEXT_MAX) : -ENOMEM;
	if (n < 0) {
		free(text);
		return (int)n;
	}
	*ret = text;
	return 0;
}

static int find_parents(struct cgroup_host *h)
{
	char *mounts = NULL, *groups = NULL;
	int r = read_proc("/proc/self/mountinfo", &mounts);
	if (r == 0)
		r = read_proc("/proc/self/cgroup", &groups);
	struct mount_line *m = malloc(sizeof(*m));
	if (!m)
		r = -ENOMEM;
	for (const char *line = mounts; r == 0 && *line;
	        line += strcspn(line, "\n"), line += *line == '\n') {
		if (!mount_parse(line, m))
			continue;
		for (int i = 0; i < CGH_N; i++) {
			char own[4096];
			bool fits = i == CGH_V2 ? strcmp(m->type, "cgroup2") == 0
			                        : strcmp(m->type, "cgroup") == 0 &&
			                                  list_has(m->options, hierarchy_names[i]);
			if (!fits || h->parent[i] >= 0 || !own_group(groups, i, own, sizeof(own)))
				continue;
			h->parent[i] = open_own(m->point, m->root, own);
			if (i != CGH_V2 || h->parent[i] < 0)
				continue;
			h->ns_delegate = list_has(m->options, "nsdelegate");
			h->own_is_top = strcmp(own, "/") == 0;
			h->top = open(m->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		}
	}
	free(mounts);
	free(groups);
	free(m);
	return r;
}

int cgroup_find(
        const char *data, enum sup_cgroup_choice choice, struct cgroup_host *ret, struct error *err)
{
	struct cgroup_host h = {.mode = INIT_CG_V2, .top = -1};
	uint8_t hash[32];
	id_sha256(str_of(data), hash);
	str_format(h.name, sizeof(h.name), "brig-%02x%02x%02x%02x%02x%02x", hash[0], hash[1],
	        hash[2], hash[3], hash[4], hash[5]);
	for (int i = 0; i < CGH_N; i++)
		h.parent[i] = h.root[i] = -1;
	int r = find_parents(&h);
	if (r < 0)
		return error_errno(err, -r, "read cgroups of this process");
	bool limits =
	        h.parent[CGH_MEMORY] >= 0 && h.parent[CGH_PIDS] >= 0 && h.parent[CGH_CPU] >= 0;
	if (choice == SUP_CG_AUTO && cgroup_v2_has_controllers(&h)) {
		h.tree = &cgroup_v2_tree;
		h.limit = &cgroup_v2_limit;
	} else if (choice == SUP_CG_AUTO && limits && h.parent[CGH_V2] >= 0) {
		h.mode = INIT_CG_HYBRID;
		h.tree = &cgroup_v2_tree;
		h.limit = &cgroup_v1_limit;
	} else if (limits && h.parent[CGH_FREEZER] >= 0) {
		h.mode = INIT_CG_V1;
		h.tree = &cgroup_v1_tree;
		h.limit = &cgroup_v1_limit;
	} else {
		*ret = h;
		cgroup_stop(ret);
		return error_set(err, ERR_UNSUPPORTED,
		        "cgroups: need memory, pids and cpu controllers and a freezer (v2, or v1 "
		        "mounted)");
	}
	*ret = h;
	return 0;
}

/* ---- removing ---- */

static void remove_below(int dir, const char *name, int depth)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int copy = fd < 0 ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;
	while (list && depth > 0 && (e = readdir(list)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			remove_below(fd, e->d_name, depth - 1);
	if (list)
		closedir(list);
	unlinkat(dir, name, AT_REMOVEDIR);
}

/* Ends all processes of <ours> in one hierarchy and removes it; its depth is <ours>/name/run/leaf.
 */
static int remove_ours(const struct cgroup_host *h, int which)
{
	struct stat st;
	if (h->parent[which] < 0 ||
	        fstatat(h->parent[which], h->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	struct cgroup_host at = *h;
	at.root[which] = h->parent[which];
	for (int tries = 0; tries < 5000; tries++) {
		if (tries % 10 == 0 && which == CGH_V2)
			cgroup_v2_tree.kill(&at, h->name);
		if (tries % 10 == 0 && which == CGH_FREEZER)
			cgroup_v1_tree.kill(&at, h->name);
		remove_below(h->parent[which], h->name, 4);
		if (fstatat(h->parent[which], h->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return 0;
		usleep(1000);
	}
	return -EBUSY;
}

static int make_ours(struct cgroup_host *h, int which)
{
	if (mkdirat(h->parent[which], h->name, 0755) < 0 && errno != EEXIST)
		return -errno;
	h->root[which] =
	        openat(h->parent[which], h->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return h->root[which] < 0 ? -errno : 0;
}

int cgroup_start(struct cgroup_host *h, struct error *err)
{
	/* The freezer first: thawed processes can die. Then all, whatever mode ran before. */
	static const int order[CGH_N] = {CGH_FREEZER, CGH_V2, CGH_MEMORY, CGH_PIDS, CGH_CPU};
	int r = 0;
	for (int i = 0; i < CGH_N && r == 0; i++)
		r = remove_ours(h, order[i]);
	if (r < 0)
		return error_errno(
		        err, -r, "end what an earlier supervisor left in cgroup %s", h->name);
	if (h->mode == INIT_CG_V2) {
		r = cgroup_v2_pass(h);
		if (r == 0)
			r = make_ours(h, CGH_V2);
		if (r == 0)
			r = sys_write_at(
			        h->root[CGH_V2], "cgroup.subtree_control", CGROUP_V2_CONTROLLERS);
		return r < 0 ? error_errno(err, -r,
		                       "pass memory, pids and cpu controllers down to cgroup %s "
		                       "(delegate one to "
		                       "this service)",
		                       h->name)
		             : 0;
	}
	r = make_ours(h, h->tree->hierarchy);
	for (int i = CGH_MEMORY; i < CGH_N && r == 0; i++)
		r = make_ours(h, i);
	return r < 0 ? error_errno(err, -r, "make cgroup %s", h->name) : 0;
}

void cgroup_stop(struct cgroup_host *h)
{
	static const int order[CGH_N] = {CGH_FREEZER, CGH_V2, CGH_MEMORY, CGH_PIDS, CGH_CPU};
	for (int i = 0; i < CGH_N; i++) {
		int which = order[i];
		if (h->root[which] >= 0 && remove_ours(h, which) < 0)
			log_text(LOG_ERROR, "cgroup_left", "%s: processes do not end", h->name);
		sys_close(&h->root[which]);
	}
	cgroup_v2_move_back(h);
	for (int i = 0; i < CGH_N; i++)
		sys_close(&h->parent[i]);
	sys_close(&h->top);
}

/* ---- one sandbox ---- */

const char *cgroup_path(char path[64], const char *group, const char *file)
{
	str_format(path, 64, "%s/%s", group, file);
	return path;
}

static int make_groups(const struct cgroup_host *h, const char *name, uid_t init_uid)
{
	/* Of version 1 alone the last. */
	static const char *const given[] = {"run", "cgroup.procs", "run/cgroup.procs", "run/tasks"};
	char path[64];
	int root = h->root[h->tree->hierarchy];
	if (mkdirat(root, name, 0755) < 0 ||
	        mkdirat(root, cgroup_path(path, name, "init"), 0755) < 0 ||
	        mkdirat(root, cgroup_path(path, name, "run"), 0755) < 0)
		return -errno;
	for (int i = 0; i < (h->mode == INIT_CG_V1 ? 4 : 3); i++)
		if (fchownat(root, cgroup_path(path, name, given[i]), init_uid, init_uid, 0) < 0)
			return -errno;
	for (int i = CGH_MEMORY; i < CGH_N; i++) /* some may be mounted together */
		if (h->root[i] >= 0 && mkdirat(h->root[i], name, 0755) < 0 && errno != EEXIST)
			return -errno;
	return h->ns_delegate ? 0 : cgroup_settle(h, name);
}

int cgroup_make(const struct cgroup_host *h, const char *name, uid_t init_uid, struct fail *f)
{
	int r = make_groups(h, name, init_uid);
	if (r == 0)
		return 0;
	cgroup_remove(h, name);
	return fail_set(f, SUP_E_SYSTEM, r, "make cgroups");
}

int cgroup_limit(const struct cgroup_host *h, const char *name, const struct cgroup_limits *limits,
        struct fail *f)
{
	int r = h->limit->set(h, name, limits);
	return r < 0 ? fail_set(f, SUP_E_SYSTEM, r, "set limits") : 0;
}

int cgroup_open_clone(const struct cgroup_host *h, const char *name)
{
	char path[64];
	if (h->mode == INIT_CG_V1)
		return -1;
	str_format(path, sizeof(path), "%s%s", name, h->ns_delegate ? "" : "/init");
	return openat(h->root[CGH_V2], path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int cgroup_open_attach(
        const struct cgroup_host *h, const char *name, int fds[CGROUP_MAX_FDS], struct fail *f)
{
	char path[64];
	int n = 0;
	for (int i = CGH_N - 1; i >= 0; i--) {
		if (h->root[i] < 0 || (i == CGH_V2 && !h->ns_delegate))
			continue;
		const char *file = i == CGH_V2        ? "init/cgroup.procs"
		                   : i == CGH_FREEZER ? "init/tasks"
		                                      : "tasks";
		str_format(path, sizeof(path), "%s/%s", name, file);
		fds[n] = openat(h->root[i], path, O_WRONLY | O_CLOEXEC);
		if (fds[n] < 0) {
			int errnum = errno;
			while (n > 0)
				sys_close(&fds[--n]);
			return fail_set(f, SUP_E_SYSTEM, errnum, "open cgroup tasks");
		}
		n++;
	}
	return n;
}

int cgroup_open_run(const struct cgroup_host *h, const char *name)
{
	char path[64];
	str_format(path, sizeof(path), "%s/run", name);
	int fd = openat(h->root[h->tree->hierarchy], path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

bool cgroup_needs_entry(const struct cgroup_host *h)
{
	return h->ns_delegate && h->mode == INIT_CG_V2;
}

int cgroup_settle(const struct cgroup_host *h, const char *name)
{
	char path[64];
	if (h->mode != INIT_CG_V2)
		return 0;
	return sys_write_at(h->root[CGH_V2], cgroup_path(path, name, "cgroup.subtree_control"),
	        CGROUP_V2_CONTROLLERS);
}

int cgroup_freeze(const struct cgroup_host *h, const char *name, bool on)
{
	char path[64];
	return h->tree->freeze(h, cgroup_path(path, name, "run"), on);
}

bool cgroup_is_frozen(const struct cgroup_host *h, const char *name)
{
	char path[64];
	str_format(path, sizeof(path), "%s/run", name);
	return h->tree->frozen(h, path);
}

int cgroup_kill(const struct cgroup_host *h, const char *name)
{
	return h->tree->kill(h, name);
}

int cgroup_remove(const struct cgroup_host *h, const char *name)
{
	int r = 0;
	for (int i = 0; i < CGH_N; i++) {
		if (h->root[i] < 0)
			continue;
		struct stat st;
		remove_below(h->root[i], name, 2);
		if (fstatat(h->root[i], name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			r = -EBUSY;
	}
	return r;
}
