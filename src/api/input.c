#include "api/input.h"

#include "base/mem.h"

#include <stdlib.h>

enum {
	PARTS_MAX = 100000,
	LOOK_MAX = 4096, /* items; looking for a lone result takes their square */
};

int input_content(struct param_reader *in, const struct json *v, const char *path,
        input_part_fn part, void *ctx, struct part **ret, size_t *ret_n)
{
	char inner[PARAM_PATH];
	struct part *parts;
	size_t n, i = 0;
	int rc = 0;

	if (!json_is(v, JSON_STRING) && !json_is(v, JSON_ARRAY))
		return param_fail_type(in, v, path, NULL, "a string or an array");
	n = json_is(v, JSON_STRING) ? 1 : json_count(v);
	if (n > PARTS_MAX)
		return param_fail(in, ERR_INVALID, "array_above_max_length", path, NULL,
		        "Invalid '%s': at most %d parts.", path, PARTS_MAX);
	parts = conversation_parts(in->conversation, n ? n : 1);
	if (!parts)
		return param_fail_memory(in);
	if (json_is(v, JSON_STRING)) {
		parts[0].type = PART_TEXT;
		rc = param_keep(in, v, &parts[0].text);
	} else {
		for (v = json_first(v); v && !rc; v = json_next(v), i++) {
			param_index(inner, path, i);
			rc = part(ctx, v, inner, &parts[i]);
		}
	}
	*ret = parts;
	*ret_n = n;
	return rc;
}

int input_audio(struct param_reader *in, const struct json *v, const char *path, struct part *part)
{
	const struct json *audio;
	char inner[PARAM_PATH];
	int rc;

	part->type = PART_AUDIO;
	param_join(inner, path, "input_audio");
	rc = param_need_container(in, v, path, "input_audio", JSON_OBJECT, &audio);
	if (!rc)
		rc = param_need_str(in, audio, inner, "data", &part->data);
	return rc ? rc : param_need_str(in, audio, inner, "format", &part->detail);
}

int input_call_id(struct param_reader *in, const struct json *v, const char *path, const char *key,
        size_t most, struct str *ret)
{
	int rc = param_need_str(in, v, path, key, ret);

	if (!rc && (ret->n == 0 || ret->n > most))
		rc = param_fail(in, ERR_INVALID,
		        ret->n ? "string_above_max_length" : "invalid_value", path, key,
		        "Invalid '%s.%s': expected 1 to %zu characters.", path, key, most);
	return rc;
}

int input_check_name(struct param_reader *in, const char *path, struct str name)
{
	if (name.n > 0)
		return 0;
	return param_fail(in, ERR_INVALID, "invalid_value", path, "name",
	        "Invalid '%s.name': it is empty.", path);
}

static bool has_call_before(const struct conversation *c, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (c->items[j]->type == ITEM_CALL &&
		        str_eq(c->items[j]->call.public_id, c->items[i]->result.public_id))
			return true;
	return false;
}

bool input_lone_result(const struct conversation *c, size_t *ret)
{
	for (size_t i = 0; i < c->n_items && c->n_items <= LOOK_MAX; i++)
		if (c->items[i]->type == ITEM_RESULT && !has_call_before(c, i)) {
			*ret = i;
			return true;
		}
	return false;
}

static bool is_open(const struct item *it)
{
	return it->type == ITEM_CALL && !it->call.result;
}

int input_complete_calls(struct param_reader *in, int (*refuse)(void *ctx, size_t i),
        struct item *(*add)(void *ctx, size_t i), void *ctx)
{
	struct conversation *c = in->conversation;
	size_t n = c->n_items, missing = 0, at = 0;
	struct item **items;

	for (size_t i = 0; i < n; i++) {
		if (!is_open(c->items[i]))
			continue;
		if (!c->items[i]->call.tool)
			return refuse(ctx, i);
		missing++;
	}
	if (missing == 0)
		return 0;
	items = mem_array(n + missing, sizeof(*items));
	for (size_t i = 0; i < n; i++) {
		struct item *it = c->items[i], *result;

		items[at++] = it;
		if (!is_open(it))
			continue;
		result = add(ctx, i);
		if (!result) {
			free(items);
			return -ERR_NOMEM;
		}
		result->result.public_id = it->call.public_id;
		result->result.tool = it->call.tool;
		items[at++] = result;
	}
	memcpy(c->items, items, at * sizeof(*items));
	free(items);
	return conversation_cut_replies(c, in->err);
}
