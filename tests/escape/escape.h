/*
 * What the parts of the hostile guest share: saying what was found, and the calls that every case
 * uses. One thread; a case runs in a process of its own, so nothing is ever freed.
 *
 * The files: setup.c tries the rows X of README.md's table, kernel.c K, leaks.c L; between.c has
 * the halves of what two containers try on each other, attack.c the programs that tests run by
 * name.
 */
#ifndef ESCAPE_H
#define ESCAPE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define INIT_ID  65533         /* init's own id, which no guest may take */
#define HIGH     0x100000000ul /* a bit that the kernel does not look at in 32-bit arguments */
#define TEXT(s)  ((unsigned long)(s))

#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif

/* A case; a list of them ends with one without a name. */
struct escape_case {
	const char *id;
	void (*run)(void);
};

extern const struct escape_case setup_cases[], kernel_cases[], leak_cases[];

/* Notes that something must hold; what did not is what the case says. */
__attribute__((format(printf, 2, 3))) void check(bool held, const char *format, ...);

/* The call must have failed with one of the two errors. */
void refused(long rc, int one, int other, const char *what);

/* What did not hold so far, "" for nothing; how much was looked at. */
const char *check_failure(void);
unsigned int check_count(void);

/* Runs one case in a process of its own and prints its line. Returns 0 when the attack failed. */
int run_case(const char *id, void (*run)(void));

/* syscall(2) with whole registers. */
long call(long nr, unsigned long a, unsigned long b, unsigned long c, unsigned long d,
        unsigned long e);

/* Writes to, or reads from, a file that may be anything. -1 with errno on failure. */
int put(const char *path, const char *text);
ssize_t get(const char *path, char *buf, size_t size);

bool exists(const char *path);
bool directory_is_empty(const char *path);
bool is_root(void);

/* Runs f in a child. Returns its wait status. */
int in_child(void (*f)(void));

/* Names below /proc that tell of the host. */
extern const char *const masked[];
extern const size_t n_masked;

/* Whatever of that name there is below top, it can neither be read nor written. */
void masked_by(const char *top, const char *name);

/* X9: what a set-id copy of this program says of itself: 0 when it gained nothing. */
int setup_probe(void);

/* between.c: exit codes. */
int between_make(void);
int between_seek(void);
int between_take(void);
int between_need(void);
int between_leaks(char **texts);

/* attack.c: runs the attack of that name. Returns an exit code. */
int attack_run(char **words);

/* network.c: the network of a container with an allowlist; words: ADDRESS PORT … An exit code. */
int network_run(char **words);

/* hog.c: takes that kind of memory. fuzz.c: random system calls. Exit codes. */
int hog_run(const char *kind);
int fuzz_run(unsigned int seconds, uint64_t seed);

#endif
