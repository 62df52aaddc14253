/*
 * Theory of operation
 *
 * The steps of `brig serve`, in the order that lets each fail before the next has left traces:
 * flags; the configuration (parsed in a child without privileges); the data folder; the sockets, so
 * that a taken port is said before half a minute goes into an image; the first key; the base image;
 * then this process becomes the supervisor and starts the gateways, which alone read what clients
 * send. It leaves supervisor_run() when all is gone.
 */
#include "base/buf.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/folder.h"
#include "cli/image.h"
#include "cli/plain.h"
#include "cli/settings.h"
#include "cli/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct serve_flags {
	const char *config, *listen, *data;
};

struct server {
	struct settings *settings;
	struct settings_values values;
	struct spawn spawn;
	int folder;
	char url[160], local_url[160];
};

static int apply_flags(struct server *s, const struct serve_flags *f, struct error *err)
{
	char *host = NULL;
	int r;

	if (f->listen) {
		r = config_parse_listen(f->listen, &host, &s->values.port, err);
		if (r < 0)
			return error_prefix(err, "--listen");
		str_copy(s->values.host, sizeof(s->values.host), str_of(host));
		free(host);
	}
	r = cli_data_folder(f->data, s->values.data, s->values.sup.data, err);
	if (r < 0)
		return r;
	if (s->values.sup.sandbox && geteuid() != 0)
		return error_set(err, ERR_PERMISSION,
		        "making sandboxes needs root; run as root, or set `sandbox: off` in the "
		        "configuration");
	return 0;
}

/* How clients reach us; where we listen on every address, those on this machine use the loopback.
 */
static void name_urls(struct server *s)
{
	const char *host = s->values.host, *local = host;
	bool v6 = strchr(host, ':') != NULL;

	if (strcmp(host, "0.0.0.0") == 0)
		local = "127.0.0.1";
	else if (strcmp(host, "::") == 0)
		local = "::1";
	str_format(s->url, sizeof(s->url), v6 ? "http://[%s]:%u" : "http://%s:%u", host,
	        s->values.port);
	str_format(s->local_url, sizeof(s->local_url), v6 ? "http://[%s]:%u" : "http://%s:%u",
	        local, s->values.port);
}

static int prepare(struct server *s, struct error *err)
{
	uint8_t hash[32];
	int r;

	s->folder = folder_prepare(s->values.sup.data, sup_uid_gateway(&s->values.sup), err);
	if (s->folder < 0)
		return s->folder;
	s->spawn.workers = s->values.sup.gateways;
	r = spawn_bind(&s->spawn, s->values.host, s->values.port, &s->values.port, err);
	if (r < 0)
		return r;
	name_urls(s);
	if (!s->values.own_keys) {
		r = folder_first_key(s->folder, hash, err);
		if (r < 0)
			return r;
		settings_set_key(s->settings, hash);
	}
	return s->values.sup.sandbox ? image_ensure(s->values.sup.data, err) : 0;
}

static int prepare_gateways(struct server *s, struct error *err)
{
	int ready[2], r;

	s->spawn.uid = sup_uid_gateway(&s->values.sup);
	s->spawn.egress_uid = sup_uid_egress(&s->values.sup);
	s->spawn.port = s->values.port;
	s->spawn.egress = &s->values.egress;
	s->values.sup.resolv_conf = getenv("BRIG_EGRESS_RESOLV_CONF");
	s->values.sup.hosts = getenv("BRIG_EGRESS_HOSTS");
	s->spawn.data = s->values.sup.data;
	s->spawn.exe = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	s->spawn.settings = settings_memfd(s->settings);
	s->spawn.shared = spawn_shared_memory();
	s->settings = settings_free(s->settings);
	if (s->spawn.exe < 0 || s->spawn.settings < 0 || s->spawn.shared < 0 ||
	        pipe2(ready, O_CLOEXEC) < 0)
		return error_errno(err, errno, "preparing the gateways");
	s->spawn.ready = ready[1];
	/* ready[0] stays open: a gateway that is started again finds a reader for its byte too. */
	r = spawn_listen(&s->spawn, err);
	if (r < 0)
		return r;
	return spawn_announcer(&s->spawn, ready[0], s->folder, s->url, s->local_url, err);
}

/* A terminal that closed is a wish to stop, as SIGTERM is. */
static void on_hangup(int sig)
{
	(void)sig;
	kill(getpid(), SIGTERM);
}

static int serve(struct server *s, const struct serve_flags *f, struct error *err)
{
	int r;

	r = settings_load(f->config, &s->settings, &s->values, err);
	if (r == 0)
		r = apply_flags(s, f, err);
	if (r == 0)
		r = prepare(s, err);
	if (r == 0)
		r = prepare_gateways(s, err);
	if (r < 0)
		return r;
	log_init("supervisor", LOG_INFO);
	signal(SIGHUP, on_hangup);
	if (geteuid() == 0)
		r = supervisor_run(&s->values.sup, spawn_gateway, &s->spawn, err);
	else
		r = plain_run(&s->values.sup, s->folder, spawn_gateway, &s->spawn, err);
	folder_remove_url(s->folder, s->local_url);
	return r;
}

static int print_example(void)
{
	struct buf text = BUF_INIT(1 << 20);

	config_write_example(&text);
	fputs(buf_cstr(&text), stdout);
	buf_free(&text);
	return 0;
}

int cli_serve(int argc, char **argv)
{
	struct serve_flags f = {0};
	bool example = false;
	const struct cli_flag flags[] = {
	        {"--config", "FILE",
	                "brig.yaml; without it, providers whose key is in the environment",
	                &f.config, NULL},
	        {"--listen", "ADDR:PORT",
	                "instead of the configuration's (127.0.0.1:8484); port 0: any", &f.listen,
	                NULL},
	        {"--data", "DIR", "files, keys and sockets (/var/lib/brig)", &f.data, NULL},
	        {"--example", NULL, "print a brig.yaml with every setting, and end", NULL,
	                &example},
	};
	const struct cli_usage usage = {
	        .line = "brig serve [--config FILE] [--listen ADDR:PORT] [--data DIR]",
	        .about = "Starts the server in the foreground and prints `ready URL` when it "
	                 "accepts. SIGTERM and\n"
	                 "Ctrl-C let running requests end; a second one does not wait. The first "
	                 "start makes a key\n"
	                 "(in DIR/key) and the base image.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	};
	struct server s = {.folder = -1};
	struct error err = {0};
	int end = 0, at;

	at = cli_flags(&usage, argc, argv, &end);
	if (at < 0)
		return end;
	if (at < argc)
		return cli_wrong(&usage, "serve takes no argument: %s", argv[at]);
	if (example)
		return print_example();
	if (serve(&s, &f, &err) < 0)
		end = cli_fail(&err);
	settings_free(s.settings);
	return end;
}
