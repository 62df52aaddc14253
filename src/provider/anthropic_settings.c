/*
 * What else a request says: max_tokens, thinking, sampling, output_config, stop, metadata, service
 * tier.
 *
 * Models of this API differ in what they refuse, so their name is read: "claude-opus-4-7" is 4.7,
 * "claude-3-5-haiku-20241022" is 3.5. A Claude without a number counts as the newest; a name that
 * is no Claude's belongs to another server that speaks this dialect, and gets what all of them
 * know.
 *
 *     before 3.7       no thinking                     3.7 to 4.5   budget_tokens
 *     4.6              both forms                      from 4.7     adaptive with an effort; no
 * sampling
 *
 * What is dropped because the API has no such thing: penalties, seed, top_logprobs, verbosity, the
 * cache key, metadata that is not a user's id. docs/api.md lists it.
 *
 * A client that speaks this dialect has said all of it in the API's own words: its members (extra)
 * are written as they are, and stand before what would be made of the settings.
 */
#include "provider/anthropic.h"

#include <stdlib.h>

#define TREE_MAX          ((size_t)64 << 20)
#define DEFAULT_NEW       32000 /* max_tokens where the client gives none */
#define DEFAULT_OTHER     8192  /* Claude 3.5, and models that are no Claude */
#define DEFAULT_OLD       4096  /* Claude 3 */
#define BUDGET_MIN        1024
#define VERSION(maj, min) ((maj)*100 + (min))
#define VERSION_NEWEST    VERSION(99, 0)
#define VERSION_NO_CLAUDE (-1)

/* ---- models ---- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* A number of one or two digits at *at, or -1. Dates are longer. */
static int small_number(struct str s, size_t *at)
{
	size_t i = *at;
	int v = 0;

	while (i < s.n && is_digit(s.p[i]) && i - *at < 3)
		v = v * 10 + s.p[i++] - '0';
	if (i == *at || i - *at > 2 || (i < s.n && is_digit(s.p[i])))
		return -1;
	*at = i;
	return v;
}

static int model_version(const char *model)
{
	const char *claude = strstr(model, "claude");
	struct str s = str_of(claude);

	if (!claude)
		return VERSION_NO_CLAUDE;
	for (size_t i = 1; i < s.n; i++) {
		int major, minor = -1;

		if (!is_digit(s.p[i]) || is_digit(s.p[i - 1]))
			continue;
		major = small_number(s, &i);
		if (major < 0)
			continue;
		if (i + 1 < s.n && (s.p[i] == '-' || s.p[i] == '.')) {
			i++;
			minor = small_number(s, &i);
		}
		return VERSION(major, minor < 0 ? 0 : minor);
	}
	return VERSION_NEWEST;
}

static int default_max_tokens(int version)
{
	if (version == VERSION_NO_CLAUDE || version == VERSION(3, 5))
		return DEFAULT_OTHER;
	return version < VERSION(3, 7) ? DEFAULT_OLD : DEFAULT_NEW;
}

/* ---- writing ---- */

struct settings_writer {
	struct json_writer *w;
	const struct provider_call *pc;
	const struct settings *s;
	int version;
	int64_t max_tokens;
	bool thinks;        /* we asked for it */
	const char *effort; /* output_config.effort, or NULL */
};

static bool client_says(const struct settings_writer *x, const char *key)
{
	const struct conversation *c = x->pc->conversation;

	for (size_t i = 0; anthropic_same_dialect(x->pc) && i < c->n_extra; i++)
		if (str_is(c->extra[i].key, key))
			return true;
	return false;
}

static bool number_of(struct str raw, double *ret)
{
	struct json_doc *doc _cleanup_json_ = NULL;

	return raw.n && json_parse(raw, 4096, &doc, NULL) == 0 && json_double(json_root(doc), ret);
}

static void write_max_tokens(struct settings_writer *x)
{
	double given;

	x->max_tokens = default_max_tokens(x->version);
	if (number_of(x->s->max_output_tokens, &given)) {
		x->max_tokens = given < 1e9 ? (int64_t)given : (int64_t)1000000000;
		jw_kraw(x->w, "max_tokens", x->s->max_output_tokens);
	} else {
		jw_ki64(x->w, "max_tokens", x->max_tokens);
	}
}

/* ---- thinking ---- */

/* From least to most. */
static const struct {
	const char *name;
	int budget;
	const char *effort;
} EFFORTS[] = {
        {"minimal", 1024, "low"},
        {"low", 2048, "low"},
        {"medium", 8192, "medium"},
        {"high", 16384, "high"},
        {"xhigh", 24576, "xhigh"},
        {"max", 31999, "max"},
};
#define N_EFFORTS (sizeof(EFFORTS) / sizeof(*EFFORTS))

/* How hard the model is to think: -1 not at all, N_EFFORTS nothing was said; and a budget or 0. */
static size_t wanted_effort(const struct settings *s, int64_t *ret_budget, bool *ret_off)
{
	double budget;

	*ret_budget = 0;
	*ret_off = str_is(s->reasoning_effort, "none");
	if (number_of(s->thinking_budget, &budget)) {
		*ret_off = budget == 0;
		if (budget < 0) /* as much as it likes */
			return 2;
		*ret_budget = budget > 1e9 ? 1000000000 : (int64_t)budget;
		for (size_t i = 0; i < N_EFFORTS; i++)
			if (*ret_budget <= EFFORTS[i].budget)
				return i;
		return N_EFFORTS - 1;
	}
	for (size_t i = 0; i < N_EFFORTS; i++)
		if (str_is(s->reasoning_effort, EFFORTS[i].name))
			return i;
	return N_EFFORTS;
}

static void write_display(struct settings_writer *x)
{
	if (x->s->include_thoughts == 0)
		jw_kcstr(x->w, "display", "omitted");
	else if (x->s->include_thoughts == 1 || x->s->reasoning_summary.n)
		jw_kcstr(x->w, "display", "summarized");
}

static void write_adaptive(struct settings_writer *x, size_t effort)
{
	jw_key(x->w, "thinking");
	jw_object(x->w);
	jw_kcstr(x->w, "type", "adaptive");
	write_display(x);
	jw_end(x->w);
	x->effort = EFFORTS[effort].effort;
	if (x->version < VERSION(4, 7) && str_is(str_of(x->effort), "xhigh"))
		x->effort = "high";
	x->thinks = true;
}

static void write_budget(struct settings_writer *x, size_t effort, int64_t budget)
{
	int64_t most = x->max_tokens - 1;

	if (!budget) { /* nobody counted: a quarter is left for the answer */
		budget = EFFORTS[effort].budget;
		most = most / 4 * 3 > BUDGET_MIN ? most / 4 * 3 : most;
	}
	if (budget < BUDGET_MIN)
		budget = BUDGET_MIN;
	if (budget > most)
		budget = most;
	if (budget < BUDGET_MIN)
		return; /* there is no room to think */
	jw_key(x->w, "thinking");
	jw_object(x->w);
	jw_kcstr(x->w, "type", "enabled");
	jw_ki64(x->w, "budget_tokens", budget);
	jw_end(x->w);
	x->thinks = true;
}

/* The API refuses thinking where a call is forced, and, in its older form, in the middle of a loop
 * whose last reply did not think. */
static void write_thinking(struct settings_writer *x, bool broken_loop)
{
	enum choice_mode mode = x->pc->call->choice.mode;
	bool forced = !x->pc->call->tools_off && (mode == CHOICE_REQUIRED || mode == CHOICE_NAMED);
	bool off;
	int64_t budget;
	size_t effort = wanted_effort(x->s, &budget, &off);
	bool adaptive = x->version >= VERSION(4, 7) || (x->version == VERSION(4, 6) && !budget);

	if (client_says(x, "thinking"))
		return;
	if (off) {
		/* Later models refuse to be told so; all others think only where they are asked to.
		 */
		if (x->version >= VERSION(3, 7) && x->version < VERSION(5, 0)) {
			jw_key(x->w, "thinking");
			jw_object(x->w);
			jw_kcstr(x->w, "type", "disabled");
			jw_end(x->w);
		}
		return;
	}
	if (effort == N_EFFORTS || forced)
		return;
	if (adaptive)
		write_adaptive(x, effort);
	else if (x->version == VERSION_NO_CLAUDE || x->version >= VERSION(3, 7))
		if (!broken_loop)
			write_budget(x, effort, budget);
}

/* ---- sampling ---- */

static void write_sampling(struct settings_writer *x)
{
	double t;

	if (x->thinks || x->version >= VERSION(4, 7))
		return;
	if (number_of(x->s->temperature, &t) && !client_says(x, "temperature"))
		jw_kraw(x->w, "temperature", t > 1 ? STR("1") : x->s->temperature);
	/* Models since 4.1 take one of the two. */
	if (x->s->top_p.n && !client_says(x, "top_p") &&
	        (!x->s->temperature.n || x->version < VERSION(4, 0) ||
	                anthropic_same_dialect(x->pc)))
		jw_kraw(x->w, "top_p", x->s->top_p);
	if (x->s->top_k.n && !client_says(x, "top_k"))
		jw_kraw(x->w, "top_k", x->s->top_k);
}

/* ---- output_config ---- */

/* The schema of a json_schema format, in the spelling of either API; {NULL,0}: plain text. */
static int read_format(struct str raw, struct json_doc **doc, struct str *ret, struct error *err)
{
	const struct json *f, *schema;
	struct str type;
	int r;

	*ret = (struct str){NULL, 0};
	if (!raw.n)
		return 0;
	r = json_parse(raw, TREE_MAX, doc, err);
	if (r < 0)
		return r;
	f = json_root(*doc);
	type = json_str(json_get(f, "type"));
	if (!type.n || str_is(type, "text"))
		return 0;
	schema = json_get(f, "schema");
	if (!schema)
		schema = json_get(json_get(f, "json_schema"), "schema");
	if (!str_is(type, "json_schema") || !json_is(schema, JSON_OBJECT))
		return error_param(err, ERR_UNSUPPORTED, "text.format",
		        "this provider writes JSON only to a schema: use json_schema");
	*ret = json_raw(schema);
	return 0;
}

static int write_output_config(struct settings_writer *x, struct error *err)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	struct str schema;
	int r;

	if (client_says(x, "output_config") || client_says(x, "output_format"))
		return 0;
	r = read_format(x->s->text_format, &doc, &schema, err);
	if (r < 0 || (!schema.n && !x->effort))
		return r;
	jw_key(x->w, "output_config");
	jw_object(x->w);
	if (x->effort)
		jw_kcstr(x->w, "effort", x->effort);
	if (schema.n) {
		jw_key(x->w, "format");
		jw_object(x->w);
		jw_kcstr(x->w, "type", "json_schema");
		jw_kraw(x->w, "schema", schema);
		jw_end(x->w);
	}
	jw_end(x->w);
	return 0;
}

/* ---- the rest ---- */

static void write_stop(struct settings_writer *x)
{
	struct str stop = x->s->stop;

	if (!stop.n || client_says(x, "stop_sequences") || str_is(stop, "null"))
		return;
	if (*stop.p == '[') {
		jw_kraw(x->w, "stop_sequences", stop);
		return;
	}
	jw_key(x->w, "stop_sequences");
	jw_array(x->w);
	jw_raw(x->w, stop);
	jw_end(x->w);
}

static void write_user(struct settings_writer *x)
{
	struct str user = x->s->safety_identifier.n ? x->s->safety_identifier : x->s->user;

	if (!user.n || client_says(x, "metadata"))
		return;
	jw_key(x->w, "metadata");
	jw_object(x->w);
	jw_kstr(x->w, "user_id", user);
	jw_end(x->w);
}

static void write_tier(struct settings_writer *x)
{
	struct str tier = x->s->service_tier;

	if (client_says(x, "service_tier"))
		return;
	if (str_is(tier, "auto") || str_is(tier, "standard_only"))
		jw_kstr(x->w, "service_tier", tier);
	else if (str_is(tier, "default"))
		jw_kcstr(x->w, "service_tier", "standard_only");
}

/* Ours to say, whatever the client said. */
static bool is_ours(struct str key)
{
	static const char *const ours[] = {
	        "model", "messages", "system", "tools", "tool_choice", "max_tokens", "stream"};

	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		if (str_is(key, ours[i]))
			return true;
	return false;
}

static bool is_sampling(struct str key)
{
	return str_is(key, "temperature") || str_is(key, "top_p") || str_is(key, "top_k");
}

static void write_extra(struct settings_writer *x)
{
	const struct conversation *c = x->pc->conversation;

	for (size_t i = 0; anthropic_same_dialect(x->pc) && i < c->n_extra; i++) {
		const struct extra_member *e = &c->extra[i];

		if (is_ours(e->key) || (is_sampling(e->key) && x->version >= VERSION(4, 7)))
			continue;
		jw_key_str(x->w, e->key);
		jw_raw(x->w, e->raw);
	}
}

int anthropic_settings_write(
        struct json_writer *w, const struct provider_call *pc, bool broken_loop, struct error *err)
{
	struct settings_writer x = {.w = w,
	        .pc = pc,
	        .s = &pc->conversation->settings,
	        .version = model_version(pc->target->model)};
	int r;

	write_max_tokens(&x);
	write_thinking(&x, broken_loop);
	write_sampling(&x);
	r = write_output_config(&x, err);
	if (r < 0)
		return r;
	write_stop(&x);
	write_user(&x);
	write_tier(&x);
	write_extra(&x);
	return 0;
}
