/* The page's files as the build has made them into arrays (embed.py). Constant. */
#ifndef BRIG_WEB_WEB_FILES_H
#define BRIG_WEB_WEB_FILES_H

#include <stddef.h>

struct web_file {
	const char *path; /* of the request */
	const char *content_type;
	const char *tag; /* of its content, for ETag */
	const unsigned char *plain;
	size_t plain_len;
	const unsigned char *packed; /* the same by gzip */
	size_t packed_len;
};

extern const struct web_file web_files[];
extern const size_t web_files_n;

#endif
