/*
 * Relaying: the first byte chooses the dialect, whether it is a stream, and a cut. However an
 * answer is cut it comes out the same; what comes out goes through once more unchanged; and where
 * the model's member cannot be, nothing changes at all. The same bytes as a request: what is edited
 * is JSON again, with the model in it, and is not edited further.
 */
#include "api/relay.h"
#include "json/json.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { ROOM = 16 << 20 };

#define MODEL STR("p/m")
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			BUG("%s", #condition);                                                     \
	} while (0)

static void pass(enum dialect d, bool events, struct str in, size_t step, struct buf *out)
{
	struct relay *r = relay_new(d, events, MODEL);

	for (size_t i = 0; i < in.n; i += step)
		MUST(relay_feed(r, in.p + i, in.n - i < step ? in.n - i : step, out) == 0);
	MUST(relay_end(r, out) == 0);
	relay_free(r);
}

static void check_answer(enum dialect d, bool events, struct str in, size_t step)
{
	struct buf whole = BUF_INIT(ROOM), cut = BUF_INIT(ROOM), again = BUF_INIT(ROOM);
	struct str once;

	pass(d, events, in, in.n + 1, &whole);
	pass(d, events, in, step, &cut);
	once = (struct str){whole.data, whole.len};
	MUST(str_eq(once, (struct str){cut.data, cut.len}));
	pass(d, events, once, step, &again);
	MUST(str_eq(once, (struct str){again.data, again.len}));
	if (!str_contains(in, "odel") && !memchr(in.p, '\\', in.n))
		MUST(str_eq(in, once));
	buf_free(&whole);
	buf_free(&cut);
	buf_free(&again);
}

static void check_break(enum dialect d, struct str in)
{
	static const struct api_identity who = {.id = "gen-1", .model = "p/m"};
	struct buf out = BUF_INIT(ROOM);
	struct relay *r = relay_new(d, true, MODEL);
	struct error e;

	error_set(&e, ERR_UPSTREAM, "It broke.");
	MUST(relay_feed(r, in.p, in.n, &out) == 0);
	relay_break(r, &who, false, &e, &out);
	MUST(buf_error(&out) == 0 && str_ends((struct str){out.data, out.len}, "\n\n"));
	relay_free(r);
	buf_free(&out);
}

static void check_request(enum dialect d, struct str in)
{
	struct json_doc *doc = NULL;
	struct buf out = BUF_INIT(ROOM), again = BUF_INIT(ROOM);
	struct str once;

	if (json_parse(in, ROOM, &doc, NULL) < 0)
		return;
	if (json_is(json_root(doc), JSON_OBJECT)) {
		MUST(relay_request(d, in, MODEL, false, &out) == 0);
		doc = json_doc_free(doc);
		once = (struct str){out.data, out.len};
		MUST(json_parse(once, ROOM, &doc, NULL) == 0);
		MUST(d == DIALECT_GEMINI ||
		        str_eq(json_str(json_get(json_root(doc), "model")), MODEL));
		MUST(!json_get(json_root(doc), "models"));
		MUST(relay_request(d, once, MODEL, false, &again) == 0);
		MUST(str_eq(once, (struct str){again.data, again.len}));
	}
	json_doc_free(doc);
	buf_free(&out);
	buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct str in = {(const char *)data + 1, n - 1};
	enum dialect d;

	if (n < 2)
		return 0;
	d = (enum dialect)(data[0] & 3);
	check_answer(d, data[0] & 4, in, 1 + (data[0] >> 3));
	check_break(d, in);
	check_request(d, in);
	return 0;
}
