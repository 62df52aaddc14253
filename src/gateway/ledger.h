/*
 * The ledger: rows of records written in order, many in one transaction. At most one write of a
 * gateway is under way; what comes meanwhile goes with the next. On the loop only.
 */
#ifndef BRIG_GATEWAY_LEDGER_H
#define BRIG_GATEWAY_LEDGER_H

#include "gateway/recording.h"
#include "store/store.h"

struct ledger;
struct ledger *ledger_new(struct gateway *g, struct error *err);
/* The pool has ended: writes what waits, and tells nobody; what comes later waits for the end. */
void ledger_stop(struct ledger *l);
/* Writes what has come since. Takes NULL; returns NULL. */
struct ledger *ledger_free(struct ledger *l);

/* From the loop, always; err: it was not written. */
typedef void (*ledger_fn)(void *ctx, const struct error *err);
/*
 * owned: the record is the ledger's from now on, and is freed when it was written; else it must
 * live and stay as it is until then(). then may be NULL.
 */
void ledger_write(struct ledger *l, enum store_record_what what, struct record *r, bool owned,
        ledger_fn then, void *ctx);
/* Rows that wait to be written, or are being. */
size_t ledger_waiting(const struct ledger *l);
/* At the start of a gateway: settles what its predecessor left open. */
int ledger_recover(struct gateway *g, struct error *err);
/* A row for a heartbeat: what says whose it is. The caller frees it. */
struct record *ledger_beat_row(const struct record *r);

#endif
