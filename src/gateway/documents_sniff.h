/*
 * What kind of file some bytes are, told from the bytes alone while they stream by: never from a
 * name or from what a client says. Constant memory, no recursion, nothing is unpacked.
 */
#ifndef BRIG_GATEWAY_DOCUMENTS_SNIFF_H
#define BRIG_GATEWAY_DOCUMENTS_SNIFF_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNIFF_SAMPLE 65536
#define SNIFF_ENTRY                                                                                \
	34 /* of a zip archive: its header, and the part of a name that is looked at               \
	    */

struct sniff {
	char sample[SNIFF_SAMPLE]; /* the first bytes */
	size_t n_sample;
	uint64_t size;
	bool binary;   /* not UTF-8, or with a NUL */
	char carry[4]; /* the beginning of a character that the last piece cut */
	size_t n_carry;
	char last; /* byte that is no space: how a JSON text ends */
	/* A zip archive's entries are looked at until one says what it is. */
	const char *office;
	char window[SNIFF_ENTRY];
	size_t n_window;
};

void documents_sniff_feed(struct sniff *s, struct str bytes);
/* Its media type: PDF, PNG, JPEG, GIF, WebP, DOCX, XLSX, PPTX, MP3, WAV, FLAC, Ogg, or UTF-8 text
 * as JSON, JSON lines, CSV, Markdown or plain. NULL: none of these, or no bytes at all. */
const char *documents_sniff_type(const struct sniff *s);
/* "pdf" for "application/pdf"; NULL where there is none. */
const char *documents_sniff_extension(const char *type);

#endif
