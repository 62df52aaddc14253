/*
 * Theory of operation: each disguise is undone once, and what comes out is tested like plain text.
 *
 *     scrambled middles   ("ignroe yuor isntructions"): letters of a known word, first and last in
 * place. One such word is a slip of the keyboard; two different ones close together are not.
 *     base64, hexadecimal decoded where what comes out is text
 *     spaced letters      ("i g n o r e   a l l"), collapsed
 *
 * Each pass is linear: a run is looked at once, at most RUN_MAX bytes of it at a time.
 */
#include "guard/evasion.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define RUN_MAX    65536
#define NEAR       120 /* bytes between two scrambled words */
#define BASE64_MIN 24
#define HEX_MIN    12 /* decoded bytes */
#define SPACED_MIN 10 /* letters */

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static bool contains(struct str text, const char *word)
{
	size_t n = strlen(word);

	for (size_t i = 0; i + n <= text.n; i++) {
		size_t k = 0;

		while (k < n && lower(text.p[i + k]) == word[k])
			k++;
		if (k == n)
			return true;
	}
	return false;
}

static bool contains_any(struct str text, const char *const *words)
{
	for (; *words; words++)
		if (contains(text, *words))
			return true;
	return false;
}

static const char *const verbs[] = {
        "ignore", "disregard", "forget", "override", "bypass", "reveal", "disable", NULL};
static const char *const objects[] = {
        "instruction", "prompt", "guideline", "restriction", "safety", "system", NULL};

/* A verb and what it is done to: enough where somebody took the trouble to hide them. */
static bool commanding(struct str text)
{
	return contains_any(text, verbs) && contains_any(text, objects);
}

/* ---- scrambled middles ---- */

static const char *const known[] = {
        "ignore", "bypass", "override", "reveal", "delete", "system", "prompt", "instructions"};

/* The known word of which this is a scrambled form, or -1. */
static int scrambled_of(const char *p, size_t n)
{
	for (size_t w = 0; w < sizeof(known) / sizeof(known[0]); w++) {
		int count[26] = {0};
		bool same = true, fits = strlen(known[w]) == n && lower(p[0]) == known[w][0] &&
		                         lower(p[n - 1]) == known[w][n - 1];

		if (!fits)
			continue;
		for (size_t i = 0; i < n; i++) {
			same &= lower(p[i]) == known[w][i];
			count[lower(p[i]) - 'a']++;
			count[known[w][i] - 'a']--;
		}
		for (size_t i = 0; i < 26; i++)
			fits &= count[i] == 0;
		if (fits && !same)
			return (int)w;
	}
	return -1;
}

static void scan_scrambled(struct str text, evasion_hit_fn hit, void *ctx)
{
	size_t last_begin = 0, last_end = 0;
	int last = -1;

	for (size_t i = 0; i < text.n;) {
		size_t begin = i;
		int word;

		if (!is_letter(text.p[i])) {
			i++;
			continue;
		}
		while (i < text.n && is_letter(text.p[i]))
			i++;
		word = i - begin >= 6 && i - begin <= 12 ? scrambled_of(text.p + begin, i - begin)
		                                         : -1;
		if (word < 0)
			continue;
		if (last >= 0 && last != word && begin - last_end <= NEAR)
			hit(ctx, "scrambled_word_injection", last_begin, i);
		last = word;
		last_begin = begin;
		last_end = i;
	}
}

/* ---- what decodes to text ---- */

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_text(const char *p, size_t n)
{
	size_t odd = 0;

	for (size_t i = 0; i < n; i++)
		odd += (unsigned char)p[i] < 32 && !memchr("\t\r\n", p[i], 3);
	return n > 0 && odd == 0;
}

static bool tells(struct str text, evasion_test_fn test, void *ctx)
{
	return is_text(text.p, text.n) && (commanding(text) || test(ctx, text));
}

static void scan_base64(struct str text, evasion_test_fn test, evasion_hit_fn hit, void *ctx)
{
	char *out _cleanup_free_ = mem_alloc(RUN_MAX);

	for (size_t i = 0; i < text.n;) {
		size_t begin = i, n = 0;
		unsigned bits = 0, have = 0;

		while (i < text.n && base64_value(text.p[i]) >= 0 && n < RUN_MAX) {
			bits = bits << 6 | (unsigned)base64_value(text.p[i++]);
			have += 6;
			if (have < 8)
				continue;
			have -= 8;
			out[n++] = (char)(bits >> have & 0xff);
		}
		if (i - begin >= BASE64_MIN && tells((struct str){out, n}, test, ctx)) {
			while (i < text.n && text.p[i] == '=')
				i++;
			hit(ctx, "base64_encoded_injection", begin, i);
		}
		i += i == begin;
	}
}

/* What may stand between two pairs: nothing, one of these, or \x and 0x before a pair. */
static size_t hex_gap(struct str text, size_t at)
{
	size_t i = at;

	if (i < text.n && memchr(" :,-\n", text.p[i], 5))
		i++;
	if (i + 1 < text.n && ((text.p[i] == '\\' && text.p[i + 1] == 'x') ||
	                              (text.p[i] == '0' && text.p[i + 1] == 'x')))
		i += 2;
	return i;
}

static void scan_hex(struct str text, evasion_test_fn test, evasion_hit_fn hit, void *ctx)
{
	char *out _cleanup_free_ = mem_alloc(RUN_MAX);

	for (size_t i = 0; i < text.n;) {
		size_t begin = i, end = i, n = 0, at = hex_gap(text, i);

		while (at + 1 < text.n && hex_value(text.p[at]) >= 0 &&
		        hex_value(text.p[at + 1]) >= 0 && n < RUN_MAX) {
			out[n++] = (char)(hex_value(text.p[at]) << 4 | hex_value(text.p[at + 1]));
			end = at + 2;
			at = hex_gap(text, end);
		}
		if (n >= HEX_MIN && tells((struct str){out, n}, test, ctx))
			hit(ctx, "hex_encoded_injection", begin, end);
		i = end > begin ? end : begin + 1;
	}
}

/* ---- spaced letters ---- */

static bool is_gap(char c)
{
	return c == ' ' || c == '.' || c == '-' || c == '_' || c == '*' || c == '\t';
}

static void scan_spaced(struct str text, evasion_hit_fn hit, void *ctx)
{
	char *out _cleanup_free_ = mem_alloc(RUN_MAX);

	for (size_t i = 0; i < text.n;) {
		size_t begin = i, end = i, n = 0;

		/* Single letters with one to three gaps after each; a letter pair ends the run. */
		while (i < text.n && is_letter(text.p[i]) &&
		        (i + 1 == text.n || !is_letter(text.p[i + 1])) && n < RUN_MAX) {
			out[n++] = text.p[i++];
			end = i;
			for (size_t gaps = 0; i < text.n && gaps < 3 && is_gap(text.p[i]); gaps++)
				i++;
		}
		if (n >= SPACED_MIN && commanding((struct str){out, n}))
			hit(ctx, "letter_spaced_injection", begin, end);
		while (i < text.n && is_letter(text.p[i])) /* the rest of a word */
			i++;
		i += i == begin;
	}
}

void evasion_scan(struct str text, evasion_test_fn test, evasion_hit_fn hit, void *ctx)
{
	scan_scrambled(text, hit, ctx);
	scan_base64(text, test, hit, ctx);
	scan_hex(text, test, hit, ctx);
	scan_spaced(text, hit, ctx);
}
