/*
 * Replies and the ids that carry their numbers (conversation.h, DESIGN section 4).
 *
 * A mark is `s<digits>_` or, on a call whose upstream id did not fit, `s<digits>h_`. In a call id
 * it stands first; in an item id it follows the kind: `msg_s3_…`. Numbers above MAX_REPLY are no
 * marks, so that a foreign id with a long number is left alone.
 */
#include "conversation/conversation.h"

#include "base/id.h"
#include "base/utf8.h"

#define MAX_REPLY     99999
#define MAX_PUBLIC_ID 40
#define ID_CHARS      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

/* Reads a mark at the start of s. Returns its length, or 0. */
static size_t mark_read(struct str s, uint32_t *ret_reply, bool *ret_hashed)
{
	size_t i = 1;
	uint32_t n = 0;

	if (s.n < 3 || s.p[0] != 's')
		return 0;
	while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9') {
		if (i > 1 && n == 0)
			return 0;
		n = n * 10 + (uint32_t)(s.p[i] - '0');
		if (n > MAX_REPLY)
			return 0;
		i++;
	}
	if (i == 1)
		return 0;
	*ret_hashed = i < s.n && s.p[i] == 'h';
	if (*ret_hashed)
		i++;
	if (i >= s.n || s.p[i] != '_')
		return 0;
	*ret_reply = n;
	return i + 1;
}

uint32_t conversation_id_reply(struct str id)
{
	uint32_t reply;
	bool hashed;

	if (mark_read(id, &reply, &hashed) > 0)
		return reply;
	for (size_t i = 0; i + 1 < id.n && i < 8; i++) {
		if (id.p[i] != '_')
			continue;
		struct str rest = {id.p + i + 1, id.n - i - 1};

		if (mark_read(rest, &reply, &hashed) > 0 && !hashed)
			return reply;
	}
	return REPLY_NONE;
}

void conversation_public_id(
        uint32_t reply, struct str upstream_id, bool marked, char out[65], bool *ret_hashed)
{
	uint8_t hash[32];
	char hex[65];
	char mark[16];

	*ret_hashed = false;
	if (!marked) {
		if (upstream_id.n > 0 && upstream_id.n <= 64 &&
		        utf8_valid(upstream_id.p, upstream_id.n) &&
		        memchr(upstream_id.p, 0, upstream_id.n) == NULL) {
			str_format(out, 65, "%.*s", (int)upstream_id.n, upstream_id.p);
			return;
		}
	} else {
		str_format(mark, sizeof(mark), "s%u_", reply > MAX_REPLY ? MAX_REPLY : reply);
		if (strlen(mark) + upstream_id.n <= MAX_PUBLIC_ID &&
		        str_in_set(upstream_id, ID_CHARS)) {
			str_format(out, 65, "%s%.*s", mark, (int)upstream_id.n, upstream_id.p);
			return;
		}
	}
	*ret_hashed = true;
	id_sha256(upstream_id, hash);
	if (!marked) {
		id_hex(hash, 16, hex);
		str_format(out, 65, "call_%s", hex);
		return;
	}
	/* 40 − "s99999h_" = 32 hex digits, whatever the number. */
	id_hex(hash, 16, hex);
	str_format(out, 65, "s%uh_%s", reply > MAX_REPLY ? MAX_REPLY : reply, hex);
}

struct str conversation_upstream_id(struct str public_id, bool marked)
{
	uint32_t reply;
	bool hashed;
	size_t n;

	if (!marked)
		return public_id;
	n = mark_read(public_id, &reply, &hashed);
	if (n == 0)
		return public_id;
	if (hashed || n == public_id.n)
		return (struct str){NULL, 0};
	return (struct str){public_id.p + n, public_id.n - n};
}

bool conversation_id_is_hosted(struct str id)
{
	return str_starts(conversation_upstream_id(id, true), CONVERSATION_HOSTED);
}

/* ---- finding by id ---- */

/*
 * An open-addressed table over the items that were there when the replies were cut: a hostile
 * request can hold hundreds of thousands of results, and each must find its call. Items that the
 * turn adds later are few and are scanned. The hash is seeded, so that nobody can choose ids that
 * collide.
 */
struct conversation_index {
	uint64_t seed;
	size_t mask;
	size_t n_items;  /* how many items it covers */
	uint32_t *slots; /* item index + 1; 0: free */
	uint32_t *last;  /* by reply number: index of its last item */
	size_t n_replies;
};

static uint64_t index_hash(const struct conversation_index *x, enum item_type type, struct str id)
{
	uint64_t h = x->seed ^ ((uint64_t)type << 56);

	for (size_t i = 0; i < id.n; i++) {
		h = (h ^ (uint8_t)id.p[i]) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	return h ^ (h >> 32);
}

static struct str item_key(const struct item *it)
{
	return it->type == ITEM_CALL ? it->call.public_id : it->result.public_id;
}

static bool item_has_key(const struct item *it)
{
	return it->type == ITEM_CALL || it->type == ITEM_RESULT;
}

/* The last one in the table. */
static struct item *index_find(const struct conversation *c, enum item_type type, struct str id)
{
	const struct conversation_index *x = c->index;
	struct item *found = NULL;

	for (size_t s = index_hash(x, type, id) & x->mask; x->slots[s] != 0;
	        s = (s + 1) & x->mask) {
		struct item *it = c->items[x->slots[s] - 1];

		if (it->type == type && str_eq(item_key(it), id))
			found = it;
	}
	return found;
}

/* Adds item i. Some upstreams name the first call of every reply "call_0", so an id may come back;
 * a hostile request may not make the chains long. */
#define MAX_SAME_ID 256
static bool index_add(struct conversation *c, size_t i)
{
	struct conversation_index *x = c->index;
	const struct item *it = c->items[i];
	struct str id = item_key(it);
	size_t s = index_hash(x, it->type, id) & x->mask;
	unsigned same = 0;

	for (; x->slots[s] != 0; s = (s + 1) & x->mask) {
		const struct item *other = c->items[x->slots[s] - 1];

		if (other->type == it->type && str_eq(item_key(other), id) && ++same == MAX_SAME_ID)
			return false;
	}
	x->slots[s] = (uint32_t)i + 1;
	return true;
}

static int index_new(struct conversation *c)
{
	size_t n = 16;
	struct conversation_index *x = arena_alloc(c->arena, sizeof(*x));

	while (n < c->n_items * 2)
		n *= 2;
	if (x == NULL)
		return -ERR_NOMEM;
	x->slots = arena_alloc(c->arena, n * sizeof(*x->slots));
	if (x->slots == NULL)
		return -ERR_NOMEM;
	x->mask = n - 1;
	id_random(&x->seed, sizeof(x->seed));
	c->index = x;
	return 0;
}

static struct item *find_last(const struct conversation *c, enum item_type type, struct str id)
{
	size_t covered = c->index == NULL ? 0 : c->index->n_items;

	for (size_t i = c->n_items; i > covered; i--) {
		struct item *it = c->items[i - 1];

		if (it->type == type && str_eq(item_key(it), id))
			return it;
	}
	return c->index == NULL ? NULL : index_find(c, type, id);
}

struct item *conversation_find_call(const struct conversation *c, struct str public_id)
{
	return find_last(c, ITEM_CALL, public_id);
}

struct item *conversation_find_result(const struct conversation *c, struct str public_id)
{
	return find_last(c, ITEM_RESULT, public_id);
}

struct item *conversation_call_result(const struct conversation *c, const struct item *call)
{
	struct item *r = call->call.result;

	return r != NULL ? r : conversation_find_result(c, call->call.public_id);
}

struct item *conversation_reply_item(const struct conversation *c, uint32_t reply, size_t *index)
{
	const struct conversation_index *x = c->index;
	size_t end = c->n_items;

	if (x != NULL && reply < x->n_replies && *index < x->n_items)
		end = x->last[reply] + (size_t)1;
	while (*index < end) {
		struct item *it = c->items[(*index)++];

		if (it->reply == reply)
			return it;
	}
	return NULL;
}

/* ---- cutting ---- */

/* The reply that is open. */
struct cutter {
	uint32_t number; /* REPLY_NONE: none is open */
	uint32_t mark;   /* the number its ids carry, or REPLY_NONE while none did */
	bool saw_call;
	bool saw_result; /* a client's result stood in between: only its own mark continues it */
	uint32_t next;   /* a number that no id carries and no item has yet */
};

static bool cutter_continues(const struct cutter *k, const struct item *it, uint32_t mark)
{
	if (k->number == REPLY_NONE)
		return false;
	if (it->same_reply)
		return true;
	if (mark != REPLY_NONE && k->mark != REPLY_NONE)
		return mark == k->mark;
	if (k->saw_result)
		return false;
	if (mark != REPLY_NONE)
		return !k->saw_call;
	return it->type == ITEM_CALL || !k->saw_call;
}

static void cutter_assistant(struct cutter *k, struct item *it)
{
	uint32_t mark = conversation_id_reply(it->type == ITEM_CALL ? it->call.public_id : it->id);

	if (!cutter_continues(k, it, mark)) {
		k->number = k->next++;
		k->mark = REPLY_NONE;
		k->saw_call = false;
	}
	k->saw_result = false;
	if (mark != REPLY_NONE)
		k->mark = mark;
	if (it->type == ITEM_CALL)
		k->saw_call = true;
	it->reply = k->number;
}

static int cutter_result(
        struct cutter *k, struct conversation *c, struct item *it, struct error *err)
{
	struct item *call = index_find(c, ITEM_CALL, it->result.public_id);

	if (call == NULL)
		return error_param(err, ERR_INVALID, "input",
		        "No tool call found for the output with call_id %.*s.",
		        (int)(it->result.public_id.n > 64 ? 64 : it->result.public_id.n),
		        it->result.public_id.p);
	if (call->call.result != NULL)
		return error_param(err, ERR_INVALID, "input", "Two outputs have the call_id %.*s.",
		        (int)(it->result.public_id.n > 64 ? 64 : it->result.public_id.n),
		        it->result.public_id.p);
	call->call.result = it;
	if (it->result.tool == NULL)
		k->saw_result = true;
	return 0;
}

/* The highest number that any id carries, plus one. */
static uint32_t first_free_number(const struct conversation *c)
{
	uint32_t next = 0;

	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];
		uint32_t mark =
		        conversation_id_reply(it->type == ITEM_CALL ? it->call.public_id : it->id);

		if (it->type != ITEM_RESULT && mark != REPLY_NONE && mark >= next)
			next = mark + 1;
	}
	return next;
}

static int index_replies(struct conversation *c, uint32_t n_replies)
{
	struct conversation_index *x = c->index;

	x->last = arena_alloc(c->arena, (n_replies + (size_t)1) * sizeof(*x->last));
	if (x->last == NULL)
		return -ERR_NOMEM;
	x->n_replies = n_replies;
	x->n_items = c->n_items;
	for (size_t i = 0; i < c->n_items; i++)
		if (c->items[i]->reply < n_replies)
			x->last[c->items[i]->reply] = (uint32_t)i;
	return 0;
}

int conversation_cut_replies(struct conversation *c, struct error *err)
{
	struct cutter k = {.number = REPLY_NONE, .mark = REPLY_NONE, .next = first_free_number(c)};

	for (size_t i = 0; i < c->n_items; i++)
		if (c->items[i]->type == ITEM_CALL)
			c->items[i]->call.result = NULL;
	if (index_new(c) < 0)
		return error_set(err, ERR_NOMEM, "The conversation is too large.");
	for (size_t i = 0; i < c->n_items; i++) {
		struct item *it = c->items[i];
		struct str id = item_has_key(it) ? item_key(it) : (struct str){NULL, 0};

		if (item_has_key(it) && !index_add(c, i))
			return error_param(err, ERR_INVALID, "input",
			        "Too many tool calls have the call_id %.*s.",
			        (int)(id.n > 64 ? 64 : id.n), id.p);
		if (it->type == ITEM_RESULT) {
			int r = cutter_result(&k, c, it, err);

			if (r < 0)
				return r;
		} else if (it->type == ITEM_MESSAGE && it->role != ROLE_ASSISTANT) {
			k.number = REPLY_NONE;
		} else {
			cutter_assistant(&k, it);
		}
	}
	if (index_replies(c, k.next) < 0)
		return error_set(err, ERR_NOMEM, "The conversation is too large.");
	c->next_reply = k.next;
	return 0;
}
