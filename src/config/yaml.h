/*
 * A small tree of a YAML text, from libfyaml's events: mappings, sequences and scalars with the
 * place where each begins. Nodes live in the caller's arena. What configuration has no use for and
 * attackers do is refused: aliases, anchors, tags, several documents, keys that are no scalars; and
 * there are bounds on size, depth, nodes and members. No recursion.
 */
#ifndef BRIG_CONFIG_YAML_H
#define BRIG_CONFIG_YAML_H

#include "base/error.h"
#include "base/mem.h"
#include "base/str.h"

#define YAML_MAX_TEXT    (1024 * 1024)
#define YAML_MAX_DEPTH   12
#define YAML_MAX_NODES   65536
#define YAML_MAX_MEMBERS 4096 /* of one mapping or sequence */

enum yaml_type { YAML_SCALAR, YAML_MAPPING, YAML_SEQUENCE };

struct yaml_node {
	enum yaml_type type;
	bool plain; /* a scalar without quotes */
	int line;   /* from 1 */
	int column; /* from 1, in characters */
	char *text; /* of a scalar; holds no NUL but the one at its end */
	size_t text_len;
	struct yaml_node *key; /* of a mapping's member, else NULL */
	struct yaml_node *first, *last, *next;
	struct yaml_node *parent;
	size_t n; /* children */
};

/* Fills err with "NAME:LINE:COLUMN: what is wrong". An empty text gives an empty mapping. */
int yaml_parse(struct str text, const char *name, struct arena *a, struct yaml_node **ret,
        struct error *err);

/* The member of that name, or NULL. */
struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key);
/* Nothing was written: `key:` alone, `~` or `null`. */
bool yaml_is_null(const struct yaml_node *n);

/* Sets err to "NAME:LINE:COLUMN: …" with the place of node n; returns -ERR_INVALID. */
int yaml_error(struct error *err, const char *name, const struct yaml_node *n, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

#endif
