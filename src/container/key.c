/* Keys, host names, and datagrams with descriptors. */
#include "container/internal.h"

#include "base/id.h"
#include "packet/hurry.h"

#include <errno.h>

void container_key(struct str account, struct str workspace, struct str id,
        uint8_t ret_key[SUP_KEY_LEN], uint8_t ret_workspace[16])
{
	const struct str parts[] = {STR("brig container"), account, workspace, id};
	const struct str ws[] = {STR("brig workspace"), account, workspace};
	uint8_t hash[32];

	id_sha256_parts(parts, 4, ret_key);
	id_sha256_parts(ws, 3, hash);
	memcpy(ret_workspace, hash, 16);
}

void container_hostname(struct str id, char out[64])
{
	size_t n = 0;

	memset(out, 0, 64);
	for (size_t i = 0; i < id.n && n < 63; i++) {
		char c = id.p[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		if (c == '_')
			c = '-';
		if ((c == '-' && n > 0) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
			out[n++] = c;
	}
	while (n > 0 && out[n - 1] == '-')
		out[--n] = 0;
	if (n == 0)
		memcpy(out, "container", 9);
}

ssize_t socket_receive(int fd, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_fds)
{
	struct packet p;
	int r = hurry_receive(fd, data, size, max_fds, &p);

	*ret_fds = 0;
	if (r > 0 && p.len > size) {
		hurry_close_fds(&p);
		r = -EMSGSIZE;
	}
	if (r < 0)
		errno = -r;
	if (r <= 0)
		return r < 0 ? -1 : 0;
	*ret_fds = (size_t)p.n_fds;
	memcpy(fds, p.fds, (size_t)p.n_fds * sizeof(int));
	return (ssize_t)p.len;
}

int socket_send(int fd, const void *data, size_t size, const void *more, size_t more_size,
        const int *fds, size_t n_fds)
{
	int r = packet_send(fd, data, size, more, more_size, fds, n_fds);

	errno = r < 0 ? -r : errno;
	return r < 0 ? -1 : 0;
}
