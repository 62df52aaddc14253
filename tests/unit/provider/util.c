#include "util.h"

#include <dirent.h>

char *file_read(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "rb");
	char *data;
	long size;

	if (!f)
		fail_msg("%s: not there", path);
	fseek(f, 0, SEEK_END);
	size = ftell(f);
	rewind(f);
	data = calloc(1, (size_t)size + 1);
	assert_int_equal(fread(data, 1, (size_t)size, f), size);
	fclose(f);
	*ret_len = (size_t)size;
	return data;
}

void file_expect(const char *path, struct str got)
{
	size_t n;
	char *want;

	if (getenv("UPDATE_CASES")) {
		FILE *f = fopen(path, "wb");

		assert_non_null(f);
		fwrite(got.p, 1, got.n, f);
		fclose(f);
		return;
	}
	want = file_read(path, &n);
	if (!str_eq(got, (struct str){want, n}))
		fail_msg("%s\n--- wanted\n%s\n--- got\n%.*s", path, want, (int)got.n, got.p);
	free(want);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

char **folder_list(const char *dir, const char *suffix)
{
	char **names = NULL;
	size_t n = 0, cap = 0;
	struct dirent *e;
	DIR *d = opendir(dir);

	assert_non_null(d);
	while ((e = readdir(d))) {
		if (!str_ends(str_of(e->d_name), suffix))
			continue;
		mem_grow(&names, &cap, n + 1, sizeof(*names));
		names[n++] = mem_strdup(e->d_name);
	}
	closedir(d);
	assert_true(n > 0); /* a folder without cases proves nothing */
	qsort(names, n, sizeof(*names), compare_names);
	return names;
}

void folder_list_free(char **names)
{
	for (char **n = names; *n; n++)
		free(*n);
	free(names);
}

void dump_init(struct dump *d)
{
	*d = (struct dump){0};
	buf_init(&d->text, (size_t)256 << 20);
}

void dump_free(struct dump *d)
{
	buf_free(&d->text);
}

static void put_id(struct buf *b, struct str id)
{
	bool minted = ((id.n == 29 && str_starts(id, "call_")) ||
	                      (id.n == 25 && str_starts(id, "noid_"))) &&
	              str_in_set((struct str){id.p + 5, id.n - 5},
	                      "0123456789abcdefghijklmnopqrstuvwxyz");

	if (minted)
		buf_puts(b, "<minted>");
	else
		json_write_str(b, id);
}

static void put_call(struct buf *b, const struct stream_event *ev)
{
	buf_puts(b, " id=");
	put_id(b, ev->id);
	buf_puts(b, " name=");
	json_write_str(b, ev->name);
}

static const char *type_name(enum item_type t)
{
	return t == ITEM_CALL        ? "call"
	       : t == ITEM_REASONING ? "reasoning"
	       : t == ITEM_OTHER     ? "other"
	                             : "message";
}

static void put_delta(struct buf *b, const struct stream_event *ev)
{
	static const char *const names[] = {
	        "text", "refusal", "summary", "reasoning", "?", "?", "?"};

	buf_printf(b, "  %s ", ev->item_type == ITEM_CALL ? "args" : names[ev->part_type]);
	if (ev->part > 0)
		buf_printf(b, "%u ", ev->part);
	json_write_str(b, ev->text);
	buf_putc(b, '\n');
}

static void put_usage(struct buf *b, const struct usage *u)
{
	if (!u->given) {
		buf_puts(b, "at work\n");
		return;
	}
	buf_printf(b, "usage input=%llu cached=%llu cache_write=%llu output=%llu reasoning=%llu",
	        (unsigned long long)u->input, (unsigned long long)u->cached,
	        (unsigned long long)u->cache_write, (unsigned long long)u->output,
	        (unsigned long long)u->reasoning);
	if (u->has_cost) {
		buf_puts(b, " cost=");
		money_write(b, u->cost);
	}
	buf_putc(b, '\n');
}

static void put_item_end(struct buf *b, const struct stream_event *ev)
{
	buf_puts(b, "  end");
	if (ev->item_type == ITEM_CALL)
		put_call(b, ev);
	if (ev->opaque.n)
		buf_printf(b, " opaque=%.*s", (int)ev->opaque.n, ev->opaque.p);
	if (ev->redacted)
		buf_puts(b, " redacted");
	if (ev->raw.n)
		buf_printf(b, " raw=%.*s", (int)ev->raw.n, ev->raw.p);
	if (ev->awaits_client)
		buf_puts(b, " awaits");
	buf_putc(b, '\n');
}

int dump_event(void *ctx, const struct stream_event *ev)
{
	static const char *const finishes[] = {"stop", "calls", "length", "filter", "pause"};
	struct dump *d = ctx;
	struct buf *b = &d->text;

	assert_false(d->over);
	switch (ev->type) {
	case STREAM_BEGIN:
		assert_false(d->begun);
		d->begun = true;
		buf_puts(b, "begin id=");
		json_write_str(b, ev->id);
		buf_puts(b, " model=");
		json_write_str(b, ev->model);
		buf_putc(b, '\n');
		break;
	case STREAM_ITEM_BEGIN:
		assert_true(d->begun && !d->open);
		d->open = true;
		buf_puts(b, type_name(ev->item_type));
		if (ev->item_type == ITEM_CALL)
			put_call(b, ev);
		buf_putc(b, '\n');
		break;
	case STREAM_DELTA:
		assert_true(d->open);
		assert_true(ev->text.n > 0);
		put_delta(b, ev);
		break;
	case STREAM_ITEM_END:
		assert_true(d->open);
		d->open = false;
		put_item_end(b, ev);
		break;
	case STREAM_USAGE:
		put_usage(b, &ev->usage);
		break;
	case STREAM_END:
		assert_true(d->begun && !d->open);
		d->over = true;
		buf_printf(b, "end %s", finishes[ev->finish]);
		if (ev->stop_sequence.n) {
			buf_puts(b, " stop_sequence=");
			json_write_str(b, ev->stop_sequence);
		}
		buf_putc(b, '\n');
		break;
	case STREAM_ERROR:
		d->over = true;
		buf_printf(b, "error %d %s: %s\n", error_http_status(ev->error), ev->error->type,
		        ev->error->text);
		break;
	}
	d->n_events++;
	return d->stop_after && d->n_events >= d->stop_after ? -ERR_CANCELED : 0;
}
