/*
 * Theory of operation.
 *
 * prepare: groups are made; the thread enters a new network namespace and clones a child into new
 * user, pid, mount, ipc and uts namespaces (into its cgroup where that is possible); the thread
 * goes back; the child's id maps are written and one byte is sent. The child meanwhile entered its
 * v1 groups through inherited descriptors and made its cgroup namespace; on the byte it becomes
 * root of its user namespace and executes init out of a sealed memfd, with its end of the control
 * socket as descriptor 3 and nothing else. INIT_SETUP waits in the socket by then.
 *
 * root: a new scratch image, the overlay over it, INIT_ROOT. claim: limits, then home, INIT_CLAIM.
 * Each may follow at once or much later: the messages queue. init's answers come to the caller's
 * loop.
 *
 * The end: killing init ends its pid namespace, and the kernel lets init be reaped only when all
 * others in it are gone, and with them the mount namespace. What may lag is a cgroup or a loop
 * device in use for a moment longer; sandbox_remove is called until they are free, and only then is
 * the lease given back. (The device of a home that a worker has too is not waited for.)
 */
#include "supervisor/sandbox.h"

#include "base/str.h"
#include "init/init_image.h"
#include "packet/hurry.h"
#include "supervisor/child.h"
#include "supervisor/root.h"
#include "worker/worker_image.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int sandbox_host_open(const struct sup_config *cfg, struct sandbox_host *h, struct error *err)
{
	h->cfg = cfg;
	h->runtime = &runtime_namespace;
	h->net_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (h->net_ns < 0)
		return error_errno(err, errno, "open /proc/self/ns/net");
	h->init_image = child_seal("brig-init", init_image, init_image_len);
	h->worker_image = child_seal("brig-worker", worker_image, worker_image_len);
	if (h->init_image < 0 || h->worker_image < 0)
		return error_errno(err, h->init_image < 0 ? -h->init_image : -h->worker_image,
		        "put init and worker in a memfd");
	char score[16] = "";
	sys_read_at(AT_FDCWD, "/proc/self/oom_score_adj", score, sizeof(score));
	h->guarded = score[0] == '-';
	h->leases = lease_table_new(cfg, 0, cfg->n_leases);
	h->worker_leases = lease_table_new(cfg, cfg->n_leases, cfg->n_workers);
	return 0;
}

void sandbox_host_close(struct sandbox_host *h)
{
	sys_close(&h->net_ns);
	sys_close(&h->init_image);
	sys_close(&h->worker_image);
	h->leases = lease_table_free(h->leases);
	h->worker_leases = lease_table_free(h->worker_leases);
}

static int clone_child(struct sandbox_host *h, struct sandbox *sb, struct child *c, struct fail *f)
{
	_cleanup_close_ int group = cgroup_open_clone(&h->cgroup, sb->name);
	if (group < 0 && h->cgroup.mode != INIT_CG_V1)
		return fail_set(f, SUP_E_SYSTEM, errno, "open cgroup");
	if (netns_enter(h->net_ns, f) < 0)
		return -1;
	int r = child_clone(c, group, CLONE_NEWIPC | CLONE_NEWUTS, &sb->pid, &sb->pidfd, f);
	if (r == 0) {
		sb->netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
		if (sb->netns < 0)
			r = fail_set(f, SUP_E_SYSTEM, errno, "open network namespace");
	}
	netns_leave(h->net_ns);
	return r;
}

/* Waits for the child's report. Only our own few lines run in it by now, so this ends soon or the
 * host is in trouble. */
static int await_entry(struct sandbox_host *h, struct sandbox *sb, struct fail *f)
{
	struct pollfd p = {.fd = sb->control, .events = POLLIN};
	char byte;
	int r = poll(&p, 1, 2000) == 1 && recv(sb->control, &byte, 1, MSG_DONTWAIT) == 1
	                ? 0
	                : -ETIMEDOUT;
	if (r == 0)
		r = cgroup_settle(&h->cgroup, sb->name);
	return r < 0 ? fail_set(f, SUP_E_SYSTEM, r, "enter cgroups") : 0;
}

static int start_child(struct sandbox_host *h, struct sandbox *sb, struct fail *f)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "socketpair");
	sb->control = pair[0];
	struct child c = {.control = pair[1],
	        .extra = -1,
	        .image = h->init_image,
	        .owner = sup_uid_lease(h->cfg, sb->lease),
	        .title = "brig: init",
	        .report = cgroup_needs_entry(&h->cgroup)};
	int r = c.n_attach = cgroup_open_attach(&h->cgroup, sb->name, c.attach, f);
	c.n_before = c.n_attach - (h->cgroup.ns_delegate ? 1 : 0);
	if (r >= 0)
		r = clone_child(h, sb, &c, f);
	for (int i = 0; i < c.n_attach; i++)
		close(c.attach[i]);
	close(pair[1]);
	if (r == 0 && c.report)
		r = await_entry(h, sb, f);
	return r;
}

static int send_setup(struct sandbox_host *h, struct sandbox *sb, struct fail *f)
{
	_cleanup_close_ int dev = -1;
	if (root_dev_mount(sb->userns, &dev, f) < 0)
		return -1;
	_cleanup_close_ int run = cgroup_open_run(&h->cgroup, sb->name);
	_cleanup_close_ int oom = h->cgroup.limit->open_oom(&h->cgroup, sb->name);
	if (run < 0 || oom < 0)
		return fail_set(f, SUP_E_SYSTEM, run < 0 ? run : oom, "open cgroup");
	struct init_setup msg = {
	        .h = {.op = INIT_SETUP, .size = sizeof(msg)},
	        .cgroups = h->cgroup.mode,
	        .init_uid = SANDBOX_INIT_UID,
	};
	int r = sys_send(sb->control, &msg, sizeof(msg), (int[]){dev, run, oom}, 3);
	return r < 0 ? fail_set(f, SUP_E_SYSTEM, r, "send to init") : 0;
}

static int sandbox_prepare(
        struct sandbox_host *h, uint64_t number, struct sandbox *sb, struct fail *f)
{
	*sb = (struct sandbox){
	        .pidfd = -1, .control = -1, .userns = -1, .netns = -1, .scratch = IMAGE_NONE};
	str_format(sb->name, sizeof(sb->name), "c%llu", (unsigned long long)number);
	if (lease_take(h->leases, &sb->lease, f) < 0)
		return -1;
	sb->has_lease = true;
	uid_t first = sup_uid_lease(h->cfg, sb->lease);
	if (cgroup_make(&h->cgroup, sb->name, first + SANDBOX_INIT_UID, f) < 0)
		return -1;
	sb->has_cgroup = true;
	if (start_child(h, sb, f) < 0)
		return -1;
	int r = sys_map_ids(sb->pid, 0, first);
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "map ids");
	char path[64];
	/* A service manager may have set us a score that spares us: a guest must not have it, nor
	 * be able to go back to it. */
	str_format(path, sizeof(path), "/proc/%d/oom_score_adj", (int)sb->pid);
	if (h->guarded && (r = sys_write_at(AT_FDCWD, path, "0")) < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "reset the oom score");
	str_format(path, sizeof(path), "/proc/%d/ns/user", (int)sb->pid);
	sb->userns = open(path, O_RDONLY | O_CLOEXEC);
	if (sb->userns < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "open user namespace");
	r = sys_send(sb->control, "g", 1, NULL, 0);
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "start init");
	return send_setup(h, sb, f);
}

static int sandbox_give_root(
        struct sandbox *sb, const struct image *scratch, int root, struct fail *f)
{
	sb->scratch = *scratch;
	sys_close(&sb->userns);
	struct init_header msg = {.op = INIT_ROOT, .size = sizeof(msg)};
	int r = sys_send(sb->control, &msg, sizeof(msg), &root, 1);
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "send to init");
	sb->has_root = true;
	return 0;
}

static int sandbox_root(struct sandbox_host *h, struct sandbox *sb, uint32_t image, struct fail *f)
{
	struct image scratch;
	_cleanup_close_ int root = -1;
	if (disk_root_mount(h->disk, image, sb->userns, sup_uid_lease(h->cfg, sb->lease), &scratch,
	            &root, f) < 0)
		return -1;
	return sandbox_give_root(sb, &scratch, root, f);
}

static int sandbox_claim(struct sandbox_host *h, struct sandbox *sb,
        const struct sandbox_spec *spec, bool *ret_created, int ret_net[NETNS_SOCKETS],
        struct fail *f)
{
	struct cgroup_limits limits = {
	        (uint64_t)spec->memory_mib << 20, spec->processes, spec->cpu_milli};
	_cleanup_close_ int home = -1;
	if (cgroup_limit(&h->cgroup, sb->name, &limits, f) < 0)
		return -1;
	if (spec->network && netns_listen(sb->netns, h->net_ns, spec->any_address, ret_net, f) < 0)
		return -1;
	sys_close(&sb->netns);
	if (!sb->has_root && sandbox_root(h, sb, spec->image, f) < 0)
		return -1;
	if (disk_home_mount(h->disk, spec->key, lease_home_userns(h->leases, sb->lease), &sb->home,
	            &home, ret_created, f) < 0)
		return -1;
	/* Memory in tmpfs counts on the container: a full one must fail with no space, not kill. */
	struct init_claim msg = {
	        .h = {.op = INIT_CLAIM, .size = sizeof(msg)},
	        .tmp_mib = spec->memory_mib / 2,
	        .shm_mib = spec->memory_mib < 256 ? spec->memory_mib / 4 : 64,
	        .memory_mib = spec->memory_mib,
	        .cpu_milli = spec->cpu_milli,
	        .network = spec->network,
	};
	str_copy(msg.hostname, sizeof(msg.hostname), str_of(spec->hostname));
	int r = sys_send(sb->control, &msg, sizeof(msg), &home, 1);
	return r < 0 ? fail_set(f, SUP_E_SYSTEM, r, "send to init") : 0;
}

/* Checks the words of an init that may have been taken over: its text is printable and ends. */
static void broken_text(const struct init_broken *msg, char text[64])
{
	size_t n = 0;
	while (n < sizeof(msg->step) && msg->step[n] >= ' ' && msg->step[n] <= '~') {
		text[n] = msg->step[n];
		n++;
	}
	text[n] = '\0';
}

static enum sandbox_event sandbox_read(struct sandbox *sb, struct fail *f, char text[64])
{
	union {
		struct init_header h;
		struct init_broken broken;
	} msg;
	struct packet p;
	int r = hurry_receive(sb->control, &msg, sizeof(msg), 0, &p);
	if (r == -EAGAIN)
		return SANDBOX_NOTHING;
	if (r <= 0)
		return SANDBOX_GONE;
	text[0] = '\0';
	bool sound = !p.lost && p.len >= sizeof(msg.h) && msg.h.size == p.len;
	if (sound && msg.h.op == INIT_PREPARED && p.len == sizeof(msg.h) &&
	        sb->stage == SANDBOX_IS_NEW) {
		sb->stage = SANDBOX_IS_PREPARED;
		return SANDBOX_PREPARED;
	}
	if (sound && msg.h.op == INIT_READY && p.len == sizeof(msg.h) &&
	        sb->stage == SANDBOX_IS_PREPARED) {
		sb->stage = SANDBOX_IS_READY;
		return SANDBOX_READY;
	}
	if (sound && msg.h.op == INIT_BROKEN && p.len == sizeof(msg.broken)) {
		broken_text(&msg.broken, text);
		fail_set(f, SUP_E_SYSTEM, (int)(msg.broken.errnum & 0xfff), text);
		return SANDBOX_BROKEN;
	}
	fail_set(f, SUP_E_SYSTEM, EPROTO, "init broke the protocol");
	return SANDBOX_BROKEN;
}

static int sandbox_channel(struct sandbox *sb, int fd)
{
	struct init_header msg = {.op = INIT_CHANNEL, .size = sizeof(msg)};
	return sys_send(sb->control, &msg, sizeof(msg), &fd, 1);
}

static void sandbox_freeze(struct sandbox_host *h, struct sandbox *sb, bool on)
{
	cgroup_freeze(&h->cgroup, sb->name, on);
}

static void sandbox_kill(struct sandbox_host *h, struct sandbox *sb)
{
	if (sb->has_cgroup)
		cgroup_kill(&h->cgroup, sb->name);
	if (sb->pid > 0 && sb->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, sb->pidfd, SIGKILL, NULL, 0);
}

static bool sandbox_remove(struct sandbox_host *h, struct sandbox *sb)
{
	hurry_close(&sb->control);
	sys_close(&sb->pidfd);
	sys_close(&sb->userns);
	sys_close(&sb->netns);
	if (sb->pid > 0)
		return false;
	bool home = disk_home_release(h->disk, &sb->home), scratch = image_release(&sb->scratch);
	if (sb->has_cgroup && cgroup_remove(&h->cgroup, sb->name) == 0)
		sb->has_cgroup = false;
	if (!home || !scratch || sb->has_cgroup)
		return false;
	if (sb->has_lease)
		lease_return(h->leases, sb->lease);
	sb->has_lease = false;
	return true;
}

const struct runtime runtime_namespace = {
        .name = "namespace",
        .prepare = sandbox_prepare,
        .give_root = sandbox_give_root,
        .claim = sandbox_claim,
        .read = sandbox_read,
        .channel = sandbox_channel,
        .freeze = sandbox_freeze,
        .kill = sandbox_kill,
        .remove = sandbox_remove,
};
