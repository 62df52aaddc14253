/* See otlp.h. 64-bit integers are texts of decimal digits; ids are hex, which their makers see to.
 */
#include "trace/otlp.h"

#include <inttypes.h>
#include <stdio.h>

static void value_begin(struct json_writer *w, struct str key, const char *type)
{
	jw_object(w);
	jw_kstr(w, "key", key);
	jw_key(w, "value");
	jw_object(w);
	jw_key(w, type);
}

static void value_end(struct json_writer *w)
{
	jw_end(w);
	jw_end(w);
}

static void value_str(struct json_writer *w, struct str key, struct str value)
{
	value_begin(w, key, "stringValue");
	jw_str(w, value);
	value_end(w);
}

static void value_int(struct json_writer *w, struct str key, int64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, value);
	value_begin(w, key, "intValue");
	jw_cstr(w, text);
	value_end(w);
}

static void value_bool(struct json_writer *w, struct str key, bool value)
{
	value_begin(w, key, "boolValue");
	jw_bool(w, value);
	value_end(w);
}

/* number: JSON text of one, so that decimals stand as they were written. */
static void value_double(struct json_writer *w, struct str key, struct str number)
{
	value_begin(w, key, "doubleValue");
	jw_raw(w, number);
	value_end(w);
}

void otlp_str(struct json_writer *w, const char *key, struct str value)
{
	if (value.p)
		value_str(w, str_of(key), value);
}

void otlp_cstr(struct json_writer *w, const char *key, const char *value)
{
	otlp_str(w, key, str_of(value));
}

void otlp_int(struct json_writer *w, const char *key, int64_t value)
{
	value_int(w, str_of(key), value);
}

void otlp_count(struct json_writer *w, const char *key, uint64_t value)
{
	otlp_int(w, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

void otlp_bool(struct json_writer *w, const char *key, bool value)
{
	value_bool(w, str_of(key), value);
}

void otlp_money(struct json_writer *w, const char *key, struct money value)
{
	_cleanup_buf_ struct buf text = BUF_INIT(64);

	money_write(&text, value);
	value_double(w, str_of(key), (struct str){text.data, text.len});
}

void otlp_seconds(struct json_writer *w, const char *key, int64_t ms)
{
	otlp_money(w, key, (struct money){ms > 9000000000 ? INT64_MAX : ms * 1000000000});
}

void otlp_list(struct json_writer *w, const char *key, struct str only)
{
	if (!only.p)
		return;
	value_begin(w, str_of(key), "arrayValue");
	jw_object(w);
	jw_key(w, "values");
	jw_array(w);
	jw_object(w);
	jw_kstr(w, "stringValue", only);
	jw_end(w);
	jw_end(w);
	jw_end(w);
	value_end(w);
}

void otlp_json(struct json_writer *w, struct str key, const struct json *value)
{
	int64_t whole;
	double any;

	if (json_absent(value))
		return;
	if (json_is(value, JSON_STRING))
		value_str(w, key, json_str(value));
	else if (json_is_bool(value))
		value_bool(w, key, json_bool(value));
	else if (json_i64(value, &whole))
		value_int(w, key, whole);
	else if (json_double(value, &any))
		value_double(w, key, json_raw(value));
	else
		value_str(w, key, json_raw(value));
}

void otlp_time(struct json_writer *w, const char *key, int64_t ms)
{
	char text[32];

	/* As text, so that no year overflows. */
	snprintf(text, sizeof(text), "%" PRId64 "000000", ms);
	jw_kcstr(w, key, ms > 0 ? text : "0");
}
