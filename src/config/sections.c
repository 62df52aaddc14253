/*
 * Theory of operation
 *
 * Each list is counted first and its array made whole, so that an error half-way leaves a config
 * that config_free() takes: n_… grows with every entry that is filled. Secrets are copied once,
 * into the config, and the tree's copy is wiped.
 */
#include "config/sections.h"

#include "network/pattern.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	MAX_SECRET = 4096,
	MAX_NAME = 64,
	MAX_MODEL = 256,
	MAX_URL = 2048,
	MAX_ROUTE = 16,
	MAX_PATTERN = 253,
	MAX_PATTERNS = SECTION_PATTERNS_MAX,
};

#define NAME_CHARS  "abcdefghijklmnopqrstuvwxyz0123456789-"
#define SCOPE_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

int section_each(struct loader *l, const struct yaml_node *list, section_entry_fn fn)
{
	const struct yaml_node *m;
	size_t i = 0, mark;
	int r = 0;

	for (m = list->first; r == 0 && m; m = m->next, i++) {
		mark = loader_enter_index(l, i);
		r = fn(l, m, i);
		loader_leave(l, mark);
	}
	return r;
}

int section_read_chars(
        struct loader *l, const struct yaml_node *n, const char *set, const char *what, char **ret)
{
	char *text = NULL;
	int r;

	r = field_read_text(l, n, MAX_NAME, &text);
	if (r < 0)
		return r;
	if (!str_in_set(str_of(text), set)) {
		free(text);
		return loader_error(l, n, "may hold %s only", what);
	}
	free(*ret);
	*ret = text;
	return 0;
}

bool section_printable(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s <= 0x20 || (unsigned char)*s >= 0x7f)
			return false;
	return true;
}

static int read_model_name(struct loader *l, const struct yaml_node *n, char **ret)
{
	char *text = NULL;
	int r;

	r = field_read_text(l, n, MAX_MODEL, &text);
	if (r < 0)
		return r;
	if (!section_printable(text)) {
		free(text);
		return loader_error(l, n, "may hold printable ASCII without spaces only");
	}
	free(*ret);
	*ret = text;
	return 0;
}

/* ---- egress ---- */

int section_read_patterns(
        struct loader *l, const struct yaml_node *n, size_t max, char ***list, size_t *n_list)
{
	int r = field_expect(l, n, YAML_SEQUENCE);
	size_t i = 0, mark;

	if (r < 0)
		return r;
	if (n->n > max)
		return loader_error(l, n, "has more than %zu entries", max);
	*list = mem_array(n->n + 1, sizeof(**list));
	for (const struct yaml_node *m = n->first; r == 0 && m; m = m->next, i++) {
		const char *wrong = NULL;

		mark = loader_enter_index(l, i);
		r = field_read_text(l, m, MAX_PATTERN, &(*list)[i]);
		if (r == 0) {
			*n_list = i + 1;
			wrong = pattern_fault(str_of((*list)[i]));
		}
		if (wrong)
			r = loader_error(l, m, "%s", wrong);
		loader_leave(l, mark);
	}
	return r;
}

void section_free_texts(char **list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

static int read_egress_allow(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_egress *e = target;

	return section_read_patterns(l, n, MAX_PATTERNS, &e->allow, &e->n_allow);
}

static int read_egress_deny(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_egress *e = target;

	return section_read_patterns(l, n, MAX_PATTERNS, &e->deny, &e->n_deny);
}

#define AT(member) offsetof(struct config_egress, member)
static const struct field egress_fields[] = {
        {"allow", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_egress_allow},
        {"deny", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_egress_deny},
        {"allow_private", FIELD_BOOL, AT(allow_private), 0, 0, NULL, NULL, NULL},
        {"connections", FIELD_COUNT, AT(connections), 1, 4096, "256",
                "of one container, at once: 1 to 4096", NULL},
        {"connections_per_second", FIELD_COUNT, AT(connections_per_second), 1, 10000, "100",
                "new ones of one container, on average: 1 to 10000", NULL},
        {"questions_per_second", FIELD_COUNT, AT(questions_per_second), 1, 10000, "200",
                "of DNS, of one container, on average: 1 to 10000", NULL},
        {"idle", FIELD_MS32, AT(idle_ms), 1000, 86400000, "10m",
                "a connection with no byte either way: 1s to 1d", NULL},
        {"total", FIELD_MS32, AT(total_ms), 1000, UINT64_C(30) * 86400000, "1d",
                "a connection's whole life: 1s to 30d", NULL},
        {"bytes", FIELD_BYTES, AT(bytes), 64 << 10, UINT64_C(64) << 40, "64g",
                "of one connection, both ways together: 64k to 64t", NULL},
};
#undef AT

#define N_EGRESS (sizeof(egress_fields) / sizeof(egress_fields[0]))

int section_egress(struct loader *l, const struct yaml_node *n, void *target)
{
	return fields_read(l, n, egress_fields, N_EGRESS, &((struct config *)target)->egress);
}

void section_preset_egress(struct loader *l)
{
	fields_preset(l, egress_fields, N_EGRESS, &l->c->egress);
}

void section_write_egress(struct buf *out)
{
	fields_write(out, egress_fields, N_EGRESS, 2);
}

void section_free_egress(struct config_egress *e)
{
	section_free_texts(e->allow, e->n_allow);
	section_free_texts(e->deny, e->n_deny);
}

/* ---- providers ---- */

static int read_name(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_provider *p = target;
	int r;

	r = section_read_chars(l, n, NAME_CHARS, "small letters, digits and -", &p->name);
	if (r == 0 && strcmp(p->name, "brig") == 0)
		r = loader_error(l, n, "\"brig\" is built in; take another name");
	return r;
}

static int read_dialect(struct loader *l, const struct yaml_node *n, void *target)
{
	static const struct {
		const char *name;
		enum dialect dialect;
	} dialects[] = {
	        {"openai-responses", DIALECT_OPENAI_RESPONSES},
	        {"openai-chat", DIALECT_OPENAI_CHAT},
	        {"anthropic", DIALECT_ANTHROPIC},
	        {"gemini", DIALECT_GEMINI},
	        {"script", DIALECT_SCRIPT},
	};
	struct config_provider *p = target;
	size_t i;

	for (i = 0; n->type == YAML_SCALAR && i < sizeof(dialects) / sizeof(dialects[0]); i++) {
		if (strcmp(n->text, dialects[i].name) != 0)
			continue;
		p->dialect = dialects[i].dialect;
		return 0;
	}
	return loader_error(
	        l, n, "expected openai-responses, openai-chat, anthropic, gemini or script");
}

/* What is wrong with an upstream's address, or NULL. */
static const char *url_fault(const char *url)
{
	const char *host, *end;

	if (strncmp(url, "http://", 7) == 0)
		host = url + 7;
	else if (strncmp(url, "https://", 8) == 0)
		host = url + 8;
	else
		return "must begin with http:// or https://";
	if (!section_printable(url))
		return "may hold printable ASCII without spaces only";
	end = host + strcspn(host, "/?#");
	if (end == host || *host == ':')
		return "has no host";
	if (memchr(host, '@', (size_t)(end - host)))
		return "must hold no user or password; use api_key";
	if (strpbrk(url, "?#"))
		return "must end before any ? or #";
	return NULL;
}

static void url_trim(char *url)
{
	size_t n = strlen(url);

	while (n > 0 && url[n - 1] == '/')
		url[--n] = '\0';
}

static int read_base_url(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_provider *p = target;
	const char *fault;
	char *text = NULL;
	int r;

	r = field_read_text(l, n, MAX_URL, &text);
	if (r < 0)
		return r;
	fault = url_fault(text);
	if (fault) {
		free(text);
		return loader_error(l, n, "%s", fault);
	}
	url_trim(text);
	free(p->base_url);
	p->base_url = text;
	return 0;
}

static char *secret_free(char *secret)
{
	if (secret)
		mem_wipe(secret, strlen(secret));
	free(secret);
	return NULL;
}

/* Takes over `secret` (malloc'ed); spaces and line ends around it are no part of it. */
static int take_secret(
        struct loader *l, const struct yaml_node *n, char *secret, struct config_provider *p)
{
	size_t begin = strspn(secret, " \t\r\n"), end = strlen(secret);

	while (end > begin && strchr(" \t\r\n", secret[end - 1]))
		end--;
	secret[end] = '\0';
	memmove(secret, secret + begin, end - begin + 1);
	if (!secret[0] || end - begin > MAX_SECRET || !section_printable(secret)) {
		secret_free(secret);
		return loader_error(l, n,
		        "the key must be 1 to %d printable ASCII characters, no spaces",
		        MAX_SECRET);
	}
	p->api_key = secret;
	return 0;
}

static int secret_is_first(
        struct loader *l, const struct yaml_node *n, const struct config_provider *p)
{
	if (p->api_key)
		return loader_error(l, n, "only one of api_key, api_key_env and api_key_file");
	return 0;
}

static int read_api_key(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_provider *p = target;
	char *text;
	int r;

	r = secret_is_first(l, n, p);
	if (r == 0)
		r = field_expect(l, n, YAML_SCALAR);
	if (r < 0)
		return r;
	text = mem_strndup(n->text, n->text_len);
	mem_wipe(n->text, n->text_len);
	return take_secret(l, n, text, p);
}

int section_env_text(struct loader *l, const struct yaml_node *n, char **ret)
{
	_cleanup_free_ char *name = NULL;
	const char *value;
	int r;

	r = section_read_chars(l, n, SCOPE_CHARS, "letters, digits and _", &name);
	if (r < 0)
		return r;
	value = l->src->env ? l->src->env(l->src->ctx, name) : NULL;
	if (!value || !value[0])
		return loader_error(l, n, "the environment variable %s is not set", name);
	*ret = mem_strdup(value);
	return 0;
}

int section_file_text(struct loader *l, const struct yaml_node *n, char **ret)
{
	_cleanup_free_ char *path = NULL;
	struct error err = {0};
	char *text;
	int r;

	r = field_read_text(l, n, 1024, &path);
	if (r < 0)
		return r;
	if (path[0] != '/')
		return loader_error(l, n, "must be an absolute path");
	text = l->src->read_file ? l->src->read_file(l->src->ctx, path, &err) : NULL;
	if (!text)
		return loader_error(l, n, "%s", err.text[0] ? err.text : "cannot be read here");
	*ret = text;
	return 0;
}

static int read_secret(struct loader *l, const struct yaml_node *n, struct config_provider *p,
        int (*read)(struct loader *l, const struct yaml_node *n, char **ret))
{
	char *text = NULL;
	int r = secret_is_first(l, n, p);

	if (r == 0)
		r = read(l, n, &text);
	return r < 0 ? r : take_secret(l, n, text, p);
}

static int read_api_key_env(struct loader *l, const struct yaml_node *n, void *target)
{
	return read_secret(l, n, target, section_env_text);
}

static int read_api_key_file(struct loader *l, const struct yaml_node *n, void *target)
{
	return read_secret(l, n, target, section_file_text);
}

/* What a provider may run itself where a request leaves the choice (DESIGN section 9, `engine:
 * auto`). */
static int read_native_tools(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_provider *p = target;
	const struct yaml_node *each;
	size_t mark;
	int r;

	r = field_expect(l, n, YAML_SEQUENCE);
	if (r < 0)
		return r;
	if (n->n > 1)
		return loader_error(l, n, "expected at most one entry: shell");
	p->native_tools_given = true;
	p->native_tools = mem_array(n->n + 1, sizeof(*p->native_tools));
	for (each = n->first; r == 0 && each; each = each->next) {
		mark = loader_enter_index(l, p->n_native_tools);
		if (each->type != YAML_SCALAR || strcmp(each->text, "shell") != 0)
			r = loader_error(l, each, "expected shell");
		else
			p->native_tools[p->n_native_tools++] = mem_strdup(each->text);
		loader_leave(l, mark);
	}
	return r;
}

/* OpenAI's own address has a shell. */
static void preset_native_tools(struct config_provider *p)
{
	static const char openai[] = "https://api.openai.com/";

	if (p->native_tools_given || p->dialect != DIALECT_OPENAI_RESPONSES || !p->base_url ||
	        strncmp(p->base_url, openai, sizeof(openai) - 1) != 0)
		return;
	p->native_tools = mem_array(1, sizeof(*p->native_tools));
	p->native_tools[p->n_native_tools++] = mem_strdup("shell");
}

static int read_price_each(struct loader *l, const struct yaml_node *n, size_t i)
{
	static const struct field fields[] = {
	        {"input", FIELD_MONEY, offsetof(struct config_price, input), 0, 0, NULL, NULL,
	                NULL},
	        {"output", FIELD_MONEY, offsetof(struct config_price, output), 0, 0, NULL, NULL,
	                NULL},
	        {"cached", FIELD_MONEY, offsetof(struct config_price, cached), 0, 0, NULL, NULL,
	                NULL},
	};
	struct config_provider *p = &l->c->providers[l->c->n_providers - 1];
	struct config_price *price = &p->prices[i];
	int r;

	p->n_prices = i + 1;
	r = read_model_name(l, n->key, &price->model);
	if (r == 0)
		r = fields_read(l, n, fields, 3, price);
	if (r == 0 && (!yaml_get(n, "input") || !yaml_get(n, "output")))
		r = loader_error(l, n, "input and output are needed");
	price->has_cached = yaml_get(n, "cached");
	return r;
}

static int read_prices(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_provider *p = target;
	const struct yaml_node *m;
	size_t i = 0, mark;
	int r;

	r = field_expect(l, n, YAML_MAPPING);
	if (r < 0 || n->n == 0)
		return r;
	p->prices = mem_array(n->n, sizeof(*p->prices));
	for (m = n->first; r == 0 && m; m = m->next, i++) {
		mark = loader_enter(l, m->key->text);
		r = read_price_each(l, m, i);
		loader_leave(l, mark);
	}
	return r;
}

static int check_provider(
        struct loader *l, const struct yaml_node *n, const struct config_provider *p)
{
	size_t i;

	if (!p->name)
		return loader_error(l, n, "name is missing");
	if (!yaml_get(n, "dialect"))
		return loader_error(l, n, "dialect is missing");
	if (p->dialect == DIALECT_SCRIPT && (p->base_url || p->api_key))
		return loader_error(l, n, "dialect script has no base_url and no key");
	if (p->dialect != DIALECT_SCRIPT && !p->base_url)
		return loader_error(l, n, "base_url is missing");
	for (i = 0; i + 1 < l->c->n_providers; i++)
		if (strcmp(l->c->providers[i].name, p->name) == 0)
			return loader_error(
			        l, n, "the same name as providers[%zu]: %s", i, p->name);
	return 0;
}

static int read_provider(struct loader *l, const struct yaml_node *n, size_t i)
{
	static const struct field fields[] = {
	        {"name", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_name},
	        {"dialect", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_dialect},
	        {"base_url", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_base_url},
	        {"api_key", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_api_key},
	        {"api_key_env", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_api_key_env},
	        {"api_key_file", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_api_key_file},
	        {"native_tools", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_native_tools},
	        {"prices", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_prices},
	};
	struct config_provider *p = &l->c->providers[i];
	int r;

	l->c->n_providers = i + 1;
	r = fields_read(l, n, fields, sizeof(fields) / sizeof(fields[0]), p);
	if (r == 0)
		r = check_provider(l, n, p);
	if (r == 0)
		preset_native_tools(p);
	return r;
}

int section_providers(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;
	int r;

	if (yaml_is_null(n))
		return loader_error(
		        l, n, "is empty; leave it out to take providers from the environment");
	r = field_expect(l, n, YAML_SEQUENCE);
	if (r < 0)
		return r;
	/* One more for the built-in. */
	c->providers = mem_array(n->n + 1, sizeof(*c->providers));
	return section_each(l, n, read_provider);
}

/*
 * OLLAMA_HOST as people write it: host, host:port or an address, with or without http://. Port
 * 11434 where http names none; 0.0.0.0 is what a server listens on, so a client goes to 127.0.0.1.
 */
static char *ollama_url(const char *value)
{
	char url[512], rest[300] = "";
	const char *host = value, *scheme = "http://", *end, *colon;
	struct str name;

	if (strncmp(value, "https://", 8) == 0) {
		scheme = "https://";
		host = value + 8;
	} else if (strncmp(value, "http://", 7) == 0) {
		host = value + 7;
	}
	if (strlen(host) > 200)
		return NULL;
	end = host + strcspn(host, "/");
	str_copy(rest, sizeof(rest), str_of(end));
	url_trim(rest);
	/* A colon after the last bracket begins the port. */
	colon = memchr(host, ']', (size_t)(end - host));
	colon = memchr(colon ? colon : host, ':', (size_t)(end - (colon ? colon : host)));
	name = (struct str){host, (size_t)((colon ? colon : end) - host)};
	if (name.n == 0 || str_is(name, "0.0.0.0"))
		name = STR("127.0.0.1");
	str_format(url, sizeof(url), "%s%.*s%.*s%s/v1", scheme, (int)name.n, name.p,
	        (int)(colon                ? end - colon
	                : scheme[4] == 's' ? 0
	                                   : 6),
	        colon ? colon : ":11434", rest);
	return url_fault(url) ? NULL : mem_strdup(url);
}

int section_providers_from_env(struct loader *l)
{
	static const struct {
		const char *variable, *name, *base_url;
		enum dialect dialect;
	} vendors[] = {
	        {"OPENAI_API_KEY", "openai", "https://api.openai.com/v1", DIALECT_OPENAI_RESPONSES},
	        {"ANTHROPIC_API_KEY", "anthropic", "https://api.anthropic.com/v1",
	                DIALECT_ANTHROPIC},
	        {"GEMINI_API_KEY", "gemini", "https://generativelanguage.googleapis.com/v1beta",
	                DIALECT_GEMINI},
	        {"OPENROUTER_API_KEY", "openrouter", "https://openrouter.ai/api/v1",
	                DIALECT_OPENAI_CHAT},
	        {"OLLAMA_HOST", "ollama", NULL, DIALECT_OPENAI_CHAT},
	};
	enum { N_VENDORS = sizeof(vendors) / sizeof(vendors[0]) };
	struct config *c = l->c;
	struct config_provider *p;
	const char *value;
	size_t i;

	c->providers = mem_array(N_VENDORS + 1, sizeof(*c->providers));
	for (i = 0; i < N_VENDORS; i++) {
		value = l->src->env ? l->src->env(l->src->ctx, vendors[i].variable) : NULL;
		if (!value || !value[0])
			continue;
		p = &c->providers[c->n_providers++];
		p->name = mem_strdup(vendors[i].name);
		p->dialect = vendors[i].dialect;
		p->base_url =
		        vendors[i].base_url ? mem_strdup(vendors[i].base_url) : ollama_url(value);
		if (!p->base_url)
			return error_set(l->err, ERR_INVALID,
			        "%s in the environment is no address of a server",
			        vendors[i].variable);
		preset_native_tools(p);
		if (!vendors[i].base_url)
			continue;
		if (!section_printable(value) || strlen(value) > MAX_SECRET)
			return error_set(l->err, ERR_INVALID,
			        "%s in the environment must be printable ASCII without spaces",
			        vendors[i].variable);
		p->api_key = mem_strdup(value);
	}
	return 0;
}

void section_add_builtin(struct config *c)
{
	struct config_provider *p = &c->providers[c->n_providers++];

	p->name = mem_strdup("brig");
	p->dialect = DIALECT_SCRIPT;
}

/* ---- models ---- */

static int read_alias_name(struct loader *l, const struct yaml_node *n, void *target)
{
	return read_model_name(l, n, &((struct config_model *)target)->name);
}

static int read_route(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_model *m = target;
	const struct yaml_node *step;
	size_t mark;
	int r;

	r = field_expect(l, n, YAML_SEQUENCE);
	if (r < 0)
		return r;
	if (n->n == 0 || n->n > MAX_ROUTE)
		return loader_error(l, n, "expected 1 to %d entries provider/model", MAX_ROUTE);
	m->route = mem_array(n->n, sizeof(*m->route));
	for (step = n->first; r == 0 && step; step = step->next) {
		mark = loader_enter_index(l, m->n_route);
		r = read_model_name(l, step, &m->route[m->n_route]);
		loader_leave(l, mark);
		if (r == 0)
			m->n_route++;
	}
	return r;
}

static int read_model(struct loader *l, const struct yaml_node *n, size_t i)
{
	static const struct field fields[] = {
	        {"name", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_alias_name},
	        {"route", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_route},
	};
	struct config_model *m = &l->c->models[i];
	size_t j;
	int r;

	l->c->n_models = i + 1;
	r = fields_read(l, n, fields, 2, m);
	if (r < 0)
		return r;
	if (!m->name || !m->route)
		return loader_error(l, n, "%s is missing", m->name ? "route" : "name");
	for (j = 0; j < i; j++)
		if (strcmp(l->c->models[j].name, m->name) == 0)
			return loader_error(l, n, "the same name as models[%zu]: %s", j, m->name);
	return 0;
}

int section_models(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;
	int r;

	r = field_expect(l, n, YAML_SEQUENCE);
	if (r < 0 || n->n == 0)
		return r;
	c->models = mem_array(n->n, sizeof(*c->models));
	return section_each(l, n, read_model);
}

static const struct config_provider *find_provider(const struct config *c, struct str name)
{
	size_t i;

	for (i = 0; i < c->n_providers; i++)
		if (str_is(name, c->providers[i].name))
			return &c->providers[i];
	return NULL;
}

static int check_step(struct loader *l, const struct yaml_node *n, const char *step, size_t i)
{
	const char *slash = strchr(step, '/');
	const struct config_provider *p;

	if (!slash || slash == step || !slash[1])
		return loader_error(l, n, "expected provider/model, not \"%.60s\"", step);
	p = find_provider(l->c, (struct str){step, (size_t)(slash - step)});
	if (!p)
		return loader_error(
		        l, n, "there is no provider \"%.*s\"", (int)(slash - step), step);
	if (p->dialect == DIALECT_SCRIPT && i > 0)
		return loader_error(l, n, "a script is no model and never a fallback");
	return 0;
}

int section_check_routes(struct loader *l, const struct yaml_node *n)
{
	const struct yaml_node *entry = n ? n->first : NULL, *step;
	size_t i, j, mark;
	int r = 0;

	for (i = 0; r == 0 && i < l->c->n_models; i++, entry = entry->next) {
		step = yaml_get(entry, "route")->first;
		for (j = 0; r == 0 && j < l->c->models[i].n_route; j++, step = step->next) {
			mark = loader_enter(l, "models");
			loader_enter_index(l, i);
			loader_enter(l, "route");
			loader_enter_index(l, j);
			r = check_step(l, step, l->c->models[i].route[j], j);
			loader_leave(l, mark);
		}
	}
	return r;
}

void section_free_provider(struct config_provider *p)
{
	size_t i;

	free(p->name);
	free(p->base_url);
	p->api_key = secret_free(p->api_key);
	for (i = 0; i < p->n_native_tools; i++)
		free(p->native_tools[i]);
	free(p->native_tools);
	for (i = 0; i < p->n_prices; i++)
		free(p->prices[i].model);
	free(p->prices);
}

void section_free_model(struct config_model *m)
{
	size_t i;

	free(m->name);
	for (i = 0; i < m->n_route; i++)
		free(m->route[i]);
	free(m->route);
}
