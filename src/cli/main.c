#include "cli/cli.h"

#include "base/buf.h"
#include "base/str.h"
#include "cli/spawn.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct cli_command commands[] = {
        {"serve", "start the server", cli_serve},
        {"run", "run a command in a sandbox of a running server", cli_run},
        {"ask", "ask a model, with a shell at hand", cli_ask},
        {"ps", "list containers", cli_ps},
        {"files", "list, get, put, promote or remove a container's files", cli_files},
        {"rm", "remove containers with their files", cli_rm},
        {"logs", "list, show, follow or export what was recorded of requests", cli_logs},
        {"keys", "make, list or revoke keys of this server", cli_keys},
        {"image", "make or list the root file systems of sandboxes", cli_image},
        {"doctor", "say what this machine offers for sandboxes", cli_doctor},
        {"selftest", "say whether sandboxes hold what they promise here", cli_selftest},
        {"version", "print the version", cli_version},
};

enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *out)
{
	size_t i;

	fputs("brig gives any model a shell: an API gateway with a sandbox in it.\n\n"
	      "usage: brig COMMAND [FLAG…] [ARGUMENT…]\n\n",
	        out);
	for (i = 0; i < N_COMMANDS; i++)
		if (commands[i].summary)
			fprintf(out, "  %-10s%s\n", commands[i].name, commands[i].summary);
	fputs("\n`brig COMMAND --help` says more about one.\n", out);
}

int cli_wrong(const struct cli_usage *usage, const char *fmt, ...)
{
	va_list ap;

	fputs("brig: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nusage: %s\n", usage->line);
	return CLI_USAGE;
}

int cli_fail(const struct error *err)
{
	fprintf(stderr, "brig: %s\n", err->text);
	return CLI_FAILED;
}

static int print_usage(const struct cli_usage *usage)
{
	char left[64];
	size_t i;

	printf("usage: %s\n\n%s", usage->line, usage->about);
	if (usage->n_flags)
		putchar('\n');
	for (i = 0; i < usage->n_flags; i++) {
		snprintf(left, sizeof(left), "%s %s", usage->flags[i].name,
		        usage->flags[i].meta ? usage->flags[i].meta : "");
		printf("  %-22s%s\n", left, usage->flags[i].doc);
	}
	return 0;
}

/* The flag of that name, which ends at '=' or at the end. */
static const struct cli_flag *find_flag(const struct cli_usage *usage, const char *arg, size_t n)
{
	size_t i;

	for (i = 0; i < usage->n_flags; i++)
		if (str_is((struct str){arg, n}, usage->flags[i].name))
			return &usage->flags[i];
	return NULL;
}

/* Takes argv[*i]; moves *i over a value that stands by itself. Returns false after a message. */
static bool take_flag(const struct cli_usage *usage, int argc, char **argv, int *i)
{
	const char *arg = argv[*i], *equals = strchr(arg, '=');
	const struct cli_flag *f =
	        find_flag(usage, arg, equals ? (size_t)(equals - arg) : strlen(arg));

	if (!f) {
		cli_wrong(usage, "unknown flag %s", arg);
		return false;
	}
	if (!f->meta) {
		if (equals) {
			cli_wrong(usage, "%s takes no value", f->name);
			return false;
		}
		*f->set = true;
		return true;
	}
	if (!equals && *i + 1 >= argc) {
		cli_wrong(usage, "%s needs a value: %s", f->name, f->meta);
		return false;
	}
	if (!f->text && usage->list->n == CLI_LIST_MAX) {
		cli_wrong(usage, "%s is given more than %d times", f->name, CLI_LIST_MAX);
		return false;
	}
	*(f->text ? f->text : &usage->list->items[usage->list->n++]) =
	        equals ? equals + 1 : argv[++*i];
	return true;
}

int cli_flags(const struct cli_usage *usage, int argc, char **argv, int *ret_exit)
{
	int i;

	for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
		if (strcmp(argv[i], "--") == 0)
			return i + 1;
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			*ret_exit = print_usage(usage);
			return -1;
		}
		if (!take_flag(usage, argc, argv, &i)) {
			*ret_exit = CLI_USAGE;
			return -1;
		}
	}
	return i;
}

static const struct cli_verb *find_verb(const struct cli_usage *usage, const struct cli_verb *verbs,
        size_t n_verbs, const char *command, const char *name)
{
	_cleanup_buf_ struct buf names = BUF_INIT(1024);

	for (size_t i = 0; i < n_verbs; i++) {
		if (name && strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
		buf_printf(&names, "%s%s", i ? ", " : "", verbs[i].name);
	}
	cli_wrong(usage, "%s needs one of %s", command, buf_cstr(&names));
	return NULL;
}

const struct cli_verb *cli_verb(const struct cli_usage *usage, const struct cli_verb *verbs,
        size_t n_verbs, int *argc, char ***argv, int *ret_exit)
{
	const char *command = (*argv)[0];
	const struct cli_verb *verb = NULL;

	/* Once for the flags before the verb, once for those behind it. */
	for (int i = 0; i < 2; i++) {
		int at = cli_flags(usage, *argc, *argv, ret_exit);

		if (at < 0)
			return NULL;
		*argc -= at;
		*argv += at;
		if (verb)
			continue;
		*ret_exit = CLI_USAGE;
		verb = find_verb(usage, verbs, n_verbs, command, *argc ? **argv : NULL);
		if (!verb)
			return NULL;
	}
	if (*argc >= verb->least && *argc <= verb->most)
		return verb;
	cli_wrong(usage, "%s %s takes %s", command, verb->name,
	        verb->wants ? verb->wants : "no argument");
	return NULL;
}

int cli_data_folder(const char *flag, const char *configured, char ret[4096], struct error *err)
{
	const char *env = getenv("BRIG_DATA"), *state = getenv("XDG_STATE_HOME"),
	           *home = getenv("HOME");
	int n;

	if (flag)
		n = snprintf(ret, 4096, "%s", flag);
	else if (env && *env)
		n = snprintf(ret, 4096, "%s", env);
	else if (configured && *configured)
		n = snprintf(ret, 4096, "%s", configured);
	else if (geteuid() == 0)
		n = snprintf(ret, 4096, "/var/lib/brig");
	else if (state && *state == '/')
		n = snprintf(ret, 4096, "%s/brig", state);
	else
		n = snprintf(ret, 4096, "%s/.local/state/brig", home && *home == '/' ? home : "");
	if (n < 0 || n > 3500)
		return error_set(err, ERR_INVALID, "the data folder's name is too long");
	if (ret[0] != '/' || ret[1] == '\0' || ret[1] == '.')
		return error_set(err, ERR_INVALID,
		        "the data folder must be an absolute path, not \"%.60s\"", ret);
	while (n > 1 && ret[n - 1] == '/')
		ret[--n] = '\0';
	return 0;
}

int cli_version(int argc, char **argv)
{
	static const struct cli_usage usage = {
	        .line = "brig version",
	        .about = "Prints the version.\n",
	};
	int end = 0, at;

	at = cli_flags(&usage, argc, argv, &end);
	if (at < 0)
		return end;
	if (at < argc)
		return cli_wrong(&usage, "version takes no argument");
	puts("brig " BRIG_VERSION);
	return 0;
}

/* Whoever started us may have closed these; the first file we open must not become standard output.
 */
static void hold_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

int main(int argc, char **argv)
{
	size_t i;

	hold_standard_descriptors();

	/* serve starts its gateways as this program under their own title. */
	if (argc == 1 && strcmp(argv[0], SPAWN_TITLE) == 0)
		return cli_gateway();
	if (argc == 1 && strcmp(argv[0], SPAWN_EGRESS_TITLE) == 0)
		return cli_egress();
	if (argc < 2) {
		print_help(stderr);
		return CLI_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	        strcmp(argv[1], "help") == 0) {
		print_help(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0)
		return cli_version(argc - 1, argv + 1);
	for (i = 0; i < N_COMMANDS; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "brig: unknown command %s; `brig --help` lists them\n", argv[1]);
	return CLI_USAGE;
}
