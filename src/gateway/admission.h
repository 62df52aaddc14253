/*
 * Whether a key's limits let a request go on (docs/keys.md): asked before any upstream is, and before
 * any command. On the loop only, but for admission_tools().
 */
#ifndef BRIG_GATEWAY_ADMISSION_H
#define BRIG_GATEWAY_ADMISSION_H

#include "base/error.h"
#include "base/money.h"
#include "record/record.h"

#include <stdbool.h>

struct config_key;
struct conversation;
struct gateway;
struct route;

/* Does the conversation offer a tool that the key may not use? -ERR_PERMISSION, naming it. Any
 * thread. */
int admission_tools(
        const struct config_key *key, const struct conversation *c, struct error *err);
/* Is it known what each target of the route costs, where that is limited? -ERR_PERMISSION. */
int admission_priced(
        const struct config_key *key, const struct route *route, struct error *err);

/* hold: what was taken, the caller's now, to be given back by key_limits_give(); err: it must not go
 * on, and hold is empty. */
typedef void (*admission_fn)(void *ctx, const struct record_hold *hold, const struct error *err);
/*
 * cost: what the request is expected to come to. container: it may use one. then() comes from
 * within, or from the loop later, always; ctx must live until then.
 */
void admission_ask(struct gateway *g, const struct config_key *key, struct money cost,
        bool container, admission_fn then, void *ctx);

#endif
