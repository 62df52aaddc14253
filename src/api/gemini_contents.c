/*
 * `systemInstruction` and `contents` → items.
 *
 * Contents are read as one sequence of parts, each on the side of the user or of the model: clients
 * keep a streamed answer as one content for each event, or all its parts in one. Text of the model
 * that carries no signature goes on over parts and contents until something else comes, as it was
 * one run when it was said; a part with a thoughtSignature is an item of its own, and an empty text
 * with one is reasoning without text (see provider/gemini.h).
 *
 * A functionResponse belongs to the functionCall with its id, or, without an id, to the first
 * unanswered one of its name among those that the model made last.
 *
 * executableCode and codeExecutionResult are brig's shell where their language is none of Google's;
 * its call and result are cut back from the texts (gemini_code.c). Of Google's own, as of every
 * part that is not known here, the raw JSON is kept.
 */
#include "api/gemini.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>

enum { ITEMS_MAX = 200000, CALLS_WITHOUT_ID_MAX = 1024, OUTPUTS_MAX = 1000 };

#define NO_ID "noid_" /* as the Gemini provider marks a call that has none */

/* ---- items ---- */

static int read_signature(struct gemini_parser *p, const struct json *part, struct item *it)
{
	return gemini_signature_read(&p->in, json_str(gemini_parse_get(part, "thoughtSignature")),
	        &it->opaque, &p->cuts);
}

/* No more pieces come for the text that may go on. */
static int end_run(struct gemini_parser *p)
{
	struct str cuts = p->cuts;
	struct item *it = p->run;
	struct part *part;
	size_t n = 0;
	char *text;

	p->run = NULL;
	p->cuts = (struct str){NULL, 0};
	if (!it)
		return 0;
	part = conversation_parts(p->conversation, 1);
	for (size_t i = 0; i < p->n_pieces; i++)
		n += p->pieces[i].n;
	text = part && p->n_pieces > 1 ? arena_alloc(p->conversation->arena, n + 1) : NULL;
	if (!part || (p->n_pieces > 1 && !text))
		return param_fail_memory(&p->in);
	part->type = it->type == ITEM_REASONING ? PART_SUMMARY : PART_TEXT;
	part->text = p->pieces[0];
	if (text) {
		part->text = (struct str){text, n};
		for (size_t i = 0; i < p->n_pieces; i++) {
			memcpy(text, p->pieces[i].p, p->pieces[i].n);
			text += p->pieces[i].n;
		}
	}
	it->parts = part;
	it->n_parts = 1;
	if (it->type == ITEM_REASONING && cuts.n)
		return gemini_signature_cut(&p->in, cuts, it);
	return 0;
}

static struct item *add(struct gemini_parser *p, enum item_type type)
{
	struct item *it = NULL;

	if (p->conversation->n_items >= ITEMS_MAX)
		param_fail(&p->in, ERR_INVALID, "array_above_max_length", "contents", NULL,
		        "Invalid 'contents': at most %d parts.", ITEMS_MAX);
	else if (end_run(p) == 0 && !(it = conversation_add(p->conversation, type)))
		param_fail_memory(&p->in);
	p->said = NULL;
	return it;
}

static struct item *add_assistant(struct gemini_parser *p, enum item_type type)
{
	struct item *it = add(p, type);

	if (it) {
		it->role = ROLE_ASSISTANT;
		it->raw_dialect = DIALECT_GEMINI;
	}
	return it;
}

/* ---- the model's parts ---- */

static int model_text(struct gemini_parser *p, const struct json *part, const char *path)
{
	bool thought = json_bool(json_get(part, "thought"));
	bool is_signed = json_str(gemini_parse_get(part, "thoughtSignature")).n > 0;
	/* What our streams say where a part alone could not (gemini_stream.c). */
	struct str says = json_str(json_get(gemini_parse_get(part, "partMetadata"), "reply"));
	enum item_type type;
	struct str text;
	struct item *it;
	int rc = param_str(&p->in, part, path, "text", 0, &text);

	if (rc || (!text.n && !is_signed))
		return rc;
	if (!text.n && thought && p->run && p->run->type == ITEM_REASONING) {
		/* The end of a stream of thoughts: the signature is theirs. */
		rc = read_signature(p, part, p->run);
		return rc ? rc : end_run(p);
	}
	type = thought || !text.n ? ITEM_REASONING : ITEM_MESSAGE;
	if (is_signed || !p->run || p->run->type != type || str_is(says, "next")) {
		it = add_assistant(p, type);
		if (!it)
			return -ERR_NOMEM;
		p->n_pieces = 0;
		it->same_reply = str_is(says, "same");
		rc = read_signature(p, part, it);
		if (rc || !text.n)
			return rc;
		p->run = it;
	}
	mem_grow(&p->pieces, &p->cap_pieces, p->n_pieces, sizeof(*p->pieces));
	p->pieces[p->n_pieces++] = text;
	return is_signed ? end_run(p) : 0;
}

static int set_id(struct gemini_parser *p, struct item *call, struct str id)
{
	char minted[32];
	bool ok = true;

	if (!id.n) {
		str_format(minted, sizeof(minted), NO_ID "%u", p->n_minted++);
		id = conversation_copy(p->conversation, str_of(minted), &ok);
	}
	call->call.public_id = id;
	call->call.upstream_id = conversation_upstream_id(id, p->conversation->has_server_tool);
	return ok ? 0 : param_fail_memory(&p->in);
}

/* In the one form that the turn gives them too: how a client writes its JSON does not count. */
static int read_args(struct gemini_parser *p, struct str raw, struct str *ret)
{
	struct buf text;
	bool ok = true;
	int rc;

	buf_init(&text, raw.n * 3 + 64);
	rc = json_compact(raw, &text);
	if (!rc)
		*ret = conversation_copy(
		        p->conversation, (struct str){buf_cstr(&text), text.len}, &ok);
	buf_free(&text);
	return rc || !ok ? param_fail_memory(&p->in) : 0;
}

static int model_call(
        struct gemini_parser *p, const struct json *part, const struct json *v, const char *path)
{
	struct item *it = add_assistant(p, ITEM_CALL);
	const struct json *args;
	struct str id;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	rc = param_str(&p->in, v, path, "id", 1024, &id);
	if (!rc)
		rc = param_need_str(&p->in, v, path, "name", &it->call.name);
	if (!rc)
		rc = param_container(&p->in, v, path, "args", JSON_OBJECT, &args);
	if (!rc)
		rc = set_id(p, it, id);
	if (rc)
		return rc;
	rc = read_args(p, args ? json_raw(args) : STR("{}"), &it->call.arguments);
	if (rc)
		return rc;
	for (size_t i = 0; i < p->conversation->n_tools; i++) {
		const struct tool_entry *t = &p->conversation->tools[i];

		if (t->kind == TOOL_FUNCTION && str_eq(t->name, it->call.name))
			it->call.entry = t;
	}
	return read_signature(p, part, it);
}

static int model_other(struct gemini_parser *p, const struct json *part)
{
	struct item *it = add_assistant(p, ITEM_OTHER);

	if (!it)
		return -ERR_NOMEM;
	it->raw = json_raw(part);
	return 0;
}

/* ---- the shell's ---- */

static bool is_ours(const struct json *code)
{
	return json_is(code, JSON_OBJECT) &&
	       !str_ieq(json_str(json_get(code, "language")), STR("PYTHON"));
}

/* "s0_fc1.gen_0123": a call's id, and the container that it ran in. */
static struct str split_id(struct gemini_parser *p, struct str id, struct str *ret_container)
{
	bool hosted = conversation_id_is_hosted(id); /* then the container is the provider's */
	size_t n = id.n;

	while (n && id.p[n - 1] != '.')
		n--;
	*ret_container = (struct str){NULL, 0};
	if (!n || (!hosted && !api_container_id_valid((struct str){id.p + n, id.n - n})))
		return id;
	*ret_container = (struct str){id.p + n, id.n - n};
	if (!hosted)
		p->replayed_container = *ret_container;
	return (struct str){id.p, n - 1};
}

static int read_code(struct gemini_parser *p, struct str code, struct item *it)
{
	struct buf text;
	bool ok = true;
	int rc;

	buf_init(&text, code.n * 8 + 4096);
	rc = gemini_code_read(it->call.tool, code, &text);
	if (!rc)
		it->call.arguments = conversation_copy(
		        p->conversation, (struct str){buf_cstr(&text), text.len}, &ok);
	buf_free(&text);
	return rc || !ok ? param_fail_memory(&p->in) : 0;
}

static int shell_code(
        struct gemini_parser *p, const struct json *part, const struct json *v, const char *path)
{
	struct item *call = add_assistant(p, ITEM_CALL), *result;
	struct str id, code, container;
	int rc;

	if (!call)
		return -ERR_NOMEM;
	call->call.tool = tool_find(STR("brig:shell"));
	call->call.entry = p->shell;
	call->call.name = p->shell ? p->shell->name : str_of(call->call.tool->name);
	rc = param_str(&p->in, v, path, "id", 1024, &id);
	if (!rc)
		rc = param_str(&p->in, v, path, "code", 0, &code);
	if (!rc)
		rc = set_id(p, call, split_id(p, id, &container));
	if (!rc)
		rc = read_code(p, code, call);
	if (!rc)
		rc = read_signature(p, part, call);
	if (rc)
		return rc;
	result = add(p, ITEM_RESULT);
	if (!result)
		return -ERR_NOMEM;
	result->result.tool = call->call.tool;
	result->result.public_id = call->call.public_id;
	result->result.container_id = container;
	/* Until one comes. */
	result->result.error = STR("The result of this call was not kept.");
	p->result = result;
	return 0;
}

/* A result of the shell's last call. False: it is none of ours. */
static bool continues_shell(const struct gemini_parser *p, const struct json *v)
{
	struct str id = json_str(json_get(v, "id"));
	struct str wanted = p->result ? p->result->result.public_id : (struct str){NULL, 0};

	if (!p->result || !json_is(v, JSON_OBJECT))
		return false;
	if (!id.n || str_starts(wanted, NO_ID))
		return true;
	return id.n >= wanted.n && memcmp(id.p, wanted.p, wanted.n) == 0 &&
	       (id.n == wanted.n || id.p[wanted.n] == '.');
}

static int add_output(struct gemini_parser *p, const struct command_output *o)
{
	struct result *r = &p->result->result;
	size_t n = r->n_outputs;

	if (n == OUTPUTS_MAX)
		return param_fail(&p->in, ERR_INVALID, "array_above_max_length", "contents", NULL,
		        "A call has at most %d results.", OUTPUTS_MAX);
	if ((n & (n - 1)) == 0) { /* room for twice as many */
		struct command_output *more =
		        arena_alloc(p->conversation->arena, (n ? n * 2 : 1) * sizeof(*more));

		if (!more)
			return param_fail_memory(&p->in);
		if (n)
			memcpy(more, r->outputs, n * sizeof(*more));
		r->outputs = more;
	}
	r->outputs[r->n_outputs] = *o;
	r->outputs[r->n_outputs].out_chars = utf8_count(o->out.p, o->out.n);
	r->outputs[r->n_outputs].err_chars = utf8_count(o->err.p, o->err.n);
	r->n_outputs++;
	return 0;
}

static int shell_result(struct gemini_parser *p, const struct json *v, const char *path)
{
	struct str outcome, output, error = {NULL, 0};
	struct command_output o;
	int rc = param_str(&p->in, v, path, "outcome", 64, &outcome);

	if (!rc)
		rc = param_str(&p->in, v, path, "output", 0, &output);
	if (rc)
		return rc;
	if (!p->result->result.n_outputs)
		p->result->result.error = (struct str){NULL, 0};
	if (!output.p)
		output = STR("");
	if (gemini_code_read_output(outcome, output, &o, &error))
		return add_output(p, &o);
	p->result->result.error = error;
	return 0;
}

static int read_model_part(struct gemini_parser *p, const struct json *part, const char *path)
{
	const struct json *call = gemini_parse_get(part, "functionCall");
	const struct json *code = gemini_parse_get(part, "executableCode");
	const struct json *ran = gemini_parse_get(part, "codeExecutionResult");
	char inner[PARAM_PATH];

	if (continues_shell(p, ran)) {
		param_join(inner, path, "codeExecutionResult");
		return shell_result(p, ran, inner);
	}
	p->result = NULL;
	if (json_is(call, JSON_OBJECT)) {
		param_join(inner, path, "functionCall");
		return model_call(p, part, call, inner);
	}
	if (is_ours(code)) {
		param_join(inner, path, "executableCode");
		return shell_code(p, part, code, inner);
	}
	if (json_get(part, "text") || json_count(part) == 0)
		return model_text(p, part, path);
	if (json_count(part) == 1 && gemini_parse_get(part, "thoughtSignature"))
		return model_text(p, part, path);
	return model_other(p, part);
}

/* ---- the user's parts ---- */

static int make_data_url(struct gemini_parser *p, struct str mime, struct str data, struct str *ret)
{
	static const char middle[] = ";base64,";
	size_t n = strlen("data:") + mime.n + strlen(middle) + data.n;
	struct buf url = BUF_INIT(n + 1);
	bool ok = true;

	buf_puts(&url, "data:");
	buf_append(&url, mime.p, mime.n);
	buf_puts(&url, middle);
	buf_append(&url, data.p, data.n);
	if (buf_error(&url) == 0)
		*ret = conversation_copy(p->conversation, (struct str){url.data, url.len}, &ok);
	else
		ok = false;
	buf_free(&url);
	return ok ? 0 : param_fail_memory(&p->in);
}

static struct str usual_name(struct str mime)
{
	return str_is(mime, "application/pdf") ? STR("document.pdf")
	       : str_is(mime, "text/plain")    ? STR("document.txt")
	       : str_is(mime, "text/csv")      ? STR("document.csv")
	       : str_starts(mime, "text/")     ? STR("document.txt")
	                                       : STR("document");
}

/* inlineData */
static int read_inline(
        struct gemini_parser *p, const struct json *v, const char *path, struct part *ret)
{
	char key[GEMINI_KEY];
	struct str mime, data, name;
	int rc = param_need_str(&p->in, v, path, gemini_parse_key(v, "mimeType", key), &mime);

	if (!rc)
		rc = param_need_str(&p->in, v, path, "data", &data);
	if (!rc)
		rc = param_str(&p->in, v, path, gemini_parse_key(v, "displayName", key), 0, &name);
	if (rc)
		return rc;
	if (str_starts(mime, "audio/")) {
		ret->type = PART_AUDIO;
		ret->data = data;
		ret->detail = str_is(mime, "audio/mpeg") ? STR("mp3")
		                                         : (struct str){mime.p + 6, mime.n - 6};
		return 0;
	}
	if (str_starts(mime, "image/")) {
		ret->type = PART_IMAGE;
		return make_data_url(p, mime, data, &ret->url);
	}
	ret->type = PART_FILE;
	ret->filename = name.n ? name : usual_name(mime);
	return make_data_url(p, mime, data, &ret->data);
}

/* fileData */
static int read_file(
        struct gemini_parser *p, const struct json *v, const char *path, struct part *ret)
{
	char key[GEMINI_KEY];
	struct str mime;
	int rc = param_str(&p->in, v, path, gemini_parse_key(v, "mimeType", key), 256, &mime);

	if (!rc)
		rc = param_need_str(
		        &p->in, v, path, gemini_parse_key(v, "fileUri", key), &ret->url);
	ret->type = str_starts(mime, "image/") ? PART_IMAGE : PART_FILE;
	return rc;
}

/* Any part that is data of the user's, or of a function's answer. */
static int read_data(
        struct gemini_parser *p, const struct json *part, const char *path, struct part *ret)
{
	const struct json *in = gemini_parse_get(part, "inlineData");
	const struct json *file = gemini_parse_get(part, "fileData");
	char inner[PARAM_PATH];

	*ret = (struct part){.type = PART_TEXT};
	if (json_is(json_get(part, "text"), JSON_STRING) && json_count(part) == 1)
		return param_str(&p->in, part, path, "text", 0, &ret->text);
	ret->raw = json_raw(part);
	if (json_is(in, JSON_OBJECT)) {
		param_join(inner, path, "inlineData");
		return read_inline(p, in, inner, ret);
	}
	if (json_is(file, JSON_OBJECT)) {
		param_join(inner, path, "fileData");
		return read_file(p, file, inner, ret);
	}
	return param_str(&p->in, part, path, "text", 0, &ret->text);
}

/* ---- answers of functions ---- */

/* What a model of another dialect reads: the one text, where the object holds no more; else the
 * object. */
static int response_text(
        struct gemini_parser *p, const struct json *response, struct part *ret, bool *ret_error)
{
	const struct json *only = json_count(response) == 1 ? json_first(response) : NULL;
	struct str key = json_key(only);

	ret->type = PART_TEXT;
	ret->raw = json_raw(response);
	*ret_error = only && str_is(key, "error");
	if (only && json_is(only, JSON_STRING) &&
	        (str_is(key, "output") || str_is(key, "result") || str_is(key, "error")))
		return param_keep(&p->in, only, &ret->text);
	ret->text = ret->raw;
	return 0;
}

/* The id of the call that an answer without one means. */
static int find_call(struct gemini_parser *p, struct str name, const char *path, struct str *ret)
{
	struct conversation *c = p->conversation;
	size_t n = 0;

	for (size_t i = p->first_call; i < c->n_items && n < CALLS_WITHOUT_ID_MAX; i++) {
		struct item *it = c->items[i];

		if (it->type != ITEM_CALL || it->call.tool)
			continue;
		n++;
		if (it->call.result || !str_eq(it->call.name, name))
			continue;
		*ret = it->call.public_id;
		return 0;
	}
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
	        "There is no open functionCall '%s' that this functionResponse could answer.",
	        param_show(name).text);
}

/* Marks it as answered, until the replies are cut. */
static void note_answer(struct gemini_parser *p, struct item *result)
{
	struct conversation *c = p->conversation;

	for (size_t i = p->first_call, n = 0; i < c->n_items && n < CALLS_WITHOUT_ID_MAX; i++) {
		struct item *it = c->items[i];

		if (it->type != ITEM_CALL)
			continue;
		n++;
		if (str_eq(it->call.public_id, result->result.public_id))
			it->call.result = result;
	}
}

static int answer_parts(
        struct gemini_parser *p, const struct json *v, const char *path, struct result *r)
{
	const struct json *response, *list;
	char inner[PARAM_PATH], each[PARAM_PATH];
	int rc = param_container(&p->in, v, path, "response", JSON_OBJECT, &response);

	if (!rc)
		rc = param_container(&p->in, v, path, "parts", JSON_ARRAY, &list);
	if (rc)
		return rc;
	r->parts = conversation_parts(p->conversation, json_count(list) + 1);
	if (!r->parts)
		return param_fail_memory(&p->in);
	r->n_parts = 1;
	r->parts[0] = (struct part){.text = STR("{}"), .raw = STR("{}")};
	rc = response ? response_text(p, response, &r->parts[0], &r->is_error) : 0;
	param_join(inner, path, "parts");
	for (const struct json *d = json_first(list); d && !rc; d = json_next(d)) {
		param_index(each, inner, r->n_parts - 1);
		rc = json_is(d, JSON_OBJECT) ? read_data(p, d, each, &r->parts[r->n_parts])
		                             : param_fail_type(&p->in, d, each, NULL, "an object");
		r->n_parts++;
	}
	return rc;
}

static int user_answer(struct gemini_parser *p, const struct json *v, const char *path)
{
	struct item *it = add(p, ITEM_RESULT);
	struct str id, name;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	it->raw_dialect = DIALECT_GEMINI;
	rc = param_str(&p->in, v, path, "id", 1024, &id);
	if (!rc)
		rc = param_need_str(&p->in, v, path, "name", &name);
	if (!rc && !id.n)
		rc = find_call(p, name, path, &id);
	if (rc)
		return rc;
	it->result.public_id = id;
	note_answer(p, it);
	return answer_parts(p, v, path, &it->result);
}

static int read_user_part(
        struct gemini_parser *p, const struct json *part, size_t left, const char *path)
{
	const struct json *answer = gemini_parse_get(part, "functionResponse");
	char inner[PARAM_PATH];
	int rc;

	p->result = NULL;
	if (json_is(answer, JSON_OBJECT)) {
		param_join(inner, path, "functionResponse");
		return user_answer(p, answer, inner);
	}
	if (!p->said) {
		struct item *it = add(p, ITEM_MESSAGE);

		if (!it)
			return -ERR_NOMEM;
		it->role = ROLE_USER;
		it->raw_dialect = DIALECT_GEMINI;
		it->parts = conversation_parts(p->conversation, left);
		if (!it->parts)
			return param_fail_memory(&p->in);
		p->said = it;
	}
	rc = read_data(p, part, path, &p->said->parts[p->said->n_parts]);
	p->said->n_parts++;
	return rc;
}

/* ---- contents ---- */

/* Is it the model's? "function" is what answers of functions were said by once. */
static int read_role(
        struct gemini_parser *p, const struct json *content, const char *path, bool *ret_model)
{
	static const char *const roles[] = {"user", "model", "function", NULL};
	struct str role;
	int rc = param_str(&p->in, content, path, "role", 64, &role);

	*ret_model = str_is(role, "model");
	if (rc || !role.n)
		return rc;
	for (size_t i = 0; roles[i]; i++)
		if (str_is(role, roles[i]))
			return 0;
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "role",
	        "Please use a valid role: user, model. Got '%s'.", param_show(role).text);
}

static int read_content(struct gemini_parser *p, const struct json *content, const char *path)
{
	const struct json *parts = json_get(content, "parts"), *v = parts;
	bool list = json_is(parts, JSON_ARRAY), model;
	char inner[PARAM_PATH], each[PARAM_PATH];
	size_t n = list ? json_count(parts) : 1, i = 0;
	int rc;

	if (!json_is(content, JSON_OBJECT))
		return param_fail_type(&p->in, content, path, NULL, "an object");
	rc = read_role(p, content, path, &model);
	if (rc || json_absent(parts))
		return rc;
	param_join(inner, path, "parts");
	if (list)
		v = json_first(parts);
	p->said = NULL;
	for (; v && !rc; v = list ? json_next(v) : NULL, i++) {
		param_index(each, inner, i);
		if (!json_is(v, JSON_OBJECT))
			return param_fail_type(&p->in, v, each, NULL, "an object");
		if (model)
			rc = read_model_part(p, v, each);
		else
			rc = read_user_part(p, v, n - i, each);
	}
	return rc;
}

static int read_contents(struct gemini_parser *p)
{
	const struct json *contents = json_get(p->root, "contents");
	bool was_model = false;
	char path[PARAM_PATH];
	size_t i = 0;
	int rc = 0;

	if (json_absent(contents))
		return param_fail_missing(&p->in, "", "contents");
	if (json_is(contents, JSON_OBJECT))
		return read_content(p, contents, "contents");
	if (!json_is(contents, JSON_ARRAY))
		return param_fail_type(&p->in, contents, "", "contents", "an array");
	if (!json_count(contents))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "contents", NULL,
		        "contents is not specified");
	for (const struct json *v = json_first(contents); v && !rc; v = json_next(v), i++) {
		bool model = str_is(json_str(json_get(v, "role")), "model");

		if (model && !was_model)
			p->first_call = p->conversation->n_items;
		was_model = model;
		param_index(path, "contents", i);
		rc = read_content(p, v, path);
	}
	return rc;
}

/* ---- systemInstruction ---- */

/* A Content, or, as many write it, a text. */
static int read_instruction(struct gemini_parser *p)
{
	char key[GEMINI_KEY];
	const struct json *v =
	        json_get(p->root, gemini_parse_key(p->root, "systemInstruction", key));
	const struct json *parts, *part;
	struct item *it;
	bool list;

	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_STRING) && !json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, "", key, "an object");
	parts = json_is(v, JSON_STRING) ? v : json_get(v, "parts");
	list = json_is(parts, JSON_ARRAY);
	it = add(p, ITEM_MESSAGE);
	if (!it)
		return -ERR_NOMEM;
	it->role = ROLE_SYSTEM;
	it->parts = conversation_parts(p->conversation, list ? json_count(parts) + 1 : 1);
	if (!it->parts)
		return param_fail_memory(&p->in);
	for (part = list ? json_first(parts) : parts; part; part = list ? json_next(part) : NULL) {
		const struct json *text =
		        json_is(part, JSON_STRING) ? part : json_get(part, "text");

		if (json_absent(text))
			continue;
		if (!json_is(text, JSON_STRING))
			return param_fail_type(&p->in, text, key, "parts", "parts with a text");
		if (param_keep(&p->in, text, &it->parts[it->n_parts++].text))
			return -ERR_NOMEM;
	}
	return 0;
}

/* ---- calls and results belong together ---- */

static int check_calls(struct gemini_parser *p)
{
	struct conversation *c = p->conversation;
	int rc = conversation_cut_replies(c, p->in.err);

	if (rc == -ERR_INVALID)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "contents", NULL,
		        "A functionResponse answers no functionCall before it, or one that was "
		        "answered.");
	for (size_t i = 0; i < c->n_items && !rc; i++) {
		const struct item *it = c->items[i];

		if (it->type == ITEM_CALL && !it->call.tool && !it->call.result)
			rc = param_fail(&p->in, ERR_INVALID, "invalid_value", "contents", NULL,
			        "The functionCall '%s' has no functionResponse.",
			        param_show(it->call.name).text);
	}
	return rc;
}

int gemini_contents_parse(struct gemini_parser *p)
{
	int rc = read_instruction(p);

	if (!rc)
		rc = read_contents(p);
	if (!rc)
		rc = end_run(p);
	return rc ? rc : check_calls(p);
}
