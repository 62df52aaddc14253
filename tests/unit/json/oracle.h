/*
 * What another JSON library says about a text, in a form that does not depend on the library: every
 * value in the order of the text, with its type and exact value. Implemented once for each library.
 */
#ifndef BRIG_UNIT_JSON_ORACLE_H
#define BRIG_UNIT_JSON_ORACLE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORACLE_JSONC = 1, ORACLE_JANSSON = 2 };
extern const unsigned oracle_which;

/* False when the library refuses the text; else appends the form of what it read. */
bool oracle_read(const char *text, size_t n, struct buf *out);

static inline void oracle_dump_string(struct buf *out, const char *p, size_t n)
{
	buf_printf(out, "s%zu:", n);
	buf_append(out, p, n);
	buf_putc(out, '\n');
}

static inline void oracle_dump_key(struct buf *out, const char *p, size_t n)
{
	buf_putc(out, 'k');
	oracle_dump_string(out, p, n);
}

static inline void oracle_dump_word(struct buf *out, char first)
{
	buf_printf(out, "%c\n", first); /* t, f or n */
}

static inline void oracle_dump_whole(struct buf *out, int64_t v)
{
	buf_printf(out, "i%lld\n", (long long)v);
}

static inline void oracle_dump_real(struct buf *out, double v)
{
	buf_printf(out, "r%a\n", v);
}

static inline void oracle_dump_begin(struct buf *out, char bracket, size_t count)
{
	buf_printf(out, "%c%zu\n", bracket, count);
}

#endif
