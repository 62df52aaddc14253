/*
 * The hostile guest: tries to leave the sandbox it runs in. Static, run inside a container only.
 *
 * One case for each class of attack, by the rows of README.md's table (X: the runtime's own set-up,
 * K: the kernel's surface, L: leaks, side channels, denial of service). Every case is written so
 * that success does no harm: it prints, and acts on nothing but what it made.
 *
 *   escape [ID…]          runs the cases (all of them), one line each: "ID PASS|FAIL detail"
 *   escape list           prints their names
 *   escape channel-make   makes what another container must not see, says "ready", and waits
 *   escape channel-seek   looks for it
 *   escape quota-take     uses up what the kernel counts by user, says "ready", and waits
 *   escape quota-need     needs a little of each
 *   escape leaks TEXT…    looks for the texts in everything readable below /proc and /sys
 *   escape attack NAME …  what attack.c has of that name
 *
 * Exit code 1: a case failed.
 */
#include "escape.h"

/* First of all, in a container where nothing has been done yet. */
static bool is_first(const char *id)
{
	return !strcmp(id, "L16");
}

static bool is_asked(const char *id, int argc, char **argv)
{
	for (int a = 1; a < argc; a++)
		if (!strcmp(argv[a], id))
			return true;
	return argc == 1;
}

static int run_cases(int argc, char **argv)
{
	static const struct escape_case *const LISTS[] = {setup_cases, kernel_cases, leak_cases};
	bool list = argc == 2 && !strcmp(argv[1], "list");
	int failed = 0;

	for (int first = 1; first >= 0; first--)
		for (size_t l = 0; l < COUNT(LISTS); l++)
			for (const struct escape_case *c = LISTS[l]; c->id; c++) {
				if (is_first(c->id) != first)
					continue;
				if (list)
					puts(c->id);
				else if (is_asked(c->id, argc, argv))
					failed += run_case(c->id, c->run);
			}
	return failed > 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "x9-probe"))
		return setup_probe();
	if (argc == 2 && !strcmp(argv[1], "channel-make"))
		return between_make();
	if (argc == 2 && !strcmp(argv[1], "channel-seek"))
		return between_seek();
	if (argc == 2 && !strcmp(argv[1], "quota-take"))
		return between_take();
	if (argc == 2 && !strcmp(argv[1], "quota-need"))
		return between_need();
	if (argc > 2 && !strcmp(argv[1], "leaks"))
		return between_leaks(argv + 2);
	if (argc > 2 && !strcmp(argv[1], "attack"))
		return attack_run(argv + 2);
	return run_cases(argc, argv);
}
