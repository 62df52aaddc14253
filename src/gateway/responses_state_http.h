/* What the requests about stored responses share. */
#ifndef BRIG_GATEWAY_RESPONSES_STATE_HTTP_H
#define BRIG_GATEWAY_RESPONSES_STATE_HTTP_H

#include "gateway/job.h"

/* Says which response is not there, where that is what the job came to. */
void responses_state_http_explain(struct job *j, const char *id);

#endif
