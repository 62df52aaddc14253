#include "supervisor/message.h"

#include <string.h>

#define DAY_MS (24ULL * 3600 * 1000)

static size_t size_of_op(uint16_t op)
{
	switch (op) {
	case SUP_CLAIM:
		return sizeof(struct sup_claim);
	case SUP_CANCEL:
	case SUP_NODE:
		return sizeof(struct sup_simple);
	case SUP_RELEASE:
		return sizeof(struct sup_hold);
	case SUP_SLEEP:
	case SUP_DELETE:
	case SUP_STATUS:
		return sizeof(struct sup_key);
	case SUP_KEEP:
		return sizeof(struct sup_keep);
	case SUP_FILES:
		return sizeof(struct sup_files);
	default:
		return 0;
	}
}

/* [a-z0-9-], not empty, at least one NUL at the end and only NULs after the first. */
static bool hostname_sound(const char name[64])
{
	size_t n = 0;
	while (n < 64 && ((name[n] >= 'a' && name[n] <= 'z') ||
	                         (name[n] >= '0' && name[n] <= '9') || name[n] == '-'))
		n++;
	if (n == 0 || n == 64)
		return false;
	for (size_t i = n; i < 64; i++)
		if (name[i] != '\0')
			return false;
	return true;
}

static const char *claim_check(const struct sup_claim *c)
{
	if (c->memory_mib < 16)
		return "memory_mib";
	if (c->cpu_milli < 50)
		return "cpu_milli";
	if (c->processes < 16 || c->processes > 32768)
		return "processes";
	if (c->wait_ms > 60000)
		return "wait_ms";
	if (!hostname_sound(c->hostname))
		return "hostname";
	if (c->flags & ~(SUP_CLAIM_MUST_EXIST | SUP_CLAIM_NETWORK | SUP_CLAIM_ANY_ADDRESS))
		return "flags";
	if (!(c->flags & SUP_CLAIM_NETWORK))
		return c->flags & SUP_CLAIM_ANY_ADDRESS ? "flags" : NULL;
	if (memcmp(c->policy, (const uint8_t[sizeof(c->policy)]){0}, sizeof(c->policy)) == 0)
		return "policy";
	return NULL;
}

bool message_has_policy(const union message *m, size_t len)
{
	return len == sizeof(m->claim) && m->h.op == SUP_CLAIM &&
	       (m->claim.flags & SUP_CLAIM_NETWORK);
}

const char *message_check(const union message *m, size_t len, bool with_fd)
{
	if (with_fd != message_has_policy(m, len))
		return with_fd ? "a descriptor" : "no descriptor";
	if (len < sizeof(m->h) || len > sizeof(m->bytes))
		return "length";
	size_t size = size_of_op(m->h.op);
	if (size == 0)
		return "op";
	if (len != size || m->h.size != size)
		return "size";
	if (m->h.op == SUP_CLAIM)
		return claim_check(&m->claim);
	if (m->h.op == SUP_KEEP && m->keep.keep_ms > 31 * DAY_MS)
		return "keep_ms";
	if (m->h.op == SUP_FILES &&
	        ((m->files.flags & ~(SUP_FILES_CREATE | SUP_FILES_TREE)) || m->files.pad))
		return "flags";
	return NULL;
}
