/* The tests of test_life.c, for the table in test_worker.c; and what both use. */
#ifndef BRIG_TEST_WORKER_TESTS_H
#define BRIG_TEST_WORKER_TESTS_H

#include "files.h"

void asleep_live_frozen(void **state);
void sleep_and_delete_beside_it(void **state);
void one_file_system(void **state);
void descriptors_outlive_it(void **state);
void ends_when_idle(void **state);
void makes_room(void **state);
void dies_in_the_middle(void **state);
void supervisor_dies(void **state);
void in_any_order(void **state);
void damaged_image(void **state);
void nothing_within_reach(void **state);

void start(struct node *n);
void finish(struct node *n);
/* A live container of that name; its channel, with the guest's program as ./guest. */
int live(struct node *n, const char *name, int sock, union reply *ret);

#endif
