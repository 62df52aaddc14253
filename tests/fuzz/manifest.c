/* Any bytes as a manifest whose hash is right: a reader of constant memory that ends, whatever it
 * says. */
#include "container/manifest.h"

#include "base/id.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void write_all(int fd, const void *data, size_t n)
{
	if (n > 0 && write(fd, data, n) != (ssize_t)n)
		abort();
}

static void check(const struct tree_entry *e)
{
	if (e->node.name_len > TREE_NAME_MAX || memchr(e->name, '/', e->node.name_len) ||
	        (e->node.depth > 0) != (e->node.name_len > 0) ||
	        strnlen(e->target, TREE_TARGET_MAX + 1) != e->node.target_len)
		abort();
}

/* The input's first byte says whether head and hash are made right. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct tree_entry e;
	struct manifest_head head = {.version = MANIFEST_VERSION};
	struct manifest_reader *r = NULL;
	struct manifest_chunk c;
	struct error err = {0};
	uint8_t hash[MANIFEST_HASH], all[sizeof(head) + 8192];
	bool right = n > 0 && (data[0] & 1) == 0;
	size_t size = 0;
	int fd = memfd_create("manifest", MFD_CLOEXEC), got;

	if (fd < 0)
		abort();
	data += n > 0;
	n -= n > 0;
	n = n > 8192 ? 8192 : n;
	memcpy(head.magic, MANIFEST_MAGIC, sizeof(head.magic));
	if (right) {
		memcpy(all, &head, sizeof(head));
		size = sizeof(head);
	}
	if (n > 0)
		memcpy(all + size, data, n);
	size += n;
	write_all(fd, all, size);
	if (right) {
		id_sha256((struct str){(const char *)all, size}, hash);
		write_all(fd, hash, sizeof(hash));
		size += sizeof(hash);
	}
	if (manifest_open(fd, size, head.key, &r, &err) == 0) {
		while ((got = manifest_next(r, &e, &err)) > 0) {
			check(&e);
			if (e.node.inode % 2 == 0 && manifest_next_chunk(r, &c, &err) > 0 &&
			        c.length > TREE_PIECE)
				abort();
		}
	} else {
		got = -1;
	}
	if (got < 0 && !err.text[0])
		abort();
	manifest_close(r);
	close(fd);
	return 0;
}
