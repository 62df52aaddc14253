/*
 * How a relayed stream says, in its own dialect, that it broke off (spec of broken streams: an
 * error event of the client's protocol, and nothing that looks like a good end).
 */
#include "api/relay.h"

#include "api/chat.h"

enum { DATA_MAX = 65536 };

static void write_event(struct buf *out, const char *name, const struct buf *data)
{
	if (name)
		buf_printf(out, "event: %s\n", name);
	buf_puts(out, "data: ");
	buf_append(out, data->data, data->len);
	buf_puts(out, "\n\n");
}

static void write_chat(
        const struct api_identity *who, bool under_v1, const struct error *e, struct buf *out)
{
	const struct chat_answer answer = {.who = who};
	struct ropewriter w;

	ropewriter_init(&w);
	jw_object(&w.json);
	chat_write_head(&w, &answer, "chat.completion.chunk");
	jw_kraw(&w.json, "choices",
	        STR("[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"error\"}]"));
	chat_write_error(&w, e, under_v1);
	jw_end(&w.json);
	write_event(out, NULL, &w.text);
	ropewriter_free(&w);
}

/* ---- Responses ---- */

static void write_members(struct json_writer *w, const struct error *e)
{
	const char *code = api_error_code(e);

	jw_kcstr(w, "code", code ? code : api_error_name(e));
	jw_kcstr(w, "message", api_error_text(e));
	jw_kcstr(w, "param", e->param[0] ? e->param : NULL);
}

static void write_error_event(int64_t sequence, const struct error *e, struct buf *out)
{
	struct buf data = BUF_INIT(DATA_MAX);
	struct json_writer w;

	jw_init(&w, &data);
	jw_object(&w);
	jw_kcstr(&w, "type", "error");
	jw_ki64(&w, "sequence_number", sequence);
	write_members(&w, e);
	jw_key(&w, "error");
	jw_object(&w);
	jw_kcstr(&w, "type", api_error_type(e));
	write_members(&w, e);
	jw_end(&w);
	jw_kcstr(&w, "error_type", api_error_name(e));
	jw_end(&w);
	write_event(out, "error", &data);
	buf_free(&data);
}

/* What the provider's own response.failed would have said, as far as it is known here. */
static void write_failed(int64_t sequence, struct str id, const struct api_identity *who,
        const struct error *e, struct buf *out)
{
	struct buf data = BUF_INIT(DATA_MAX);
	struct json_writer w;

	jw_init(&w, &data);
	jw_object(&w);
	jw_kcstr(&w, "type", "response.failed");
	jw_ki64(&w, "sequence_number", sequence);
	jw_key(&w, "response");
	jw_object(&w);
	jw_kraw(&w, "id", id);
	jw_kcstr(&w, "object", "response");
	jw_ki64(&w, "created_at", who->created_s);
	jw_kcstr(&w, "status", "failed");
	jw_key(&w, "error");
	jw_object(&w);
	write_members(&w, e);
	jw_end(&w);
	jw_knull(&w, "incomplete_details");
	jw_knull(&w, "instructions");
	jw_kraw(&w, "metadata", STR("{}"));
	jw_kcstr(&w, "model", who->model);
	jw_kraw(&w, "output", STR("[]"));
	jw_kbool(&w, "parallel_tool_calls", true);
	jw_knull(&w, "temperature");
	jw_kcstr(&w, "tool_choice", "auto");
	jw_kraw(&w, "tools", STR("[]"));
	jw_knull(&w, "top_p");
	jw_knull(&w, "usage");
	jw_end(&w);
	jw_end(&w);
	write_event(out, "response.failed", &data);
	buf_free(&data);
}

static void write_responses(const struct relay_place *place, const struct api_identity *who,
        const struct error *e, struct buf *out)
{
	write_error_event(place->sequence + 1, e, out);
	if (place->id.n > 0)
		write_failed(place->sequence + 2, place->id, who, e, out);
	buf_puts(out, "data: [DONE]\n\n");
}

void relay_error_write(enum dialect d, const struct relay_place *place,
        const struct api_identity *who, bool under_v1, const struct error *e, struct buf *out)
{
	struct buf data = BUF_INIT(DATA_MAX);

	switch (d) {
	case DIALECT_OPENAI_CHAT:
		write_chat(who, under_v1, e, out);
		break;
	case DIALECT_OPENAI_RESPONSES:
		write_responses(place, who, e, out);
		break;
	case DIALECT_ANTHROPIC:
		api_error_body_anthropic(e, who->id, &data);
		write_event(out, "error", &data);
		break;
	case DIALECT_GEMINI:
		api_error_body_google(e, &data);
		write_event(out, NULL, &data);
		break;
	case DIALECT_SCRIPT:
		break;
	}
	buf_free(&data);
}
