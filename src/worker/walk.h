/*
 * All regular files of the home, in the order of their paths' bytes, a step at a time. What one
 * walk takes of memory is bounded (some 3 MiB), however many names a folder holds and however
 * deep folders lie in each other; a path longer than WORKER_PATH_MAX is passed over, with all below
 * it.
 */
#ifndef BRIG_WORKER_WALK_H
#define BRIG_WORKER_WALK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct walk;

/* Begins behind `after` (len bytes; 0: at the beginning). NULL: no memory. */
struct walk *walk_new(const char *after, size_t len);
struct walk *walk_free(struct walk *w); /* takes NULL; returns NULL */

enum walk_event {
	WALK_FILE,  /* the next file, as it stands */
	WALK_AGAIN, /* a step was made */
	WALK_END,
	WALK_NO_MEMORY
};
/* One step: some thousand names read, or one looked at. `wanted` is how many files more the caller
 * will take at most: it saves work. *ret_path (NUL-terminated) is good until the next step. */
enum walk_event walk_step(
        struct walk *w, uint32_t wanted, struct stat *ret, const char **ret_path, size_t *ret_len);

#endif
