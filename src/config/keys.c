/*
 * The list `keys:`, and what the fields of a key are called wherever a key is made (docs/keys.md).
 * The text of a key is hashed here and wiped.
 */
#include "config/sections.h"

#include "base/clock.h"
#include "base/id.h"

#include <stdlib.h>

enum {
	MAX_SECRET = 4096,
	MIN_KEY = 16, /* characters */
};

/* ---- names ---- */

static const char *const tool_names[CONFIG_TOOLS] = {
        [CONFIG_TOOL_SHELL] = "shell",
        [CONFIG_TOOL_BASH] = "bash",
        [CONFIG_TOOL_EXEC] = "exec",
        [CONFIG_TOOL_CODE] = "code_execution",
};

const char *config_tool_name(enum config_tool t)
{
	return tool_names[t];
}

bool config_tool_find(struct str name, enum config_tool *ret)
{
	static const char *const prefixes[] = {"openrouter:", "brig:"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
		size_t n = strlen(prefixes[i]);

		if (str_starts(name, prefixes[i])) {
			name = (struct str){name.p + n, name.n - n};
			break;
		}
	}
	for (unsigned i = 0; i < CONFIG_TOOLS; i++) {
		if (!str_is(name, tool_names[i]))
			continue;
		*ret = (enum config_tool)i;
		return true;
	}
	return false;
}

static const char *const reset_names[] = {
        [CONFIG_RESET_NEVER] = NULL,
        [CONFIG_RESET_DAILY] = "daily",
        [CONFIG_RESET_WEEKLY] = "weekly",
        [CONFIG_RESET_MONTHLY] = "monthly",
};

const char *config_reset_name(enum config_reset r)
{
	return reset_names[r];
}

bool config_reset_find(struct str name, enum config_reset *ret)
{
	for (unsigned i = CONFIG_RESET_DAILY; i <= CONFIG_RESET_MONTHLY; i++) {
		if (!str_is(name, reset_names[i]))
			continue;
		*ret = (enum config_reset)i;
		return true;
	}
	return false;
}

/* ---- the list ---- */

void section_free_key(struct config_key *k)
{
	free(k->account);
	free(k->workspace);
	free(k->name);
	section_free_texts(k->egress_allow, k->n_egress_allow);
}

static int read_key_allow(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_key *k = target;

	return section_read_patterns(
	        l, n, SECTION_PATTERNS_MAX, &k->egress_allow, &k->n_egress_allow);
}

static int read_key_text(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_key *k = target;
	int r;

	r = field_expect(l, n, YAML_SCALAR);
	if (r < 0)
		return r;
	if (n->text_len < MIN_KEY || n->text_len > MAX_SECRET || !section_printable(n->text))
		return loader_error(l, n, "must be %d to %d printable ASCII characters, no spaces",
		        MIN_KEY, MAX_SECRET);
	id_sha256((struct str){n->text, n->text_len}, k->hash);
	mem_wipe(n->text, n->text_len);
	return 0;
}

static int read_account(struct loader *l, const struct yaml_node *n, void *target)
{
	return section_read_chars(l, n, CONFIG_SCOPE_CHARS, "letters, digits, _ and -",
	        &((struct config_key *)target)->account);
}

static int read_workspace(struct loader *l, const struct yaml_node *n, void *target)
{
	return section_read_chars(l, n, CONFIG_SCOPE_CHARS, "letters, digits, _ and -",
	        &((struct config_key *)target)->workspace);
}

static int read_name(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_key *k = target;

	free(k->name);
	k->name = NULL;
	return field_read_text(l, n, CONFIG_KEY_NAME_MAX, &k->name);
}

static int read_limit(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_key *k = target;

	if (n->type != YAML_SCALAR || !money_parse((struct str){n->text, n->text_len}, &k->limit))
		return loader_error(l, n, "expected dollars such as \"25\" or \"0.50\"");
	k->has_limit = true;
	return 0;
}

static int read_reset(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_key *k = target;

	if (n->type != YAML_SCALAR ||
	        !config_reset_find((struct str){n->text, n->text_len}, &k->limit_reset))
		return loader_error(
		        l, n, "is daily, weekly or monthly; without it a limit is for all time");
	return 0;
}

static int read_expiry(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_key *k = target;

	if (n->type != YAML_SCALAR ||
	        !clock_parse_iso8601((struct str){n->text, n->text_len}, &k->expires_ms))
		return loader_error(
		        l, n, "expected a time such as 2027-01-31T18:00:00Z, or a date");
	return 0;
}

static int read_disabled(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_key *k = target;
	enum config_tool tool;
	size_t i = 0, mark;
	int r = field_expect(l, n, YAML_SEQUENCE);

	for (const struct yaml_node *m = n->first; r == 0 && m; m = m->next, i++) {
		mark = loader_enter_index(l, i);
		if (m->type != YAML_SCALAR ||
		        !config_tool_find((struct str){m->text, m->text_len}, &tool))
			r = loader_error(l, m, "is shell, bash, exec or code_execution");
		else
			k->disabled_tools |= 1u << tool;
		loader_leave(l, mark);
	}
	return r;
}

static int read_key(struct loader *l, const struct yaml_node *n, size_t i)
{
	static const struct field fields[] = {
	        {"key", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_key_text},
	        {"account", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_account},
	        {"workspace", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_workspace},
	        {"egress_allow", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_key_allow},
	        {"admin", FIELD_BOOL, offsetof(struct config_key, admin), 0, 0, "off", NULL, NULL},
	        {"name", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_name},
	        {"requests_per_minute", FIELD_COUNT,
	                offsetof(struct config_key, requests_per_minute), 1, CONFIG_RATE_MAX, NULL,
	                NULL, NULL},
	        {"containers_at_once", FIELD_COUNT, offsetof(struct config_key, containers), 1,
	                CONFIG_AT_ONCE_MAX, NULL, NULL, NULL},
	        {"limit", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_limit},
	        {"limit_reset", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_reset},
	        {"expires_at", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_expiry},
	        {"disabled_server_tools", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_disabled},
	};
	struct config_key *k = &l->c->keys[i];
	size_t j;
	int r;

	l->c->n_keys = i + 1;
	k->account = mem_strdup("default");
	k->workspace = mem_strdup("default");
	r = fields_read(l, n, fields, sizeof(fields) / sizeof(fields[0]), k);
	if (r < 0)
		return r;
	if (!yaml_get(n, "key"))
		return loader_error(l, n, "key is missing");
	if (k->limit_reset != CONFIG_RESET_NEVER && !k->has_limit)
		return loader_error(l, n, "limit_reset is given without limit");
	for (j = 0; j < i; j++)
		if (memcmp(l->c->keys[j].hash, k->hash, sizeof(k->hash)) == 0)
			return loader_error(l, n, "the same key as keys[%zu]", j);
	return 0;
}

int section_keys(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;
	int r;

	r = field_expect(l, n, YAML_SEQUENCE);
	if (r < 0)
		return r;
	if (n->n == 0)
		return loader_error(l, n, "is empty; without this list one key is made");
	c->keys = mem_array(n->n, sizeof(*c->keys));
	return section_each(l, n, read_key);
}
