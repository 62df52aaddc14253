/*
 * The configuration as `serve` sees it: parsed in a child without privileges, and handed to the
 * gateways as one sealed text.
 */
#ifndef BRIG_CLI_SETTINGS_H
#define BRIG_CLI_SETTINGS_H

#include "base/error.h"
#include "config/config.h"
#include "egress/egress.h"
#include "supervisor/supervisor.h"

/* What the parsing child hands back: fixed layout, every string terminated. */
struct settings_values {
	struct sup_config sup; /* data is still empty */
	char host[64];
	char data[4096]; /* as configured; "" where it is not */
	uint16_t port;
	bool own_keys; /* the file lists keys, so none is made */
	struct egress_limits egress;
};

/*
 * Everything a gateway needs to load the same configuration again: the file's text, the environment
 * variables and the key files that it names. Secrets: wiped by settings_free.
 */
struct settings;

/* file: NULL for none. Prints nothing; err->text may be the file's own message with its line. */
int settings_load(const char *file, struct settings **ret, struct settings_values *ret_values,
        struct error *err);
/* The values alone, with that data folder (NULL: as cli_data_folder() says), for what is to be
 * looked at without a server. */
int settings_values_load(
        const char *file, const char *data, struct settings_values *ret_values, struct error *err);
struct settings *settings_free(struct settings *s); /* takes NULL; returns NULL */
/* A key of the data folder, known to gateways by its hash only. */
void settings_set_key(struct settings *s, const uint8_t hash[32]);
/* A sealed memfd with all of it, close-on-exec; -1 with errno. */
int settings_memfd(const struct settings *s);

/* In the gateway: reads such a memfd and loads the configuration from it. */
int settings_read(int fd, struct config **ret, struct error *err);

#endif
