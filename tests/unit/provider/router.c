/* Model names, in the order of DESIGN section 9. */
#include "util.h"

#define TEXT(s) ((char[]){s}) /* config's strings are its own, so not const */

static struct config_price prices_open[] = {
        {.model = TEXT("gpt-5.6")}, {.model = TEXT("meta-llama/llama-4")}};
static struct config_price prices_gemini[] = {{.model = TEXT("gemini-3-pro")}};
static char *route_fast[] = {TEXT("gemini/gemini-3-pro"), TEXT("openai/gpt-5.6")};
static char *route_lost[] = {TEXT("gone/model")};
static char *route_script[] = {TEXT("brig/script")};
static struct config_provider providers[] = {
        {.name = TEXT("openai"),
                .dialect = DIALECT_OPENAI_CHAT,
                .prices = prices_open,
                .n_prices = 2},
        {.name = TEXT("gemini"),
                .dialect = DIALECT_OPENAI_CHAT,
                .prices = prices_gemini,
                .n_prices = 1},
        {.name = TEXT("claude"), .dialect = DIALECT_ANTHROPIC},
        {.name = TEXT("brig"), .dialect = DIALECT_SCRIPT},
};
static struct config_model models[] = {
        {.name = TEXT("fast"), .route = route_fast, .n_route = 2},
        {.name = TEXT("lost"), .route = route_lost, .n_route = 1},
        {.name = TEXT("toy"), .route = route_script, .n_route = 1},
        {.name = TEXT("openai/shadow"), .route = route_fast, .n_route = 1},
};
static struct config cfg = {
        .providers = providers, .n_providers = 4, .models = models, .n_models = 4};

/* What is asked beside the names; tests change it and call plain() at their end. */
static struct route_query query = {.speaks = DIALECT_OPENAI_RESPONSES};

static void plain(void)
{
	query = (struct route_query){.speaks = DIALECT_OPENAI_RESPONSES};
}

/* "provider:model provider:model", or the error. */
static char *resolve_list(const char *model, const char *const *more)
{
	struct buf b = BUF_INIT(4096);
	struct error err = {0};
	struct route r = {0};
	struct str list[80];
	size_t n = 0;

	for (; more && *more; more++)
		list[n++] = str_of(*more);
	query.model = str_of(model);
	query.models = list;
	query.n_models = n;
	if (route_resolve(&cfg, &query, &r, &err) < 0) {
		assert_int_equal(r.n, 0);
		buf_printf(
		        &b, "%d %s %s %s", error_http_status(&err), err.param, err.type, err.text);
		return buf_steal(&b, NULL);
	}
	for (size_t i = 0; i < r.n; i++) {
		assert_ptr_equal(r.targets[i].provider, provider_for(r.targets[i].config->dialect));
		buf_printf(
		        &b, "%s%s:%s", i ? " " : "", r.targets[i].config->name, r.targets[i].model);
	}
	route_free(&r);
	route_free(&r); /* takes an empty one */
	return buf_steal(&b, NULL);
}

static void is(const char *model, const char *want)
{
	char *got = resolve_list(model, NULL);

	assert_string_equal(got, want);
	free(got);
}

#define list_is(want, model, ...)                                                                  \
	do {                                                                                       \
		char *got = resolve_list(model, (const char *const[]){__VA_ARGS__, NULL});         \
		assert_string_equal(got, want);                                                    \
		free(got);                                                                         \
	} while (0)

static void near_is(const char *model, const char *want)
{
	char *got = resolve_list(model, NULL), *near = strstr(got, "; near it: ");

	assert_true(strncmp(got, "404 model model_not_found ", 26) == 0);
	assert_string_equal(near ? near + 11 : "", want);
	free(got);
}

static void test_order(void **state)
{
	is("fast", "gemini:gemini-3-pro openai:gpt-5.6");
	is("openai/shadow", "gemini:gemini-3-pro"); /* an alias first, whatever it looks like */
	is("openai/gpt-5.6", "openai:gpt-5.6");
	is("openai/some/new:free", "openai:some/new:free");
	is("google/gemini-9", "gemini:gemini-9");
	is("gemini-3-pro", "gemini:gemini-3-pro");             /* it lists that */
	is("meta-llama/llama-4", "openai:meta-llama/llama-4"); /* so does this one, slash and all */
	is("anything", "openai:anything"); /* the first that speaks the dialect */
	is("brig/script", "brig:script");
	is("toy", "brig:script");
}

static void test_refusals(void **state)
{
	is("", "400 model  the model's name is empty");
	is("a b", "400 model  the model's name holds a space or control character");
	is("a\nb", "400 model  the model's name holds a space or control character");
	is("\xff", "400 model  the model's name is not UTF-8");
	is("brig/other", "404 model model_not_found provider brig has no model but script");
	is("claude/x", "claude:x");
	is("lost", "503 model  the route of lost names gone/model, which no provider serves");
}

static void test_long_name(void **state)
{
	char name[400];
	char *got;

	memset(name, 'a', sizeof(name));
	name[399] = 0;
	got = resolve_list(name, NULL);
	assert_string_equal(got, "400 model  a model's name has at most 256 bytes");
	free(got);
	memset(name, '/', 256);
	name[256] = 0;
	got = resolve_list(name, NULL); /* no provider has an empty name */
	assert_true(strncmp(got, "404 ", 4) == 0);
	free(got);
}

static void test_near_matches(void **state)
{
	near_is("opnai/gpt-5.6", "openai/gpt-5.6");
	near_is("opnai/new", "openai/new");
	near_is("gemni/gemini-3-pr", "gemini/gemini-3-pr, gemini/gemini-3-pro");
	near_is("x/fasst", "fast");
	near_is("brg/script", "brig/script");
	near_is("zzzzzzzzzzzzzzzzzzzz/q", "");
}

static void test_no_speaker(void **state)
{
	struct config none = {
	        .providers = &providers[3], .n_providers = 1, .models = models, .n_models = 1};
	struct error err = {0};
	struct route r = {0};

	struct route_query q = {.speaks = DIALECT_OPENAI_RESPONSES, .model = STR("fst")};

	assert_int_equal(route_resolve(&none, &q, &r, &err), -ERR_NOT_FOUND);
	assert_string_equal(err.text, "model \"fst\" is not known here; near it: fast");
	q.model = STR("scrip");
	assert_int_equal(route_resolve(&none, &q, &r, &err), -ERR_NOT_FOUND);
	assert_string_equal(err.text, "model \"scrip\" is not known here; near it: brig/script");
	/* The script never stands in for a model that was not found. */
	q = (struct route_query){.speaks = DIALECT_OPENAI_CHAT, .model = STR("gpt")};
	assert_int_equal(route_resolve(&none, &q, &r, &err), -ERR_NOT_FOUND);
}

static void test_fallbacks(void **state)
{
	list_is("openai:a gemini:b", "openai/a", "google/b");
	list_is("openai:a", "openai/a", "openai/a", "a");
	list_is("gemini:b openai:c", "", "google/b", "c");
	list_is("404 models[1] model_not_found model \"nope/q\" is not known here; "
	        "there is no provider \"nope\"", "openai/a",
	        "google/b", "nope/q");
	list_is("400 models  brig/script is no model and never a fallback", "openai/a",
	        "brig/script");
	list_is("brig:script openai:a", "brig/script", "openai/a");
	list_is("400 models[0]  the model's name is empty", "openai/a", "");
}

static void test_too_many(void **state)
{
	const char *list[80];
	char names[79][16], *got;

	for (int i = 0; i < 79; i++) {
		snprintf(names[i], sizeof(names[i]), "openai/m%d", i);
		list[i] = names[i];
	}
	list[79] = NULL;
	got = resolve_list("openai/first", list);
	assert_string_equal(got, "400 models  more than 64 models to try");
	free(got);
}

/* ---- providers' own lists ---- */

static bool fake_lists(void *ctx, const struct config_provider *p, struct str model)
{
	return strcmp(p->name, "gemini") == 0 &&
	       (str_is(model, "listed-by-gemini") || str_is(model, "acme/big") ||
	               str_is(model, "gpt-5.6"));
}

static void fake_each(void *ctx, const struct config_provider *p,
        bool (*fn)(void *fn_ctx, struct str model), void *fn_ctx)
{
	char name[32];

	for (int i = 0; strcmp(p->name, "gemini") == 0 && i < 5000; i++) {
		snprintf(name, sizeof(name), "listed-%d", i);
		if (!fn(fn_ctx, str_of(name)))
			break;
	}
}

static void test_own_lists(void **state)
{
	query.lists = fake_lists;
	query.each = fake_each;
	is("listed-by-gemini", "gemini:listed-by-gemini");
	is("acme/big", "gemini:acme/big");
	is("gpt-5.6", "openai:gpt-5.6");   /* prices say so */
	is("unlisted", "openai:unlisted"); /* who speaks the dialect */
	is("openai/listed-by-gemini", "openai:listed-by-gemini");
	is("fast", "gemini:gemini-3-pro openai:gpt-5.6");
	near_is("gemmini/listed-1999", "gemini/listed-1999, gemini/listed-199, gemini/listed-999");
	near_is("gemmini/listed-4999", "gemini/listed-4999, gemini/listed-499, gemini/listed-999");
	plain();
}

static bool wants(const char *model, const char *more)
{
	struct str list = str_of(more);
	struct route_query q = {.model = str_of(model), .models = &list, .n_models = more != NULL};

	return route_wants_lists(&cfg, &q);
}

static void test_when_lists_are_wanted(void **state)
{
	assert_false(wants("fast", NULL));
	assert_false(wants("openai/new", NULL));
	assert_false(wants("google/new", NULL));
	assert_false(wants("gpt-5.6", NULL));
	assert_false(wants("meta-llama/llama-4", NULL));
	assert_false(wants("", NULL));
	assert_true(wants("new", NULL));
	assert_true(wants("acme/big", NULL));
	assert_true(wants("openai/", NULL));
	assert_true(wants("fast", "new"));
	assert_false(wants("fast", "openai/new"));
}

/* ---- preferences ---- */

static struct str names[8];

static size_t some(struct str **ret, size_t at, const char *const *list)
{
	size_t n = 0;

	*ret = names + at;
	for (; list[n]; n++)
		names[at + n] = str_of(list[n]);
	return n;
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_preferences(void **state)
{
	struct preferences w = {0};

	query.preferences = &w;
	list_is("openai:a gemini:b openai:c", "openai/a", "google/b", "openai/c");
	w.n_order = some(&w.order, 0, LIST("gemini"));
	list_is("gemini:b openai:a openai:c", "openai/a", "google/b", "openai/c");
	w.n_order = some(&w.order, 0, LIST("nobody", "Google/turbo", "openai"));
	list_is("gemini:b openai:a openai:c", "openai/a", "google/b", "openai/c");
	w.no_fallbacks = true;
	list_is("gemini:b openai:a", "openai/a", "google/b");
	w.n_order = some(&w.order, 0, LIST("openai"));
	list_is("openai:a openai:c", "openai/a", "google/b", "openai/c");
	w.n_order = some(&w.order, 0, LIST("nobody"));
	is("openai/a", "404 provider  the request's `provider` allows none of the providers that "
	               "serve this model");
	w = (struct preferences){.no_fallbacks = true};
	list_is("openai:a", "openai/a", "google/b", "openai/c");
	w = (struct preferences){0};
	w.n_only = some(&w.only, 0, LIST("google"));
	list_is("gemini:b", "openai/a", "google/b");
	is("fast", "gemini:gemini-3-pro");
	is("openai/a", "404 provider  the request's `provider` allows none of the providers that "
	               "serve this model");
	w.n_only = 0;
	w.n_ignore = some(&w.ignore, 0, LIST("gemini", "nobody"));
	list_is("openai:a openai:c", "openai/a", "google/b", "openai/c");
	is("fast", "openai:gpt-5.6");
	plain();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_order),
	        cmocka_unit_test(test_refusals),
	        cmocka_unit_test(test_long_name),
	        cmocka_unit_test(test_near_matches),
	        cmocka_unit_test(test_no_speaker),
	        cmocka_unit_test(test_fallbacks),
	        cmocka_unit_test(test_too_many),
	        cmocka_unit_test(test_own_lists),
	        cmocka_unit_test(test_when_lists_are_wanted),
	        cmocka_unit_test(test_preferences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
