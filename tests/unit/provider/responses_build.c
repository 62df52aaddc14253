/*
 * Each tests/cases/responses-build/NAME.json is a conversation (load.c); NAME.body is the exact
 * request, or "error: …" where none can be made.
 */
#include "load.h"

#define DIR_BUILD CASES_DIR "/responses-build"

static void check_case(const char *name)
{
	struct provider_request req = {0};
	struct error err = {0};
	struct loaded l;
	char path[512], text[1024];
	int r;

	snprintf(path, sizeof(path), "%s/%s", DIR_BUILD, name);
	load_file(&l, path, SIZE_MAX);
	snprintf(path, sizeof(path), "%s/%.*s.body", DIR_BUILD, (int)strlen(name) - 5, name);
	r = provider_openai_responses.build(&l.pc, &req, &err);
	if (r < 0) {
		assert_int_equal(r, -(int)err.code);
		assert_null(req.body);
		snprintf(text, sizeof(text), "error: %d %s: %s\n", error_http_status(&err),
		        err.param, err.text);
		file_expect(path, str_of(text));
	} else {
		struct json_doc *doc = NULL;

		assert_int_equal(json_parse((struct str){req.body, req.body_len}, (size_t)64 << 20,
		                         &doc, &err),
		        0);
		json_doc_free(doc);
		assert_string_equal(req.path, "/responses");
		file_expect(path, (struct str){req.body, req.body_len});
	}
	provider_request_free(&req);
	load_free(&l);
}

static void test_exact_bytes(void **state)
{
	char **names = folder_list(DIR_BUILD, ".json");

	for (char **n = names; *n; n++)
		check_case(*n);
	folder_list_free(names);
}

static void test_headers(void **state)
{
	struct provider_request req = {0};
	struct loaded l;

	load_text(&l,
	        "{\"provider\":\"responses\",\"api_key\":\"sk-1\","
	        "\"items\":[{\"message\":\"user\",\"parts\":\"x\"}]}",
	        9);
	assert_int_equal(provider_openai_responses.build(&l.pc, &req, NULL), 0);
	assert_string_equal(req.headers[0], "Content-Type: application/json");
	assert_string_equal(req.headers[1], "Accept: text/event-stream");
	assert_string_equal(req.headers[2], "Authorization: Bearer sk-1");
	assert_null(req.headers[3]);
	provider_request_free(&req);
	load_free(&l);
}

/* The raw elements of "input", without the closing bracket. */
static char *input_of(const char *path, size_t n_items)
{
	struct provider_request req = {0};
	struct json_doc *doc = NULL;
	struct error err = {0};
	struct loaded l;
	struct str raw;
	char *out;

	load_file(&l, path, n_items);
	if (provider_openai_responses.build(&l.pc, &req, &err) < 0)
		fail_msg("%s: %s", path, err.text);
	assert_int_equal(
	        json_parse((struct str){req.body, req.body_len}, (size_t)64 << 20, &doc, NULL), 0);
	raw = json_raw(json_get(json_root(doc), "input"));
	out = mem_strndup(raw.p, raw.n - 1);
	json_doc_free(doc);
	provider_request_free(&req);
	load_free(&l);
	return out;
}

/* Whatever is said later, the items of an earlier request stand at the front byte for byte. The
 * case's items are cut where a request is made: after a message of the user, and where every call
 * has its result. */
static void test_later_requests_begin_like_earlier_ones(void **state)
{
	static const char path[] = DIR_BUILD "/long-conversation.json";
	struct loaded l;
	char *before = NULL;
	size_t n, open = 0, compared = 0;

	load_file(&l, path, SIZE_MAX);
	n = l.c->n_items;
	for (size_t i = 0; i < n; i++) {
		const struct item *it = l.c->items[i];
		bool asks = it->type == ITEM_RESULT ||
		            (it->type == ITEM_MESSAGE && it->role == ROLE_USER);
		char *now;

		open += it->type == ITEM_CALL;
		open -= it->type == ITEM_RESULT;
		if (!asks || open)
			continue;
		now = input_of(path, i + 1);
		if (before) {
			if (strncmp(before, now, strlen(before)) != 0)
				fail_msg("item %zu:\n%s\nis not the beginning of\n%s", i, before,
				        now);
			assert_true(strlen(now) > strlen(before));
			compared++;
		}
		free(before);
		before = now;
	}
	assert_true(compared >= 3);
	free(before);
	load_free(&l);
}

/* What is not sealed for this provider does not open; nor does another client's plain text pass for
 * state. */
static void test_depth(void **state)
{
	struct provider_request req = {0};
	struct buf text = BUF_INIT(65536);
	struct loaded l;

	/* As deep as JSON may be: writing it inside the request must not be deeper than a writer
	 * can. */
	buf_puts(&text, "{\"provider\":\"responses\",\"dialect\":\"responses\",\"items\":["
	                "{\"message\":\"user\",\"parts\":\"x\"},{\"other\":true,\"raw\":");
	for (int i = 0; i < 120; i++)
		buf_puts(&text, "[");
	for (int i = 0; i < 120; i++)
		buf_puts(&text, "]");
	buf_puts(&text, "}]}");
	load_text(&l, buf_cstr(&text), SIZE_MAX);
	assert_int_equal(provider_openai_responses.build(&l.pc, &req, NULL), 0);
	assert_non_null(strstr(req.body, "[[[[[["));
	provider_request_free(&req);
	load_free(&l);
	buf_free(&text);
}

/* A history made to be slow: 60,000 replies of one call each. Quadratic work would take minutes. */
static void test_long_history(void **state)
{
	struct loaded l;
	struct provider_request req = {0};
	char id[32];

	load_text(&l,
	        "{\"provider\":\"responses\",\"items\":[{\"message\":\"user\",\"parts\":\"x\"}]}",
	        SIZE_MAX);
	for (uint32_t i = 0; i < 60000; i++) {
		struct item *call = conversation_add(l.c, ITEM_CALL);
		struct item *result = conversation_add(l.c, ITEM_RESULT);
		bool ok = true;

		snprintf(id, sizeof(id), "s%u_c", 60000 - i);
		call->reply = 60000 - i;
		call->call.public_id = conversation_copy(l.c, str_of(id), &ok);
		call->call.name = STR("f");
		result->result.public_id = call->call.public_id;
		assert_true(ok);
	}
	assert_int_equal(conversation_cut_replies(l.c, NULL), 0);
	assert_int_equal(provider_openai_responses.build(&l.pc, &req, NULL), 0);
	assert_true(req.body_len > 60000 * 100);
	provider_request_free(&req);
	load_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_exact_bytes),
	        cmocka_unit_test(test_headers),
	        cmocka_unit_test(test_later_requests_begin_like_earlier_ones),
	        cmocka_unit_test(test_depth),
	        cmocka_unit_test(test_long_history),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
