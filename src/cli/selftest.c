/* The self-test: whether sandboxes hold what they promise on this machine. */
#include "base/buf.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/faults.h"
#include "cli/settings.h"
#include "json/json.h"

#include <stdio.h>
#include <unistd.h>

static const char *const states[] = {
        [PROBE_FAILED] = "failed", [PROBE_OK] = "ok", [PROBE_ABSENT] = "absent"};

static void print_rows(const struct sup_probe *rows)
{
	int i;

	for (i = 0; i < SUP_N_PROBES; i++)
		printf("%-8s %-18s %s: %s\n",
		        rows[i].state == PROBE_FAILED ? "FAILED" : states[rows[i].state],
		        rows[i].name, rows[i].tried, rows[i].seen);
	putchar('\n');
	faults_print();
}

static void print_json(const struct sup_probe *rows, bool holds)
{
	struct buf out = BUF_INIT(1 << 20);
	struct json_writer w;
	int i;

	jw_init(&w, &out);
	jw_object(&w);
	jw_kbool(&w, "holds", holds);
	jw_key(&w, "probes");
	jw_array(&w);
	for (i = 0; i < SUP_N_PROBES; i++) {
		jw_object(&w);
		jw_kcstr(&w, "name", rows[i].name);
		jw_kcstr(&w, "state", states[rows[i].state]);
		jw_kbool(&w, "required", rows[i].required);
		jw_kcstr(&w, "tried", rows[i].tried);
		jw_kcstr(&w, "seen", rows[i].seen);
		jw_end(&w);
	}
	jw_end(&w);
	faults_write(&w);
	jw_end(&w);
	puts(buf_cstr(&out));
	buf_free(&out);
}

static int run_probes(const struct sup_config *cfg, bool json, struct error *err)
{
	static struct sup_probe rows[SUP_N_PROBES];
	bool holds = true;
	int r, i;

	if (geteuid() != 0)
		return error_set(err, ERR_PERMISSION, "making sandboxes needs root");
	r = supervisor_selftest(cfg, rows, err);
	if (r < 0)
		return r;
	for (i = 0; i < SUP_N_PROBES; i++)
		holds = holds && sup_probe_holds(&rows[i]);
	if (json)
		print_json(rows, holds);
	else
		print_rows(rows);
	return holds ? 0 : CLI_FAILED;
}

int cli_selftest(int argc, char **argv)
{
	const char *config = NULL, *data = NULL;
	bool json = false;
	const struct cli_flag flags[] = {
	        {"--config", "FILE", "the configuration whose image and ids are taken", &config,
	                NULL},
	        {"--data", "DIR", "the data folder that has the image (/var/lib/brig)", &data,
	                NULL},
	        {"--json", NULL, "as JSON", NULL, &json},
	};
	const struct cli_usage usage = {
	        .line = "brig selftest [--config FILE] [--data DIR] [--json]",
	        .about = "Tries, from inside two containers made for this, whether they hold what "
	                 "they promise. Exits\n"
	                 "with 1 where one probe does not. May run beside a server, and leaves "
	                 "nothing behind.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	};
	struct settings_values values;
	struct error err = {0};
	int end = 0, at;

	at = cli_flags(&usage, argc, argv, &end);
	if (at < 0)
		return end;
	if (at < argc)
		return cli_wrong(&usage, "selftest takes no argument");
	if (settings_values_load(config, data, &values, &err) < 0)
		return cli_fail(&err);
	end = run_probes(&values.sup, json, &err);
	return end < 0 ? cli_fail(&err) : end;
}
