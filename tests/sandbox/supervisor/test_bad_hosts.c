/*
 * Hosts and data folders that are not fit: each is refused in one line that names what is wrong,
 * and what was there before is there after. The whole program runs in a mount namespace of its own,
 * what takes powers away in a child. Run as root.
 */
#include "node.h"

#include "unit/unit.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void finish(struct node *n)
{
	node_check_nothing_left(n);
	node_remove(n);
}

static void expect_text(const char *text, const char *needle)
{
	print_message("  %s\n", text);
	if (!strstr(text, needle))
		fail_msg("not in there: %s", needle);
	assert_null(strchr(text, '\n'));
	assert_true(strlen(text) < 500);
}

/* ---- kernels that lack something ---- */

static pid_t spawn_none(void *ctx, uint32_t index, int sock, struct error *err)
{
	return error_set(err, ERR_INTERNAL, "it has started");
}

/* Starts a supervisor after `spoil`, in a child; it must refuse, with the text. */
static void refuses_after(void (*spoil)(void), const char *needle)
{
	struct node n;
	char text[1024] = "";
	int p[2], status;
	node_make(&n);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct error err = {0};
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		dup2(null, 2);
		spoil();
		int r = supervisor_run(&n.cfg, spawn_none, NULL, &err);
		_exit(r < 0 && write(p[1], err.text, strlen(err.text)) > 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(read(p[0], text, sizeof(text) - 1) > 0);
	close(p[0]);
	close(p[1]);
	expect_text(text, "this host lacks");
	expect_text(text, needle);
	assert_int_equal(node_files(&n, "homes"), 0);
	/* The same folder serves where nothing is missing. */
	node_start(&n);
	assert_int_equal(node_stop(&n), 0);
	finish(&n);
}

static void load_filter(const struct sock_filter *filter, unsigned short len)
{
	struct sock_fprog program = {len, (struct sock_filter *)(uintptr_t)filter};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		_exit(2);
}

#define LOAD(field)           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define REFUSE(number)        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (number))
#define ALLOW                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* As where user.max_user_namespaces is 0: ENOSPC. */
static void spoil_userns(void)
{
	static const struct sock_filter filter[] = {LOAD(nr), IF_IS(SYS_clone3, 0, 1),
	        REFUSE(ENOSYS), IF_IS(SYS_clone, 1, 0), IF_IS(SYS_unshare, 0, 3), LOAD(args[0]),
	        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1), REFUSE(ENOSPC), ALLOW};
	load_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

/* mount(2) without flags is what overlays are tried with, and nothing else. */
static void spoil_overlay(void)
{
	static const struct sock_filter filter[] = {LOAD(nr), IF_IS(SYS_mount, 0, 3), LOAD(args[3]),
	        IF_IS(0, 0, 1), REFUSE(ENODEV), ALLOW};
	load_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

static void spoil_idmap(void)
{
	static const struct sock_filter filter[] = {
	        LOAD(nr), IF_IS(SYS_mount_setattr, 0, 1), REFUSE(EINVAL), ALLOW};
	load_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

static void spoil_seccomp(void)
{
	static const struct sock_filter filter[] = {
	        LOAD(nr), IF_IS(SYS_seccomp, 0, 1), REFUSE(ENOSYS), ALLOW};
	load_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

static void spoil_cgroups(void)
{
	char line[8192], type[64], point[4096];
	unshare(CLONE_NEWNS);
	for (int round = 0; round < 16; round++) {
		FILE *f = fopen("/proc/self/mounts", "r");
		int found = 0;
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "%*s %4095s %63s", point, type) == 2 &&
			        strncmp(type, "cgroup", 6) == 0)
				found += umount2(point, MNT_DETACH) == 0;
		if (f)
			fclose(f);
		if (!found)
			return;
	}
}

static void spoil_loop(void)
{
	unshare(CLONE_NEWNS);
	mount("/dev/null", "/dev/loop-control", NULL, MS_BIND, NULL);
}

static void poor_kernels(void **state)
{
	refuses_after(spoil_userns, "user namespaces");
	refuses_after(spoil_overlay, "overlay");
	refuses_after(spoil_idmap, "map ids of a mount");
	refuses_after(spoil_seccomp, "seccomp");
	refuses_after(spoil_cgroups, "controllers");
	refuses_after(spoil_loop, "loop device");
}

/* ---- images ---- */

static void path_of(const struct node *n, char out[512], const char *name)
{
	str_format(out, 512, "%s/%s", n->cfg.data, name);
}

static void spoil_file(const struct node *n, const char *name, off_t size, bool garbage)
{
	char path[512], noise[4096];
	path_of(n, path, name);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	if (size >= 0)
		assert_int_equal(ftruncate(fd, size), 0);
	memset(noise, 0x5a, sizeof(noise));
	for (off_t at = 0; garbage && at < 65536; at += (off_t)sizeof(noise))
		assert_int_equal(pwrite(fd, noise, sizeof(noise), at), sizeof(noise));
	close(fd);
}

static void expect_refusal(struct node *n, const char *needle)
{
	assert_int_equal(node_start_fails(n), 1);
	expect_text(n->error, needle);
	node_check_nothing_left(n);
}

static void bad_base_images(void **state)
{
	struct node n;
	char path[512];
	struct stat st;
	node_make(&n);
	path_of(&n, path, "images/base.erofs");
	assert_int_equal(stat(path, &st), 0);
	spoil_file(&n, "images/base.erofs", st.st_size / 2, false);
	expect_refusal(&n, "cut short");
	spoil_file(&n, "images/base.erofs", 1000, false);
	expect_refusal(&n, "no erofs");
	spoil_file(&n, "images/base.erofs", 0, false);
	expect_refusal(&n, "no erofs");
	spoil_file(&n, "images/base.erofs", st.st_size, true);
	expect_refusal(&n, "no erofs");
	unlink(path);
	expect_refusal(&n, "No such file");
	assert_int_equal(mkfifo(path, 0600), 0);
	expect_refusal(&n, "no erofs");
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	expect_refusal(&n, "no erofs");
	rmdir(path);
	finish(&n);
}

static const char *claim_says(struct node *n, const char *name)
{
	static char text[128];
	union reply r;
	struct sup_claim c = node_claim(n, name);
	int channel = node_claimed(n, 0, &c, &r);
	if (channel < 0) {
		str_format(text, sizeof(text), "%u %s", r.failed.why, r.failed.step);
		return text;
	}
	str_format(
	        text, sizeof(text), "%s", channel_output(channel, "cat mark || echo new > mark"));
	close(channel);
	node_release(n, 0, r.claimed.hold);
	return text;
}

/* A damaged template is made anew at the next start; one that is damaged under a running server
 * costs claims of new containers alone, and leaves no broken home behind. */
static void bad_templates(void **state)
{
	struct node n;
	static const char *const names[] = {"templates/home-64.ext4", "templates/scratch-64.ext4"};
	node_make(&n);
	node_start(&n);
	claim_says(&n, "a");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(node_stop(&n), 0);
		spoil_file(&n, names[i], i ? 0 : -1, i == 0);
		node_start(&n);
		assert_int_equal(node_logged(&n, "template_remade"), i + 1);
		assert_string_equal(claim_says(&n, "a"), "new\n");
	}
	spoil_file(&n, names[0], -1, true);
	assert_string_equal(claim_says(&n, "b"), "9 mount home");
	assert_int_equal(node_files(&n, "homes"), 1);
	assert_string_equal(claim_says(&n, "a"), "new\n");
	assert_int_equal(node_stop(&n), 0);
	node_start(&n);
	claim_says(&n, "b");
	assert_string_equal(claim_says(&n, "b"), "new\n");
	assert_int_equal(node_stop(&n), 0);
	finish(&n);
}

/* ---- ids ---- */

static void few_ids(void **state)
{
	struct node n;
	union reply r;
	node_make(&n);
	n.cfg.n_leases = 1;
	n.cfg.live = 5;
	node_start(&n);
	struct sup_claim a = node_claim(&n, "a"), b = node_claim(&n, "b");
	int channel = node_claimed(&n, 0, &a, &r);
	uint64_t hold = r.claimed.hold;
	assert_true(channel >= 0);
	assert_int_equal(node_claimed(&n, 0, &b, &r), -1);
	assert_int_equal(r.failed.why, SUP_E_CAPACITY);
	assert_string_equal(channel_output(channel, "echo a"), "a\n");
	close(channel);
	node_release(&n, 0, hold);
	b.wait_ms = 10000;
	channel = node_claimed(&n, 0, &b, &r); /* a is put to sleep for it */
	assert_true(channel >= 0);
	close(channel);
	assert_int_equal(node_stop(&n), 0);
	n.cfg.n_leases = 0;
	expect_refusal(&n, "no lease");
	n.cfg.n_leases = UINT32_MAX;
	expect_refusal(&n, "id ranges");
	finish(&n);
}

/* ---- disks ---- */

static void run_tool(const char *const argv[])
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		dup2(null, 1);
		dup2(null, 2);
		execvp(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0)
		fail_msg("%s failed", argv[0]);
}

/* A data folder on an ext4 of its own, of that many MiB. */
static void make_small(struct node *n, char image[512], const char *mib)
{
	char copy[600];
	node_make(n);
	str_format(image, 512, "%s.disk", n->cfg.data);
	str_format(copy, sizeof(copy), "%s.images", n->cfg.data);
	run_tool((const char *[]){"mv", n->cfg.data, copy, NULL});
	run_tool((const char *[]){"truncate", "-s", mib, image, NULL});
	run_tool((const char *[]){"mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", image, NULL});
	assert_int_equal(mkdir(n->cfg.data, 0711), 0);
	run_tool((const char *[]){"mount", "-o", "loop", image, n->cfg.data, NULL});
	run_tool((const char *[]){"cp", "-r", copy, n->cfg.data, NULL});
	run_tool((const char *[]){"sh", "-c",
	        "mv \"$1\"/*/images \"$1\"/; rmdir \"$1\"/*.images; rm -r \"$2\"", "sh",
	        n->cfg.data, copy, NULL});
	assert_int_equal(chmod(n->cfg.data, 0711), 0);
}

static void remove_small(struct node *n, const char *image)
{
	assert_int_equal(umount(n->cfg.data), 0);
	rmdir(n->cfg.data);
	unlink(image);
}

static void fill(const struct node *n, char path[512])
{
	static char zeros[65536];
	path_of(n, path, "filler");
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	for (size_t piece = sizeof(zeros); piece >= 1024; piece /= 4)
		while (write(fd, zeros, piece) > 0)
			;
	close(fd);
}

/* Full at the start: refused. Under the reserve: claims are. With room again all works. */
static void full_disk(void **state)
{
	struct node n;
	char image[512], filler[512];
	make_small(&n, image, "48M");
	fill(&n, filler);
	assert_int_equal(node_start_fails(&n), 1);
	expect_text(n.error, "No space left");
	unlink(filler);
	node_start(&n);
	assert_string_equal(claim_says(&n, "a"), "5 reserve of free disk");
	fill(&n, filler);
	assert_string_equal(claim_says(&n, "a"), "5 reserve of free disk");
	union reply r;
	node_key_op(&n, 0, SUP_DELETE, "a", &r);
	assert_int_equal(r.h.op, SUP_DONE);
	assert_int_equal(node_files(&n, "homes"), 0);
	unlink(filler);
	assert_int_equal(node_stop(&n), 0);
	assert_int_equal(node_files(&n, "scratch"), 0);
	remove_small(&n, image);
}

static void read_only_disk(void **state)
{
	struct node n;
	char image[512];
	make_small(&n, image, "48M");
	assert_int_equal(mount(NULL, n.cfg.data, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(node_start_fails(&n), 1);
	expect_text(n.error, "Read-only file system");
	assert_int_equal(mount(NULL, n.cfg.data, NULL, MS_REMOUNT, NULL), 0);
	node_start(&n);
	assert_int_equal(node_stop(&n), 0);
	remove_small(&n, image);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(poor_kernels, node_teardown),
	        cmocka_unit_test_teardown(bad_base_images, node_teardown),
	        cmocka_unit_test_teardown(bad_templates, node_teardown),
	        cmocka_unit_test_teardown(few_ids, node_teardown),
	        cmocka_unit_test_teardown(full_disk, node_teardown),
	        cmocka_unit_test_teardown(read_only_disk, node_teardown),
	};
	if (geteuid() != 0)
		return 77;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 1;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("bad_hosts", tests, NULL, NULL);
}
