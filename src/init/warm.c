#include "init/warm.h"

#include <poll.h>
#include <stddef.h>
#include <unistd.h>

/* In the order in which bash comes to them, most needed first. */
static const char *const NAMES[] = {"/bin/bash",
#if defined(__x86_64__)
        "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libtinfo.so.6",
        "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
#elif defined(__aarch64__)
        "/lib/ld-linux-aarch64.so.1", "/lib/aarch64-linux-gnu/libtinfo.so.6",
        "/lib/aarch64-linux-gnu/libc.so.6", "/usr/lib/aarch64-linux-gnu/gconv/gconv-modules.cache",
#endif
        "/etc/ld.so.preload", "/etc/ld.so.cache", "/dev/null", "/dev/tty",
        "/usr/lib/locale/locale-archive", "/usr/share/locale/locale.alias",
#define LOCALE(name) "/usr/lib/locale/C.UTF-8/" name, "/usr/lib/locale/C.utf8/" name
        LOCALE("LC_IDENTIFICATION"), LOCALE("LC_MEASUREMENT"), LOCALE("LC_TELEPHONE"),
        LOCALE("LC_ADDRESS"), LOCALE("LC_NAME"), LOCALE("LC_PAPER"), LOCALE("LC_MESSAGES"),
        LOCALE("LC_MESSAGES/SYS_LC_MESSAGES"), LOCALE("LC_MONETARY"), LOCALE("LC_COLLATE"),
        LOCALE("LC_TIME"), LOCALE("LC_NUMERIC"), LOCALE("LC_CTYPE"), "/usr/local/sbin/bash",
        "/usr/local/bin/bash", "/usr/sbin/bash", "/usr/bin/bash", "/etc/nsswitch.conf",
        "/etc/passwd", "/workspace/home", "/bin/sh"};

void warm_names(int control)
{
	struct pollfd p = {.fd = control, .events = POLLIN};

	for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES && poll(&p, 1, 0) == 0; i++)
		(void)!access(NAMES[i], F_OK);
}
