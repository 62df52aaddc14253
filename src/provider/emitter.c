#include "provider/emitter.h"

bool emitter_begin(struct emitter *e, stream_fn fn, void *ctx)
{
	e->fn = fn;
	e->ctx = ctx;
	return !e->ended;
}

int emitter_emit(struct emitter *e, const struct stream_event *ev)
{
	int r;

	if (e->ended)
		return 0;
	if (ev->type == STREAM_END || ev->type == STREAM_ERROR)
		e->ended = true;
	r = e->fn(e->ctx, ev);
	if (r < 0)
		e->ended = true;
	return r;
}

int emitter_usage(struct emitter *e)
{
	struct stream_event ev = {.type = STREAM_USAGE, .usage = e->usage};

	return e->usage.given ? emitter_emit(e, &ev) : 0;
}

int emitter_fail(struct emitter *e, const struct error *err)
{
	struct stream_event ev = {.type = STREAM_ERROR, .error = err};
	int r = emitter_usage(e);

	return r < 0 ? r : emitter_emit(e, &ev);
}

int emitter_fail_text(struct emitter *e, const char *text)
{
	struct error err = {0};

	error_set(&err, ERR_UPSTREAM, "%s", text);
	str_copy(err.type, sizeof(err.type), STR("provider_unavailable"));
	return emitter_fail(e, &err);
}
