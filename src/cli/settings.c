/*
 * Theory of operation
 *
 * libfyaml never runs as root. settings_load forks; the child gives up everything, parses, and
 * talks with us over a socketpair, one datagram a message:
 *
 *   child → root   ASK_ENV name     "my file names this variable": we note its value
 *   child → root   ASK_FILE path    "my file names this key file": we read it, see that it looks
 * like a key root → child   struct answer    whether that worked; never the secret itself child →
 * root   ASK_ERROR text   the end: what is wrong with the file child → root   struct
 * settings_values, the end: fixed-layout numbers and names, checked once more here
 *
 * What we noted becomes a list of records, handed to each gateway in a sealed memfd; the gateway,
 * without privileges too, parses the same text with the same secrets. A child that was taken over
 * by a hostile file can name variables and files of its choice, but only what looks like a key is
 * read, and it never sees it.
 */
#include "cli/settings.h"

#include "base/buf.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/drop.h"
#include "config/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	MAX_ASKED = 64,
	MAX_SECRET = 4096,
	N_LEASES = 4096,
	PARSE_SECONDS = 20,
	BLOB_MAX = 4 * 1024 * 1024,
	NOBODY = 65534,
};

enum ask_type { ASK_ENV = 1, ASK_FILE, ASK_ERROR };

struct ask {
	uint32_t type;
	char text[1100];
};

struct answer {
	uint32_t ok;
	char text[512];
};

/* ---- records ---- */

enum record_kind { RECORD_TEXT = 1, RECORD_ENV, RECORD_FILE, RECORD_KEY };

struct record {
	uint32_t kind;
	uint32_t name_len;
	uint32_t value_len;
};

struct settings {
	struct buf records;
};

static int record_add(struct settings *s, enum record_kind kind, struct str name, struct str value)
{
	struct record r = {(uint32_t)kind, (uint32_t)name.n, (uint32_t)value.n};

	buf_append(&s->records, &r, sizeof(r));
	buf_append(&s->records, name.p, name.n);
	return buf_append(&s->records, value.p, value.n);
}

/* Walks the records; *at begins at 0. False at the end or where one is broken. */
static bool record_next(
        struct str all, size_t *at, struct record *r, struct str *ret_name, struct str *ret_value)
{
	if (all.n - *at < sizeof(*r))
		return false;
	memcpy(r, all.p + *at, sizeof(*r));
	*at += sizeof(*r);
	if (r->name_len > all.n - *at || r->value_len > all.n - *at - r->name_len)
		return false;
	*ret_name = (struct str){all.p + *at, r->name_len};
	*ret_value = (struct str){all.p + *at + r->name_len, r->value_len};
	*at += (size_t)r->name_len + r->value_len;
	return true;
}

static bool record_find(
        struct str all, enum record_kind kind, struct str name, struct str *ret_value)
{
	struct record r;
	struct str n, v;
	size_t at = 0;

	while (record_next(all, &at, &r, &n, &v)) {
		if (r.kind == (uint32_t)kind && (!name.p || str_eq(n, name))) {
			*ret_value = v;
			return true;
		}
	}
	return false;
}

static struct str records_of(const struct settings *s)
{
	return (struct str){s->records.data, s->records.len};
}

/* ---- reading files, as root ---- */

/* Reads a regular file of at most max bytes. */
static int file_read(const char *path, size_t max, struct buf *out, struct error *err)
{
	char piece[16384];
	struct stat st;
	ssize_t n = 1;
	int fd, r = 0;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return error_errno(err, errno, "%s", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		r = error_set(err, ERR_IO, "%s: not a regular file", path);
	while (r == 0 && n > 0) {
		n = read(fd, piece, sizeof(piece));
		if (n < 0)
			r = error_errno(err, errno, "%s", path);
		else if (out->len + (size_t)n > max || buf_append(out, piece, (size_t)n) < 0)
			r = error_set(err, ERR_INVALID, "%s: more than %zu bytes", path, max);
	}
	mem_wipe(piece, sizeof(piece));
	close(fd);
	return r;
}

/* One word of printable ASCII, spaces and line ends around it aside. */
static bool looks_like_key(struct str s)
{
	size_t i;

	while (s.n && strchr(" \t\r\n", s.p[s.n - 1]))
		s.n--;
	while (s.n && strchr(" \t\r\n", s.p[0])) {
		s.p++;
		s.n--;
	}
	for (i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] <= 0x20 || (unsigned char)s.p[i] >= 0x7f)
			return false;
	return s.n > 0;
}

static int note_file(struct settings *s, const char *path, struct error *err)
{
	struct buf secret = BUF_INIT(MAX_SECRET);
	struct str have;
	int r = 0;

	if (record_find(records_of(s), RECORD_FILE, str_of(path), &have))
		return 0;
	r = file_read(path, MAX_SECRET, &secret, err);
	if (r == 0 && !looks_like_key((struct str){secret.data, secret.len}))
		r = error_set(
		        err, ERR_INVALID, "%s: holds no key (one word of printable ASCII)", path);
	if (r == 0)
		r = record_add(s, RECORD_FILE, str_of(path), (struct str){secret.data, secret.len});
	if (secret.data)
		mem_wipe(secret.data, secret.cap);
	buf_free(&secret);
	return r;
}

static int note_env(struct settings *s, const char *name, struct error *err)
{
	const char *value = getenv(name);
	struct str have;

	if (record_find(records_of(s), RECORD_ENV, str_of(name), &have))
		return 0;
	if (!value || strlen(value) > MAX_SECRET)
		return error_set(err, ERR_INVALID, "%s: not set, or too long", name);
	return record_add(s, RECORD_ENV, str_of(name), str_of(value));
}

/* ---- the child ---- */

static bool ask_root(int sock, enum ask_type type, const char *text, struct error *err)
{
	struct ask ask = {.type = (uint32_t)type};
	struct answer answer = {0};

	str_copy(ask.text, sizeof(ask.text), str_of(text));
	if (send(sock, &ask, sizeof(ask), MSG_NOSIGNAL) != (ssize_t)sizeof(ask) ||
	        recv(sock, &answer, sizeof(answer), 0) != (ssize_t)sizeof(answer))
		_exit(1);
	if (!answer.ok)
		error_set(err, ERR_INVALID, "%.*s", (int)sizeof(answer.text) - 1, answer.text);
	return answer.ok;
}

static const char *child_env(void *ctx, const char *name)
{
	const char *value = getenv(name);

	if (value && *value && !ask_root(*(int *)ctx, ASK_ENV, name, NULL))
		return NULL;
	return value;
}

static char *child_file(void *ctx, const char *path, struct error *err)
{
	/* Root has seen that it holds a key; which one matters to the gateway only. */
	return ask_root(*(int *)ctx, ASK_FILE, path, err) ? mem_strdup("unread") : NULL;
}

/* Fails where /etc/subuid or /etc/subgid gives somebody ids out of ours. */
static int check_subids(const char *path, uint64_t first, uint64_t end, struct error *err)
{
	char line[512], *start, *count;
	unsigned long long a, n;
	FILE *f = fopen(path, "re");
	int r = 0;

	while (f && r == 0 && fgets(line, sizeof(line), f)) {
		start = strchr(line, ':');
		count = start ? strchr(start + 1, ':') : NULL;
		if (!count)
			continue;
		*start = *count = '\0';
		a = strtoull(start + 1, NULL, 10);
		n = strtoull(count + 1, NULL, 10);
		if (n && a < end && a + n > first)
			r = error_set(err, ERR_INVALID,
			        "%s gives %.60s the ids from %llu to %llu, which lie within brig's "
			        "own; "
			        "set ids.base to another start",
			        path, line, a, a + n - 1);
	}
	if (f)
		fclose(f);
	return r;
}

/* What brig.yaml does not have a setting for keeps its own default. */
static struct egress_limits egress_limits(const struct config_egress *c)
{
	struct egress_limits l = EGRESS_LIMITS_DEFAULT;

	l.connections = c->connections;
	l.connections_per_s = c->connections_per_second;
	l.questions_per_s = c->questions_per_second;
	l.idle_ms = c->idle_ms;
	l.total_ms = c->total_ms;
	l.bytes = c->bytes;
	return l;
}

static void fill_values(const struct config *c, struct settings_values *v)
{
	const struct config_container *box = &c->container;
	struct sup_config *sup = &v->sup;

	memset(v, 0, sizeof(*v));
	str_copy(v->host, sizeof(v->host), str_of(c->listen_host));
	str_copy(v->data, sizeof(v->data), str_of(c->data));
	v->port = c->listen_port;
	v->own_keys = c->n_keys > 0;
	v->egress = egress_limits(&c->egress);
	str_format(sup->images[0], sizeof(sup->images[0]), "%s.erofs", box->image);
	sup->id_base = c->id_base;
	sup->n_leases = N_LEASES - SUP_MAX_WORKERS;
	sup->n_workers = SUP_MAX_WORKERS;
	sup->gateways = c->workers;
	sup->live = box->live;
	sup->pool = box->pool;
	sup->memory_mib = box->memory_mib;
	sup->max_memory_mib = box->memory_allowed_mib[box->n_memory_allowed - 1];
	sup->home_mib = box->home_mib;
	sup->scratch_mib = box->scratch_mib;
	sup->sleep_after_ms = box->sleep_after_ms;
	sup->grace_ms = c->grace_ms;
	sup->sandbox = c->sandbox;
	sup->egress = c->sandbox;
	sup->durable_power = box->durable_power;
	sup->cgroups = c->cgroup_v1 ? SUP_CG_FORCE_V1 : SUP_CG_AUTO;
}

static int child_load(const struct config_source *src, struct settings_values *v, struct error *err)
{
	struct config *c = NULL;
	uint64_t first, end;
	int r;

	r = config_load(src, &c, err);
	if (r < 0)
		return r;
	first = c->id_base;
	end = first + 131072 + (uint64_t)N_LEASES * 65536;
	if (c->sandbox) {
		r = check_subids("/etc/subuid", first, end, err);
		if (r == 0)
			r = check_subids("/etc/subgid", first, end, err);
	}
	if (r == 0)
		fill_values(c, v);
	config_free(c);
	return r;
}

_Noreturn static void child_main(int sock, const char *file, struct str text)
{
	struct config_source src = {
	        .text = text,
	        .name = file,
	        .env = child_env,
	        .read_file = child_file,
	        .ctx = &sock,
	};
	struct rlimit cpu = {PARSE_SECONDS, PARSE_SECONDS};
	struct settings_values values;
	struct ask ask = {.type = ASK_ERROR};
	struct error err = {0};
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	setrlimit(RLIMIT_CPU, &cpu);
	r = drop_privileges(NOBODY);
	if (r < 0)
		error_errno(&err, -r, "giving up privileges");
	else
		r = child_load(&src, &values, &err);
	if (r == 0) {
		r = send(sock, &values, sizeof(values), MSG_NOSIGNAL) == (ssize_t)sizeof(values)
		            ? 0
		            : 1;
	} else {
		str_copy(ask.text, sizeof(ask.text), str_of(err.text));
		if (send(sock, &ask, sizeof(ask), MSG_NOSIGNAL) < 0)
			r = 1;
	}
	_exit(r == 0 ? 0 : 1);
}

/* ---- root's side ---- */

static bool terminated(const char *s, size_t size)
{
	return memchr(s, '\0', size) != NULL;
}

/* The child may be anybody's: what it sent is checked as if it were. sup_config's bounds are the
 * supervisor's. */
static int check_values(const struct settings_values *v, struct error *err)
{
	const struct sup_config *sup = &v->sup;
	size_t i;
	bool ok = terminated(v->host, sizeof(v->host)) && terminated(v->data, sizeof(v->data)) &&
	          sup->data[0] == '\0' && sup->gateways >= 1 && sup->gateways <= SUP_MAX_GATEWAYS &&
	          sup->id_base >= 16 * 65536 && sup->id_base % 65536 == 0 &&
	          sup->n_leases == N_LEASES - SUP_MAX_WORKERS &&
	          sup->n_workers == SUP_MAX_WORKERS &&
	          (uint64_t)sup->id_base + 131072 + (uint64_t)N_LEASES * 65536 < UINT32_MAX;

	for (i = 0; i < SUP_MAX_IMAGES; i++)
		ok = ok && terminated(sup->images[i], sizeof(sup->images[i])) &&
		     !strchr(sup->images[i], '/') && sup->images[i][0] != '.';
	ok = ok && !sup->untested;
	return ok ? 0
	          : error_set(err, ERR_PROTOCOL,
	                    "the process that read the configuration sent nonsense");
}

/* One message of the child. Returns 1 to go on, 0 when the values are here, negative on an error.
 */
static int serve_child(int sock, struct settings *s, struct settings_values *ret, unsigned *asked,
        struct error *err)
{
	union {
		struct ask ask;
		struct settings_values values;
	} m;
	struct answer answer = {0};
	struct error why = {0};
	ssize_t n;
	int r;

	n = recv(sock, &m, sizeof(m), MSG_TRUNC);
	if (n == (ssize_t)sizeof(m.values)) {
		r = check_values(&m.values, err);
		if (r == 0)
			*ret = m.values;
		return r;
	}
	if (n != (ssize_t)sizeof(m.ask) || !terminated(m.ask.text, sizeof(m.ask.text)))
		return error_set(err, ERR_PROTOCOL,
		        "reading the configuration failed: its process ended or took over %d "
		        "seconds",
		        PARSE_SECONDS);
	if (m.ask.type == ASK_ERROR)
		return error_set(err, ERR_INVALID, "%s", m.ask.text);
	if (++*asked > MAX_ASKED)
		return error_set(err, ERR_INVALID,
		        "the configuration names more than %d variables and key files", MAX_ASKED);
	if (m.ask.type == ASK_FILE)
		r = note_file(s, m.ask.text, &why);
	else if (m.ask.type == ASK_ENV)
		r = note_env(s, m.ask.text, &why);
	else
		return error_set(
		        err, ERR_PROTOCOL, "the process that read the configuration sent nonsense");
	answer.ok = r == 0;
	str_copy(answer.text, sizeof(answer.text), str_of(why.text));
	if (send(sock, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
		return error_errno(err, errno, "reading the configuration");
	return 1;
}

static int parse_in_child(struct settings *s, const char *file, struct str text,
        struct settings_values *ret, struct error *err)
{
	struct timeval limit = {.tv_sec = PARSE_SECONDS + 5};
	unsigned asked = 0;
	int sock[2], r = 1;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock) < 0)
		return error_errno(err, errno, "socketpair");
	pid = fork();
	if (pid < 0) {
		close(sock[0]);
		close(sock[1]);
		return error_errno(err, errno, "fork");
	}
	if (pid == 0) {
		close(sock[0]);
		child_main(sock[1], file, text);
	}
	close(sock[1]);
	setsockopt(sock[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	while (r > 0)
		r = serve_child(sock[0], s, ret, &asked, err);
	close(sock[0]);
	if (r < 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return r;
}

int settings_load(const char *file, struct settings **ret, struct settings_values *ret_values,
        struct error *err)
{
	struct buf text = BUF_INIT(YAML_MAX_TEXT);
	struct settings *s = mem_alloc(sizeof(*s));
	struct settings_values values;
	int r = 0;

	buf_init(&s->records, BLOB_MAX);
	if (file)
		r = file_read(file, YAML_MAX_TEXT, &text, err);
	if (r == 0 &&
	        record_add(s, RECORD_TEXT, str_of(file), (struct str){text.data, text.len}) < 0)
		r = error_set(err, ERR_NOMEM, "no memory");
	if (r == 0)
		r = parse_in_child(s, file ? file : "(no file)",
		        file ? (struct str){text.data ? text.data : "", text.len} : (struct str){0},
		        &values, err);
	if (text.data)
		mem_wipe(text.data, text.cap);
	buf_free(&text);
	if (r < 0) {
		settings_free(s);
		return r;
	}
	*ret_values = values;
	*ret = s;
	return 0;
}

int settings_values_load(
        const char *file, const char *data, struct settings_values *ret_values, struct error *err)
{
	struct settings *s = NULL;
	int r = settings_load(file, &s, ret_values, err);

	settings_free(s);
	if (r < 0)
		return r;
	return cli_data_folder(data, ret_values->data, ret_values->sup.data, err);
}

struct settings *settings_free(struct settings *s)
{
	if (!s)
		return NULL;
	if (s->records.data)
		mem_wipe(s->records.data, s->records.cap);
	buf_free(&s->records);
	free(s);
	return NULL;
}

void settings_set_key(struct settings *s, const uint8_t hash[32])
{
	record_add(s, RECORD_KEY, STR("first"), (struct str){(const char *)hash, 32});
}

int settings_memfd(const struct settings *s)
{
	int fd, saved;
	size_t done = 0;
	ssize_t n = 0;

	fd = memfd_create("settings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	while (done < s->records.len && n >= 0) {
		n = write(fd, s->records.data + done, s->records.len - done);
		done += n > 0 ? (size_t)n : 0;
	}
	if (n < 0 || fcntl(fd, F_ADD_SEALS,
	                     F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0) {
		saved = errno;
		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

/* ---- the gateway ---- */

struct reader {
	struct str all;
	char *value; /* the last one asked for, terminated */
};

static char *reader_find(struct reader *rd, enum record_kind kind, const char *name)
{
	struct str v;

	return record_find(rd->all, kind, str_of(name), &v) ? mem_strndup(v.p, v.n) : NULL;
}

static void reader_drop(struct reader *rd)
{
	if (rd->value)
		mem_wipe(rd->value, strlen(rd->value));
	free(rd->value);
	rd->value = NULL;
}

static const char *gateway_env(void *ctx, const char *name)
{
	struct reader *rd = ctx;

	reader_drop(rd);
	rd->value = reader_find(rd, RECORD_ENV, name);
	return rd->value;
}

static char *gateway_file(void *ctx, const char *path, struct error *err)
{
	char *value = reader_find(ctx, RECORD_FILE, path);

	if (!value)
		error_set(err, ERR_INTERNAL, "%s was not handed over", path);
	return value;
}

static void add_first_key(struct config *c, struct str hash)
{
	struct config_key *keys;

	if (hash.n != sizeof(keys->hash))
		return;
	keys = mem_array(c->n_keys + 1, sizeof(*keys));
	if (c->n_keys)
		memcpy(keys, c->keys, c->n_keys * sizeof(*keys));
	free(c->keys);
	c->keys = keys;
	memcpy(keys[c->n_keys].hash, hash.p, hash.n);
	keys[c->n_keys].account = mem_strdup("default");
	keys[c->n_keys].workspace = mem_strdup("default");
	keys[c->n_keys].admin = true;
	c->n_keys++;
}

static int read_all(int fd, struct buf *out)
{
	char piece[16384];
	off_t at = 0;
	ssize_t n;

	/* Gateways share the descriptor's offset; each reads at its own. */
	while ((n = pread(fd, piece, sizeof(piece), at)) > 0) {
		at += n;
		if (buf_append(out, piece, (size_t)n) < 0)
			return -EFBIG;
	}
	mem_wipe(piece, sizeof(piece));
	return n < 0 ? -errno : 0;
}

int settings_read(int fd, struct config **ret, struct error *err)
{
	struct settings s = {.records = BUF_INIT(BLOB_MAX)};
	struct reader rd = {0};
	struct config_source src = {.env = gateway_env, .read_file = gateway_file, .ctx = &rd};
	struct str hash, name;
	_cleanup_free_ char *file = NULL;
	struct record r0;
	size_t at = 0;
	int r;

	r = read_all(fd, &s.records);
	rd.all = records_of(&s);
	if (r < 0 || !record_next(rd.all, &at, &r0, &name, &src.text) || r0.kind != RECORD_TEXT) {
		buf_free(&s.records);
		return error_set(
		        err, ERR_PROTOCOL, "descriptor %d is no configuration from brig serve", fd);
	}
	file = mem_strndup(name.p, name.n);
	src.name = file;
	if (name.n == 0)
		src.text = (struct str){0};
	r = config_load(&src, ret, err);
	if (r == 0 && record_find(rd.all, RECORD_KEY, STR("first"), &hash))
		add_first_key(*ret, hash);
	reader_drop(&rd);
	mem_wipe(s.records.data, s.records.cap);
	buf_free(&s.records);
	return r;
}
