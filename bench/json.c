/*
 * How long our tree takes to read a text, beside json-c and jansson in the same run, and how much
 * memory each tree takes. The two libraries export each other's names, so they are loaded apart
 * with dlopen(); one that is not installed shows as "-".
 *
 * Memory is what the C library has handed out more than before (for ours it is the arena's own
 * count, which includes the unused end of a chunk).
 */
#include "json/json.h"

#include "base/clock.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 7, ROOM = 1 << 30 };

struct parser {
	const char *name;
	/* Returns the document or NULL when it refuses. */
	void *(*read)(struct str text);
	void (*drop)(void *doc);
	bool there;
};

static void *ours_read(struct str text)
{
	struct json_doc *doc = NULL;

	return json_parse(text, ROOM, &doc, NULL) ? NULL : doc;
}

static void ours_drop(void *doc)
{
	json_doc_free(doc);
}

static struct {
	void *(*new_ex)(int depth);
	void (*set_flags)(void *tok, int flags);
	void *(*parse_ex)(void *tok, const char *text, int n);
	void (*free_tok)(void *tok);
	int (*put)(void *object);
} jsonc;

static void *jsonc_read(struct str text)
{
	void *tok = jsonc.new_ex(JSON_MAX_DEPTH + 1);
	void *o;

	jsonc.set_flags(tok, 0x11); /* strict, and check UTF-8 */
	o = jsonc.parse_ex(tok, text.p, (int)text.n + 1);
	jsonc.free_tok(tok);
	return o;
}

static void jsonc_drop(void *doc)
{
	jsonc.put(doc);
}

static struct {
	void *(*loadb)(const char *text, size_t n, size_t flags, void *err);
	void (*drop)(void *object);
} jansson;

static void *jansson_read(struct str text)
{
	return jansson.loadb(
	        text.p, text.n, 0x1 | 0x4 | 0x10, NULL); /* twice refused, any value, NUL */
}

/* jansson's own json_decref() is inline; the count is the second field of its public struct. */
struct jansson_head {
	int type;
	volatile size_t refcount;
};

static void jansson_drop(void *doc)
{
	struct jansson_head *head = doc;

	if (head && --head->refcount == 0)
		jansson.drop(doc);
}

static bool load(void *library, const char *name, void *fn)
{
	void *symbol = library ? dlsym(library, name) : NULL;

	memcpy(fn, &symbol, sizeof(symbol));
	return symbol != NULL;
}

static bool load_jsonc(void)
{
	void *so = dlopen("libjson-c.so.5", RTLD_NOW | RTLD_LOCAL);

	return load(so, "json_tokener_new_ex", &jsonc.new_ex) &&
	       load(so, "json_tokener_set_flags", &jsonc.set_flags) &&
	       load(so, "json_tokener_parse_ex", &jsonc.parse_ex) &&
	       load(so, "json_tokener_free", &jsonc.free_tok) &&
	       load(so, "json_object_put", &jsonc.put);
}

static bool load_jansson(void)
{
	void *so = dlopen("libjansson.so.4", RTLD_NOW | RTLD_LOCAL);

	return load(so, "json_loadb", &jansson.loadb) && load(so, "json_delete", &jansson.drop);
}

/* A long conversation as clients send it: messages with text, tool calls and results, tool schemas.
 */
static struct buf conversation(size_t size)
{
	static const char prose[] = "The build failed because the linker could not find the "
	                            "library; I will look at the "
	                            "flags first.\nThen I run \"make test\" again \xe2\x80\x94 it "
	                            "should pass.\n\tSee also: "
	                            "docs/architecture.md, na\xc3\xafve caf\xc3\xa9.";
	struct buf b = BUF_INIT(SIZE_MAX / 2);
	struct json_writer w;
	int i;

	jw_init(&w, &b);
	jw_object(&w);
	jw_kcstr(&w, "model", "vendor/model-large");
	jw_kbool(&w, "stream", true);
	jw_key(&w, "input");
	jw_array(&w);
	for (i = 0; b.len < size; i++) {
		jw_object(&w);
		if (i % 3 == 0) {
			jw_kcstr(&w, "type", "message");
			jw_kcstr(&w, "role", i % 2 ? "user" : "assistant");
			jw_key(&w, "content");
			jw_array(&w);
			jw_object(&w);
			jw_kcstr(&w, "type", "input_text");
			jw_kstr(&w, "text",
			        (struct str){prose, sizeof(prose) - 1 - (size_t)(i % 50)});
			jw_end(&w);
			jw_end(&w);
		} else if (i % 3 == 1) {
			jw_kcstr(&w, "type", "function_call");
			jw_kcstr(&w, "call_id", "call_0123456789abcdefghijklmn");
			jw_kcstr(&w, "name", "shell");
			jw_kcstr(&w, "arguments",
			        "{\"commands\":[\"ls -la\",\"cat \\\"a "
			        "file\\\"\"],\"timeout_ms\":1000}");
			jw_ki64(&w, "index", i);
			jw_kraw(&w, "score", STR("0.73125"));
		} else {
			jw_kcstr(&w, "type", "function_call_output");
			jw_kcstr(&w, "call_id", "call_0123456789abcdefghijklmn");
			jw_kcstr(&w, "output", prose);
			jw_knull(&w, "status");
		}
		jw_end(&w);
	}
	jw_end(&w);
	jw_end(&w);
	if (jw_done(&w))
		abort();
	return b;
}

static struct buf ones(size_t size)
{
	struct buf b = BUF_INIT(SIZE_MAX / 2);

	buf_putc(&b, '[');
	while (b.len + 2 < size)
		buf_append(&b, "1,", 2);
	buf_append(&b, "1]", 2);
	return b;
}

static struct buf members(int n)
{
	struct buf b = BUF_INIT(SIZE_MAX / 2);
	int i;

	for (i = 0; i < n; i++)
		buf_printf(&b, "%c\"member_%d\":%d", i ? ',' : '{', i, i);
	buf_putc(&b, '}');
	return b;
}

static struct buf long_string(size_t size)
{
	struct buf b = BUF_INIT(SIZE_MAX / 2);

	buf_putc(&b, '"');
	while (b.len < size)
		buf_puts(&b,
		        "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5eg");
	buf_putc(&b, '"');
	return b;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void measure(const char *what, const struct buf *b, const struct parser *p)
{
	struct str text = {b->data, b->len};
	uint64_t ns[RUNS], begin;
	size_t before, memory = 0;
	bool accepted = false;
	int i;

	if (!p->there) {
		printf("%-30s %-8s %10s\n", what, p->name, "-");
		return;
	}
	for (i = 0; i < RUNS; i++) {
		struct mallinfo2 info = mallinfo2();
		void *doc;

		before = info.uordblks + info.hblkhd;
		begin = clock_mono_ns();
		doc = p->read(text);
		ns[i] = clock_mono_ns() - begin;
		info = mallinfo2();
		memory = info.uordblks + info.hblkhd - before;
		accepted = doc != NULL;
		if (doc)
			p->drop(doc);
	}
	qsort(ns, RUNS, sizeof(*ns), compare);
	printf("%-30s %-8s %-8s %8.2f ms", what, p->name, accepted ? "read" : "refused",
	        (double)ns[RUNS / 2] / 1e6);
	if (accepted)
		printf(" %8.0f MB/s %8.1f MB", (double)text.n * 1e3 / (double)ns[RUNS / 2],
		        (double)memory / 1e6);
	printf("\n");
}

int main(void)
{
	const struct parser parsers[] = {
	        {"brig", ours_read, ours_drop, true},
	        {"json-c", jsonc_read, jsonc_drop, load_jsonc()},
	        {"jansson", jansson_read, jansson_drop, load_jansson()},
	};
	struct {
		const char *what;
		struct buf text;
	} cases[] = {
	        {"conversation, 4 KB", conversation(4000)},
	        {"conversation, 10 MB", conversation(10000000)},
	        {"one string, 10 MB", long_string(10000000)},
	        {"object, 200,000 members", members(200000)},
	        {"[1,1,...], 2 MB", ones(1999998)},
	        {"[1,1,...], 64 MiB", ones(64 << 20)},
	};
	size_t c, p;

	printf("%-30s %-8s %-8s %11s %13s %11s   (median of %d)\n", "text", "reader", "result",
	        "time", "speed", "tree", RUNS);
	for (c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
		for (p = 0; p < sizeof(parsers) / sizeof(*parsers); p++)
			measure(cases[c].what, &cases[c].text, &parsers[p]);
		buf_free(&cases[c].text);
	}
	return 0;
}
