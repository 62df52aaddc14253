/* What store.c and its companions check alike of what callers give. For src/store only. */
#ifndef BRIG_STORE_CHECK_H
#define BRIG_STORE_CHECK_H

#include "store/backend.h"

#define STORE_SCOPE_MAX 256  /* bytes of an account, a workspace, a holder or a node */
#define STORE_LIMIT_MAX 1000 /* rows of one list */

/* 1 to `max` bytes of text; what: its name in the error. */
int store_check_text(struct str s, size_t max, const char *what, struct error *err);
int store_check_account(struct str account, struct error *err);
int store_check_scope(const struct store_scope *scope, struct error *err);
int store_check_container(const struct store_scope *scope, struct str id, struct error *err);

#endif
