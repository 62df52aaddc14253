/*
 * /containers (DESIGN section 9; the object of spec/openai.md 4.1 with our fields).
 *
 * The store's row says that a container exists and with which limits it becomes live; the
 * supervisor says what it is doing.
 *
 *     containers.c          listing, looking at, putting to sleep and removing
 *     containers_create.c   making one, or changing one that is there
 */
#ifndef BRIG_GATEWAY_CONTAINERS_H
#define BRIG_GATEWAY_CONTAINERS_H

#include "gateway/job.h"

/* Asks what the container is doing, and answers with its object. row: in what is the job's own. */
void containers_answer(struct job *j, const struct store_container *row);

#endif
