/* Ids of files in containers. They name a path, not a version of what is there. */
#include "api/api.h"

#include "base/base64.h"

int api_file_id_append(struct buf *out, struct str path)
{
	buf_puts(out, API_FILE_ID_PREFIX);
	return base64_append_url(out, path.p, path.n);
}

bool api_file_id_read(struct str id, struct buf *ret_path)
{
	const size_t n = strlen(API_FILE_ID_PREFIX);

	return str_starts(id, API_FILE_ID_PREFIX) &&
	       base64_decode_url(ret_path, (struct str){id.p + n, id.n - n});
}
