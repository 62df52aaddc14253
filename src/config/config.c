/*
 * Theory of operation
 *
 * Defaults first, then the file over them, then what one value means for another (memory_allowed
 * holds memory, max_timeout is not below timeout, routes name providers that exist). The rows below
 * are the only place that knows names, bounds and defaults. Lists of providers, keys and models are
 * in sections.c.
 */
#include "config/config.h"

#include "base/id.h"
#include "config/fields.h"
#include "config/sections.h"
#include "trace/trace.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#define K (1ULL << 10)
#define M (1ULL << 20)
#define G (1ULL << 30)
#define T (1ULL << 40)

#define SECOND 1000ULL
#define HOUR   (3600 * SECOND)
#define DAY    (24 * HOUR)

/* Memory of the tree: 65,536 nodes and the texts. */
#define TREE_MAX (16 * M)

static int read_image(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_container *c = target;
	char *text = NULL;
	int r;

	r = field_read_text(l, n, 64, &text);
	if (r < 0)
		return r;
	if (strcmp(text, "base") != 0)
		r = loader_error(l, n, "\"%.40s\": this version has one image, base", text);
	if (r < 0) {
		free(text);
		return r;
	}
	free(c->image);
	c->image = text;
	return 0;
}

static int read_memory_allowed(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_container *c = target;
	const struct yaml_node *m;
	uint32_t *list;
	size_t i = 0, mark;
	int r;

	r = field_expect(l, n, YAML_SEQUENCE);
	if (r < 0)
		return r;
	if (n->n == 0 || n->n > 32)
		return loader_error(l, n, "expected 1 to 32 sizes");
	list = mem_array(n->n, sizeof(*list));
	for (m = n->first; r == 0 && m; m = m->next, i++) {
		mark = loader_enter_index(l, i);
		r = field_read_mib(l, m, 16 * M, T, &list[i]);
		loader_leave(l, mark);
	}
	if (r < 0) {
		free(list);
		return r;
	}
	free(c->memory_allowed_mib);
	c->memory_allowed_mib = list;
	c->n_memory_allowed = n->n;
	return 0;
}

static int read_durability(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_container *c = target;

	if (n->type == YAML_SCALAR && strcmp(n->text, "power") == 0)
		c->durable_power = true;
	else if (n->type == YAML_SCALAR && strcmp(n->text, "crash") == 0)
		c->durable_power = false;
	else
		return loader_error(l, n, "expected crash or power");
	return 0;
}

static int read_saving(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_container *c = target;

	if (n->type == YAML_SCALAR && strcmp(n->text, "blob") == 0)
		c->save_to_blob = true;
	else if (n->type == YAML_SCALAR && strcmp(n->text, "image") == 0)
		c->save_to_blob = false;
	else
		return loader_error(l, n, "expected image or blob");
	return 0;
}

#define AT(member) offsetof(struct config_container, member)
static const struct field container_fields[] = {
        {"image", FIELD_CUSTOM, 0, 0, 0, "base", "root file system", read_image},
        {"memory", FIELD_MIB, AT(memory_mib), 16 * M, T, "1g", "of one container", NULL},
        {"memory_allowed", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_memory_allowed},
        {"cpus", FIELD_MILLI, AT(cpu_milli), 50, 512000, "1", "processors, such as 0.5 or 2", NULL},
        {"home", FIELD_MIB, AT(home_mib), 16 * M, 16 * T, "5g", "files that outlive sleep", NULL},
        {"scratch", FIELD_MIB, AT(scratch_mib), 16 * M, 16 * T, "4g",
                "everything else it writes, gone at sleep", NULL},
        {"processes", FIELD_COUNT, AT(processes), 16, 32768, "512", "processes and threads", NULL},
        {"live", FIELD_COUNT, AT(live), 0, 4096, "0", "live at once; 0: as many as memory suggests",
                NULL},
        {"pool", FIELD_COUNT, AT(pool), 0, 64, "4",
                "made ahead of use, of live at most a quarter; 0: none", NULL},
        {"sleep_after", FIELD_MS, AT(sleep_after_ms), 0, 31 * DAY, "300s",
                "without a command; 0: never", NULL},
        {"keep_days", FIELD_COUNT, AT(keep_days), 1, 36500, "30",
                "without use, then it is deleted with its files", NULL},
        {"durability", FIELD_CUSTOM, 0, 0, 0, "crash",
                "crash: files survive brig's death; power: the machine's too", read_durability},
        {"saving", FIELD_CUSTOM, 0, 0, 0, "image",
                "image: only in the home's image here; blob: saved to blobs too", read_saving},
        {"price_per_second", FIELD_MONEY, AT(price_per_second), 0, 0, "0.0001", "dollars", NULL},
};
#undef AT

#define AT(member) offsetof(struct config_limits, member)
static const struct field limit_fields[] = {
        {"body", FIELD_BYTES, AT(body_bytes), 64 * K, G, "64m", "a request's body, decoded", NULL},
        {"in_flight", FIELD_BYTES, AT(in_flight_bytes), 64 * M, T, "1g",
                "memory of all bodies in work", NULL},
        {"connections", FIELD_COUNT, AT(connections), 8, 1000000, "16384", "clients of one worker",
                NULL},
        {"client_stall", FIELD_MS, AT(client_stall_ms), 1, DAY, "120s",
                "a client that takes nothing for so long is gone", NULL},
        {"keepalive", FIELD_MS, AT(keepalive_ms), 50, HOUR, "10s",
                "between signs of life on a silent stream", NULL},
        {"websocket", FIELD_MS, AT(websocket_ms), SECOND, DAY, "3600s",
                "a WebSocket connection; a response that runs then is finished", NULL},
        {"turn", FIELD_MS, AT(turn_ms), SECOND, DAY, "3600s", "a whole request", NULL},
        {"turn_unstreamed", FIELD_MS, AT(turn_unstreamed_ms), SECOND, DAY, "540s",
                "a whole request that is not streamed", NULL},
        {"tool_calls", FIELD_COUNT, AT(tool_calls), 1, 30, "30", "server-tool calls in one request",
                NULL},
        {"commands", FIELD_COUNT, AT(commands), 1, 100, "100", "in one shell call", NULL},
        {"timeout", FIELD_MS32, AT(timeout_ms), 1, DAY, "120s", "of a command, where none is given",
                NULL},
        {"max_timeout", FIELD_MS32, AT(max_timeout_ms), 1, DAY, "300s",
                "of a command; more is lowered to it", NULL},
        {"output_chars", FIELD_COUNT, AT(output_chars), 64, 1048576, "16384",
                "kept of stdout and of stderr, where no number is given", NULL},
        {"max_output_chars", FIELD_COUNT, AT(max_output_chars), 64, 1048576, "65536",
                "kept of each; more is lowered to it", NULL},
        {"call_output", FIELD_BYTES32, AT(call_output_bytes), 4 * K, 64 * M, "1m",
                "kept of one call, over all its commands", NULL},
        {"turn_output", FIELD_BYTES32, AT(turn_output_bytes), 4 * K, G, "16m",
                "kept of one request", NULL},
        {"capacity_wait", FIELD_MS, AT(capacity_wait_ms), 0, 60 * SECOND, "10s",
                "for room when every container is busy", NULL},
        {"workspace_live", FIELD_COUNT, AT(workspace_live), 0, 4096, "0",
                "live containers of one workspace; 0: no limit of its own", NULL},
        {"file", FIELD_BYTES, AT(file_bytes), 1, 64 * G, "100m", "one uploaded or promoted file",
                NULL},
        {"workspace_files", FIELD_BYTES, AT(workspace_files_bytes), 0, 1024 * T, "10g",
                "all files of one workspace, those in containers not counted", NULL},
        {"response", FIELD_BYTES, AT(response_bytes), 4 * K, G, "32m",
                "of one stored response with its input; a larger one is not stored", NULL},
        {"workspace_responses", FIELD_BYTES, AT(workspace_responses_bytes), M, 1024 * T, "1g",
                "all stored responses of one workspace; the oldest make room", NULL},
        {"response_events", FIELD_BYTES, AT(response_events_bytes), 256 * K, G, "16m",
                "of one that streams in the background; the oldest make room", NULL},
        {"idempotent_answer", FIELD_BYTES, AT(idempotent_bytes), 4 * K, G, "16m",
                "of an answer that is kept for its Idempotency-Key", NULL},
        {"workspace_idempotent", FIELD_BYTES, AT(workspace_idempotent_bytes), M, 1024 * T, "256m",
                "of all those of one workspace; the oldest make room", NULL},
        {"broadcast_rows", FIELD_COUNT, AT(broadcast_rows), 1, 10000000, "100000",
                "waiting for one destination of traces; then the oldest go", NULL},
        {"responses_kept", FIELD_MS, AT(responses_kept_ms), SECOND, 3650 * (uint64_t)DAY, "30d",
                "stored responses", NULL},
        {"upstream_connect", FIELD_MS, AT(upstream_connect_ms), 1, HOUR, "10s",
                "to reach a provider", NULL},
        {"upstream_first_byte", FIELD_MS, AT(upstream_first_byte_ms), 1, DAY, "600s",
                "until its answer begins", NULL},
        {"upstream_idle", FIELD_MS, AT(upstream_idle_ms), 1, DAY, "120s",
                "between two pieces of its answer", NULL},
        {"upstream_retries", FIELD_COUNT, AT(upstream_retries), 0, 10, "2",
                "of one provider in one call, after a failure that may pass", NULL},
        {"upstream_retry_wait", FIELD_MS, AT(upstream_retry_wait_ms), 0, HOUR, "10s",
                "that one call waits for retries, at most", NULL},
        {"upstream_failures", FIELD_COUNT, AT(upstream_failures), 0, 1000, "5",
                "in a row, then a provider is left alone; 0: never", NULL},
        {"upstream_rest", FIELD_MS, AT(upstream_rest_ms), 1, DAY, "15s",
                "for so long, before one call tries it", NULL},
};
#undef AT

static int read_container(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;

	return fields_read(l, n, container_fields, sizeof(container_fields) / sizeof(struct field),
	        &c->container);
}

static int read_limits(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;

	return fields_read(
	        l, n, limit_fields, sizeof(limit_fields) / sizeof(struct field), &c->limits);
}

/* Ids up to the last lease must fit, and the lowest are people's. */
static int read_id_base(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;
	uint64_t base;

	if (n->type != YAML_SCALAR || !str_to_u64((struct str){n->text, n->text_len}, &base))
		return loader_error(l, n, "expected a whole number");
	if (base % 65536 != 0 || base < 16 * 65536 || base > 61437ULL * 65536)
		return loader_error(l, n, "must be a multiple of 65536 from 1048576 to 4026335232");
	c->id_base = (uint32_t)base;
	return 0;
}

static int read_ids(struct loader *l, const struct yaml_node *n, void *target)
{
	static const struct field fields[] = {
	        {"base", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_id_base},
	};

	return fields_read(l, n, fields, 1, target);
}

static int read_logging(struct loader *l, const struct yaml_node *n, void *target)
{
	static const struct field fields[] = {
	        {"store_content", FIELD_BOOL, offsetof(struct config, store_content), 0, 0, NULL,
	                NULL, NULL},
	        {"keep_days", FIELD_COUNT, offsetof(struct config, log_days), 1, 36500, "90",
	                "records of requests, and what they hold", NULL},
	};

	return fields_read(l, n, fields, 2, target);
}

static int read_cgroups(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;

	if (n->type == YAML_SCALAR && strcmp(n->text, "v1") == 0)
		c->cgroup_v1 = true;
	else if (n->type == YAML_SCALAR && strcmp(n->text, "auto") == 0)
		c->cgroup_v1 = false;
	else
		return loader_error(l, n, "expected auto or v1");
	return 0;
}

int config_parse_listen(const char *text, char **ret_host, uint16_t *ret_port, struct error *err)
{
	unsigned char address[16];
	const char *colon = strrchr(text, ':');
	struct str host;
	uint64_t port;
	char name[64];
	bool v6;

	if (!colon || !str_to_u64(str_of(colon + 1), &port) || port > 65535)
		return error_set(err, ERR_INVALID, "expected ADDRESS:PORT such as 127.0.0.1:8484");
	host = (struct str){text, (size_t)(colon - text)};
	v6 = host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']';
	if (v6)
		host = (struct str){host.p + 1, host.n - 2};
	if (str_is(host, "localhost"))
		host = STR("127.0.0.1");
	if (!str_copy(name, sizeof(name), host) ||
	        inet_pton(v6 ? AF_INET6 : AF_INET, name, address) != 1)
		return error_set(err, ERR_INVALID,
		        "\"%.60s\" is no address; expected one such as 127.0.0.1:8484 or "
		        "[::1]:8484",
		        text);
	*ret_host = mem_strdup(name);
	*ret_port = (uint16_t)port;
	return 0;
}

static int read_listen(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;
	struct error err = {0};
	char *host = NULL;
	int r;

	r = field_expect(l, n, YAML_SCALAR);
	if (r < 0)
		return r;
	if (config_parse_listen(n->text, &host, &c->listen_port, &err) < 0)
		return loader_error(l, n, "%s", err.text);
	free(c->listen_host);
	c->listen_host = host;
	return 0;
}

static int read_data(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;
	char *text = NULL;
	int r;

	r = field_read_text(l, n, 3500, &text);
	if (r < 0)
		return r;
	if (text[0] != '/') {
		free(text);
		return loader_error(l, n, "must be an absolute path");
	}
	free(c->data);
	c->data = text;
	return 0;
}

/* Named as destinations of broadcasts name theirs; `global` is what a server without one is. */
static int read_region(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;
	char *text = NULL;
	int r = field_read_text(l, n, 32, &text);

	if (r < 0)
		return r;
	if (!str_in_set(str_of(text), "abcdefghijklmnopqrstuvwxyz0123456789-")) {
		free(text);
		return loader_error(l, n, "must be 1 to 32 of a-z, 0-9 and -");
	}
	if (strcmp(text, "global") == 0) {
		free(text);
		return loader_error(l, n, "a server of no region has no `region`");
	}
	free(c->region);
	c->region = text;
	return 0;
}

#define AT(member) offsetof(struct config, member)
static const struct field root_fields[] = {
        {"listen", FIELD_CUSTOM, 0, 0, 0, "127.0.0.1:8484",
                "address and port; port 0: any free one", read_listen},
        {"workers", FIELD_COUNT, AT(workers), 1, 64, "1", "gateway processes", NULL},
        {"sandbox", FIELD_BOOL, AT(sandbox), 0, 0, "on", "off: no shell; needs no root then", NULL},
        {"grace", FIELD_MS, AT(grace_ms), 0, HOUR, "30s", "for running requests when asked to stop",
                NULL},
        {"cgroups", FIELD_CUSTOM, 0, 0, 0, "auto", "v1: use the v1 tree on a hybrid host",
                read_cgroups},
        {"data", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_data},
        {"keys", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, section_keys},
        {"providers", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, section_providers},
        {"models", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, section_models},
        {"container", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_container},
        {"limits", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_limits},
        {"egress", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, section_egress},
        {"ids", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_ids},
        {"logging", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_logging},
        {"region", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_region},
        {"guardrails", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, section_guardrails},
        {"broadcast", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, section_broadcast},
};
#undef AT

#define N_ROOT      (sizeof(root_fields) / sizeof(struct field))
#define N_CONTAINER (sizeof(container_fields) / sizeof(struct field))
#define N_LIMIT     (sizeof(limit_fields) / sizeof(struct field))

#define ID_BASE 1879048192U

static void set_defaults(struct loader *l)
{
	struct config *c = l->c;

	c->store_content = true;
	c->log_days = 90;
	c->id_base = ID_BASE;
	fields_preset(l, root_fields, N_ROOT, c);
	fields_preset(l, container_fields, N_CONTAINER, &c->container);
	fields_preset(l, limit_fields, N_LIMIT, &c->limits);
	section_preset_egress(l);
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The default memory is always allowed; the list ends sorted. */
static void complete_memory(struct config_container *c)
{
	uint32_t *list;
	size_t i;

	for (i = 0; i < c->n_memory_allowed; i++)
		if (c->memory_allowed_mib[i] == c->memory_mib)
			break;
	if (i == c->n_memory_allowed) {
		list = mem_array(i + 1, sizeof(*list));
		if (i > 0)
			memcpy(list, c->memory_allowed_mib, i * sizeof(*list));
		list[i] = c->memory_mib;
		free(c->memory_allowed_mib);
		c->memory_allowed_mib = list;
		c->n_memory_allowed = i + 1;
	}
	qsort(c->memory_allowed_mib, c->n_memory_allowed, sizeof(*list), by_size);
}

/* Two settings that must agree; the error stands at the one that was written. */
static int check_order(struct loader *l, const struct yaml_node *root, const char *low,
        const char *high, uint64_t low_value, uint64_t high_value)
{
	const struct yaml_node *limits = yaml_get(root, "limits"), *at;
	size_t mark;
	int r;

	if (low_value <= high_value)
		return 0;
	at = yaml_get(limits, low);
	mark = loader_enter(l, "limits");
	loader_enter(l, at ? low : high);
	if (!at)
		at = yaml_get(limits, high);
	r = loader_error(l, at ? at : root, "%s must not be above %s", low, high);
	loader_leave(l, mark);
	return r;
}

static int check_whole(struct loader *l, const struct yaml_node *root)
{
	const struct config_limits *m = &l->c->limits;
	int r;

	r = check_order(l, root, "timeout", "max_timeout", m->timeout_ms, m->max_timeout_ms);
	if (r == 0)
		r = check_order(l, root, "output_chars", "max_output_chars", m->output_chars,
		        m->max_output_chars);
	if (r == 0)
		r = check_order(l, root, "body", "in_flight", m->body_bytes, m->in_flight_bytes);
	if (r == 0)
		r = section_check_routes(l, yaml_get(root, "models"));
	return r;
}

static int load_tree(struct loader *l, const struct yaml_node *root)
{
	int r;

	r = fields_read(l, root, root_fields, N_ROOT, l->c);
	if (r < 0)
		return r;
	if (!yaml_get(root, "providers")) {
		r = section_providers_from_env(l);
		if (r < 0)
			return r;
	}
	section_add_builtin(l->c);
	complete_memory(&l->c->container);
	return check_whole(l, root);
}

int config_load(const struct config_source *src, struct config **ret, struct error *err)
{
	struct config_source named = *src;
	struct loader l = {.src = &named, .err = err};
	struct yaml_node *root = NULL;
	int r;

	l.arena = arena_new(TREE_MAX);
	if (!l.arena)
		return error_set(err, ERR_NOMEM, "no memory");
	l.c = mem_alloc(sizeof(*l.c));
	set_defaults(&l);
	if (!named.name)
		named.name = "brig.yaml";
	r = yaml_parse(named.text.p ? named.text : STR(""), named.name, l.arena, &root, err);
	if (r == 0)
		r = load_tree(&l, root);
	arena_free(l.arena);
	if (r < 0) {
		config_free(l.c);
		return r;
	}
	*ret = l.c;
	return 0;
}

struct config *config_free(struct config *c)
{
	size_t i;

	if (!c)
		return NULL;
	free(c->listen_host);
	free(c->data);
	free(c->region);
	free(c->container.image);
	free(c->container.memory_allowed_mib);
	for (i = 0; i < c->n_keys; i++)
		section_free_key(&c->keys[i]);
	section_free_egress(&c->egress);
	free(c->keys);
	for (i = 0; i < c->n_providers; i++)
		section_free_provider(&c->providers[i]);
	free(c->providers);
	for (i = 0; i < c->n_models; i++)
		section_free_model(&c->models[i]);
	free(c->models);
	for (i = 0; i < c->n_guardrails; i++)
		config_guardrail_clear(&c->guardrails[i]);
	free(c->guardrails);
	for (i = 0; i < c->n_broadcast; i++)
		trace_destination_free(c->broadcast[i]);
	free(c->broadcast);
	free(c);
	return NULL;
}

static const char example_head[] = "# brig.yaml: every setting with its default. A line that "
                                   "begins with #name: is an example.\n"
                                   "# Sizes: 256m, 5g. Times: seconds, or 300s, 5m, 12h, 30d.\n"
                                   "\n";

static const char example_lists[] =
        "\n"
        "# Files, keys and sockets of this server. As root /var/lib/brig, else "
        "~/.local/state/brig.\n"
        "#data: /var/lib/brig\n"
        "\n"
        "# Who may ask. Without this list there is one key, in the file `key` of the data folder.\n"
        "# A key may have limits of its own (docs/keys.md). More are made with `brig keys create`.\n"
        "#keys:\n"
        "#- key: at-least-16-letters\n"
        "#  account: default\n"
        "#  workspace: default\n"
        "#  admin: off                    # may manage keys and workspaces of its account\n"
        "#  name: the-teams-own\n"
        "#  requests_per_minute: 600\n"
        "#  containers_at_once: 10\n"
        "#  limit: \"50\"                   # dollars\n"
        "#  limit_reset: monthly          # or daily, weekly; without it the limit is for all time\n"
        "#  expires_at: 2027-12-31T00:00:00Z\n"
        "#  disabled_server_tools: [bash] # of shell, bash, exec and code_execution\n"
        "\n"
        "# Who answers. dialect: openai-responses, openai-chat, anthropic or gemini. base_url is "
        "what\n"
        "# stands before /responses, /chat/completions, /messages or /models. The key comes from "
        "one of\n"
        "# api_key, api_key_env (a variable) and api_key_file. Prices are dollars for a million "
        "tokens.\n"
        "# native_tools: [shell] lets an openai-responses provider run OpenAI's shell itself; at "
        "OpenAI's\n"
        "# own address that is so unless [] is given.\n"
        "# Without this list: each vendor whose key is in OPENAI_API_KEY, ANTHROPIC_API_KEY,\n"
        "# GEMINI_API_KEY or OPENROUTER_API_KEY, and the server that OLLAMA_HOST names.\n"
        "#providers:\n"
        "#- name: local\n"
        "#  dialect: openai-chat\n"
        "#  base_url: http://127.0.0.1:8000/v1\n"
        "#  api_key: not-needed-by-most\n"
        "#  prices: {qwen3-32b: {input: \"0.10\", output: \"0.30\", cached: \"0.01\"}}\n"
        "\n"
        "# Names of your own, each with a list of what to try in order.\n"
        "#models: [{name: fast, route: [local/qwen3-32b]}]\n"
        "\n";

int config_write_example(struct buf *out)
{
	buf_puts(out, example_head);
	fields_write(out, root_fields, N_ROOT, 0);
	buf_puts(out, example_lists);
	buf_puts(out, "container:\n");
	fields_write(out, container_fields, N_CONTAINER, 2);
	buf_puts(out, "  # What a request may ask for besides.\n  #memory_allowed: [1g, "
	              "4g]\n\nlimits:\n");
	fields_write(out, limit_fields, N_LIMIT, 2);
	buf_puts(out,
	        "\n"
	        "# What containers with an allowlist may reach. allow: names and patterns within "
	        "which every\n"
	        "# request's must lie; none: any. deny wins over all. allow_private: names may "
	        "resolve to private\n"
	        "# and loopback addresses. A key may have egress_allow of its own: its requests "
	        "must "
	        "lie within both.\n"
	        "egress:\n"
	        "  allow: []\n"
	        "  deny: []\n"
	        "  allow_private: off\n");
	section_write_egress(out);
	buf_puts(out,
	        "\n"
	        "# What requests are scanned for before a provider sees them; actions are block, "
	        "redact and flag\n"
	        "# (docs/guardrails.md). Without workspace: for all of them.\n"
	        "#guardrails:\n"
	        "#- name: everybody\n"
	        "#  workspace: default\n"
	        "#  content_filter_builtins:\n"
	        "#  - {slug: email, action: redact}\n"
	        "#  - {slug: regex-prompt-injection, action: block}\n"
	        "#  content_filters:\n"
	        "#  - {pattern: 'ACME-[0-9]{6}', label: customer, action: redact, placeholder: "
	        "'[CUSTOMER]'}\n"
	        "#  allow: [\"ignore all previous instructions is what attackers write\"]\n"
	        "#  allowed_providers: [local]\n");
	buf_puts(out,
	        "\n"
	        "# Where traces of requests go (docs/broadcast.md). A member of config may come from a "
	        "variable or a\n"
	        "# file: apiKey_env, apiKey_file. Without workspace: of all of them.\n"
	        "#broadcast:\n"
	        "#- name: collector\n"
	        "#  type: otel-collector\n"
	        "#  config: {endpoint: \"http://127.0.0.1:4318\"}\n"
	        "#- name: langfuse\n"
	        "#  type: langfuse\n"
	        "#  workspace: default\n"
	        "#  privacy_mode: on\n"
	        "#  sampling_rate: 0.1\n"
	        "#  config: {publicKey: pk-lf-1, secretKey: sk-lf-1, baseUrl: "
	        "\"https://cloud.langfuse.com\"}\n");
	buf_printf(out,
	        "\n"
	        "# off: what is said to models and by them is stored nowhere, and no response can "
	        "be gone on\n"
	        "# from by its id.\n"
	        "logging:\n"
	        "  store_content: on\n"
	        "  keep_days: 90   # records of requests, and what they hold\n"
	        "\n"
	        "# Where data must stay: sandboxes, and providers' own, are refused, and no "
	        "content is\n"
	        "# stored (docs/operations.md).\n"
	        "#region: europe\n"
	        "\n"
	        "# Numeric ids of the gateway, of stored files and of sandboxes: this one and up "
	        "to 300 million\n"
	        "# above it, with no accounts of their own. Nothing else may use them.\n"
	        "ids:\n"
	        "  base: %u\n",
	        ID_BASE);
	return buf_error(out);
}
