/* The lists of brig.yaml: keys (keys.c), providers, models. Private to config. */
#ifndef BRIG_CONFIG_SECTIONS_H
#define BRIG_CONFIG_SECTIONS_H

#include "config/fields.h"

int section_keys(struct loader *l, const struct yaml_node *n, void *target);
int section_providers(struct loader *l, const struct yaml_node *n, void *target);
int section_egress(struct loader *l, const struct yaml_node *n, void *target);
void section_preset_egress(struct loader *l);
void section_write_egress(struct buf *out); /* the rows that have a default */
int section_guardrails(struct loader *l, const struct yaml_node *n, void *target);
int section_broadcast(struct loader *l, const struct yaml_node *n, void *target);
int section_models(struct loader *l, const struct yaml_node *n, void *target);

/* What an environment variable or a file holds that a setting names; malloc'ed. */
int section_env_text(struct loader *l, const struct yaml_node *n, char **ret);
int section_file_text(struct loader *l, const struct yaml_node *n, char **ret);

/* Providers whose key is in the environment, for a file that lists none. */
int section_providers_from_env(struct loader *l);
/* The provider `brig`, which is always there and always the last. */
void section_add_builtin(struct config *c);
/* Each route names a provider that exists. n: the list as written, for places; may be NULL. */
int section_check_routes(struct loader *l, const struct yaml_node *n);

#define SECTION_PATTERNS_MAX 1000

/* Calls fn for each entry of a list, with the path set. */
typedef int (*section_entry_fn)(struct loader *l, const struct yaml_node *n, size_t i);
int section_each(struct loader *l, const struct yaml_node *list, section_entry_fn fn);
/* Replaces *ret by a name of these characters; what: says which. */
int section_read_chars(
        struct loader *l, const struct yaml_node *n, const char *set, const char *what, char **ret);
/* A list of at most `max` names and patterns; replaces *list. */
int section_read_patterns(
        struct loader *l, const struct yaml_node *n, size_t max, char ***list, size_t *n_list);
/* Models are named by their makers; all we ask is that they can stand in a header and a log line.
 */
bool section_printable(const char *s);

void section_free_texts(char **list, size_t n);
void section_free_provider(struct config_provider *p);
void section_free_model(struct config_model *m);
void section_free_egress(struct config_egress *e);
void section_free_key(struct config_key *k);

#endif
