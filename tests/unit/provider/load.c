#include "load.h"

static int result_text(const struct result *r, struct buf *out)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	if (r->error.n)
		jw_kstr(&w, "error", r->error);
	jw_key(&w, "output");
	jw_array(&w);
	for (size_t i = 0; i < r->n_outputs; i++) {
		jw_object(&w);
		jw_kstr(&w, "stdout", r->outputs[i].out);
		jw_kstr(&w, "stderr", r->outputs[i].err);
		jw_ki64(&w, "exit_code", r->outputs[i].exit_code);
		jw_end(&w);
	}
	jw_end(&w);
	jw_end(&w);
	return jw_done(&w);
}

const struct tool load_tool = {
        .name = "shell",
        .description = "Runs commands.",
        .schema = "{\"type\":\"object\",\"properties\":{\"commands\":{\"type\":\"array\"}}}",
        .result_text = result_text,
};

bool load_open(void *ctx, const struct provider_target *t, struct str sealed, struct buf *out)
{
	if (!str_starts(sealed, PROVIDER_SEALED))
		return false;
	buf_append(out, sealed.p + strlen(PROVIDER_SEALED), sealed.n - strlen(PROVIDER_SEALED));
	return true;
}

static struct str text_of(const struct json *o, const char *key)
{
	return json_str(json_get(o, key));
}

static struct str raw_of(const struct json *o, const char *key)
{
	const struct json *v = json_get(o, key);

	return json_absent(v) ? (struct str){NULL, 0} : json_raw(v);
}

static void load_part(struct part *p, const struct json *j)
{
	struct {
		const char *key;
		enum part_type type;
		struct str *where;
	} kinds[] = {{"text", PART_TEXT, &p->text}, {"refusal", PART_REFUSAL, &p->text},
	        {"reasoning", PART_REASONING, &p->text}, {"summary", PART_SUMMARY, &p->text},
	        {"image", PART_IMAGE, &p->url}, {"file", PART_FILE, &p->data},
	        {"file_url", PART_FILE, &p->url}, {"audio", PART_AUDIO, &p->data}};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (json_get(j, kinds[i].key)) {
			p->type = kinds[i].type;
			*kinds[i].where = text_of(j, kinds[i].key);
		}
	p->raw = raw_of(j, "raw");
	p->detail = text_of(j, "detail");
	p->filename = text_of(j, "filename");
}

static void load_parts(
        struct conversation *c, const struct json *parts, struct part **ret, size_t *ret_n)
{
	size_t n = 0;

	if (json_is(parts, JSON_STRING)) {
		*ret = conversation_parts(c, 1);
		(*ret)->type = PART_TEXT;
		(*ret)->text = json_str(parts);
		*ret_n = 1;
		return;
	}
	*ret = conversation_parts(c, json_count(parts) + 1);
	for (const struct json *p = json_first(parts); p; p = json_next(p))
		load_part(&(*ret)[n++], p);
	*ret_n = n;
}

static void load_call(struct item *it, const struct json *j)
{
	it->call.public_id = text_of(j, "id");
	it->call.upstream_id = text_of(j, "upstream_id");
	it->call.name = text_of(j, "name");
	it->call.arguments = text_of(j, "arguments");
	it->call.error = text_of(j, "error");
	it->call.tool = json_bool(json_get(j, "server")) ? &load_tool : NULL;
}

static void load_result(struct conversation *c, struct item *it, const struct json *j)
{
	const struct json *outputs = json_get(j, "outputs");
	size_t n = 0;

	it->result.public_id = text_of(j, "id");
	it->result.error = text_of(j, "error");
	it->result.is_error = json_bool(json_get(j, "is_error"));
	load_parts(c, json_get(j, "parts"), &it->result.parts, &it->result.n_parts);
	if (!outputs && !it->result.error.n)
		return;
	it->result.tool = &load_tool;
	it->result.outputs =
	        arena_alloc(c->arena, (json_count(outputs) + 1) * sizeof(struct command_output));
	for (const struct json *o = json_first(outputs); o; o = json_next(o)) {
		struct command_output *out = &it->result.outputs[n++];
		int64_t code = 0;

		out->out = text_of(o, "out");
		out->err = text_of(o, "err");
		out->signal = text_of(o, "signal");
		out->reason = text_of(o, "reason");
		out->outcome = json_bool(json_get(o, "timeout")) ? OUTCOME_TIMEOUT : OUTCOME_EXIT;
		json_i64(json_get(o, "exit"), &code);
		out->exit_code = (int)code;
		out->done = true;
	}
	it->result.n_outputs = n;
}

static void load_item(struct conversation *c, const struct json *j)
{
	static const char *const roles[] = {"system", "developer", "user", "assistant"};
	struct str role = text_of(j, "message");
	struct item *it;
	int64_t reply;

	if (json_get(j, "call"))
		it = conversation_add(c, ITEM_CALL);
	else if (json_get(j, "result"))
		it = conversation_add(c, ITEM_RESULT);
	else if (json_bool(json_get(j, "other")))
		it = conversation_add(c, ITEM_OTHER);
	else
		it = conversation_add(c, role.n ? ITEM_MESSAGE : ITEM_REASONING);
	it->redacted = json_bool(json_get(j, "redacted"));
	if (json_i64(json_get(j, "reply"), &reply))
		it->reply = (uint32_t)reply;
	it->opaque = text_of(j, "opaque");
	it->status = text_of(j, "status");
	it->id = text_of(j, "id");
	it->raw = raw_of(j, "raw");
	it->raw_dialect = c->dialect;
	for (int i = 0; i < 4; i++)
		if (str_is(role, roles[i]))
			it->role = (enum role)i;
	load_parts(c, json_get(j, "parts"), &it->parts, &it->n_parts);
	if (it->type == ITEM_CALL)
		load_call(it, json_get(j, "call"));
	if (it->type == ITEM_RESULT)
		load_result(c, it, json_get(j, "result"));
}

static struct shell_settings *load_shell_settings(struct conversation *c, const struct json *t)
{
	struct shell_settings *s = arena_alloc(c->arena, sizeof(*s));
	struct error *only = arena_alloc(c->arena, sizeof(*only));

	s->may_be_native = json_bool(json_get(t, "may_be_native"));
	if (text_of(t, "only_native").n) {
		error_param(only, ERR_UNSUPPORTED, "tools[0].environment", "%.*s",
		        (int)text_of(t, "only_native").n, text_of(t, "only_native").p);
		s->only_native = only;
	}
	return s;
}

static void load_tools(struct conversation *c, const struct json *tools)
{
	c->tools = arena_alloc(c->arena, (json_count(tools) + 1) * sizeof(*c->tools));
	for (const struct json *t = json_first(tools); t; t = json_next(t)) {
		struct tool_entry *e = &c->tools[c->n_tools++];
		const struct json *strict = json_get(t, "strict");

		e->name = text_of(t, "function");
		e->description = text_of(t, "description");
		e->parameters = raw_of(t, "parameters");
		e->strict = json_is_bool(strict) ? json_bool(strict) : -1;
		e->raw = raw_of(t, "raw");
		e->type = text_of(t, "type");
		if (json_get(t, "native")) {
			e->kind = TOOL_NATIVE;
			e->type = e->name = text_of(t, "native");
			continue;
		}
		if (!json_get(t, "server"))
			continue;
		e->kind = TOOL_SERVER;
		e->name = text_of(t, "server");
		e->tool = &load_tool;
		e->settings = load_shell_settings(c, t);
		c->has_server_tool = true;
	}
}

static void load_choice(struct conversation *c, struct tool_choice *choice, const struct json *j)
{
	static const char *const modes[] = {"auto", "none", "required"};
	const struct json *allowed = json_get(j, "allowed");
	struct str mode = json_is(j, JSON_OBJECT) ? text_of(j, "mode") : json_str(j);

	for (int i = 0; i < 3; i++)
		if (str_is(mode, modes[i]))
			choice->mode = (enum choice_mode)i;
	if (text_of(j, "name").n) {
		choice->mode = CHOICE_NAMED;
		choice->name = text_of(j, "name");
	}
	if (!allowed)
		return;
	choice->restricted = true;
	choice->allowed = arena_alloc(c->arena, (json_count(allowed) + 1) * sizeof(struct str));
	for (const struct json *a = json_first(allowed); a; a = json_next(a))
		choice->allowed[choice->n_allowed++] = json_str(a);
}

static void load_settings(struct settings *s, const struct json *j)
{
	const struct json *parallel = json_get(j, "parallel_tool_calls");
	const struct json *thoughts = json_get(j, "include_thoughts");
	struct {
		const char *key;
		struct str *where;
	} raw[] = {{"max_output_tokens", &s->max_output_tokens}, {"temperature", &s->temperature},
	        {"top_p", &s->top_p}, {"top_k", &s->top_k},
	        {"presence_penalty", &s->presence_penalty},
	        {"frequency_penalty", &s->frequency_penalty}, {"seed", &s->seed},
	        {"stop", &s->stop}, {"text_format", &s->text_format}, {"metadata", &s->metadata}},
	  text[] = {{"verbosity", &s->verbosity}, {"reasoning_effort", &s->reasoning_effort},
	          {"user", &s->user}, {"safety_identifier", &s->safety_identifier},
	          {"prompt_cache_key", &s->prompt_cache_key}, {"service_tier", &s->service_tier},
	          {"reasoning_summary", &s->reasoning_summary},
	          {"thinking_budget", &s->thinking_budget}};

	for (size_t i = 0; i < sizeof(raw) / sizeof(*raw); i++)
		*raw[i].where = raw_of(j, raw[i].key);
	for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++)
		*text[i].where = text_of(j, text[i].key);
	s->parallel_tool_calls = json_is_bool(parallel) ? json_bool(parallel) : -1;
	s->include_thoughts = json_is_bool(thoughts) ? json_bool(thoughts) : -1;
}

static void load_extra(struct conversation *c, const struct json *extra)
{
	c->extra = arena_alloc(c->arena, (json_count(extra) + 1) * sizeof(*c->extra));
	for (const struct json *m = json_first(extra); m; m = json_next(m))
		c->extra[c->n_extra++] = (struct extra_member){json_key(m), json_raw(m)};
}

/* Which dialect the request spoke; and which the target speaks: chat, unless said. */
static enum dialect load_dialect(const struct json *root, const char *key)
{
	static const struct {
		const char *name;
		enum dialect dialect;
	} dialects[] = {{"responses", DIALECT_OPENAI_RESPONSES}, {"anthropic", DIALECT_ANTHROPIC},
	        {"gemini", DIALECT_GEMINI}};

	for (size_t i = 0; i < sizeof(dialects) / sizeof(*dialects); i++)
		if (str_is(text_of(root, key), dialects[i].name))
			return dialects[i].dialect;
	return DIALECT_OPENAI_CHAT;
}

static void load_string(
        char *dst, size_t size, const struct json *root, const char *key, const char *def)
{
	struct str s = key ? text_of(root, key) : json_str(root);

	str_copy(dst, size, s.p ? s : str_of(def));
}

static void load_root(struct loaded *l, size_t n_items)
{
	const struct json *root = json_root(l->doc), *item = json_first(json_get(root, "items"));

	l->c = conversation_new((size_t)64 << 20);
	l->c->beta = text_of(root, "beta");
	l->c->dialect = load_dialect(root, "dialect");
	for (size_t i = 0; item && i < n_items; i++, item = json_next(item))
		load_item(l->c, item);
	load_tools(l->c, json_get(root, "tools"));
	load_choice(l->c, &l->call.choice, json_get(root, "choice"));
	load_settings(&l->c->settings, json_get(root, "settings"));
	load_extra(l->c, json_get(root, "extra"));
	l->call.tools_off = json_bool(json_get(root, "tools_off"));
	load_string(l->base_url, sizeof(l->base_url), root, "base_url", "http://127.0.0.1:8000/v1");
	load_string(l->api_key, sizeof(l->api_key), root, "api_key", "");
	load_string(l->model, sizeof(l->model), root, "model", "m-1");
	l->config.base_url = l->base_url;
	l->native_tools[0] = l->native;
	load_string(
	        l->native, sizeof(l->native), json_first(json_get(root, "native_tools")), NULL, "");
	l->config.native_tools = l->native_tools;
	l->config.n_native_tools = json_count(json_get(root, "native_tools"));
	l->config.api_key = l->api_key[0] ? l->api_key : NULL;
	l->target =
	        (struct provider_target){.provider = provider_for(load_dialect(root, "provider")),
	                .config = &l->config,
	                .model = l->model};
	l->pc = (struct provider_call){
	        .target = &l->target, .conversation = l->c, .call = &l->call, .open = load_open};
}

static void load(struct loaded *l, size_t n, const char *what, size_t n_items)
{
	struct error err = {0};

	if (json_parse((struct str){l->text, n}, (size_t)64 << 20, &l->doc, &err) < 0)
		fail_msg("%s: %s", what, err.text);
	load_root(l, n_items);
}

void load_text(struct loaded *l, const char *text, size_t n_items)
{
	*l = (struct loaded){.text = strdup(text)};
	load(l, strlen(text), "conversation", n_items);
}

void load_file(struct loaded *l, const char *path, size_t n_items)
{
	size_t n;

	*l = (struct loaded){0};
	l->text = file_read(path, &n);
	load(l, n, path, n_items);
}

void load_long(struct loaded *l, const char *text, struct str upstream_id)
{
	char id[32];

	load_text(l, text, SIZE_MAX);
	for (uint32_t i = 0; i < 60000; i++) {
		struct item *call = conversation_add(l->c, ITEM_CALL);
		struct item *result = conversation_add(l->c, ITEM_RESULT);
		bool ok = true;

		snprintf(id, sizeof(id), "s%u_c", 60000 - i);
		call->reply = 60000 - i;
		call->call.public_id = conversation_copy(l->c, str_of(id), &ok);
		call->call.upstream_id = upstream_id;
		call->call.name = STR("f");
		result->result.public_id = call->call.public_id;
		assert_true(ok);
	}
	assert_int_equal(conversation_cut_replies(l->c, NULL), 0);
}

void load_free(struct loaded *l)
{
	conversation_free(l->c);
	json_doc_free(l->doc);
	free(l->text);
}
