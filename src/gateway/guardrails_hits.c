/*
 * What guardrails found in the requests of a workspace, and marks of what was found wrongly, for
 * every key of that workspace (docs/guardrails.md).
 */
#include "gateway/fields.h"
#include "gateway/generations.h"
#include "gateway/job.h"

#include <stdlib.h>

#define LIST_PRESET 50
#define LIST_MOST   1000
#define MATCHED_CUT 196 /* a text that is this long may have been cut where it was recorded */

static void write_hit(struct json_writer *w, const struct store_hit *h)
{
	char text[96];

	jw_object(w);
	str_format(text, sizeof(text), "%s.%u", h->generation, h->number);
	jw_kcstr(w, "id", text);
	jw_kcstr(w, "generation_id", h->generation);
	jw_ki64(w, "n", h->number);
	jw_ktime(w, "created_at", h->begin_ms);
	jw_ki64(w, "created_at_ms", h->begin_ms);
	jw_kcstr(w, "model", h->model);
	jw_kcstr(w, "api_key_hash", h->key_hash);
	generations_write_hit(w, &h->found);
	jw_end(w);
}

static void list_work(struct job *j)
{
	_cleanup_buf_ struct buf number = BUF_INIT(64), after = BUF_INIT(256);
	struct store_hit_list list = {0};
	struct str from = {NULL, 0};
	uint64_t limit = LIST_PRESET;
	struct json_writer w;

	if (http_query_get(j->query, "limit", &number) &&
	        (!str_to_u64((struct str){number.data, number.len}, &limit) || limit < 1 ||
	                limit > LIST_MOST)) {
		j->result = error_param(&j->err, ERR_INVALID, "limit",
		        "limit must be a whole number from 1 to %d.", LIST_MOST);
		return;
	}
	if (http_query_get(j->query, "after", &after) && after.len > 0)
		from = (struct str){after.data, after.len};
	j->result = store_hit_list(j->g->reader, &j->scope, from, (uint32_t)limit, &list, &j->err);
	if (j->result < 0)
		return;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = 0; i < list.n; i++)
		write_hit(&w, &list.rows[i]);
	jw_end(&w);
	jw_kbool(&w, "has_more", list.has_more);
	if (list.n > 0) {
		const struct store_hit *last = &list.rows[list.n - 1];
		char id[96];

		str_format(id, sizeof(id), "%s.%u", last->generation, last->number);
		jw_kcstr(&w, "last_id", id);
	} else {
		jw_knull(&w, "last_id");
	}
	jw_end(&w);
	store_hit_list_clear(&list);
}

/* ---- false positives ---- */

/* Why no phrase would let the text through; NULL: the text itself would. */
static const char *no_phrase(const struct store_hit *h)
{
	static const char *const disguises[] = {"scrambled_word_injection",
	        "base64_encoded_injection", "hex_encoded_injection", "letter_spaced_injection"};
	size_t n = h->found.matched != NULL ? strlen(h->found.matched) : 0;

	if (h->found.matched == NULL)
		return "The text that was found is not stored.";
	for (size_t i = 0; i < sizeof(disguises) / sizeof(*disguises); i++)
		if (h->found.pattern != NULL && str_is(str_of(disguises[i]), h->found.pattern))
			return "Phrases do not hold for text that is misspelt, letter-spaced or "
			       "encoded.";
	if (n < STORE_PHRASE_MIN)
		return "What was found is too short for a phrase.";
	if (n >= MATCHED_CUT)
		return "What was found is too long: only its beginning is stored.";
	return NULL;
}

static void mark(struct job *j, bool wrong)
{
	struct store_hit hit = {.model = NULL};
	const char *reason;
	struct json_writer w;
	uint64_t n;

	/* No generation has so many. */
	if (!str_to_u64(j->params[1], &n) || n > INT32_MAX)
		n = INT32_MAX;
	j->result = store_hit_mark(
	        j->g->store, &j->scope, j->params[0], (uint32_t)n, wrong, &hit, &j->err);
	if (j->result == -ERR_INVALID)
		j->result = error_set(&j->err, ERR_NOT_FOUND, "There is no generation of this id.");
	if (j->result < 0)
		return;
	reason = no_phrase(&hit);
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	jw_object(&w);
	jw_kcstr(&w, "generation_id", hit.generation);
	jw_ki64(&w, "n", hit.number);
	jw_kbool(&w, "false_positive", hit.found.false_positive);
	if (reason == NULL) {
		jw_key(&w, "allowlist_entry");
		jw_object(&w);
		jw_kcstr(&w, "phrase", hit.found.matched);
		jw_kstr(&w, "workspace_id", j->scope.workspace);
		jw_end(&w);
	} else {
		jw_knull(&w, "allowlist_entry");
	}
	jw_kcstr(&w, "reason", reason);
	jw_end(&w);
	jw_end(&w);
	store_hit_clear(&hit);
}

static void mark_work(struct job *j)
{
	static const char *const allowed[] = {"false_positive", NULL};
	bool wrong = true;
	struct fields f;

	fields_open(&f, (struct str){j->body, j->body_len}, allowed);
	fields_bool(&f, "false_positive", &wrong);
	if (f.failed) {
		j->err = f.error;
		j->result = -(int)f.error.code;
	}
	fields_close(&f);
	if (j->result == 0)
		mark(j, wrong);
}

void guardrails_hits_list(struct request *r)
{
	job_run(r, list_work);
}

void guardrails_hits_mark(struct request *r)
{
	job_run(r, mark_work);
}
