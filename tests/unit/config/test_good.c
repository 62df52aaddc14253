/* What a configuration that is right reads as. */
#include "helper.h"

#include "base/buf.h"
#include "base/id.h"
#include "base/mem.h"
#include "trace/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct config *must_load(const char *text, const struct pair *env, const struct pair *files)
{
	struct config *c = NULL;
	struct error err = {0};

	if (load_with(text, text ? strlen(text) : 0, env, files, &c, &err) < 0)
		fail_msg("%s", err.text);
	return c;
}

static void check_defaults(const struct config *c)
{
	assert_string_equal(c->listen_host, "127.0.0.1");
	assert_int_equal(c->listen_port, 8484);
	assert_null(c->data);
	assert_int_equal(c->workers, 1);
	assert_true(c->sandbox);
	assert_true(c->store_content);
	assert_false(c->cgroup_v1);
	assert_int_equal(c->grace_ms, 30000);
	assert_int_equal(c->id_base, 1879048192);
	assert_int_equal(c->n_keys, 0);
	assert_int_equal(c->n_providers, 1);
	assert_string_equal(c->providers[0].name, "brig");
	assert_int_equal(c->providers[0].dialect, DIALECT_SCRIPT);
	assert_string_equal(c->container.image, "base");
	assert_int_equal(c->container.memory_mib, 1024);
	assert_int_equal(c->container.n_memory_allowed, 1);
	assert_int_equal(c->container.memory_allowed_mib[0], 1024);
	assert_int_equal(c->container.cpu_milli, 1000);
	assert_int_equal(c->container.home_mib, 5120);
	assert_int_equal(c->container.scratch_mib, 4096);
	assert_int_equal(c->container.processes, 512);
	assert_int_equal(c->container.pool, 4);
	assert_int_equal(c->container.sleep_after_ms, 300000);
	assert_int_equal(c->container.keep_days, 30);
	assert_false(c->container.durable_power);
	assert_int_equal(c->container.price_per_second.pico, 100000000);
	assert_int_equal(c->limits.body_bytes, 64 << 20);
	assert_int_equal(c->limits.in_flight_bytes, 1 << 30);
	assert_int_equal(c->limits.tool_calls, 30);
	assert_int_equal(c->limits.turn_ms, 3600000);
	assert_int_equal(c->limits.turn_unstreamed_ms, 540000);
	assert_int_equal(c->limits.turn_output_bytes, 16 << 20);
	assert_int_equal(c->limits.call_output_bytes, 1 << 20);
	assert_int_equal(c->limits.timeout_ms, 120000);
	assert_int_equal(c->limits.max_timeout_ms, 300000);
	assert_int_equal(c->limits.output_chars, 16384);
	assert_int_equal(c->limits.max_output_chars, 65536);
	assert_int_equal(c->limits.commands, 100);
	assert_int_equal(c->limits.client_stall_ms, 120000);
	assert_int_equal(c->limits.capacity_wait_ms, 10000);
	assert_int_equal(c->limits.keepalive_ms, 10000);
	assert_int_equal(c->limits.upstream_connect_ms, 10000);
	assert_int_equal(c->limits.upstream_first_byte_ms, 600000);
	assert_int_equal(c->limits.upstream_idle_ms, 120000);
	assert_int_equal(c->limits.upstream_retries, 2);
	assert_int_equal(c->limits.upstream_retry_wait_ms, 10000);
	assert_int_equal(c->limits.upstream_failures, 5);
	assert_int_equal(c->limits.upstream_rest_ms, 15000);
	assert_int_equal(c->limits.connections, 16384);
	assert_int_equal(c->limits.workspace_live, 0);
	assert_int_equal(c->limits.file_bytes, 100 << 20);
	assert_true(c->limits.workspace_files_bytes == (uint64_t)10 << 30);
	assert_int_equal(c->limits.response_bytes, 32 << 20);
	assert_int_equal(c->limits.response_events_bytes, 16 << 20);
	assert_int_equal(c->limits.workspace_responses_bytes, 1 << 30);
	assert_true(c->limits.responses_kept_ms == (uint64_t)30 * 86400000);
	assert_int_equal(c->limits.idempotent_bytes, 16 << 20);
	assert_int_equal(c->limits.workspace_idempotent_bytes, 256 << 20);
}

static void test_defaults(void **state)
{
	static const char *const empty[] = {NULL, "", "# nothing\n", "---\n",
	        "limits:\ncontainer:\n", "container: ~\n", "\xef\xbb\xbf# a byte order mark\n"};
	struct config *c;
	size_t i;

	for (i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
		c = must_load(empty[i], NULL, NULL);
		check_defaults(c);
		config_free(c);
	}
}

static void test_everything(void **state)
{
	static const struct pair env[] = {
	        {"SOME_KEY", "from-env"}, {"OPENAI_API_KEY", "unused"}, {0}};
	static const struct pair files[] = {{"/etc/brig/k", "  from-file\n"}, {0}};
	struct config *c = must_load(
	        "listen: \"[::1]:0\"\n"
	        "data: /srv/brig\n"
	        "workers: 3\n"
	        "sandbox: off\n"
	        "grace: 5\n"
	        "cgroups: v1\n"
	        "keys:\n"
	        "- key: sixteen-letters-1\n"
	        "- {key: 'sixteen-letters-2', account: acme, workspace: dev_2}\n"
	        "providers:\n"
	        "- name: a\n"
	        "  dialect: openai-chat\n"
	        "  base_url: http://127.0.0.1:1/v1//\n"
	        "  api_key_env: SOME_KEY\n"
	        "  prices: {org/m:free: {input: \"0.10\", output: 2.50, cached: '0.000001'}}\n"
	        "- {name: b, dialect: openai-chat, base_url: https://b.test/v1, "
	        "api_key_file: /etc/brig/k}\n"
	        "- {name: c, dialect: openai-chat, base_url: 'http://[::1]:2', api_key: lit}\n"
	        "- {name: s, dialect: script}\n"
	        "models:\n"
	        "- {name: fast, route: [a/org/m:free, b/x]}\n"
	        "- {name: echo, route: [brig/script]}\n"
	        "container: {memory: 4g, memory_allowed: [16g, 1G], cpus: 0.5, home: 64m, "
	        "sleep_after: 0, durability: power, price_per_second: 0.000000000001}\n"
	        "limits: {timeout: 1500ms, max_timeout: 10m, turn: 1h, tool_calls: 4}\n"

	        "ids: {base: 1048576}\n",
	        env, files);
	uint8_t hash[32];

	assert_string_equal(c->listen_host, "::1");
	assert_int_equal(c->listen_port, 0);
	assert_string_equal(c->data, "/srv/brig");
	assert_int_equal(c->workers, 3);
	assert_false(c->sandbox);
	assert_int_equal(c->grace_ms, 5000);
	assert_true(c->cgroup_v1);
	assert_int_equal(c->n_keys, 2);
	id_sha256(STR("sixteen-letters-1"), hash);
	assert_memory_equal(c->keys[0].hash, hash, 32);
	assert_string_equal(c->keys[0].account, "default");
	assert_string_equal(c->keys[0].workspace, "default");
	assert_false(c->keys[0].admin);
	assert_string_equal(c->keys[1].account, "acme");
	assert_string_equal(c->keys[1].workspace, "dev_2");
	assert_int_equal(c->n_providers, 5); /* the environment's are not added to a list */
	assert_string_equal(c->providers[0].base_url, "http://127.0.0.1:1/v1");
	assert_string_equal(c->providers[0].api_key, "from-env");
	assert_int_equal(c->providers[0].n_prices, 1);
	assert_string_equal(c->providers[0].prices[0].model, "org/m:free");
	assert_int_equal(c->providers[0].prices[0].input.pico, 100000000000);
	assert_int_equal(c->providers[0].prices[0].output.pico, 2500000000000);
	assert_true(c->providers[0].prices[0].has_cached);
	assert_int_equal(c->providers[0].prices[0].cached.pico, 1000000);
	assert_string_equal(c->providers[1].api_key, "from-file");
	assert_string_equal(c->providers[2].api_key, "lit");
	assert_int_equal(c->providers[3].dialect, DIALECT_SCRIPT);
	assert_string_equal(c->providers[4].name, "brig");
	assert_int_equal(c->n_models, 2);
	assert_int_equal(c->models[0].n_route, 2);
	assert_string_equal(c->models[0].route[0], "a/org/m:free");
	assert_int_equal(c->container.memory_mib, 4096);
	assert_int_equal(c->container.n_memory_allowed, 3);
	assert_int_equal(c->container.memory_allowed_mib[0], 1024);
	assert_int_equal(c->container.memory_allowed_mib[1], 4096);
	assert_int_equal(c->container.memory_allowed_mib[2], 16384);
	assert_int_equal(c->container.cpu_milli, 500);
	assert_int_equal(c->container.home_mib, 64);
	assert_int_equal(c->container.sleep_after_ms, 0);
	assert_true(c->container.durable_power);
	assert_int_equal(c->container.price_per_second.pico, 1);
	assert_int_equal(c->limits.timeout_ms, 1500);
	assert_int_equal(c->limits.max_timeout_ms, 600000);
	assert_int_equal(c->limits.turn_ms, 3600000);
	assert_int_equal(c->limits.tool_calls, 4);
	assert_int_equal(c->id_base, 1048576);
	config_free(c);
}

static void test_environment(void **state)
{
	static const struct pair env[] = {{"OPENAI_API_KEY", "k1"}, {"ANTHROPIC_API_KEY", "k2"},
	        {"GEMINI_API_KEY", "k3"}, {"OPENROUTER_API_KEY", "k4"}, {"OLLAMA_HOST", "10.0.0.7"},
	        {0}};
	static const char *const expect[][3] = {
	        {"openai", "https://api.openai.com/v1", "k1"},
	        {"anthropic", "https://api.anthropic.com/v1", "k2"},
	        {"gemini", "https://generativelanguage.googleapis.com/v1beta", "k3"},
	        {"openrouter", "https://openrouter.ai/api/v1", "k4"},
	        {"ollama", "http://10.0.0.7:11434/v1", NULL},
	};
	static const enum dialect dialects[] = {DIALECT_OPENAI_RESPONSES, DIALECT_ANTHROPIC,
	        DIALECT_GEMINI, DIALECT_OPENAI_CHAT, DIALECT_OPENAI_CHAT};
	static const struct pair blank[] = {{"OPENAI_API_KEY", ""}, {"OLLAMA_HOST", ""}, {0}};
	struct config *c = must_load(NULL, env, NULL);
	size_t i;

	assert_int_equal(c->n_providers, 6);
	for (i = 0; i < 5; i++) {
		assert_string_equal(c->providers[i].name, expect[i][0]);
		assert_string_equal(c->providers[i].base_url, expect[i][1]);
		assert_int_equal(c->providers[i].dialect, dialects[i]);
		if (expect[i][2])
			assert_string_equal(c->providers[i].api_key, expect[i][2]);
		else
			assert_null(c->providers[i].api_key);
	}
	config_free(c);
	c = must_load(NULL, blank, NULL);
	assert_int_equal(c->n_providers, 1);
	config_free(c);
	/* A file without a list of providers takes them from the environment too. */
	c = must_load("workers: 2\n", env, NULL);
	assert_int_equal(c->n_providers, 6);
	config_free(c);
}

static void test_ollama(void **state)
{
	static const char *const cases[][2] = {
	        {"localhost", "http://localhost:11434/v1"},
	        {"localhost:99", "http://localhost:99/v1"},
	        {"0.0.0.0", "http://127.0.0.1:11434/v1"},
	        {"0.0.0.0:8080", "http://127.0.0.1:8080/v1"},
	        {"http://0.0.0.0:1/", "http://127.0.0.1:1/v1"},
	        {"http://gpu.example", "http://gpu.example:11434/v1"},
	        {"https://gpu.example", "https://gpu.example/v1"},
	        {"https://gpu.example:8443/ollama/", "https://gpu.example:8443/ollama/v1"},
	        {"[::1]", "http://[::1]:11434/v1"},
	        {"[::1]:7", "http://[::1]:7/v1"},
	        {":7", "http://127.0.0.1:7/v1"},
	};
	struct pair env[2] = {{"OLLAMA_HOST", NULL}, {0}};
	struct config *c;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		env[0].value = cases[i][0];
		c = must_load(NULL, env, NULL);
		assert_int_equal(c->n_providers, 2);
		assert_string_equal(c->providers[0].base_url, cases[i][1]);
		config_free(c);
	}
}

/* The example is right as it stands, says only defaults, and its examples are right when
 * uncommented. */
static void test_example(void **state)
{
	struct buf text = BUF_INIT(1 << 20), all = BUF_INIT(1 << 20);
	const char *line, *end;
	struct config *c;

	assert_int_equal(config_write_example(&text), 0);
	c = must_load(buf_cstr(&text), NULL, NULL);
	check_defaults(c);
	config_free(c);
	for (line = buf_cstr(&text); *line; line = end + 1) {
		end = strchr(line, '\n');
		assert_non_null(end);
		assert_true(end - line <= 100);
		/* "# prose", "#example:", and within an example "#  more" and "#- entry" */
		if (line[0] == '#' && (line[1] != ' ' || line[2] == ' '))
			line++;
		else if (strncmp(line, "  #", 3) == 0 && line[3] != ' ')
			buf_puts(&all, "  "), line += 3;
		buf_append(&all, line, (size_t)(end - line) + 1);
	}
	c = must_load(buf_cstr(&all), NULL, NULL);
	assert_string_equal(c->data, "/var/lib/brig");
	assert_int_equal(c->n_keys, 1);
	assert_int_equal(c->n_providers, 2);
	assert_int_equal(c->providers[0].n_prices, 1);
	assert_int_equal(c->n_models, 1);
	assert_int_equal(c->container.n_memory_allowed, 2);
	assert_int_equal(c->n_guardrails, 1);
	assert_string_equal(c->guardrails[0].workspace, "default");
	assert_int_equal(c->guardrails[0].n_rules, 3);
	assert_string_equal(c->guardrails[0].rules[2].placeholder, "[CUSTOMER]");
	assert_int_equal(c->guardrails[0].n_allow, 1);
	assert_int_equal(c->n_broadcast, 2);
	assert_int_equal(c->broadcast[0]->type, TRACE_OTEL_COLLECTOR);
	assert_string_equal(c->broadcast[1]->workspace, "default");
	assert_true(c->broadcast[1]->privacy_mode);
	assert_int_equal(c->broadcast[1]->sampling_ppm, 100000);
	config_free(c);
	buf_free(&text);
	buf_free(&all);
}

/* Members from variables and files, texts and numbers as YAML has them. */
static void test_broadcast(void **state)
{
	static const struct pair env[] = {{"GLC", " glc_secret\n"}, {"AUTH", "Bearer a b"}, {0}};
	static const struct pair files[] = {{"/run/secret", "from-file\n"}, {0}};
	static const char text[] = "broadcast:\n"
	                           "- name: 1\n"
	                           "  type: grafana\n"
	                           "  enabled: off\n"
	                           "  regions: [eu, global]\n"
	                           "  config: {apiKey_env: GLC, instanceId: 0123}\n"
	                           "- name: \"on\"\n"
	                           "  type: s3\n"
	                           "  config:\n"
	                           "    bucketName: traces\n"
	                           "    accessKeyId: id\n"
	                           "    secretAccessKey_file: /run/secret\n"
	                           "    headers: {X-A_env: AUTH, X-B: 7}\n";
	struct config *c = must_load(text, env, files);
	const struct trace_destination *g = c->broadcast[0], *s3 = c->broadcast[1];

	assert_int_equal(c->n_broadcast, 2);
	assert_string_equal(g->name, "1");
	assert_false(g->enabled);
	assert_string_equal(g->api_key, "glc_secret");
	assert_string_equal(g->instance_id, "0123");
	assert_int_equal(g->n_regions, 2);
	assert_string_equal(g->regions[0], "europe");
	assert_null(g->workspace);
	assert_string_equal(s3->name, "on");
	assert_true(s3->enabled);
	assert_string_equal(s3->secret_key, "from-file");
	assert_string_equal(s3->headers[0].name, "X-A");
	assert_string_equal(s3->headers[0].value, "Bearer a b");
	assert_string_equal(s3->headers[1].value, "7");
	config_free(c);
}

static void test_listen(void **state)
{
	static const struct {
		const char *text, *host;
		int port;
	} cases[] = {
	        {"127.0.0.1:8484", "127.0.0.1", 8484},
	        {"localhost:1", "127.0.0.1", 1},
	        {"0.0.0.0:0", "0.0.0.0", 0},
	        {"[::]:65535", "::", 65535},
	        {"127.0.0.1", NULL, 0},
	        {"127.0.0.1:65536", NULL, 0},
	        {"127.0.0.1:-1", NULL, 0},
	        {"::1:80", NULL, 0},
	        {"[127.0.0.1]:80", NULL, 0},
	        {":80", NULL, 0},
	        {"example.org:80", NULL, 0},
	        {"", NULL, 0},
	};
	struct error err;
	uint16_t port;
	char *host;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		host = NULL;
		if (!cases[i].host) {
			assert_int_equal(config_parse_listen(cases[i].text, &host, &port, &err),
			        -ERR_INVALID);
			assert_null(host);
			continue;
		}
		assert_int_equal(config_parse_listen(cases[i].text, &host, &port, &err), 0);
		assert_string_equal(host, cases[i].host);
		assert_int_equal(port, cases[i].port);
		free(host);
	}
}

static void check_native(const char *entry, size_t n)
{
	char text[512];
	struct config *c;

	snprintf(text, sizeof(text), "providers: [{name: a, %s}]\n", entry);
	c = must_load(text, NULL, NULL);
	assert_int_equal(c->providers[0].n_native_tools, n);
	if (n)
		assert_string_equal(c->providers[0].native_tools[0], "shell");
	config_free(c);
}

/* OpenAI's own address has a shell, unless it is said that it has none; others where it is said. */
static void test_native_tools(void **state)
{
	static const struct pair env[] = {{"OPENAI_API_KEY", "sk-1"}, {NULL, NULL}};
	struct config *c;

	check_native("dialect: openai-responses, base_url: 'https://api.openai.com/v1'", 1);
	check_native("dialect: openai-responses, base_url: 'https://api.openai.com/v1', "
	             "native_tools: []",
	        0);
	check_native("dialect: openai-chat, base_url: 'https://api.openai.com/v1'", 0);
	check_native("dialect: openai-responses, base_url: 'https://api.openai.com.example/v1'", 0);
	check_native("dialect: openai-responses, base_url: 'http://a/v1'", 0);
	check_native(
	        "dialect: openai-responses, base_url: 'http://a/v1', native_tools: [shell]", 1);
	c = must_load(NULL, env, NULL);
	assert_int_equal(c->providers[0].dialect, DIALECT_OPENAI_RESPONSES);
	assert_int_equal(c->providers[0].n_native_tools, 1);
	config_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_defaults),
	        cmocka_unit_test(test_native_tools),
	        cmocka_unit_test(test_everything),
	        cmocka_unit_test(test_environment),
	        cmocka_unit_test(test_ollama),
	        cmocka_unit_test(test_example),
	        cmocka_unit_test(test_broadcast),
	        cmocka_unit_test(test_listen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
