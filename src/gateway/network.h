/*
 * The network of containers, as a gateway sees it: how a policy is shown, and the records of egress
 * (proto/egress.h), which are logged and kept in the store.
 */
#ifndef BRIG_GATEWAY_NETWORK_H
#define BRIG_GATEWAY_NETWORK_H

#include "gateway/internal.h"

/* The members network_policy and, where there are any, warnings. network: as in a row. */
void network_write(struct json_writer *w, struct str network);
/* A policy_warning_fn. */
void network_log_warning(void *ctx, const char *sentence);

/* One that says what no egress says is refused: false, and r is as it was. Pure. */
struct egress_record;
bool network_record_read(const void *datagram, size_t len, struct store_network *r);

struct network;
struct network *network_new(struct gateway *g);
/* After the pool has ended. Takes NULL; returns NULL. */
struct network *network_free(struct network *n);
/* Reads records there from now on; takes fd. */
void network_listen(struct network *n, int fd);

/* GET /containers/{id}/network */
void network_list(struct request *r);

#endif
