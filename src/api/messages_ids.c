/*
 * Ids of calls in blocks. What the conversation calls a public id ("s0_call_a" in a request with a
 * server tool, else the upstream's own) is shown behind the prefix that clients of this API know,
 * and taken out again on a replay. An upstream's id that this API's clients would refuse travels in
 * base64url.
 */
#include "api/messages.h"

#include "base/base64.h"
#include "base/id.h"
#include "base/utf8.h"

#define SERVER   "srvtoolu_"
#define CLIENT   "toolu_"
#define CODED    "toolu_b_"
#define ID_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

enum {
	ID_MAX = 64,
	CODED_MAX = 42, /* bytes that fit behind CODED */
};

/* Begins with the mark of a reply. */
static bool is_marked(struct str id)
{
	return id.n > 1 && id.p[0] == 's' && id.p[1] >= '0' && id.p[1] <= '9' &&
	       conversation_id_reply(id) != REPLY_NONE;
}

static struct str without(struct str id, const char *prefix)
{
	size_t n = strlen(prefix);

	return str_starts(id, prefix) ? (struct str){id.p + n, id.n - n} : (struct str){NULL, 0};
}

void messages_id_show(struct str public_id, bool server, char out[MESSAGES_ID_SIZE])
{
	struct buf text _cleanup_buf_ = BUF_INIT(MESSAGES_ID_SIZE);
	uint8_t hash[32];
	char hex[65];

	if (server) {
		str_format(out, MESSAGES_ID_SIZE, SERVER "%.*s",
		        (int)(public_id.n < ID_MAX ? public_id.n : ID_MAX), public_id.p);
	} else if (is_marked(public_id)) {
		str_format(out, MESSAGES_ID_SIZE, CLIENT "%.*s",
		        (int)(public_id.n < ID_MAX ? public_id.n : ID_MAX), public_id.p);
	} else if (public_id.n <= ID_MAX && str_in_set(public_id, ID_CHARS)) {
		str_format(out, MESSAGES_ID_SIZE, "%.*s", (int)public_id.n, public_id.p);
	} else if (public_id.n > 0 && public_id.n <= CODED_MAX &&
	           base64_append_url(&text, public_id.p, public_id.n) == 0) {
		str_format(out, MESSAGES_ID_SIZE, CODED "%s", buf_cstr(&text));
	} else {
		id_sha256(public_id, hash);
		id_hex(hash, 16, hex);
		str_format(out, MESSAGES_ID_SIZE, CLIENT "%s", hex);
	}
}

struct str messages_id_read(struct str block_id, char room[MESSAGES_ID_SIZE])
{
	struct buf text _cleanup_buf_ = BUF_INIT(MESSAGES_ID_SIZE - 1);
	struct str rest = without(block_id, SERVER);

	if (!rest.p)
		rest = without(block_id, CLIENT);
	if (rest.p && is_marked(rest))
		return rest;
	rest = without(block_id, CODED);
	if (rest.n > 0 && base64_decode_url(&text, rest) && text.len > 0 && text.len <= CODED_MAX &&
	        utf8_valid(text.data, text.len) &&
	        !str_in_set((struct str){text.data, text.len}, ID_CHARS)) {
		memcpy(room, text.data, text.len);
		return (struct str){room, text.len};
	}
	return block_id;
}

bool messages_id_is_ours(struct str block_id)
{
	return is_marked(without(block_id, SERVER));
}
