#include "oracle.h"

#include <jansson.h>

const unsigned oracle_which = ORACLE_JANSSON;

/* Recursion is fine here: the documents are our own. */
static void dump(const json_t *v, struct buf *out)
{
	const json_t *child;
	const char *key;
	json_t *object;
	void *iter;
	size_t i;

	switch (json_typeof(v)) {
	case JSON_OBJECT:
		object = json_deep_copy(v); /* iterating takes no const object */
		oracle_dump_begin(out, '{', json_object_size(object));
		for (iter = json_object_iter(object); iter;
		        iter = json_object_iter_next(object, iter)) {
			key = json_object_iter_key(iter);
			oracle_dump_key(out, key, json_object_iter_key_len(iter));
			dump(json_object_iter_value(iter), out);
		}
		json_decref(object);
		break;
	case JSON_ARRAY:
		oracle_dump_begin(out, '[', json_array_size(v));
		json_array_foreach(v, i, child) dump(child, out);
		break;
	case JSON_STRING:
		oracle_dump_string(out, json_string_value(v), json_string_length(v));
		break;
	case JSON_INTEGER:
		oracle_dump_whole(out, json_integer_value(v));
		break;
	case JSON_REAL:
		oracle_dump_real(out, json_real_value(v));
		break;
	case JSON_TRUE:
		oracle_dump_word(out, 't');
		break;
	case JSON_FALSE:
		oracle_dump_word(out, 'f');
		break;
	case JSON_NULL:
		oracle_dump_word(out, 'n');
		break;
	}
}

bool oracle_read(const char *text, size_t n, struct buf *out)
{
	json_t *v = json_loadb(
	        text, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

	if (!v)
		return false;
	dump(v, out);
	json_decref(v);
	return true;
}
