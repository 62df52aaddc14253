#include "files.h"

#include "unit/unit.h"

#include "base/id.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static uint32_t last_seq;

union head {
	struct worker_header h;
	struct worker_entry entry;
	struct worker_handle created;
	struct worker_done done;
	struct worker_failed failed;
	char bytes[WORKER_MAX_MESSAGE];
};

void answer_clear(struct answer *a)
{
	for (size_t i = 0; i < a->n_files; i++)
		free(a->files[i].path);
	free(a->files);
	if (a->fd >= 0)
		close(a->fd);
	*a = (struct answer){.fd = -1};
}

int files_ask(struct node *n, uint32_t gateway, const char *name, uint32_t flags, union reply *ret)
{
	struct sup_files m = {
	        .h = {.op = SUP_FILES, .size = sizeof(m), .seq = ++n->seq}, .flags = flags};
	int fd;
	id_sha256(str_of(name), m.key);
	node_send(n, gateway, &m, sizeof(m));
	do
		node_recv(n, gateway, ret, &fd);
	while (ret->h.op == SUP_ENDED);
	assert_int_equal(ret->h.seq, m.h.seq);
	assert_int_equal(fd >= 0, ret->h.op == SUP_FILES_ARE);
	return fd;
}

int files_open(struct node *n, const char *name, uint32_t flags)
{
	union reply r;
	int fd = files_ask(n, 0, name, flags, &r);
	if (fd < 0)
		fail_msg("no files: %u %s: %s", r.failed.why, r.failed.step,
		        strerror((int)r.failed.errnum));
	return fd;
}

uint32_t files_send(int sock, const void *fixed, size_t size, const char *path, size_t path_len)
{
	static char bytes[sizeof(struct worker_link) + 2 * WORKER_PATH_MAX];
	struct worker_header h;
	memcpy(bytes, fixed, size);
	memcpy(&h, bytes, sizeof(h));
	h.size = (uint16_t)size;
	h.seq = ++last_seq;
	memcpy(bytes, &h, sizeof(h));
	if (path_len)
		memcpy(bytes + size, path, path_len);
	if (send(sock, bytes, size + path_len, MSG_NOSIGNAL) < 0 && errno != EPIPE &&
	        errno != ECONNRESET)
		fail_msg("send: %s", strerror(errno));
	return h.seq;
}

/* One message; 0: the socket ended. */
static ssize_t receive(int sock, union head *m, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {m, sizeof(*m)};
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = control.bytes,
	        .msg_controllen = sizeof(control.bytes)};
	struct pollfd p = {sock, POLLIN, 0};
	*ret_fd = -1;
	if (poll(&p, 1, FILES_LIMIT_MS) != 1)
		fail_msg("the worker does not answer");
	ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return 0;
	assert_int_equal(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	if (c)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	assert_true(n >= (ssize_t)sizeof(m->h));
	return n;
}

static void add_file(struct answer *a, const union head *m, size_t len)
{
	assert_int_equal(m->h.size, sizeof(m->entry));
	assert_int_equal(len, sizeof(m->entry) + m->entry.path_len);
	assert_true(m->entry.path_len >= 1 && m->entry.path_len <= WORKER_PATH_MAX);
	a->files = realloc(a->files, (a->n_files + 1) * sizeof(*a->files));
	struct file *f = &a->files[a->n_files++];
	*f = (struct file){.path = malloc(m->entry.path_len + 1),
	        .path_len = m->entry.path_len,
	        .size = m->entry.size,
	        .inode = m->entry.inode,
	        .ctime_ns = m->entry.ctime_ns,
	        .mtime_ns = m->entry.mtime_ns,
	        .mode = m->entry.mode};
	memcpy(f->path, m->bytes + sizeof(m->entry), f->path_len);
	f->path[f->path_len] = '\0';
}

struct answer files_await(int sock, uint32_t seq)
{
	static union head m;
	struct answer a = {.fd = -1};
	for (;;) {
		int fd;
		ssize_t n = receive(sock, &m, &fd);
		if (n == 0) {
			a.gone = true;
			return a;
		}
		if (m.h.seq != seq)
			fail_msg("answer to %u, not to %u", m.h.seq, seq);
		if (fd >= 0) {
			assert_int_equal(a.fd, -1);
			a.fd = fd;
		}
		switch (m.h.op) {
		case WORKER_ENTRY:
			add_file(&a, &m, (size_t)n);
			continue;
		case WORKER_CREATED:
			assert_int_equal(n, sizeof(m.created));
			a.handle = m.created.handle;
			return a;
		case WORKER_DONE:
			assert_int_equal(n, sizeof(m.done));
			a.flags = m.done.flags;
			return a;
		case WORKER_FAILED:
			assert_int_equal(n, sizeof(m.failed));
			assert_true(m.failed.errnum > 0);
			a.errnum = (int)m.failed.errnum;
			str_copy(a.step, sizeof(a.step), str_of(m.failed.step));
			return a;
		default:
			fail_msg("answer %u", m.h.op);
		}
	}
}

struct answer files_list(int sock, const char *after, uint32_t limit)
{
	struct worker_list m = {
	        .h.op = WORKER_LIST, .limit = limit, .path_len = (uint32_t)strlen(after)};
	return files_await(sock, files_send(sock, &m, sizeof(m), after, m.path_len));
}

struct answer files_recent(int sock, uint64_t since_ns, uint32_t limit, uint32_t budget_us)
{
	struct worker_recent m = {.h.op = WORKER_RECENT,
	        .since_ns = since_ns,
	        .limit = limit,
	        .budget_us = budget_us};
	return files_await(sock, files_send(sock, &m, sizeof(m), NULL, 0));
}

struct answer files_path(int sock, enum worker_op op, const char *path)
{
	struct worker_path m = {.h.op = (uint16_t)op, .path_len = (uint32_t)strlen(path)};
	return files_await(sock, files_send(sock, &m, sizeof(m), path, m.path_len));
}

struct answer files_create(int sock, uint64_t size)
{
	struct worker_create m = {.h.op = WORKER_CREATE, .size = size};
	return files_await(sock, files_send(sock, &m, sizeof(m), NULL, 0));
}

struct answer files_link(int sock, uint64_t handle, const char *path, uint32_t flags)
{
	struct worker_link m = {.h.op = WORKER_LINK,
	        .handle = handle,
	        .flags = flags,
	        .path_len = (uint32_t)strlen(path)};
	return files_await(sock, files_send(sock, &m, sizeof(m), path, m.path_len));
}

struct answer files_drop(int sock, uint64_t handle)
{
	struct worker_handle m = {.h.op = WORKER_DROP, .handle = handle};
	return files_await(sock, files_send(sock, &m, sizeof(m), NULL, 0));
}

struct answer files_sync(int sock)
{
	struct worker_header m = {.op = WORKER_SYNC};
	return files_await(sock, files_send(sock, &m, sizeof(m), NULL, 0));
}

void files_put(int sock, const char *path, const char *text)
{
	struct answer a = files_create(sock, strlen(text));
	if (a.gone || a.errnum)
		fail_msg("create: %s: %s", a.step, strerror(a.errnum));
	assert_int_equal(write(a.fd, text, strlen(text)), (ssize_t)strlen(text));
	uint64_t handle = a.handle;
	answer_clear(&a);
	a = files_link(sock, handle, path, 0);
	if (a.gone || a.errnum)
		fail_msg("link %s: %s: %s", path, a.step, strerror(a.errnum));
	assert_int_equal(a.n_files, 1);
	assert_string_equal(a.files[0].path, path);
	assert_int_equal(a.files[0].size, strlen(text));
	assert_int_equal(a.files[0].mode, 0644);
	answer_clear(&a);
}

const char *files_get(int sock, const char *path)
{
	static char text[4096];
	struct answer a = files_path(sock, WORKER_OPEN, path);
	if (a.fd < 0)
		return NULL;
	assert_int_equal(a.errnum, 0);
	assert_int_equal(a.n_files, 1);
	ssize_t n = read(a.fd, text, sizeof(text) - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	answer_clear(&a);
	return text;
}

const char *files_names(int sock)
{
	static char text[65536];
	size_t at = 0;
	struct answer a = files_list(sock, "", WORKER_LIST_MAX);
	if (a.gone || a.errnum)
		fail_msg("list: %s: %s", a.step, strerror(a.errnum));
	for (size_t i = 0; i < a.n_files && at + a.files[i].path_len + 2 < sizeof(text); i++) {
		memcpy(text + at, a.files[i].path, a.files[i].path_len);
		at += a.files[i].path_len;
		text[at++] = '\n';
	}
	text[at] = '\0';
	answer_clear(&a);
	return text;
}
