/*
 * Settings as tables: one row says a key's name, kind, bounds, default and what it is for; reading,
 * the defaults and the example file all come from the same rows. Private to config.
 */
#ifndef BRIG_CONFIG_FIELDS_H
#define BRIG_CONFIG_FIELDS_H

#include "base/buf.h"
#include "config/config.h"
#include "config/yaml.h"

struct loader {
	const struct config_source *src;
	struct config *c;
	struct arena *arena;
	struct error *err;
	char path[128]; /* of the value being read: "providers[0].base_url" */
};

enum field_kind {
	FIELD_COUNT,   /* uint32_t */
	FIELD_MIB,     /* uint32_t, written as a size; whole mebibytes */
	FIELD_BYTES,   /* uint64_t, written as a size */
	FIELD_BYTES32, /* uint32_t, written as a size */
	FIELD_MS,      /* uint64_t milliseconds, written as a time */
	FIELD_MS32,    /* uint32_t milliseconds, written as a time */
	FIELD_MILLI,   /* uint32_t thousandths, written as a decimal */
	FIELD_BOOL,    /* bool */
	FIELD_MONEY,   /* struct money */
	FIELD_CUSTOM,  /* read by its own function */
	FIELD_LATER,   /* known to the design, not to this version */
};

struct field {
	const char *key;
	enum field_kind kind;
	size_t offset; /* in the table's target struct */
	uint64_t min, max;
	const char *preset; /* default as one would write it; NULL: none (the field stays zero) */
	const char *doc;    /* one line, without "# " */
	int (*read)(struct loader *l, const struct yaml_node *n, void *target); /* FIELD_CUSTOM */
};

/* Sets every preset. A preset that does not read is a BUG. */
void fields_preset(struct loader *l, const struct field *fields, size_t n, void *target);
/* Reads a mapping; keys that the table does not have are errors. */
int fields_read(struct loader *l, const struct yaml_node *mapping, const struct field *fields,
        size_t n, void *target);
/* Writes the rows that have a preset, each with its comment, indented by `indent` spaces. */
void fields_write(struct buf *out, const struct field *fields, size_t n, int indent);

/* Reads a size of whole mebibytes within the bounds. */
int field_read_mib(
        struct loader *l, const struct yaml_node *n, uint64_t min, uint64_t max, uint32_t *ret);
/* Reads a text of 1 to max bytes with no control characters; malloc'ed. A number is a text too. */
int field_read_text(struct loader *l, const struct yaml_node *n, size_t max, char **ret);
int field_expect(struct loader *l, const struct yaml_node *n, enum yaml_type type);

/* Sets the error "NAME:LINE:COLUMN: path: what". */
int loader_error(struct loader *l, const struct yaml_node *n, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
/* Extend the path; give what they return to loader_leave. */
size_t loader_enter(struct loader *l, const char *key);
size_t loader_enter_index(struct loader *l, size_t i);
void loader_leave(struct loader *l, size_t mark);

#endif
