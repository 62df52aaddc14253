/*
 * Sealed state: bytes of a provider that must come back to it unchanged (encrypted reasoning,
 * signatures), carried by the client as one string that it can neither read nor forge (DESIGN
 * section 4).
 *
 *     "brig1." base64url( nonce[12] ciphertext tag[16] )      AES-256-GCM
 *
 * The associated data is provider, model and account, each with its length: what was sealed for one
 * does not open for another. The key lies in the state folder and is made by whoever comes first.
 */
#include "gateway/internal.h"

#include "base/base64.h"
#include "base/id.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PREFIX PROVIDER_SEALED
#define NONCE  12
#define TAG    16

/* Makes the file whole before it has its name, so that no other gateway reads half a key. */
static int seal_key_make(const char *path, struct error *err)
{
	uint8_t key[32];
	char tmp[4200];
	int fd, r = 0;

	str_format(tmp, sizeof(tmp), "%s.%d", path, (int)getpid());
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(err, errno, "create %s", tmp);
	id_random(key, sizeof(key));
	if (write(fd, key, sizeof(key)) != sizeof(key) || fsync(fd) < 0)
		r = error_errno(err, errno, "write %s", tmp);
	mem_wipe(key, sizeof(key));
	close(fd);
	if (r == 0 && link(tmp, path) < 0 && errno != EEXIST)
		r = error_errno(err, errno, "link %s", path);
	unlink(tmp);
	return r;
}

int seal_key_load(struct gateway *g, struct error *err)
{
	char path[4160];
	int fd, r;

	str_format(path, sizeof(path), "%s/seal.key", g->options->state_dir);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT) {
		r = seal_key_make(path, err);
		if (r < 0)
			return r;
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	}
	if (fd < 0)
		return error_errno(err, errno, "open %s", path);
	r = read(fd, g->seal_key, sizeof(g->seal_key)) == sizeof(g->seal_key)
	            ? 0
	            : error_set(err, ERR_IO, "%s is not 32 bytes", path);
	close(fd);
	return r;
}

static bool seal_aad(EVP_CIPHER_CTX *ctx, bool encrypt, struct str provider, struct str model,
        struct str account)
{
	const struct str parts[] = {provider, model, account};

	for (size_t i = 0; i < 3; i++) {
		uint32_t n = (uint32_t)parts[i].n;
		int len;

		if (EVP_CipherUpdate(ctx, NULL, &len, (const unsigned char *)&n, sizeof(n)) != 1)
			return false;
		if (n > 0 && EVP_CipherUpdate(ctx, NULL, &len, (const unsigned char *)parts[i].p,
		                     (int)n) != 1)
			return false;
	}
	return true;
}

static EVP_CIPHER_CTX *seal_begin(const struct gateway *g, bool encrypt, const uint8_t nonce[NONCE])
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

	if (ctx != NULL &&
	        EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, g->seal_key, nonce, encrypt) == 1)
		return ctx;
	EVP_CIPHER_CTX_free(ctx);
	return NULL;
}

static int base64url_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* out has room for 3/4 of s.n. Returns the length, or 0 for anything that is not exactly our form.
 */
static size_t base64url_read(struct str s, uint8_t *out)
{
	uint32_t v = 0;
	size_t n = 0;

	if (s.n % 4 == 1)
		return 0;
	for (size_t i = 0; i < s.n; i++) {
		int d = base64url_digit(s.p[i]);

		if (d < 0)
			return 0;
		v = v << 6 | (uint32_t)d;
		if (i % 4 == 3) {
			out[n++] = (uint8_t)(v >> 16);
			out[n++] = (uint8_t)(v >> 8);
			out[n++] = (uint8_t)v;
			v = 0;
		}
	}
	if (s.n % 4 == 2) {
		out[n++] = (uint8_t)(v >> 4);
	} else if (s.n % 4 == 3) {
		out[n++] = (uint8_t)(v >> 10);
		out[n++] = (uint8_t)(v >> 2);
	}
	return n;
}

int seal_close(const struct gateway *g, struct str provider, struct str model, struct str account,
        struct str bytes, struct buf *out)
{
	uint8_t nonce[NONCE];
	uint8_t *sealed;
	EVP_CIPHER_CTX *ctx;
	int len = 0, r = -ERR_INTERNAL;

	if (bytes.n > (size_t)16 << 20)
		return -ERR_TOO_LARGE;
	id_random(nonce, sizeof(nonce));
	sealed = mem_alloc(NONCE + bytes.n + TAG);
	memcpy(sealed, nonce, NONCE);
	ctx = seal_begin(g, true, nonce);
	if (ctx != NULL && seal_aad(ctx, true, provider, model, account) &&
	        EVP_CipherUpdate(ctx, sealed + NONCE, &len, (const unsigned char *)bytes.p,
	                (int)bytes.n) == 1 &&
	        EVP_CipherFinal_ex(ctx, sealed + NONCE + len, &len) == 1 &&
	        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG, sealed + NONCE + bytes.n) ==
	                1) {
		buf_puts(out, PREFIX);
		base64_append_url(out, sealed, NONCE + bytes.n + TAG);
		r = buf_error(out);
	}
	EVP_CIPHER_CTX_free(ctx);
	free(sealed);
	return r;
}

bool seal_open(const struct gateway *g, struct str provider, struct str model, struct str account,
        struct str sealed, struct buf *out)
{
	struct str b64;
	_cleanup_free_ uint8_t *raw = NULL;
	_cleanup_free_ uint8_t *plain = NULL;
	EVP_CIPHER_CTX *ctx;
	size_t n;
	int len = 0;
	bool good;

	if (!str_starts(sealed, PREFIX) || sealed.n > (size_t)32 << 20)
		return false;
	b64 = (struct str){sealed.p + strlen(PREFIX), sealed.n - strlen(PREFIX)};
	raw = mem_alloc(b64.n + 4);
	n = base64url_read(b64, raw);
	if (n < NONCE + TAG)
		return false;
	n -= NONCE + TAG;
	plain = mem_alloc(n + 1);
	ctx = seal_begin(g, false, raw);
	good = ctx != NULL && seal_aad(ctx, false, provider, model, account) &&
	       EVP_CipherUpdate(ctx, plain, &len, raw + NONCE, (int)n) == 1 &&
	       EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG, raw + NONCE + n) == 1 &&
	       EVP_CipherFinal_ex(ctx, plain + len, &len) == 1;
	EVP_CIPHER_CTX_free(ctx);
	return good && buf_append(out, plain, n) == 0;
}

/* No provider's name is empty. */
int seal_close_summary(
        const struct gateway *g, struct str account, struct str text, struct buf *out)
{
	return seal_close(g, STR(""), STR("compaction"), account, text, out);
}

bool seal_open_summary(
        const struct gateway *g, struct str account, struct str sealed, struct buf *out)
{
	return seal_open(g, STR(""), STR("compaction"), account, sealed, out);
}
