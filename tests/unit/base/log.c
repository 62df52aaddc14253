#include "unit.h"

#include "base/log.h"
#include "base/mem.h"
#include "json/json.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Standard error goes into a pipe while a test captures it. */
struct capture {
	int saved, pipe[2];
	char text[65536];
	size_t len;
};

static void capture_begin(struct capture *c)
{
	assert_int_equal(pipe2(c->pipe, O_CLOEXEC), 0);
	c->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	assert_true(c->saved >= 0);
	assert_int_equal(dup2(c->pipe[1], STDERR_FILENO), STDERR_FILENO);
	close(c->pipe[1]);
}

static void capture_end(struct capture *c)
{
	ssize_t n;

	assert_int_equal(dup2(c->saved, STDERR_FILENO), STDERR_FILENO);
	close(c->saved);
	c->len = 0;
	while ((n = read(c->pipe[0], c->text + c->len, sizeof(c->text) - 1 - c->len)) > 0)
		c->len += (size_t)n;
	c->text[c->len] = '\0';
	close(c->pipe[0]);
}

static struct json_doc *parse_line(const char *line, size_t n)
{
	struct json_doc *doc = NULL;
	struct error err = {0};

	assert_true(n > 0 && line[n - 1] == '\n');
	assert_int_equal(json_parse((struct str){line, n}, 1 << 20, &doc, &err), 0);
	assert_true(json_is(json_root(doc), JSON_OBJECT));
	return doc;
}

static void line_has_its_fields(void **state)
{
	struct capture c;
	const struct json *v;

	log_init("gateway", LOG_INFO);
	capture_begin(&c);
	errno = EBADF;
	LOG(LOG_WARN, "turn ended", LOG_S("id", "a\"b\\\n\x01\x7f\xc3\xa9\xff"),
	        LOG_N("n", INT64_MIN), LOG_S("none", NULL));
	assert_int_equal(errno, EBADF);
	capture_end(&c);
	{
		_cleanup_json_ struct json_doc *doc = parse_line(c.text, c.len);
		const struct json *o = json_root(doc);
		int64_t pid, n;

		v = json_first(o);
		assert_true(str_is(json_key(v), "time"));
		assert_int_equal(json_str(v).n, 24);
		assert_true(str_is(json_str(json_get(o, "level")), "warn"));
		assert_true(str_is(json_str(json_get(o, "process")), "gateway"));
		assert_true(json_i64(json_get(o, "pid"), &pid) && pid == getpid());
		assert_true(str_is(json_str(json_get(o, "event")), "turn ended"));
		assert_true(str_is(
		        json_str(json_get(o, "id")), "a\"b\\\n\x01\x7f\xc3\xa9\xef\xbf\xbd"));
		assert_true(json_i64(json_get(o, "n"), &n) && n == INT64_MIN);
		assert_true(str_is(json_str(json_get(o, "none")), ""));
		assert_int_equal(json_count(o), 8);
	}
}

static void levels(void **state)
{
	struct capture c;

	log_init("gateway", LOG_WARN);
	capture_begin(&c);
	log_text(LOG_DEBUG, "no", "x");
	log_event(LOG_INFO, "no", NULL, 0);
	log_event(LOG_WARN, "yes1", NULL, 0);
	log_text(LOG_ERROR, "yes2", "%d of %d", 3, 4);
	capture_end(&c);
	assert_null(strstr(c.text, "\"no\""));
	assert_non_null(strstr(c.text, "\"level\":\"warn\""));
	assert_non_null(strstr(c.text, "\"event\":\"yes1\"}\n"));
	assert_non_null(strstr(c.text, "\"level\":\"error\""));
	assert_non_null(strstr(c.text, "\"event\":\"yes2\",\"text\":\"3 of 4\"}\n"));
	log_init("gateway", LOG_DEBUG);
	capture_begin(&c);
	log_event(LOG_DEBUG, "low", NULL, 0);
	capture_end(&c);
	assert_non_null(strstr(c.text, "\"level\":\"debug\""));
}

/* A value of every length around the limit, of characters of 1 to 6 bytes as written. */
static void long_lines_are_cut_and_stay_json(void **state)
{
	static const char *const units[] = {"x", "\"", "\xc3\xa9", "\xf0\x9f\x98\x80", "\x01"};
	struct capture c;
	size_t u, n, len, i;
	char *text = mem_alloc(9000);

	log_init("gateway", LOG_INFO);
	for (u = 0; u < sizeof(units) / sizeof(*units); u++) {
		len = strlen(units[u]);
		for (i = 0; i + len < 9000; i += len)
			memcpy(text + i, units[u], len);
		for (n = 7900; n < 8300; n += len) {
			struct str value = {text, n / len * len};
			const struct log_field fields[] = {
			        {.key = "long", .text = value},
			        LOG_N("after", 5),
			        LOG_S("last", "z"),
			};
			const struct json *o;
			_cleanup_json_ struct json_doc *doc = NULL;

			capture_begin(&c);
			log_event(LOG_INFO, "e", fields, 3);
			capture_end(&c);
			assert_true(c.len <= 8192);
			doc = parse_line(c.text, c.len);
			o = json_root(doc);
			if (json_bool(json_get(o, "cut"))) {
				assert_false(str_is(json_str(json_get(o, "last")), "z"));
				assert_true(c.len > 8192 - 64);
			} else {
				assert_true(str_eq(json_str(json_get(o, "long")), value));
				assert_true(str_is(json_str(json_get(o, "last")), "z"));
			}
			assert_true(
			        str_starts((struct str){text, n}, "") /* the text itself is whole */
			        && json_str(json_get(o, "long")).n <= value.n);
		}
	}
	capture_begin(&c);
	memset(text, 'q', 8999);
	log_text(LOG_INFO, "e", "%s", text);
	capture_end(&c);
	{
		_cleanup_json_ struct json_doc *doc = parse_line(c.text, c.len);

		assert_true(json_bool(json_get(json_root(doc), "cut")));
		assert_true(json_str(json_get(json_root(doc), "text")).n > 7900);
	}
	free(text);
}

static void *many_lines(void *arg)
{
	int i;

	for (i = 0; i < 50; i++)
		LOG(LOG_INFO, "thread", LOG_S("text", arg), LOG_N("i", i));
	return NULL;
}

static void threads_do_not_mix(void **state)
{
	pthread_t threads[4];
	struct capture c;
	char name[4][100], *line, *end;
	size_t i, lines = 0;

	log_init("gateway", LOG_INFO);
	capture_begin(&c);
	for (i = 0; i < 4; i++) {
		memset(name[i], (int)('a' + i), 99);
		name[i][99] = '\0';
		assert_int_equal(pthread_create(&threads[i], NULL, many_lines, name[i]), 0);
	}
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	capture_end(&c);
	for (line = c.text; *line; line = end + 1, lines++) {
		end = strchr(line, '\n');
		assert_non_null(end);
		json_doc_free(parse_line(line, (size_t)(end - line) + 1));
	}
	assert_int_equal(lines, 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(line_has_its_fields),
	        cmocka_unit_test(levels),
	        cmocka_unit_test(long_lines_are_cut_and_stay_json),
	        cmocka_unit_test(threads_do_not_mix),
	};

	return UNIT_RUN(tests);
}
