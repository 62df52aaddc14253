/*
 * GET and DELETE /responses/{id} and POST …/cancel.
 *
 * The row of a background response that runs says so until its end. The gateway that its id names
 * knows better: where no such turn runs there, and the row still says so when it is read once more,
 * that turn has died with its process, and the row becomes that of a failed response. Cancelling is
 * asking that gateway; the answer is the row once it has come to its end.
 * So is removing one that runs: nobody could read what it came to, or end it, any more.
 *
 * Events are stored when a response is over; until then its gateway has them (event_log.h).
 */
#include "gateway/responses_state_http.h"

#include "api/responses_state.h"
#include "gateway/event_log.h"
#include "gateway/turn_run.h"

#define CANCEL_TRIES 250 /* of 20 ms: until a cancelled turn has come to its end */

/* What is asked of a stored response. */
struct ask {
	char id[STORE_ID_MAX + 1];
	bool running;   /* the row says that it runs */
	bool cancel;    /* it is to be cancelled, or to have ended before */
	bool remove;    /* it is to be removed; if it runs in the background, cancelled before */
	uint64_t first; /* with events: from this number on */
	bool again;     /* the row was read after no turn was found */
	unsigned tries;
};

static struct job *ask_new(struct request *r, void (*work)(struct job *j),
        void (*after)(struct job *j), struct ask **ret)
{
	struct job *j = job_new(r, work, sizeof(struct ask));

	j->after = after;
	*ret = j->own;
	if (r->params[0].n <= STORE_ID_MAX)
		str_copy((*ret)->id, sizeof((*ret)->id), r->params[0]);
	return j;
}

void responses_state_http_explain(struct job *j, const char *id)
{
	if (j->result == -ERR_NOT_FOUND || j->result == -ERR_INVALID)
		j->result = error_param(&j->err, ERR_NOT_FOUND, "id",
		        "Response with id '%s' not found. Responses are kept for a time only, and "
		        "not at all with store: false.",
		        id);
}

/* ---- one response ---- */

static void get_work(struct job *j)
{
	struct ask *a = j->own;
	struct store_response_text t;

	j->result = store_response_get(
	        j->g->reader, &j->scope, str_of(a->id), clock_wall_ms(), &t, &j->err);
	responses_state_http_explain(j, a->id);
	if (j->result < 0)
		return;
	buf_take(&j->out, t.object, t.len);
	a->running = t.running;
}

/* By what the gateway of a response is found. */
static struct str part(const struct ask *a)
{
	return str_of(a->id + (str_starts(str_of(a->id), "resp_") ? strlen("resp_") : 0));
}

/* Its gateway is asked instead, if that is another. */
static bool pass_on(struct job *j)
{
	struct request r = {.g = j->g, .x = j->x, .key = j->key, .under_v1 = j->under_v1};

	if (!forward_to_owner(&r, STR("response"), part(j->own)))
		return false;
	job_leave(j);
	return true;
}

/* Members stand in the order in which they are written, these before all that a client names. */
static void put_member(struct buf *text, const char *old, const char *new)
{
	const char *at = strstr(buf_cstr(text), old);
	struct buf out = BUF_INIT(text->max + strlen(new));

	if (at == NULL)
		return;
	buf_append(&out, text->data, (size_t)(at - text->data));
	buf_puts(&out, new);
	buf_puts(&out, at + strlen(old));
	buf_free(text);
	*text = out;
}

static void lose_work(struct job *j)
{
	struct ask *a = j->own;
	struct store_response r = {.id = str_of(a->id), .input = STR("[]")};
	struct responses_scan scan;

	put_member(&j->out, "\"status\":\"in_progress\"", "\"status\":\"failed\"");
	put_member(&j->out, "\"error\":null",
	        "\"error\":{\"type\":\"server_error\",\"code\":\"server_error\",\"message\":\"The "
	        "server "
	        "stopped while it made this response.\",\"param\":null}");
	r.object = (struct str){j->out.data, j->out.len};
	r.created_ms = clock_wall_ms();
	r.expires_ms = r.created_ms + (int64_t)j->g->config->limits.responses_kept_ms;
	if (!responses_state_scan(r.object, "output", &scan))
		return;
	r.output_at = (size_t)(scan.list.p - r.object.p);
	r.output_len = scan.list.n;
	responses_scan_clear(&scan);
	if (store_response_put(j->g->store, &j->scope, &r,
	            j->g->config->limits.workspace_responses_bytes, &j->err) < 0)
		log_text(LOG_ERROR, "store_failed", "%s", j->err.text);
}

static void delete_work(struct job *j)
{
	struct ask *a = j->own;
	struct json_writer w;

	j->result = store_response_delete(
	        j->g->store, &j->scope, str_of(a->id), clock_wall_ms(), &j->err);
	responses_state_http_explain(j, a->id);
	if (j->result < 0)
		return;
	buf_reset(&j->out);
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "id", a->id);
	jw_kcstr(&w, "object", "response");
	jw_kbool(&w, "deleted", true);
	jw_end(&w);
}

/* What is to be removed can be: the row will not change any more. */
static void finish(struct job *j)
{
	const struct ask *a = j->own;

	if (a->remove && j->result >= 0)
		job_again(j, delete_work, NULL);
	else
		job_answer(j);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	struct job *j = arg;

	job_again(j, j->work, j->after);
}

/* The row is about to change: it is read again soon. */
static void look_again(struct job *j)
{
	const struct timeval soon = {0, 20000};
	struct ask *a = j->own;

	if (a->tries++ == CANCEL_TRIES ||
	        event_base_once(j->g->base, -1, EV_TIMEOUT, on_time, j, &soon) < 0)
		finish(j);
}

static void no_background(struct job *j)
{
	j->result = error_param(&j->err, ERR_INVALID, "id",
	        "Only a response that was made with background: true can be cancelled; the client "
	        "of another closes its connection.");
	job_answer(j);
}

/* Here, where the turn is if it runs. */
static void look_for_turn(struct job *j)
{
	struct ask *a = j->own;
	struct turn_run *t = responses_state_turn_find(j->g, j->key, a->id);
	struct turn_event ev = {.type = TURN_CANCEL};

	if (t == NULL && !a->again) {
		a->again = true;
		look_again(j);
	} else if (t == NULL && !a->remove) {
		job_again(j, lose_work, NULL);
	} else if (a->cancel && !t->request.background) {
		no_background(j);
	} else if (t != NULL && (a->cancel || (a->remove && t->request.background))) {
		t->state.canceled = true;
		if (a->tries == 0)
			turn_run_feed(t, &ev);
		look_again(j);
	} else {
		finish(j);
	}
}

static bool was_background(const struct job *j)
{
	const char *at = strstr(buf_cstr(&j->out), "\"background\":");

	return at != NULL && str_starts(str_of(at), "\"background\":true");
}

static void get_done(struct job *j)
{
	struct ask *a = j->own;

	if (j->x == NULL) {
		job_answer(j);
	} else if (j->result < 0 && a->cancel && responses_state_turn_find(j->g, j->key, a->id)) {
		no_background(j); /* it runs, and has no row yet */
	} else if (j->result < 0 && a->cancel && !a->again && pass_on(j)) {
		return;
	} else if (j->result == 0 && !a->running && a->cancel && !was_background(j)) {
		no_background(j);
	} else if (j->result < 0 || !a->running) {
		finish(j);
	} else if (a->again || a->tries > 0 || !pass_on(j)) {
		look_for_turn(j);
	}
}

/* ---- the events of one ---- */

static void events_work(struct job *j)
{
	struct ask *a = j->own;

	j->type = "text/event-stream; charset=utf-8";
	j->result = event_log_load(j->g, j->key, a->id, a->first, &j->out, &j->err);
	if (j->result == -ERR_NOT_FOUND)
		responses_state_http_explain(j, a->id);
}

static void no_events(struct job *j)
{
	j->result = error_param(&j->err, ERR_INVALID, "stream",
	        "This response cannot be streamed because it was not created with background=true "
	        "and stream=true, or its server stopped: leave 'stream' out to get it.");
	str_copy(j->err.type, sizeof(j->err.type), STR("invalid_request_error"));
	job_answer(j);
}

/* They are stored, or its gateway has them, or they have just been stored, or there are none. */
static void events_done(struct job *j)
{
	struct ask *a = j->own;
	struct event_log *log;

	if (j->x == NULL || j->result != -ERR_UNSUPPORTED) {
		job_answer(j);
		return;
	}
	if (!a->again && pass_on(j))
		return;
	log = event_log_find(j->g, j->key, a->id);
	if (log != NULL) {
		j->result = event_log_read(log, j->x, a->first, &j->err);
		if (j->result == 0)
			job_leave(j);
		else
			job_answer(j);
	} else if (!a->again) {
		a->again = true;
		look_again(j);
	} else {
		no_events(j);
	}
}

static bool query_is_true(struct str query, const char *name)
{
	_cleanup_buf_ struct buf v = BUF_INIT(16);

	return http_query_get(query, name, &v) && (str_is((struct str){v.data, v.len}, "true") ||
	                                                  str_is((struct str){v.data, v.len}, "1"));
}

/* The number of the first event that is asked for. */
static int read_first(struct str query, uint64_t *ret, struct error *err)
{
	_cleanup_buf_ struct buf v = BUF_INIT(64);

	*ret = 0;
	if (!http_query_get(query, "starting_after", &v))
		return 0;
	if (!str_to_u64((struct str){v.data, v.len}, ret) || *ret > INT64_MAX)
		return error_param(err, ERR_INVALID, "starting_after",
		        "starting_after must be the sequence_number of an event.");
	(*ret)++;
	return 0;
}

void responses_state_http_get(struct request *r)
{
	bool events = query_is_true(http_request_query(r->x), "stream");
	struct ask *a;
	struct job *j =
	        ask_new(r, events ? events_work : get_work, events ? events_done : get_done, &a);
	struct error e;

	if (events && read_first(j->query, &a->first, &e) < 0)
		job_fail(j, &e);
	else
		job_go(j);
}

void responses_state_http_cancel(struct request *r)
{
	struct ask *a;
	struct job *j = ask_new(r, get_work, get_done, &a);

	a->cancel = true;
	job_go(j);
}

void responses_state_http_delete(struct request *r)
{
	struct ask *a;
	struct job *j = ask_new(r, get_work, get_done, &a);

	a->remove = true;
	job_go(j);
}
