/*
 * The program that the self-test runs inside a scratch container (proto/probe.h). Static, so that
 * any image will do, of which it uses nothing; it reaches the container as the standard input of
 * its first command.
 *
 * `inside` makes its probes one after the other, each in a child, so that one that dies or hangs is
 * one row that says so.
 */
#include "probe/calls.h"
#include "probe/expect.h"
#include "probe/files.h"
#include "probe/load.h"
#include "probe/network.h"
#include "probe/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_SECONDS 20

static unsigned long expected[PROBE_ARGS];
static char **arguments;

static void probe_ids(void)
{
	process_ids(expected[PROBE_ARG_FIRST_ID]);
}

static void probe_processors(void)
{
	process_processors(expected[PROBE_ARG_PROCESSORS]);
}

static void probe_mounts(void)
{
	files_mounts(arguments[PROBE_ARG_DATA]);
}

static void probe_host_paths(void)
{
	files_host_paths(arguments[PROBE_ARG_DATA]);
}

static void probe_host_name(void)
{
	files_host_name(arguments[PROBE_ARG_HOST_NAME]);
}

static void probe_home(void)
{
	files_limit("/workspace/home", expected[PROBE_ARG_HOME_MIB]);
}

static void probe_scratch(void)
{
	files_limit("/", expected[PROBE_ARG_SCRATCH_MIB]);
}

static void probe_tmp(void)
{
	files_limit("/dev/shm", expected[PROBE_ARG_SHM_MIB]);
	files_limit("/tmp", expected[PROBE_ARG_TMP_MIB]);
}

static void (*const INSIDE[PROBE_COUNT])(void) = {
        [PROBE_IDS] = probe_ids,
        [PROBE_PRIVILEGES] = process_privileges,
        [PROBE_CAPABILITIES] = process_capabilities,
        [PROBE_SECCOMP] = process_seccomp,
        [PROBE_NAMESPACES] = calls_namespaces,
        [PROBE_SOCKETS] = calls_sockets,
        [PROBE_KEYS] = calls_keys,
        [PROBE_BPF] = calls_bpf,
        [PROBE_URING] = calls_uring,
        [PROBE_CALLS] = calls_privileged,
        [PROBE_INIT] = process_init,
        [PROBE_TERMINAL] = calls_terminal,
        [PROBE_ARCHITECTURE] = calls_architecture,
        [PROBE_MOUNTS] = probe_mounts,
        [PROBE_HOST_PATHS] = probe_host_paths,
        [PROBE_HOST_NAME] = probe_host_name,
        [PROBE_PROC] = files_proc,
        [PROBE_PROC_SYS] = files_proc_sys,
        [PROBE_CGROUPS] = files_cgroups,
        [PROBE_SYSFS] = files_sysfs,
        [PROBE_DEVICES] = files_devices,
        [PROBE_DESCRIPTORS] = process_descriptors,
        [PROBE_LIMITS] = process_limits,
        [PROBE_NETWORK] = network_lo,
        [PROBE_PROCESSES] = process_others,
        [PROBE_PROCESSORS] = probe_processors,
        [PROBE_HOME] = probe_home,
        [PROBE_SCRATCH] = probe_scratch,
        [PROBE_TMP] = probe_tmp,
        [PROBE_NEIGHBOUR] = network_neighbour,
};

static bool report(const struct probe_row *row)
{
	return write(STDOUT_FILENO, row, sizeof *row) == sizeof *row;
}

/* Runs one probe in a child that fills the shared row. */
static void run_probe(enum probe_number number, struct probe_row *row)
{
	int status = 0;
	pid_t pid;

	memset(row, 0, sizeof *row);
	expect_begin(row);
	row->number = number;
	expect_that(false, "did not end");
	pid = fork();
	if (pid == 0) {
		alarm(PROBE_SECONDS);
		expect_begin(row);
		INSIDE[number]();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		snprintf(row->seen, sizeof row->seen, "fork: %s", strerror(errno));
	else if (WIFSIGNALED(status))
		snprintf(row->seen, sizeof row->seen, "ended by signal %d", WTERMSIG(status));
	if (pid < 0 || status)
		row->state = PROBE_FAILED;
	row->number = number;
	row->seen[sizeof row->seen - 1] = 0;
}

/* For commands whose standard input is something else. */
static bool copy_self(void)
{
	int to = open(PROBE_COPY, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	off_t at = 0;
	ssize_t n = to < 0 ? -1 : 1;

	while (n > 0)
		n = sendfile(to, STDIN_FILENO, &at, 1 << 20);
	if (to >= 0)
		close(to);
	return n == 0;
}

static int inside(int argc, char **argv)
{
	struct probe_row *row =
	        mmap(NULL, sizeof *row, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (argc != PROBE_ARGS || row == MAP_FAILED || !copy_self())
		return 1;
	arguments = argv;
	for (int i = PROBE_ARG_FIRST_ID; i < PROBE_ARG_HOST_NAME; i++)
		expected[i] = strtoul(argv[i], NULL, 10);
	for (enum probe_number i = 0; i < PROBE_COUNT; i++) {
		if (!INSIDE[i])
			continue;
		run_probe(i, row);
		if (!report(row))
			return 1;
	}
	return 0;
}

/* The one probe of a program whose answer is one row. */
static int single(const char *what, unsigned long limit)
{
	struct probe_row row = {0};

	expect_begin(&row);
	if (strcmp(what, PROBE_DO_LANDLOCK) == 0) {
		row.number = PROBE_LANDLOCK;
		files_landlock();
	} else if (strcmp(what, PROBE_DO_PIDS) == 0) {
		row.number = PROBE_PIDS;
		load_processes(limit);
	} else if (strcmp(what, PROBE_DO_CPU) == 0) {
		row.number = PROBE_CPU;
		load_cpu(limit);
	} else {
		return 2;
	}
	return !report(&row);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, PROBE_DO_INSIDE) == 0)
		return inside(argc, argv);
	if (strcmp(what, PROBE_DO_NEIGHBOUR) == 0)
		return network_be_neighbour();
	if (strcmp(what, PROBE_DO_TREE) == 0)
		return load_tree();
	if (strcmp(what, PROBE_DO_MEMORY) == 0)
		return load_memory();
	return single(what, argc > 2 ? strtoul(argv[2], NULL, 10) : 0);
}
