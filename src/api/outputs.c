#include "api/outputs.h"

#include "api/api.h"
#include "base/utf8.h"
#include "network/policy.h"
#include "tool/tool.h"

#include <limits.h>

enum { OUTPUTS_MAX = 1000 };

/* ---- writing ---- */

static void write_length(struct ropewriter *w, const char *flag, const char *length, uint64_t chars)
{
	jw_kbool(&w->json, flag, true);
	jw_ki64(&w->json, length, (int64_t)chars);
}

void outputs_write_outcome(struct ropewriter *w, const struct command_output *o)
{
	jw_key(&w->json, "outcome");
	tool_write_outcome(&w->json, o);
	if (o->out_truncated)
		write_length(w, "stdout_truncated", "stdout_length", o->out_chars);
	if (o->err_truncated)
		write_length(w, "stderr_truncated", "stderr_length", o->err_chars);
}

void outputs_write(struct ropewriter *w, const struct command_output *o)
{
	jw_object(&w->json);
	ropewriter_kstr(w, "stdout", o->out);
	ropewriter_kstr(w, "stderr", o->err);
	outputs_write_outcome(w, o);
	jw_end(&w->json);
}

/* ---- reading ---- */

/* The names that outcome.signal and outcome.reason can have are short words. */
static int read_word(struct param_reader *in, const struct json *v, const char *path,
        const char *key, struct str *ret)
{
	int rc = param_str(in, v, path, key, 64, ret);

	if (!rc && ret->p && ret->n == 0)
		*ret = (struct str){NULL, 0};
	return rc;
}

static int read_outcome(
        struct param_reader *in, const struct json *v, const char *path, struct command_output *o)
{
	static const char *const types[] = {"exit", "timeout", NULL};
	int64_t code = 0;
	struct str type;
	int rc;

	rc = param_choice(in, v, path, "type", types, &type);
	if (!rc && !type.p)
		rc = param_fail_missing(in, path, "type");
	if (!rc)
		rc = param_whole(in, v, path, "exit_code", INT_MIN, INT_MAX, NULL, &code);
	if (!rc)
		rc = read_word(in, v, path, "signal", &o->signal);
	if (!rc)
		rc = read_word(in, v, path, "reason", &o->reason);
	if (rc)
		return rc;
	o->outcome = str_is(type, "exit") ? OUTCOME_EXIT : OUTCOME_TIMEOUT;
	if (o->outcome == OUTCOME_EXIT && json_absent(json_get(v, "exit_code")))
		return param_fail_missing(in, path, "exit_code");
	o->exit_code = o->outcome == OUTCOME_EXIT ? (int)code : 0;
	return 0;
}

static int read_cut(struct param_reader *in, const struct json *v, const char *path,
        const char *flag, const char *length, bool *ret_cut, uint64_t *ret_chars)
{
	int64_t chars = (int64_t)*ret_chars;
	int cut, rc = param_bool(in, v, path, flag, &cut);

	if (!rc)
		rc = param_whole(in, v, path, length, 0, INT64_MAX, NULL, &chars);
	if (rc)
		return rc;
	*ret_cut = cut == 1;
	*ret_chars = (uint64_t)chars;
	return 0;
}

int outputs_read_outcome(
        struct param_reader *in, const struct json *v, const char *path, struct command_output *o)
{
	const struct json *outcome;
	char inner[PARAM_PATH];
	int rc = param_container(in, v, path, "outcome", JSON_OBJECT, &outcome);

	o->out_chars = utf8_count(o->out.p, o->out.n);
	o->err_chars = utf8_count(o->err.p, o->err.n);
	param_join(inner, path, "outcome");
	if (!rc && outcome)
		rc = read_outcome(in, outcome, inner, o);
	if (!rc)
		rc = read_cut(in, v, path, "stdout_truncated", "stdout_length", &o->out_truncated,
		        &o->out_chars);
	if (!rc)
		rc = read_cut(in, v, path, "stderr_truncated", "stderr_length", &o->err_truncated,
		        &o->err_chars);
	return rc;
}

static int read_output(
        struct param_reader *in, const struct json *v, const char *path, struct command_output *o)
{
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(in, v, path, NULL, "an object");
	rc = param_need_str(in, v, path, "stdout", &o->out);
	if (!rc)
		rc = param_need_str(in, v, path, "stderr", &o->err);
	if (!rc && json_absent(json_get(v, "outcome")))
		rc = param_fail_missing(in, path, "outcome");
	o->done = true;
	return rc ? rc : outputs_read_outcome(in, v, path, o);
}

int outputs_read(struct param_reader *in, const struct json *list, const char *path,
        outputs_index_fn index, struct result *r)
{
	char inner[PARAM_PATH];
	size_t n = json_count(list);
	int rc;

	if (n > OUTPUTS_MAX)
		return param_fail(in, ERR_INVALID, "array_above_max_length", path, NULL,
		        "Invalid '%s': at most %d outputs.", path, OUTPUTS_MAX);
	r->outputs = arena_alloc(in->conversation->arena, (n ? n : 1) * sizeof(*r->outputs));
	if (!r->outputs)
		return param_fail_memory(in);
	for (const struct json *v = json_first(list); v; v = json_next(v)) {
		index(inner, path, r->n_outputs);
		rc = read_output(in, v, inner, &r->outputs[r->n_outputs]);
		if (rc)
			return rc;
		r->n_outputs++;
	}
	return 0;
}

/* ---- warnings ---- */

static void write_warning(void *ctx, const char *sentence)
{
	struct json_writer *j = ctx;

	jw_cstr(j, sentence);
}

static void count_warning(void *ctx, const char *sentence)
{
}

void outputs_write_files(struct ropewriter *w, const struct result *r)
{
	struct json_writer *j = &w->json;

	if (r->n_files == 0)
		return;
	jw_key(j, "files");
	jw_array(j);
	for (size_t i = 0; i < r->n_files; i++) {
		_cleanup_buf_ struct buf id = BUF_INIT(65536);

		api_file_id_append(&id, r->files[i].path);
		jw_object(j);
		jw_kcstr(j, "type", "container_file_citation");
		jw_kstr(j, "container_id", r->container_id);
		jw_kstr(j, "file_id", (struct str){id.data, id.len});
		jw_kstr(j, "filename", r->files[i].path);
		jw_ki64(j, "start_index", 0);
		jw_ki64(j, "end_index", 0);
		jw_end(j);
	}
	jw_end(j);
}

void outputs_write_warnings(struct ropewriter *w, const struct tool_entry *entry)
{
	const struct shell_settings *shell = entry ? entry->settings : NULL;

	if (!shell || policy_warnings(str_of(shell->network), count_warning, NULL) == 0)
		return;
	jw_key(&w->json, "warnings");
	jw_array(&w->json);
	policy_warnings(str_of(shell->network), write_warning, &w->json);
	jw_end(&w->json);
}
