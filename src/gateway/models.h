/* The catalogue of models: what requests can name, in the shape of who asks. */
#ifndef BRIG_GATEWAY_MODELS_H
#define BRIG_GATEWAY_MODELS_H

#include "config/config.h"
#include "json/json.h"
#include "provider/models.h"

struct models_row {
	struct str id;                       /* "provider/model", or an alias */
	const char *provider;                /* "alias" for one */
	const struct config_price *price;    /* NULL: none is set */
	const struct provider_model *listed; /* what the provider says of it; NULL: nothing */
	bool alias, script;
};

/* models_write.c: one object. Google's has "models/" before its name. */
void models_write_openai(struct json_writer *w, const struct models_row *m);
void models_write_anthropic(struct json_writer *w, const struct models_row *m);
void models_write_google(struct json_writer *w, const struct models_row *m);

#endif
