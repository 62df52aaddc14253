/* How records of requests look on a terminal. What they hold was written by others: control bytes
 * come out as '?'. */
#ifndef BRIG_CLI_LOGS_H
#define BRIG_CLI_LOGS_H

#include "json/json.h"

void logs_show_head(void);
void logs_show_row(const struct json *row);
/* One record whole: the data of GET /generation, and of its tool_runs. */
void logs_show_one(const struct json *record, const struct json *runs);

#endif
