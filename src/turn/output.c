/*
 * Theory of operation: what commands print reaches the client piece by piece while they run, and
 * the result as a whole when a command has ended. Both are bounded by what the call may still have.
 * The pieces of a stream that were shown are always the beginning of its final text; when a command
 * ends, what is missing is shown, so that all pieces joined are the final text.
 *
 * A stream that is cut keeps what fitted. The first one that is cut in a call says so in a line of
 * its own, which is not counted; after it nothing of that call is kept.
 *
 * A command that the sandbox's end or a cancel left without a result keeps what it had shown, so
 * that the record has no gap.
 */
#include "turn/internal.h"

#include "base/utf8.h"

#include <signal.h>

static const struct str cut_line = {"\n[… the rest of this call's output was cut …]\n",
        sizeof("\n[… the rest of this call's output was cut …]\n") - 1};

/* How much of text still fits, cut at a character. */
static size_t budget_take(struct turn *t, struct str text)
{
	size_t n = text.n;

	if (n > t->run.bytes_left) {
		n = t->run.bytes_left;
		while (n > 0 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
			n--;
		t->run.bytes_left = 0;
	} else {
		t->run.bytes_left -= (uint32_t)n;
	}
	return n;
}

static void say_cut(struct turn *t, int stream)
{
	t->run.cut[stream] = true;
	t->run.said[stream] = !t->run.cut_said;
	t->run.cut_said = true;
}

static void show(struct turn *t, size_t command, int stream, struct str text, bool copied)
{
	struct turn_output o = {
	        .type = OUT_TOOL_OUTPUT,
	        .item = t->run.call,
	        .result = t->run.result,
	        .command = command,
	        .is_stderr = stream == 1,
	        .text = text,
	};

	if (text.n == 0 || !t->o.streamed)
		return;
	if (copied)
		effect_emit_copied(t, &o);
	else
		effect_emit(t, &o);
}

void output_piece(struct turn *t, const struct turn_event *ev)
{
	int stream = ev->is_stderr ? 1 : 0;
	size_t n;

	if (t->run.cut[stream] || ev->command != t->run.result->result.n_outputs)
		return;
	n = budget_take(t, ev->text);
	if (buf_append(&t->shown[stream], ev->text.p, n)) {
		turn_no_memory(t);
		return;
	}
	show(t, ev->command, stream, (struct str){ev->text.p, n}, true);
	if (n == ev->text.n)
		return;
	say_cut(t, stream);
	if (t->run.said[stream])
		show(t, ev->command, stream, cut_line, false);
}

/* The final text of a stream, within what is left. */
static struct str final_text(struct turn *t, size_t command, int stream, struct str text)
{
	struct run *run = &t->run;
	size_t shown = t->shown[stream].len < text.n ? t->shown[stream].len : text.n;
	bool said = run->said[stream];
	size_t keep = shown;
	struct buf whole = BUF_INIT(SIZE_MAX / 2);
	struct str final;

	if (!run->cut[stream]) {
		keep += budget_take(t, (struct str){text.p + shown, text.n - shown});
		if (keep < text.n)
			say_cut(t, stream);
	}
	buf_append(&whole, text.p, keep);
	if (run->said[stream])
		buf_append(&whole, cut_line.p, cut_line.n);
	if (buf_error(&whole))
		turn_no_memory(t);
	final = turn_copy(t, (struct str){buf_cstr(&whole), whole.len});
	buf_free(&whole);
	shown += said ? cut_line.n : 0;
	if (final.n > shown)
		show(t, command, stream, (struct str){final.p + shown, final.n - shown}, false);
	return final;
}

static void command_over(struct turn *t, size_t command)
{
	int i;

	t->run.result->result.n_outputs++;
	for (i = 0; i < 2; i++) {
		buf_reset(&t->shown[i]);
		t->run.cut[i] = false;
		t->run.said[i] = false;
	}
	effect_emit(t, &(struct turn_output){
	                       .type = OUT_TOOL_COMMAND,
	                       .item = t->run.call,
	                       .result = t->run.result,
	                       .command = command,
	               });
}

void output_command(struct turn *t, const struct turn_event *ev)
{
	struct result *r = &t->run.result->result;
	struct command_output *o;

	/* One after the other, and no more than there are. */
	if (ev->command != r->n_outputs || r->n_outputs >= t->run.call->call.parsed->n_commands)
		return;
	o = &r->outputs[ev->command];
	*o = *ev->output;
	o->out = final_text(t, ev->command, 0, ev->output->out);
	o->err = final_text(t, ev->command, 1, ev->output->err);
	o->out_truncated |= t->run.cut[0];
	o->err_truncated |= t->run.cut[1];
	o->signal = turn_copy(t, ev->output->signal);
	o->reason = turn_copy(t, ev->output->reason);
	o->done = true;
	command_over(t, ev->command);
}

void output_unfinished(struct turn *t, bool timed_out, const char *reason)
{
	struct result *r = &t->run.result->result;
	size_t command = r->n_outputs;
	struct command_output *o;
	struct str text[2];
	int i;

	if (t->shown[0].len + t->shown[1].len == 0 ||
	        command >= t->run.call->call.parsed->n_commands)
		return;
	for (i = 0; i < 2; i++)
		text[i] = (struct str){buf_cstr(&t->shown[i]), t->shown[i].len};
	o = &r->outputs[command];
	o->out_chars = utf8_count(text[0].p, text[0].n);
	o->err_chars = utf8_count(text[1].p, text[1].n);
	o->out = final_text(t, command, 0, text[0]);
	o->err = final_text(t, command, 1, text[1]);
	o->out_truncated = t->run.cut[0];
	o->err_truncated = t->run.cut[1];
	o->outcome = timed_out ? OUTCOME_TIMEOUT : OUTCOME_EXIT;
	if (!timed_out) {
		o->exit_code = 128 + SIGKILL;
		o->signal = STR("SIGKILL");
		o->reason = str_of(reason);
	}
	o->done = true;
	command_over(t, command);
}
