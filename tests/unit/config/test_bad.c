/* What a configuration that is wrong is told, to the letter: each row is a file and its message. */
#include "helper.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define P "providers: [{name: a, dialect: openai-chat, base_url: http://a"

static const struct {
	const char *text, *message, *param;
} cases[] = {
        /* the text itself */
        {"a: [1, 2\n", "?", ""},
        {"listen: \"unended\n", "?", ""},
        {"\tlisten: x\n", "?", ""},
        {"listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n",
                "brig.yaml:2:1: \"listen\" is here twice; it was set in line 1", ""},
        {"workers: 1\n---\nworkers: 2\n",
                "brig.yaml:2:1: a second document; one is all that is read", ""},
        {"workers: &a 1\n", "brig.yaml:1:13: anchors are not used here", ""},
        {"workers: !!int 1\n", "brig.yaml:1:16: tags are not used here", ""},
        {"workers: *a\n", "brig.yaml:1:10: aliases are not used here", ""},
        {"[a]: b\n", "brig.yaml:1:1: a key must be a plain word", ""},
        {"- a\n", "brig.yaml:1:1: expected a mapping (key: value)", ""},
        {"just words\n", "brig.yaml:1:1: expected a mapping (key: value)", ""},
        {"workers: \xff\n", "brig.yaml:1:10: not UTF-8", ""},
        {"a: {b: {c: {d: {e: {f: {g: {h: {i: {j: {k: {l: {m: 1}}}}}}}}}}}}\n",
                "brig.yaml:1:48: more than 12 levels deep", ""},
        /* keys */
        {"wrokers: 2\n", "brig.yaml:1:1: unknown key \"wrokers\"; did you mean \"workers\"?", ""},
        {"container:\n  memroy: 1g\n",
                "brig.yaml:2:3: container: unknown key \"memroy\"; did you mean \"memory\"?",
                "container"},
        {"zebra: 2\n", "brig.yaml:1:1: unknown key \"zebra\"", ""},
        {"<<: {}\n", "brig.yaml:1:1: unknown key \"<<\"", ""},
        {"egress: {allow: [a.com, 'https://b.com']}\n",
                "brig.yaml:1:25: egress.allow[1]: holds a scheme; give the name alone",
                "egress.allow[1]"},
        {"egress: {deny: a.com}\n", "brig.yaml:1:16: egress.deny: expected a list", "egress.deny"},
        {"egress: {open: true}\n", "brig.yaml:1:10: egress: unknown key \"open\"", "egress"},
        {"egress: {connections: 0}\n", "brig.yaml:1:23: egress.connections: must be from 1 to 4096",
                "egress.connections"},
        {"egress: {connections_per_second: 10001}\n",
                "brig.yaml:1:34: egress.connections_per_second: must be from 1 to 10000",
                "egress.connections_per_second"},
        {"egress: {questions_per_second: x}\n",
                "brig.yaml:1:32: egress.questions_per_second: expected a whole number, not \"x\"",
                "egress.questions_per_second"},
        {"egress: {idle: 10ms}\n", "brig.yaml:1:16: egress.idle: must be from 1s to 1d",
                "egress.idle"},
        {"egress: {total: 31d}\n", "brig.yaml:1:17: egress.total: must be from 1s to 30d",
                "egress.total"},
        {"egress: {bytes: 1k}\n", "brig.yaml:1:17: egress.bytes: must be from 64k to 64t",
                "egress.bytes"},
        {"guardrails: {}\n", "brig.yaml:1:13: guardrails: expected a list", "guardrails"},
        {"guardrails: [{}]\n", "brig.yaml:1:14: guardrails[0]: name is missing", "guardrails[0]"},
        {"guardrails: [{name: a, colour: b}]\n",
                "brig.yaml:1:24: guardrails[0]: unknown key \"colour\"", "guardrails[0]"},
        {"guardrails:\n- name: a\n  content_filter_builtins: [{slug: mail, action: flag}]\n",
                "brig.yaml:3:36: guardrails[0].content_filter_builtins[0].slug: there is no "
                "built-in \"mail\"",
                "guardrails[0].content_filter_builtins[0].slug"},
        {"guardrails:\n- name: a\n  content_filter_builtins: [{slug: email, action: warn}]\n",
                "brig.yaml:3:51: guardrails[0].content_filter_builtins[0].action: expected block, "
                "redact or flag",
                "guardrails[0].content_filter_builtins[0].action"},
        {"guardrails:\n- name: a\n  content_filter_builtins: [{slug: email}]\n",
                "brig.yaml:3:29: guardrails[0].content_filter_builtins[0]: action is missing",
                "guardrails[0].content_filter_builtins[0]"},
        {"guardrails:\n- name: a\n  content_filters: [{action: flag}]\n",
                "brig.yaml:3:21: guardrails[0].content_filters[0]: pattern is missing",
                "guardrails[0].content_filters[0]"},
        {"guardrails:\n- name: a\n  content_filters: [{pattern: '(?=x)', action: flag}]\n", "?",
                ""},
        {"guardrails:\n- name: a\n  content_filters: [{pattern: '(a)\\1', action: flag}]\n", "?",
                ""},
        {"broadcast: {}\n", "brig.yaml:1:12: broadcast: expected a list", "broadcast"},
        {"broadcast: [7]\n",
                "brig.yaml:1:13: broadcast[0]: expected a mapping (key: value)", "broadcast[0]"},
        {"broadcast: [{}]\n", "brig.yaml:1:13: broadcast[0].type: is missing",
                "broadcast[0].type"},
        {"broadcast: [{type: datadog, name: d}]\n",
                "brig.yaml:1:20: broadcast[0].type: is none of otel-collector, webhook, langfuse, "
                "braintrust, arize, grafana and s3",
                "broadcast[0].type"},
        {"broadcast:\n- name: a\n  type: webhook\n  colour: red\n",
                "brig.yaml:2:3: broadcast[0]: \"colour\" is not known", "broadcast[0]"},
        {"broadcast:\n- name: a\n  type: webhook\n  config: {url: ftp://x}\n",
                "brig.yaml:4:17: broadcast[0].config.url: must begin with http:// or https://",
                "broadcast[0].config.url"},
        {"broadcast:\n- name: a\n  type: webhook\n  config:\n    url: http://x\n    headers:\n"
         "      Host: x\n",
                "brig.yaml:7:13: broadcast[0].config.headers.Host: is set by brig itself",
                "broadcast[0].config.headers.Host"},
        {"broadcast:\n- {name: a, type: arize, config: {apiKey: k, spaceKey: s}}\n",
                "brig.yaml:2:34: broadcast[0].config.modelId: is missing",
                "broadcast[0].config.modelId"},
        {"broadcast:\n- {name: a, type: arize, config: {apiKey_env: NO_SUCH}}\n",
                "brig.yaml:2:47: broadcast[0].config.apiKey_env: the environment variable NO_SUCH "
                "is not set",
                "broadcast[0].config.apiKey_env"},
        {"broadcast:\n- {name: a, type: arize, config: {apiKey_file: key}}\n",
                "brig.yaml:2:48: broadcast[0].config.apiKey_file: must be an absolute path",
                "broadcast[0].config.apiKey_file"},
        {"broadcast:\n- {name: a, type: arize, config: {apiKey: k, apiKey: j}}\n", "?", ""},
        {"broadcast:\n- {name: a, type: webhook, workspace: w, workspace_id: w}\n",
                "brig.yaml:2:3: broadcast[0]: has one member in two forms", "broadcast[0]"},
        {"broadcast:\n- name: a\n  type: webhook\n  config: {url: http://x}\n  sampling_rate: 2\n",
                "brig.yaml:5:18: broadcast[0].sampling_rate: must be a number from 0.0001 to 1",
                "broadcast[0].sampling_rate"},
        {"broadcast:\n- name: a\n  type: webhook\n  config: {url: http://x}\n  filter_rules:\n"
         "    groups:\n    - rules:\n      - {field: model, operator: gt, value: 1}\n",
                "brig.yaml:8:34: broadcast[0].filter_rules.groups[0].rules[0].operator: applies to "
                "numbers only",
                "broadcast[0].filter_rules.groups[0].rules[0].operator"},
        {"broadcast:\n- {name: a, type: webhook, config: {url: http://x}}\n"
         "- {name: a, type: webhook, config: {url: http://x}}\n",
                "brig.yaml:3:3: broadcast[1]: the same name as broadcast[0]", "broadcast[1]"},
        {"broadcast:\n- {name: a, type: webhook, config: {url: http://x}}\n"
         "- {name: b, type: webhook, config: {url: http://x}}\n"
         "- {name: c, type: webhook, config: {url: http://x}}\n"
         "- {name: d, type: webhook, config: {url: http://x}}\n"
         "- {name: e, type: webhook, config: {url: http://x}}\n"
         "- {name: f, type: webhook, config: {url: http://x}}\n",
                "brig.yaml:7:3: broadcast[5]: more than 5 of the type webhook", "broadcast[5]"},
        {"region: global\n", "brig.yaml:1:9: region: a server of no region has no `region`",
                "region"},
        {"region: Europe West\n", "brig.yaml:1:9: region: must be 1 to 32 of a-z, 0-9 and -",
                "region"},
        {"region: \n", "?", ""},
        /* types and bounds */
        {"workers: many\n", "brig.yaml:1:10: workers: expected a whole number, not \"many\"",
                "workers"},
        {"workers: 0\n", "brig.yaml:1:10: workers: must be from 1 to 64", "workers"},
        {"workers: -1\n", "brig.yaml:1:10: workers: expected a whole number, not \"-1\"",
                "workers"},
        {"workers: 99999999999999999999\n",
                "brig.yaml:1:10: workers: expected a whole number, not \"99999999999999999999\"",
                "workers"},
        {"workers: [1]\n", "brig.yaml:1:10: workers: expected a single value", "workers"},
        {"workers:\n", "brig.yaml:1:1: workers: expected a whole number, not \"\"", "workers"},
        {"sandbox: maybe\n",
                "brig.yaml:1:10: sandbox: expected true or false (on and off count too)",
                "sandbox"},
        {"grace: 2h\n", "brig.yaml:1:8: grace: must be from 0 to 1h", "grace"},
        {"grace: 5x\n", "brig.yaml:1:8: grace: expected a time such as 300s, 5m or 30d, not \"5x\"",
                "grace"},
        {"listen: 8484\n", "brig.yaml:1:9: listen: expected ADDRESS:PORT such as 127.0.0.1:8484",
                "listen"},
        {"listen: example.org:80\n",
                "brig.yaml:1:9: listen: \"example.org:80\" is no address; expected one such as "
                "127.0.0.1:8484 or [::1]:8484",
                "listen"},
        {"data: here\n", "brig.yaml:1:7: data: must be an absolute path", "data"},
        {"cgroups: v2\n", "brig.yaml:1:10: cgroups: expected auto or v1", "cgroups"},
        {"ids: {base: 1000}\n",
                "brig.yaml:1:13: ids.base: must be a multiple of 65536 from 1048576 to 4026335232",
                "ids.base"},
        {"container: {memory: 1x}\n",
                "brig.yaml:1:21: container.memory: expected a size such as 256m or 5g, not \"1x\"",
                "container.memory"},
        {"container: {memory: 8m}\n", "brig.yaml:1:21: container.memory: must be from 16m to 1t",
                "container.memory"},
        {"container: {memory: 16777217}\n",
                "brig.yaml:1:21: container.memory: must be whole mebibytes", "container.memory"},
        {"container: {memory: 18446744073709551615g}\n",
                "brig.yaml:1:21: container.memory: expected a size such as 256m or 5g, not "
                "\"18446744073709551615g\"",
                "container.memory"},
        {"container: {memory_allowed: [1g, 1]}\n",
                "brig.yaml:1:34: container.memory_allowed[1]: must be from 16m to 1t",
                "container.memory_allowed[1]"},
        {"container: {memory_allowed: []}\n",
                "brig.yaml:1:29: container.memory_allowed: expected 1 to 32 sizes",
                "container.memory_allowed"},
        {"container: {cpus: 0.0001}\n",
                "brig.yaml:1:19: container.cpus: expected a number such as 1 or 0.5, not "
                "\"0.0001\"",
                "container.cpus"},
        {"container: {cpus: 0.01}\n", "brig.yaml:1:19: container.cpus: must be from 0.05 to 512",
                "container.cpus"},
        {"container: {image: large}\n",
                "brig.yaml:1:20: container.image: \"large\": this version has one image, base",
                "container.image"},
        {"container: {pool: 65}\n", "brig.yaml:1:19: container.pool: must be from 0 to 64",
                "container.pool"},
        {"container: {durability: high}\n",
                "brig.yaml:1:25: container.durability: expected crash or power",
                "container.durability"},
        {"container: {saving: disk}\n", "brig.yaml:1:21: container.saving: expected image or blob",
                "container.saving"},
        {"container: {price_per_second: 1e-4}\n",
                "brig.yaml:1:31: container.price_per_second: expected dollars such as \"0.25\"",
                "container.price_per_second"},
        {"container: 5\n", "brig.yaml:1:12: container: expected a mapping (key: value)",
                "container"},
        {"limits: {tool_calls: 31}\n", "brig.yaml:1:22: limits.tool_calls: must be from 1 to 30",
                "limits.tool_calls"},
        {"limits: {timeout: 10m}\n",
                "brig.yaml:1:19: limits.timeout: timeout must not be above max_timeout",
                "limits.timeout"},
        {"limits: {max_timeout: 1s}\n",
                "brig.yaml:1:23: limits.max_timeout: timeout must not be above max_timeout",
                "limits.max_timeout"},
        {"logging: {store_content: 7}\n",
                "brig.yaml:1:26: logging.store_content: expected true or false (on and off "
                "count too)",
                "logging.store_content"},
        {"logging: {stored: off}\n", "brig.yaml:1:11: logging: unknown key \"stored\"", "logging"},
        {"container: {keep_days: 0}\n",
                "brig.yaml:1:24: container.keep_days: must be from 1 to 36500",
                "container.keep_days"},
        /* keys of clients */
        {"keys: []\n", "brig.yaml:1:7: keys: is empty; without this list one key is made", "keys"},
        {"keys: [{key: aaaaaaaaaaaaaaaa, admin: 7}]\n",
                "brig.yaml:1:39: keys[0].admin: expected true or false (on and off count too)",
                "keys[0].admin"},
        {"keys: [{account: a}]\n", "brig.yaml:1:8: keys[0]: key is missing", "keys[0]"},
        {"keys: [{key: short}]\n",
                "brig.yaml:1:14: keys[0].key: must be 16 to 4096 printable ASCII characters, no "
                "spaces",
                "keys[0].key"},
        {"keys:\n- key: aaaaaaaaaaaaaaaa\n- key: aaaaaaaaaaaaaaaa\n",
                "brig.yaml:3:3: keys[1]: the same key as keys[0]", "keys[1]"},
        {"keys: [{key: aaaaaaaaaaaaaaaa, limit: -1}]\n",
                "brig.yaml:1:39: keys[0].limit: expected dollars such as \"25\" or \"0.50\"",
                "keys[0].limit"},
        {"keys: [{key: aaaaaaaaaaaaaaaa, limit_reset: daily}]\n",
                "brig.yaml:1:8: keys[0]: limit_reset is given without limit", "keys[0]"},
        {"keys: [{key: aaaaaaaaaaaaaaaa, limit: 1, limit_reset: yearly}]\n",
                "brig.yaml:1:55: keys[0].limit_reset: is daily, weekly or monthly; without it a "
                "limit is for all time",
                "keys[0].limit_reset"},
        {"keys: [{key: aaaaaaaaaaaaaaaa, expires_at: soon}]\n",
                "brig.yaml:1:44: keys[0].expires_at: expected a time such as "
                "2027-01-31T18:00:00Z, or a date",
                "keys[0].expires_at"},
        {"keys: [{key: aaaaaaaaaaaaaaaa, disabled_server_tools: [shell, web]}]\n",
                "brig.yaml:1:63: keys[0].disabled_server_tools[1]: is shell, bash, exec or "
                "code_execution",
                "keys[0].disabled_server_tools[1]"},
        {"keys: [{key: aaaaaaaaaaaaaaaa, requests_per_minute: 0}]\n",
                "brig.yaml:1:53: keys[0].requests_per_minute: must be from 1 to 1000000",
                "keys[0].requests_per_minute"},
        {"keys: [{key: aaaaaaaaaaaaaaaa, workspace: a/b}]\n",
                "brig.yaml:1:43: keys[0].workspace: may hold letters, digits, _ and - only",
                "keys[0].workspace"},
        /* providers */
        {"providers:\n",
                "brig.yaml:1:1: providers: is empty; leave it out to take providers from the "
                "environment",
                "providers"},
        {"providers: {}\n", "brig.yaml:1:12: providers: expected a list", "providers"},
        {"providers: [{dialect: script}]\n", "brig.yaml:1:13: providers[0]: name is missing",
                "providers[0]"},
        {"providers: [{name: a}]\n", "brig.yaml:1:13: providers[0]: dialect is missing",
                "providers[0]"},
        {"providers: [{name: a, dialect: openai-chat}]\n",
                "brig.yaml:1:13: providers[0]: base_url is missing", "providers[0]"},
        {"providers: [{name: A, dialect: script}]\n",
                "brig.yaml:1:20: providers[0].name: may hold small letters, digits and - only",
                "providers[0].name"},
        {"providers: [{name: brig, dialect: script}]\n",
                "brig.yaml:1:20: providers[0].name: \"brig\" is built in; take another name",
                "providers[0].name"},
        {"providers: [{name: a, dialect: chat}]\n",
                "brig.yaml:1:32: providers[0].dialect: expected openai-responses, openai-chat, "
                "anthropic, gemini or script",
                "providers[0].dialect"},
        {"providers: [{name: a, dialect: script, base_url: http://x}]\n",
                "brig.yaml:1:13: providers[0]: dialect script has no base_url and no key",
                "providers[0]"},
        {"providers: [{name: a, dialect: script}, {name: a, dialect: script}]\n",
                "brig.yaml:1:41: providers[1]: the same name as providers[0]: a", "providers[1]"},
        {"providers: [{name: a, dialect: openai-chat, base_url: ftp://x}]\n",
                "brig.yaml:1:55: providers[0].base_url: must begin with http:// or https://",
                "providers[0].base_url"},
        {"providers: [{name: a, dialect: openai-chat, base_url: 'http://u:p@x'}]\n",
                "brig.yaml:1:55: providers[0].base_url: must hold no user or password; use api_key",
                "providers[0].base_url"},
        {"providers: [{name: a, dialect: openai-chat, base_url: 'http:///v1'}]\n",
                "brig.yaml:1:55: providers[0].base_url: has no host", "providers[0].base_url"},
        {"providers: [{name: a, dialect: openai-chat, base_url: 'http://x/v1?a=b'}]\n",
                "brig.yaml:1:55: providers[0].base_url: must end before any ? or #",
                "providers[0].base_url"},
        {P ", api_key: k, api_key_env: E}]\n",
                "brig.yaml:1:90: providers[0].api_key_env: only one of api_key, api_key_env and "
                "api_key_file",
                "providers[0].api_key_env"},
        {P ", api_key_env: NOT_SET}]\n",
                "brig.yaml:1:78: providers[0].api_key_env: the environment variable NOT_SET is not "
                "set",
                "providers[0].api_key_env"},
        {P ", api_key_file: /none}]\n",
                "brig.yaml:1:79: providers[0].api_key_file: /none: No such file or directory",
                "providers[0].api_key_file"},
        {P ", api_key_file: key}]\n",
                "brig.yaml:1:79: providers[0].api_key_file: must be an absolute path",
                "providers[0].api_key_file"},
        {P ", api_key: 'a b'}]\n",
                "brig.yaml:1:74: providers[0].api_key: the key must be 1 to 4096 printable ASCII "
                "characters, no spaces",
                "providers[0].api_key"},
        {P ", native_tools: [bash]}]\n",
                "brig.yaml:1:80: providers[0].native_tools[0]: expected shell",
                "providers[0].native_tools[0]"},
        {P ", native_tools: [shell, shell]}]\n",
                "brig.yaml:1:79: providers[0].native_tools: expected at most one entry: shell",
                "providers[0].native_tools"},
        {P ", prices: {m: {input: 1}}}]\n",
                "brig.yaml:1:77: providers[0].prices.m: input and output are needed",
                "providers[0].prices.m"},
        {P ", prices: {m: {input: -1, output: 1}}}]\n",
                "brig.yaml:1:85: providers[0].prices.m.input: expected dollars such as \"0.25\"",
                "providers[0].prices.m.input"},
        /* models */
        {"models: [{name: x}]\n", "brig.yaml:1:10: models[0]: route is missing", "models[0]"},
        {"models: [{name: x, route: []}]\n",
                "brig.yaml:1:27: models[0].route: expected 1 to 16 entries provider/model",
                "models[0].route"},
        {"models: [{name: x, route: [m]}]\n",
                "brig.yaml:1:28: models[0].route[0]: expected provider/model, not \"m\"",
                "models[0].route[0]"},
        {"models: [{name: x, route: [q/m]}]\n",
                "brig.yaml:1:28: models[0].route[0]: there is no provider \"q\"",
                "models[0].route[0]"},
        {"models: [{name: x, route: [brig/script, brig/script]}]\n",
                "brig.yaml:1:41: models[0].route[1]: a script is no model and never a fallback",
                "models[0].route[1]"},
        {"models: [{name: x, route: [brig/script]}, {name: x, route: [brig/script]}]\n",
                "brig.yaml:1:43: models[1]: the same name as models[0]: x", "models[1]"},
};

static void test_messages(void **state)
{
	struct config *c;
	struct error err;
	size_t i, failed = 0;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		c = NULL;
		memset(&err, 0, sizeof(err));
		if (load(cases[i].text, &c, &err) == 0) {
			print_error("accepted: %s\n", cases[i].text);
			config_free(c);
			failed++;
			continue;
		}
		/* libfyaml's own words may change; that they come with a place may not. */
		if (strcmp(cases[i].message, "?") == 0) {
			int line, column, n = 0;

			if (sscanf(err.text, "brig.yaml:%d:%d: %n", &line, &column, &n) != 2 ||
			        n == 0 || !err.text[n]) {
				print_error("no place in: %s\n", err.text);
				failed++;
			}
			continue;
		}
		if (strcmp(err.text, cases[i].message) != 0 ||
		        strcmp(err.param, cases[i].param) != 0) {
			print_error("file:     %sgot:      %s (%s)\nexpected: %s (%s)\n",
			        cases[i].text, err.text, err.param, cases[i].message,
			        cases[i].param);
			failed++;
		}
	}
	assert_int_equal(failed, 0);
}

static void expect_error(const char *text, size_t n, const char *message)
{
	struct config *c = NULL;
	struct error err = {0};

	assert_int_equal(load_with(text, n, NULL, NULL, &c, &err), -ERR_INVALID);
	assert_null(c);
	if (message)
		assert_string_equal(err.text, message);
}

static void test_nul(void **state)
{
	expect_error("workers: 1\n\0", 12, "brig.yaml:2:1: a NUL character");
	expect_error("data: \"/a\\0b\"\n", 14, "brig.yaml:1:7: a NUL character in a value");
}

/* Texts made to cost much: each is refused, in memory and time that the text's length bounds. */
static void test_bombs(void **state)
{
	struct buf b = BUF_INIT(4 << 20);
	int i;

	for (i = 0; i < 1000000; i++)
		buf_putc(&b, '[');
	expect_error(b.data, b.len, NULL);
	buf_reset(&b);
	for (i = 0; i < 500000; i++)
		buf_puts(&b, "- ");
	expect_error(b.data, b.len, NULL);
	buf_reset(&b);
	buf_puts(&b, "a: [");
	for (i = 0; i < 70000; i++)
		buf_puts(&b, "1,");
	buf_puts(&b, "]\n");
	expect_error(b.data, b.len, "brig.yaml:1:8197: more than 4096 entries");
	buf_reset(&b);
	buf_puts(&b, "a: &x [1,1,1,1,1,1,1,1,1]\nb: &y [*x,*x,*x,*x,*x,*x,*x,*x,*x]\n");
	expect_error(b.data, b.len, "brig.yaml:1:7: anchors are not used here");
	buf_reset(&b);
	for (i = 0; i < 40000; i++)
		buf_printf(&b, "k%d: 1\n", i);
	expect_error(b.data, b.len, "brig.yaml:4097:8: more than 4096 entries");
	buf_reset(&b);
	for (i = 0; i < (1 << 20) + 1; i++)
		buf_putc(&b, '#');
	expect_error(b.data, b.len, "brig.yaml: more than 1048576 bytes");
	buf_free(&b);
}

static void test_env(void **state)
{
	static const struct {
		struct pair env[2];
		const char *message;
	} bad[] = {
	        {{{"OLLAMA_HOST", "http://a b"}, {0}},
	                "OLLAMA_HOST in the environment is no address of a server"},
	        {{{"OLLAMA_HOST", "u@h"}, {0}},
	                "OLLAMA_HOST in the environment is no address of a server"},
	        {{{"OPENAI_API_KEY", "a\r\nb"}, {0}},
	                "OPENAI_API_KEY in the environment must be printable ASCII without spaces"},
	};
	struct config *c = NULL;
	struct error err;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(load_with(NULL, 0, bad[i].env, NULL, &c, &err), -ERR_INVALID);
		assert_string_equal(err.text, bad[i].message);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_messages),
	        cmocka_unit_test(test_nul),
	        cmocka_unit_test(test_bombs),
	        cmocka_unit_test(test_env),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
