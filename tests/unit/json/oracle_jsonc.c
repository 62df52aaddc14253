#include "oracle.h"

#include <json-c/json.h>

#include <stdlib.h>
#include <string.h>

const unsigned oracle_which = ORACLE_JSONC;

enum { DEPTH = 129 };

/* Recursion is fine here: the documents are our own. */
static void dump(struct json_object *v, struct buf *out)
{
	size_t i, n;

	switch (json_object_get_type(v)) {
	case json_type_object:
		oracle_dump_begin(out, '{', (size_t)json_object_object_length(v));
		json_object_object_foreach(v, key, member)
		{
			oracle_dump_key(out, key, strlen(key));
			dump(member, out);
		}
		break;
	case json_type_array:
		n = json_object_array_length(v);
		oracle_dump_begin(out, '[', n);
		for (i = 0; i < n; i++)
			dump(json_object_array_get_idx(v, i), out);
		break;
	case json_type_string:
		oracle_dump_string(
		        out, json_object_get_string(v), (size_t)json_object_get_string_len(v));
		break;
	case json_type_int:
		oracle_dump_whole(out, json_object_get_int64(v));
		break;
	case json_type_double:
		oracle_dump_real(out, json_object_get_double(v));
		break;
	case json_type_boolean:
		oracle_dump_word(out, json_object_get_boolean(v) ? 't' : 'f');
		break;
	case json_type_null:
		oracle_dump_word(out, 'n');
		break;
	}
}

bool oracle_read(const char *text, size_t n, struct buf *out)
{
	struct json_tokener *tok = json_tokener_new_ex(DEPTH);
	/* A NUL at the end is handed over, too: without it json-c waits for more digits. */
	char *copy = calloc(1, n + 1);
	struct json_object *v;
	bool good;

	if (!tok || !copy)
		abort();
	memcpy(copy, text, n);
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	v = json_tokener_parse_ex(tok, copy, (int)n + 1);
	good = json_tokener_get_error(tok) == json_tokener_success &&
	       json_tokener_get_parse_end(tok) >= n;
	if (good)
		dump(v, out);
	json_object_put(v);
	json_tokener_free(tok);
	free(copy);
	return good;
}
