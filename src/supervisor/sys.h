/*
 * Small wrappers of system calls that several files of the supervisor need. They return 0 (or a
 * descriptor, or a count) and on failure a negative errno; they keep no state.
 */
#ifndef BRIG_SUPERVISOR_SYS_H
#define BRIG_SUPERVISOR_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Why a request failed, in the terms of proto/supervisor.h. step is static text of ours. */
struct fail {
	uint32_t why; /* enum sup_error */
	int errnum;
	const char *step;
};
/* Fills f and returns -1. */
int fail_set(struct fail *f, uint32_t why, int errnum, const char *step);

void sys_close(int *fd); /* closes when ≥ 0, sets -1 */
#define _cleanup_close_ __attribute__((cleanup(sys_close)))
#define steal_fd(fd)                                                                               \
	({                                                                                         \
		int _f = (fd);                                                                     \
		(fd) = -1;                                                                         \
		_f;                                                                                \
	})

int sys_write_at(
        int dir, const char *name, const char *text); /* one write(2) to an existing file */
int sys_write_u64(int dir, const char *name, uint64_t number);
ssize_t sys_read_at(
        int dir, const char *name, char *buf, size_t size); /* NUL-terminated, may be cut */

/* packet_send of one piece. */
int sys_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds);

/* A user namespace that maps ids [inside, inside + 65536) to [outside, …) for users and groups; it
 * holds no process. Returns its descriptor: for idmapped mounts. */
int sys_userns(uint32_t inside, uint32_t outside);
/*
 * From now on, what this thread makes in the way of user namespaces belongs to that user, in whose
 * name the kernel counts what is used in them: inotify instances and watches, bytes of message
 * queues, pending signals, locked memory. Made by root, all of them together would have what one
 * user may, and root of the host with them. Nobody may run outside with such an id. With 0 it is
 * root again.
 */
int sys_make_for(uid_t user);
/* Writes both id maps of a process that was just cloned into a new user namespace. */
int sys_map_ids(pid_t pid, uint32_t inside, uint32_t outside);

/* Runs argv outside with empty environment and no output but standard error; 0 or -EIO or -errno.
 */
int sys_run(const char *const argv[]);

#endif
