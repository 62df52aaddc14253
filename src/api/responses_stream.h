/* What responses_stream.c (which events) and responses_events.c (their bytes) share. */
#ifndef BRIG_API_RESPONSES_STREAM_H
#define BRIG_API_RESPONSES_STREAM_H

#include "api/event_queue.h"
#include "api/responses.h"

enum responses_event_kind {
	EVENT_SNAPSHOT, /* name, with the response object */
	EVENT_ERROR,
	EVENT_OBJECT, /* API_WHOLE: the object alone */
	EVENT_LAST,   /* the stream's own end mark */
	EVENT_ADDED,
	EVENT_DONE,
	EVENT_PART_ADDED,
	EVENT_PART_DELTA,
	EVENT_PART_TEXT,
	EVENT_ANNOTATION, /* text: its JSON */
	EVENT_PART_DONE,
	EVENT_ARGUMENTS_DELTA,
	EVENT_ARGUMENTS_DONE,
	EVENT_COMMAND_ADDED,
	EVENT_COMMAND_DELTA,
	EVENT_COMMAND_DONE,
	EVENT_OUTPUT_DELTA,
	EVENT_OUTPUT_DONE,
};

struct responses_event {
	enum responses_event_kind kind;
	const char *name;    /* snapshots: "response.created" */
	bool is_first;       /* a snapshot of how it all began, whenever it is written */
	uint32_t slot;       /* output_index */
	uint32_t index;      /* content_index, summary_index or command_index */
	enum part_type type; /* of a part */
	bool is_stderr;
	uint32_t number; /* annotation_index */
	struct str raw;  /* of a part that is done: its JSON, where the provider's own is kept */
	struct str text;
};

struct api_stream {
	enum api_carrier carrier;
	struct responses_state state;
	bool begun, ended;
	bool bare;           /* a failed answer is written as its object, never in an envelope */
	struct error *error; /* state.error, to be freed */
	struct turn_totals totals;

	struct responses_slot *slots; /* the items of `output`, in order */
	size_t n_slots, cap_slots;

	struct event_queue queue; /* of responses_event */
	struct json_doc *doc; /* while a message ends: its own text, where the provider's is kept */

	struct ropewriter w; /* the event that is being written */
	bool is_first;       /* that snapshot shows how it all began */
	size_t next_slot;
	int64_t sequence;
};

/* Begins to write the next event; a snapshot goes on with step(). */
void responses_events_write(struct api_stream *s);
void responses_events_step(struct api_stream *s);

/* Is the whole answer an error envelope, with the error's HTTP status? */
bool responses_stream_enveloped(const struct api_stream *s);
#endif
