/*
 * POST /files: one file out of a multipart body, straight into a blob (upload.h brings the bytes to
 * the pool). What it is is told from its bytes. OpenRouter's API takes the kinds of file that
 * models read; OpenAI's and Anthropic's take any, for tools that can.
 *
 * The three steps on the pool: begin (quota, room on the disk), write, finish (checks, blob and
 * row).
 */
#include "gateway/documents.h"

#include "base/utf8.h"
#include "gateway/documents_put.h"
#include "gateway/documents_sniff.h"
#include "gateway/upload.h"

#include <stdlib.h>

#define NAME_CHARS 255

struct uploading {
	struct gateway *g;
	struct upload *u; /* NULL: it has ended */
	struct http_exchange *x;
	struct owner owner;
	bool under_v1;
	enum documents_shape shape;
	struct documents_put *put;
	bool begun;
	struct store_document d;
	struct error err;
};

static void uploading_free(struct uploading *p)
{
	if (p->x != NULL)
		http_exchange_set_data(p->x, NULL);
	documents_put_free(p->put);
	free(p);
}

static void on_gone(void *self, enum http_gone why)
{
	((struct uploading *)self)->x = NULL;
}

/* Answers an error, or nothing where nobody listens, and is done. */
static void fail(struct uploading *p, struct error *e)
{
	/* Anthropic's API calls a full workspace a bad request. */
	if (p->shape == DOCUMENTS_ANTHROPIC && str_is(str_of(e->type), "storage_quota_exceeded"))
		e->http_status = 400;
	if (p->x != NULL)
		respond_error(p->x, p->under_v1, e);
	uploading_free(p);
}

/* ---- the name ---- */

/* Parts divided by "/", none empty, "." or ".."; none of the characters that some system refuses.
 */
static int check_name(struct str name, struct error *err)
{
	if (name.n == 0 || !utf8_valid(name.p, name.n) || utf8_count(name.p, name.n) > NAME_CHARS)
		return error_param(err, ERR_INVALID, "file",
		        "The filename must be 1 to %d characters of UTF-8.", NAME_CHARS);
	for (size_t i = 0, begin = 0; i <= name.n; i++) {
		if (i < name.n && name.p[i] != '/') {
			unsigned char c = (unsigned char)name.p[i];

			if (c < 0x20 || c == 0x7f || strchr("<>:\"|?*\\", c) != NULL)
				return error_param(err, ERR_INVALID, "file",
				        "The filename must not hold any of < > : \" | ? * \\ or "
				        "control characters.");
			continue;
		}
		struct str part = {name.p + begin, i - begin};

		if (part.n == 0 || str_is(part, ".") || str_is(part, ".."))
			return error_param(err, ERR_INVALID, "file",
			        "The filename must not begin or end with / or hold an empty part, "
			        ". or ..");
		begin = i + 1;
	}
	return 0;
}

/* Anthropic's API keeps the last part, and makes up a name where there is none. */
static int take_name(struct uploading *p, struct str name, const char *type, struct error *err)
{
	const char *extension = documents_sniff_extension(type);
	int r;

	if (p->shape == DOCUMENTS_ANTHROPIC) {
		const char *slash = name.n > 0 ? memrchr(name.p, '/', name.n) : NULL;

		if (slash != NULL)
			name = (struct str){slash + 1, name.n - (size_t)(slash + 1 - name.p)};
		if (name.n == 0) {
			str_format(p->d.filename, sizeof(p->d.filename), "unnamed%s%s",
			        extension != NULL ? "." : "", extension != NULL ? extension : "");
			return 0;
		}
	}
	r = check_name(name, err);
	if (r == 0)
		str_copy(p->d.filename, sizeof(p->d.filename), name);
	return r;
}

/* ---- the fields ---- */

static int take_purpose(struct uploading *p, struct str purpose, struct error *err)
{
	static const char *const purposes[] = {
	        "assistants", "batch", "fine-tune", "vision", "user_data", "evals"};

	if (purpose.p == NULL && p->shape != DOCUMENTS_OPENAI)
		purpose = STR("user_data");
	for (size_t i = 0; i < sizeof(purposes) / sizeof(*purposes); i++)
		if (str_is(purpose, purposes[i])) {
			str_copy(p->d.purpose, sizeof(p->d.purpose), purpose);
			return 0;
		}
	return error_param(err, ERR_INVALID, "purpose",
	        "purpose must be one of assistants, batch, fine-tune, vision, user_data and "
	        "evals.");
}

static int take_time(
        struct uploading *p, struct str seconds, const char *name, uint64_t most, struct error *err)
{
	uint64_t n;

	if (seconds.p == NULL)
		return 0;
	if (!str_to_u64(seconds, &n) || n < 3600 || n > most)
		return error_param(err, ERR_INVALID, name,
		        "%s must be a whole number from 3600 to %llu.", name,
		        (unsigned long long)most);
	p->d.expires_ms = (int64_t)n * 1000;
	return 0;
}

static const char *const fields[] = {
        "purpose", "expires_after[anchor]", "expires_after[seconds]", "expires_in_seconds", NULL};

static int take_fields(struct uploading *p, const struct upload *u, struct error *err)
{
	struct str anchor = upload_field(u, fields[1]), after = upload_field(u, fields[2]);
	int r = take_purpose(p, upload_field(u, "purpose"), err);

	if (r == 0 && (anchor.p == NULL) != (after.p == NULL))
		r = error_param(err, ERR_INVALID, "expires_after",
		        "expires_after has an anchor and seconds.");
	if (r == 0 && anchor.p != NULL && !str_is(anchor, "created_at"))
		r = error_param(err, ERR_INVALID, fields[1], "The anchor must be created_at.");
	if (r == 0)
		r = take_time(p, after, fields[2], 30 * 86400, err);
	return r < 0 ? r : take_time(p, upload_field(u, fields[3]), fields[3], 90 * 86400, err);
}

static int take_type(struct uploading *p, struct error *err)
{
	const char *type = documents_put_type(p->put);

	if (type == NULL && p->shape == DOCUMENTS_OPENROUTER)
		return error_param(err, ERR_INVALID, "file",
		        "The file is not of a kind that is taken: PDF, PNG, JPEG, GIF, WebP, DOCX, "
		        "XLSX, PPTX, MP3, WAV, FLAC, Ogg or UTF-8 text.");
	str_copy(p->d.mime, sizeof(p->d.mime),
	        str_of(type != NULL ? type : "application/octet-stream"));
	return 0;
}

/* ---- the end ---- */

static void finish_work(void *arg)
{
	struct uploading *p = arg;

	documents_put_finish(p->put, &p->d, &p->err);
}

static void finish_done(void *arg)
{
	struct uploading *p = arg;
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 20);
	struct json_writer w;

	if (p->err.code != 0) {
		fail(p, &p->err);
		return;
	}
	jw_init(&w, &out);
	documents_write(&w, &p->d, p->shape);
	if (p->x != NULL)
		respond_json(p->x, 200, &out);
	uploading_free(p);
}

static int check_all(struct uploading *p, const struct upload *u, struct error *err)
{
	int r;

	if (!upload_has_file(u))
		return error_param(err, ERR_INVALID, "file",
		        "The request must have a part named file, with a filename.");
	if (upload_size(u) == 0)
		return error_param(err, ERR_INVALID, "file", "The file is empty.");
	r = take_type(p, err);
	if (r == 0)
		r = take_fields(p, u, err);
	return r < 0 ? r : take_name(p, upload_filename(u), p->d.mime, err);
}

static void on_done(void *ctx, struct upload *u, struct http_exchange *x, const struct error *err)
{
	struct uploading *p = ctx;
	struct error e;

	p->u = NULL;
	p->x = x;
	if (err != NULL)
		e = *err;
	if (err != NULL || check_all(p, u, &e) < 0) {
		fail(p, &e);
		return;
	}
	if (x != NULL)
		http_exchange_set_data(x, &p->owner);
	if (pool_run(p->g->pool, finish_work, finish_done, p))
		return;
	gateway_busy(&e);
	fail(p, &e);
}

/* ---- the beginning ---- */

/* Nothing comes before upload_go(), so what is made here is made first, by the first write or by a
 * file that has no byte. */
static int on_write(void *ctx, struct str bytes, struct error *err)
{
	struct uploading *p = ctx;
	int r = p->begun ? 0 : documents_put_begin(p->put, err);

	p->begun = true;
	return r < 0 ? r : documents_put_write(p->put, bytes, err);
}

bool documents_upload(struct request *r, size_t *max_body)
{
	const struct upload_options o = {fields, r->g->config->limits.file_bytes};
	struct uploading *p = mem_alloc(sizeof(*p));
	const struct upload_handler h = {p, on_write, on_done};
	struct error e;

	*p = (struct uploading){.g = r->g, .under_v1 = r->under_v1};
	p->shape = documents_shape(r->x, r->under_v1);
	p->owner = (struct owner){NULL, on_gone, p};
	p->put = documents_put_new(r->g, r->key);
	if (documents_check_scope(r, &e) < 0) {
		respond_error(r->x, r->under_v1, &e);
		uploading_free(p);
		return true;
	}
	p->u = upload_begin(r, &o, &h, max_body);
	if (p->u == NULL)
		uploading_free(p);
	else
		upload_go(p->u);
	return true;
}
