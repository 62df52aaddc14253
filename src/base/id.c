#include "base/id.h"

#include "base/error.h"
#include "base/mem.h"

#include <errno.h>
#include <openssl/evp.h>
#include <sys/random.h>
#include <unistd.h>

enum { ID_MAX = 40 };

void id_random(void *out, size_t n)
{
	char *p = out;

	while (n > 0) {
		ssize_t got = getrandom(p, n, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			BUG("getrandom: %s", strerror(errno));
		p += got;
		n -= (size_t)got;
	}
}

/*
 * Random bytes for ids, asked for by the page rather than by the id: a turn makes half a dozen. Each is
 * wiped as it is used. A child of fork gets bytes of its own, since the pool belongs to one process.
 */
static _Thread_local struct {
	uint8_t bytes[1024];
	size_t left;
	pid_t pid;
} pool;

static uint8_t pool_byte(void)
{
	uint8_t byte;

	if (pool.left == 0) {
		id_random(pool.bytes, sizeof(pool.bytes));
		pool.left = sizeof(pool.bytes);
	}
	byte = pool.bytes[--pool.left];
	pool.bytes[pool.left] = 0;
	return byte;
}

void id_make(char *out, size_t size, const char *prefix, size_t n)
{
	static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	size_t len = strlen(prefix), made = 0;

	if (n > ID_MAX || size < n + 1 || len > size - n - 1)
		BUG("an id of %zu and %zu characters does not fit into %zu", len, n, size);
	memcpy(out, prefix, len);
	if (pool.pid != getpid()) {
		pool.left = 0;
		pool.pid = getpid();
	}
	while (made < n) {
		uint8_t byte = pool_byte();

		/* 252 = 7 × 36: bytes above it would make some characters more likely. */
		if (byte < 252)
			out[len + made++] = alphabet[byte % 36];
	}
	out[len + n] = '\0';
}

void id_sha256(struct str data, uint8_t out[32])
{
	unsigned int len = 0;

	if (EVP_Digest(data.p ? data.p : "", data.n, out, &len, EVP_sha256(), NULL) != 1 ||
	        len != 32)
		BUG("SHA-256 failed");
}

void id_sha256_parts(const struct str *parts, size_t n, uint8_t out[32])
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	unsigned int len = 0;
	size_t i;
	int b, ok;

	ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;
	for (i = 0; ok && i < n; i++) {
		uint8_t prefix[8];

		for (b = 0; b < 8; b++)
			prefix[b] = (uint8_t)((uint64_t)parts[i].n >> (56 - 8 * b));
		ok = EVP_DigestUpdate(md, prefix, sizeof(prefix)) == 1 &&
		     (parts[i].n == 0 || EVP_DigestUpdate(md, parts[i].p, parts[i].n) == 1);
	}
	ok = ok && EVP_DigestFinal_ex(md, out, &len) == 1 && len == 32;
	EVP_MD_CTX_free(md);
	if (!ok)
		BUG("SHA-256 failed");
}

void id_hex(const void *bytes, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = bytes;
	size_t i;

	for (i = 0; i < n; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * n] = '\0';
}
