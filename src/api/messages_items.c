/*
 * `system` and `messages`: from messages of blocks to items.
 *
 * A message of the client's side becomes messages and results in the order of its blocks; one of
 * the assistant becomes messages (runs of text), reasoning, calls and results, and items that only
 * Anthropic knows.
 *
 * Replies. Blocks of text and thinking have no id that could carry the number of their reply
 * (conversation.h); calls do. So the reply is read off the calls around: what stands between two
 * calls of one number is of that reply too; what follows a call, and has a call of another number
 * or none behind it, begins the next. In a message without numbers all blocks are one reply, as the
 * provider wrote it.
 *
 * A call needs its result. Where brig ran it and the client dropped the result, one that says so
 * takes its place; a client's own call without a result is refused as this API does, since a
 * provider would refuse it later in words about another request.
 */
#include "api/messages.h"

#include "api/input.h"
#include "base/mem.h"
#include "tool/tool.h"

#include <stdlib.h>

enum {
	MESSAGES_MAX = 100000,
	/* An error that names a message looks through all items: only where they are few. */
	BLAME_MAX = 4096,
};

struct item *messages_items_add(struct messages_parser *p, enum item_type type)
{
	struct item *it = conversation_add(p->conversation, type);

	if (!it) {
		param_fail_memory(&p->in);
		return NULL;
	}
	it->raw_dialect = DIALECT_ANTHROPIC;
	mem_grow(&p->message_of, &p->cap_message_of, p->n_message_of, sizeof(*p->message_of));
	p->message_of[p->n_message_of++] = (uint32_t)p->message;
	return it;
}

int messages_compact(struct messages_parser *p, const struct json *v, struct str *ret)
{
	struct buf text = BUF_INIT(p->in.body.n * 6 + 64);
	bool ok = true;
	int rc = json_compact(json_raw(v), &text);

	if (!rc)
		*ret = conversation_copy(p->conversation, (struct str){text.data, text.len}, &ok);
	buf_free(&text);
	return rc || !ok ? param_fail_memory(&p->in) : 0;
}

/* ---- one message ---- */

struct message {
	enum role role;
	const char *path;   /* "messages.0.content" */
	struct part *parts; /* room for all blocks */
	size_t n_parts;     /* taken so far */
	struct item *open;  /* the message to which the next part belongs, or NULL */
};

static int add_part(struct messages_parser *p, struct message *m, struct part *part)
{
	if (!m->open) {
		m->open = messages_items_add(p, ITEM_MESSAGE);
		if (!m->open)
			return -ERR_NOMEM;
		m->open->role = m->role;
		m->open->parts = &m->parts[m->n_parts];
	}
	m->parts[m->n_parts++] = *part;
	m->open->n_parts++;
	return 0;
}

/* ---- blocks of the assistant ---- */

static int block_thinking(
        struct messages_parser *p, struct message *m, const struct json *v, const char *path)
{
	struct item *it = messages_items_add(p, ITEM_REASONING);
	struct str text, signature;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	it->role = m->role;
	it->raw = json_raw(v);
	rc = param_need_str(&p->in, v, path, "thinking", &text);
	if (!rc)
		rc = param_str(&p->in, v, path, "signature", 0, &signature);
	return rc ? rc : messages_signature_read(p, signature, text, it);
}

static int block_redacted(
        struct messages_parser *p, struct message *m, const struct json *v, const char *path)
{
	struct item *it = messages_items_add(p, ITEM_REASONING);

	if (!it)
		return -ERR_NOMEM;
	it->role = m->role;
	it->raw = json_raw(v);
	it->redacted = true;
	return param_need_str(&p->in, v, path, "data", &it->opaque);
}

static int block_tool_use(
        struct messages_parser *p, struct message *m, const struct json *v, const char *path)
{
	struct conversation *c = p->conversation;
	struct item *it = messages_items_add(p, ITEM_CALL);
	char room[MESSAGES_ID_SIZE];
	const struct json *input;
	struct str id;
	bool ok = true;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	it->role = m->role;
	it->raw = json_raw(v);
	rc = param_need_str(&p->in, v, path, "id", &id);
	if (!rc)
		rc = param_need_str(&p->in, v, path, "name", &it->call.name);
	if (!rc)
		rc = param_need_container(&p->in, v, path, "input", JSON_OBJECT, &input);
	if (!rc && (id.n == 0 || it->call.name.n == 0))
		rc = param_fail(&p->in, ERR_INVALID, "invalid_value", path, id.n ? "name" : "id",
		        "String should have at least 1 character");
	if (!rc)
		rc = messages_compact(p, input, &it->call.arguments);
	if (rc)
		return rc;
	it->call.public_id = conversation_copy(c, messages_id_read(id, room), &ok);
	it->call.upstream_id = conversation_upstream_id(it->call.public_id, c->has_server_tool);
	for (size_t i = 0; i < c->n_tools; i++)
		if (c->tools[i].kind != TOOL_SERVER && str_eq(c->tools[i].name, it->call.name))
			it->call.entry = &c->tools[i];
	return ok ? 0 : param_fail_memory(&p->in);
}

/* What only its own dialect knows. */
static int block_other(struct messages_parser *p, struct message *m, const struct json *v)
{
	struct item *it = messages_items_add(p, ITEM_OTHER);

	if (!it)
		return -ERR_NOMEM;
	it->role = m->role;
	it->raw = json_raw(v);
	return 0;
}

static int fail_role(struct messages_parser *p, const char *path, struct str type, const char *role)
{
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
	        "`%s` blocks can only be in `%s` messages", param_show(type).text, role);
}

static int assistant_block(struct messages_parser *p, struct message *m, const struct json *v,
        const char *path, struct str type)
{
	struct part part = {.type = PART_TEXT};
	bool known = true;
	int rc;

	if (str_is(type, "tool_result"))
		return fail_role(p, path, type, "user");
	rc = messages_part_parse(p, v, path, type, &part, &known);
	if (rc)
		return rc;
	if (known)
		return add_part(p, m, &part);
	m->open = NULL;
	if (str_is(type, "thinking"))
		return block_thinking(p, m, v, path);
	if (str_is(type, "redacted_thinking"))
		return block_redacted(p, m, v, path);
	if (str_is(type, "tool_use"))
		return block_tool_use(p, m, v, path);
	if (str_is(type, "server_tool_use"))
		rc = messages_history_call(p, v, path, &known);
	else
		rc = messages_history_result(p, v, path, type, &known);
	return rc || known ? rc : block_other(p, m, v);
}

/* ---- blocks of the client's side ---- */

static int block_tool_result(struct messages_parser *p, const struct json *v, const char *path)
{
	struct item *it = messages_items_add(p, ITEM_RESULT);
	const struct json *content = json_get(v, "content");
	char inner[PARAM_PATH], room[MESSAGES_ID_SIZE];
	struct str id;
	bool ok = true;
	int rc, failed;

	if (!it)
		return -ERR_NOMEM;
	it->raw = json_raw(v);
	rc = param_need_str(&p->in, v, path, "tool_use_id", &id);
	if (!rc)
		rc = param_bool(&p->in, v, path, "is_error", &failed);
	if (rc)
		return rc;
	it->result.is_error = failed == 1;
	it->result.public_id = conversation_copy(p->conversation, messages_id_read(id, room), &ok);
	if (!ok)
		return param_fail_memory(&p->in);
	if (json_absent(content))
		return 0;
	param_join(inner, path, "content");
	return messages_content_parse(p, content, inner, &it->result.parts, &it->result.n_parts);
}

static int user_block(struct messages_parser *p, struct message *m, const struct json *v,
        const char *path, struct str type)
{
	static const char *const of_assistant[] = {
	        "tool_use", "server_tool_use", "thinking", "redacted_thinking"};
	struct part part = {.type = PART_TEXT};
	bool known;
	int rc;

	for (size_t i = 0; i < sizeof(of_assistant) / sizeof(*of_assistant); i++)
		if (str_is(type, of_assistant[i]))
			return fail_role(p, path, type, "assistant");
	if (str_is(type, "tool_result")) {
		m->open = NULL;
		return block_tool_result(p, v, path);
	}
	rc = messages_part_parse(p, v, path, type, &part, &known);
	if (rc)
		return rc;
	if (!known)
		rc = messages_part_other(p, path, type, &part);
	return rc ? rc : add_part(p, m, &part);
}

static int parse_block(
        struct messages_parser *p, struct message *m, const struct json *v, const char *path)
{
	struct str type;
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	rc = param_need_str(&p->in, v, path, "type", &type);
	if (rc)
		return rc;
	return m->role == ROLE_ASSISTANT ? assistant_block(p, m, v, path, type)
	                                 : user_block(p, m, v, path, type);
}

static int parse_content(struct messages_parser *p, struct message *m, const struct json *content)
{
	char path[PARAM_PATH];
	size_t n = json_is(content, JSON_STRING) ? 1 : json_count(content), i = 0;
	int rc = 0;

	if (!json_is(content, JSON_STRING) && !json_is(content, JSON_ARRAY))
		return param_fail_type(
		        &p->in, content, m->path, NULL, "a string or an array of blocks");
	m->parts = conversation_parts(p->conversation, n ? n : 1);
	if (!m->parts)
		return param_fail_memory(&p->in);
	if (json_is(content, JSON_STRING)) {
		struct part part = {.type = PART_TEXT};

		rc = param_keep(&p->in, content, &part.text);
		return rc ? rc : add_part(p, m, &part);
	}
	for (const struct json *v = json_first(content); v && !rc; v = json_next(v), i++) {
		messages_index(path, m->path, i);
		rc = parse_block(p, m, v, path);
	}
	return rc;
}

/* ---- replies (above) ---- */

static uint32_t mark_of(const struct item *it)
{
	return it->type == ITEM_CALL ? conversation_id_reply(it->call.public_id) : REPLY_NONE;
}

/* Says of the items from `first` on, which are one message of the assistant, what belongs together.
 */
static void join_replies(struct conversation *c, size_t first)
{
	uint32_t ahead = REPLY_NONE, behind = REPLY_NONE;
	bool marked = false;

	for (size_t i = first; i < c->n_items; i++)
		marked = marked || mark_of(c->items[i]) != REPLY_NONE;
	for (size_t i = first + 1; i < c->n_items && !marked; i++)
		c->items[i]->same_reply = true;
	/* From the end: what lies ahead of each item is known. */
	for (size_t i = c->n_items; marked && i > first; i--) {
		struct item *it = c->items[i - 1];

		if (mark_of(it) != REPLY_NONE)
			ahead = mark_of(it);
		else if (it->type != ITEM_RESULT)
			it->reply = ahead; /* for the next loop only: cutting sets it anew */
	}
	for (size_t i = first; marked && i < c->n_items; i++) {
		struct item *it = c->items[i];

		if (mark_of(it) != REPLY_NONE)
			behind = mark_of(it);
		else if (it->type != ITEM_RESULT)
			it->same_reply = behind != REPLY_NONE && it->reply == behind;
	}
}

static int parse_message(struct messages_parser *p, const struct json *v, const char *path)
{
	static const char *const names[] = {"user", "assistant", "system", NULL};
	const struct json *content = json_get(v, "content");
	size_t first = p->conversation->n_items;
	char inner[PARAM_PATH];
	struct message m = {.role = ROLE_USER, .path = inner};
	struct str role;
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	rc = param_choice(&p->in, v, path, "role", names, &role);
	if (!rc && !role.p)
		rc = param_fail_missing(&p->in, path, "role");
	if (rc)
		return rc;
	if (json_absent(content))
		return param_fail_missing(&p->in, path, "content");
	if (!str_is(role, "user"))
		m.role = str_is(role, "system") ? ROLE_SYSTEM : ROLE_ASSISTANT;
	param_join(inner, path, "content");
	rc = parse_content(p, &m, content);
	if (!rc && m.role == ROLE_ASSISTANT)
		join_replies(p->conversation, first);
	return rc;
}

/* ---- all of them ---- */

static int parse_system(struct messages_parser *p)
{
	const struct json *system = json_get(p->root, "system");
	struct item *it;

	if (json_absent(system) || (json_is(system, JSON_STRING) && json_str(system).n == 0) ||
	        (json_is(system, JSON_ARRAY) && json_count(system) == 0))
		return 0;
	it = messages_items_add(p, ITEM_MESSAGE);
	if (!it)
		return -ERR_NOMEM;
	it->role = ROLE_SYSTEM;
	return messages_content_parse(p, system, "system", &it->parts, &it->n_parts);
}

static int parse_messages(struct messages_parser *p)
{
	const struct json *list;
	char path[PARAM_PATH];
	size_t n;
	int rc = param_need_container(&p->in, p->root, "", "messages", JSON_ARRAY, &list);

	if (rc)
		return rc;
	n = json_count(list);
	if (n == 0)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "messages", NULL,
		        "at least one message is required");
	if (n > MESSAGES_MAX)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "messages", NULL,
		        "at most %d messages are allowed", MESSAGES_MAX);
	for (const struct json *v = json_first(list); v && !rc; v = json_next(v), p->message++) {
		messages_index(path, "messages", p->message);
		rc = parse_message(p, v, path);
	}
	return rc;
}

/* ---- calls and results belong together ---- */

/* conversation_cut_replies() has refused a result. Says which message it is in. */
static int blame(struct messages_parser *p)
{
	const struct conversation *c = p->conversation;
	char path[PARAM_PATH];

	for (size_t i = 0; i < c->n_items && c->n_items <= BLAME_MAX; i++) {
		struct str id = c->items[i]->result.public_id;
		bool call = false, twice = false;

		if (c->items[i]->type != ITEM_RESULT)
			continue;
		for (size_t j = 0; j < i; j++) {
			const struct item *it = c->items[j];

			call = call || (it->type == ITEM_CALL && str_eq(it->call.public_id, id));
			twice = twice ||
			        (it->type == ITEM_RESULT && str_eq(it->result.public_id, id));
		}
		if (call && !twice)
			continue;
		messages_index(path, "messages", p->message_of[i]);
		if (twice)
			return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
			        "each `tool_use` must have a single result. Found multiple "
			        "`tool_result` blocks with id: %s",
			        param_show(id).text);
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
		        "unexpected `tool_use_id` found in `tool_result` blocks: %s. Each "
		        "`tool_result` block must have a corresponding `tool_use` block in the "
		        "previous message.",
		        param_show(id).text);
	}
	return param_fail(&p->in, ERR_INVALID, "invalid_value", "messages", NULL,
	        "a `tool_result` block has no corresponding `tool_use` block.");
}

static int cut(struct messages_parser *p)
{
	int rc = conversation_cut_replies(p->conversation, p->in.err);

	return rc == -ERR_INVALID ? blame(p) : rc;
}

static int refuse_open_call(void *ctx, size_t i)
{
	struct messages_parser *p = ctx;
	char path[PARAM_PATH], id[MESSAGES_ID_SIZE];

	messages_index(path, "messages", p->message_of[i]);
	messages_id_show(p->conversation->items[i]->call.public_id, false, id);
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
	        "`tool_use` ids were found without `tool_result` blocks immediately after: %s. "
	        "Each "
	        "`tool_use` block must have a corresponding `tool_result` block in the next "
	        "message.",
	        id);
}

static struct item *add_no_result(void *ctx, size_t i)
{
	struct item *result = messages_items_add(ctx, ITEM_RESULT);

	if (result)
		result->result.error = STR("The result of this call was not kept.");
	return result;
}

int messages_items_parse(struct messages_parser *p)
{
	int rc = parse_system(p);

	if (!rc)
		rc = parse_messages(p);
	if (!rc)
		rc = cut(p);
	return rc ? rc : input_complete_calls(&p->in, refuse_open_call, add_no_result, p);
}
