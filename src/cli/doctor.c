/* What this machine offers for sandboxes, as the supervisor itself tries it. */
#include "base/buf.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/faults.h"
#include "cli/settings.h"
#include "json/json.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ROWS = 64 };

/* Capability sets of this process as /proc tells them, in hex. */
static void own_capabilities(char out[64])
{
	char text[4096] = "", *at;
	ssize_t n;
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "CapEff:\t");
	str_copy(out, 64, at ? (struct str){at + 8, strcspn(at + 8, "\n")} : STR("unknown"));
}

static void print_rows(const struct sup_check *rows, int n, const char *capabilities)
{
	int i;

	for (i = 0; i < n; i++)
		printf("%-8s %-36s %s\n",
		        rows[i].present    ? "ok"
		        : rows[i].required ? "MISSING"
		                           : "absent",
		        rows[i].name, rows[i].detail);
	printf("\ncapabilities of this process: %s\n\n", capabilities);
	faults_print();
}

static void print_json(const struct sup_check *rows, int n, const char *capabilities, bool fit)
{
	struct buf out = BUF_INIT(1 << 20);
	struct json_writer w;
	int i;

	jw_init(&w, &out);
	jw_object(&w);
	jw_kbool(&w, "fit", fit);
	jw_kcstr(&w, "capabilities", capabilities);
	jw_key(&w, "checks");
	jw_array(&w);
	for (i = 0; i < n; i++) {
		jw_object(&w);
		jw_kcstr(&w, "name", rows[i].name);
		jw_kbool(&w, "required", rows[i].required);
		jw_kbool(&w, "present", rows[i].present);
		jw_kcstr(&w, "detail", rows[i].detail);
		jw_end(&w);
	}
	jw_end(&w);
	faults_write(&w);
	jw_end(&w);
	puts(buf_cstr(&out));
	buf_free(&out);
}

int cli_doctor(int argc, char **argv)
{
	const char *config = NULL, *data = NULL;
	bool json = false, fit = true;
	const struct cli_flag flags[] = {
	        {"--config", "FILE", "the configuration to check for", &config, NULL},
	        {"--data", "DIR", "the data folder to check (/var/lib/brig)", &data, NULL},
	        {"--json", NULL, "as JSON", NULL, &json},
	};
	const struct cli_usage usage = {
	        .line = "brig doctor [--config FILE] [--data DIR] [--json]",
	        .about = "Tries each thing that sandboxes need from this machine. Exits with 1 "
	                 "where one that is\n"
	                 "required is missing; what is only absent makes brig do without.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	};
	static struct sup_check rows[MAX_ROWS];
	struct settings_values values;
	struct error err = {0};
	char capabilities[64];
	int end = 0, at, i, n;

	at = cli_flags(&usage, argc, argv, &end);
	if (at < 0)
		return end;
	if (at < argc)
		return cli_wrong(&usage, "doctor takes no argument");
	if (settings_values_load(config, data, &values, &err) < 0)
		return cli_fail(&err);
	own_capabilities(capabilities);
	n = supervisor_check_host(&values.sup, rows, MAX_ROWS);
	for (i = 0; i < n; i++)
		fit = fit && (rows[i].present || !rows[i].required);
	if (json)
		print_json(rows, n, capabilities, fit);
	else
		print_rows(rows, n, capabilities);
	return fit ? 0 : CLI_FAILED;
}
