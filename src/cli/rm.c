/* Removes containers of a running server, with all their files. */
#include "api/api.h"
#include "cli/cli.h"
#include "cli/client.h"

#include <stdio.h>

enum { ANSWER_MAX = 1024 * 1024 };

static int remove_one(const struct client *c, const char *id, struct buf *answer, struct error *err)
{
	char path[128];
	int r;

	if (!api_container_id_valid(str_of(id)))
		return error_set(err, ERR_INVALID,
		        "a container's id is 1 to 40 letters, digits, - and _: %.60s", id);
	str_format(path, sizeof(path), "/api/v1/containers/%s", id);
	r = client_fetch(c, "DELETE", path, (struct str){0}, answer, err);
	return r < 0 ? error_prefix(err, "%s", id) : 0;
}

int cli_rm(int argc, char **argv)
{
	struct client client;
	const char *data = NULL;
	bool json = false;
	const struct cli_flag flags[] = {
	        {"--json", NULL, "what the server says, as JSON, one array", NULL, &json},
	        {"--data", "DIR", "the data folder of the server (/var/lib/brig)", &data, NULL},
	};
	const struct cli_usage usage = {
	        .line = "brig rm [--json] CONTAINER…",
	        .about = "Removes containers with all their files; what runs in them is killed.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	};
	struct error err = {0};
	int end = 0, at, r, done = 0;
	bool open = false;

	at = cli_flags(&usage, argc, argv, &end);
	if (at < 0)
		return end;
	if (at == argc)
		return cli_wrong(&usage, "rm needs a container");
	r = client_find(&client, data, &err);
	open = r == 0 && json;
	if (open)
		putchar('[');
	for (; r == 0 && at < argc; at++) {
		_cleanup_buf_ struct buf answer = BUF_INIT(ANSWER_MAX);

		r = remove_one(&client, argv[at], &answer, &err);
		if (r == 0 && json)
			printf("%s%s", done++ ? "," : "", buf_cstr(&answer));
	}
	if (open)
		puts("]");
	client_wipe(&client);
	return r < 0 ? cli_fail(&err) : 0;
}
