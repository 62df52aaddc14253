/*
 * The outputs of a shell's commands as clients hold them: `{stdout, stderr, outcome, …}`, written
 * and read back, so that a replayed result says to the model what it said first.
 */
#ifndef BRIG_API_OUTPUTS_H
#define BRIG_API_OUTPUTS_H

#include "api/param.h"
#include "api/ropewriter.h"

/* One entry. Texts are borrowed where large. */
void outputs_write(struct ropewriter *w, const struct command_output *o);
/* Its fields alone: outcome, and what was cut. */
void outputs_write_outcome(struct ropewriter *w, const struct command_output *o);

/* The member "files": those that the call touched; nothing where there are none. */
void outputs_write_files(struct ropewriter *w, const struct result *r);

/* The member "warnings": what the entry's network policy admits besides what it seems to; nothing
 * where that is nothing, or entry is NULL. */
void outputs_write_warnings(struct ropewriter *w, const struct tool_entry *entry);

/* How a dialect counts inside a path: param_index() or one like it. */
typedef void (*outputs_index_fn)(char out[PARAM_PATH], const char *path, size_t n);
/* A list of entries becomes r->outputs. */
int outputs_read(struct param_reader *in, const struct json *list, const char *path,
        outputs_index_fn index, struct result *r);
/* The fields of outputs_write_outcome() of an object, where they are there. */
int outputs_read_outcome(
        struct param_reader *in, const struct json *v, const char *path, struct command_output *o);

#endif
