#include "gateway/shared.h"

#include "gateway/gateway.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

_Static_assert(sizeof(struct shared) <= GATEWAY_SHARED_SIZE, "the mapping is too small");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
        "a lock would lie in one process");

struct shared *shared_map(int fd, struct error *err)
{
	struct stat st;
	void *at;

	if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_size < GATEWAY_SHARED_SIZE)) {
		error_set(err, ERR_INVALID, "the memory that gateways share is too small");
		return NULL;
	}
	at = mmap(NULL, GATEWAY_SHARED_SIZE, PROT_READ | PROT_WRITE,
	        fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (at == MAP_FAILED) {
		error_errno(err, errno, "map the memory that gateways share");
		return NULL;
	}
	return at;
}

struct shared *shared_unmap(struct shared *s)
{
	if (s != NULL)
		munmap(s, GATEWAY_SHARED_SIZE);
	return NULL;
}
