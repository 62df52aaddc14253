#include "egress/sources.h"

#include "base/mem.h"
#include "egress/policy.h"
#include "proto/egress.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

struct host {
	char *name;
	union address address;
};

struct egress_hosts {
	struct host *list;
	size_t n, room;
};

/* Takes the next line from *rest, without its end and without a comment. False: there is none. */
static bool next_line(struct str *rest, struct str *ret)
{
	const char *end, *comment;

	if (rest->n == 0)
		return false;
	end = memchr(rest->p, '\n', rest->n);
	*ret = (struct str){rest->p, end ? (size_t)(end - rest->p) : rest->n};
	rest->p += ret->n + (end != NULL);
	rest->n -= ret->n + (end != NULL);
	comment = ret->n > 0 ? memchr(ret->p, '#', ret->n) : NULL;
	if (comment)
		ret->n = (size_t)(comment - ret->p);
	return true;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Takes the next word from *line. False: there is none. */
static bool next_word(struct str *line, struct str *ret)
{
	while (line->n > 0 && is_space(line->p[0]))
		*line = (struct str){line->p + 1, line->n - 1};
	*ret = (struct str){line->p, 0};
	while (line->n > 0 && !is_space(line->p[0])) {
		*line = (struct str){line->p + 1, line->n - 1};
		ret->n++;
	}
	return ret->n > 0;
}

static bool read_address(struct str text, union address *ret)
{
	char plain[64];

	memset(ret, 0, sizeof(*ret));
	if (!str_copy(plain, sizeof(plain), text))
		return false;
	if (inet_pton(AF_INET, plain, &ret->in.sin_addr) == 1) {
		ret->in.sin_family = AF_INET;
		return true;
	}
	ret->in6.sin6_family = AF_INET6;
	return inet_pton(AF_INET6, plain, &ret->in6.sin6_addr) == 1;
}

static void set_port(union address *a, uint16_t port)
{
	if (a->sa.sa_family == AF_INET)
		a->in.sin_port = htons(port);
	else
		a->in6.sin6_port = htons(port);
}

size_t egress_servers_read(struct str text, union address out[EGRESS_SERVERS_MAX])
{
	struct str line, word;
	size_t n = 0;

	while (n < EGRESS_SERVERS_MAX && next_line(&text, &line)) {
		if (!next_word(&line, &word) || !str_is(word, "nameserver") ||
		        !next_word(&line, &word) || !read_address(word, &out[n]))
			continue;
		set_port(&out[n++], 53);
	}
	return n;
}

static void add(struct egress_hosts *h, struct str name, const union address *a)
{
	char plain[EGRESS_NAME_MAX + 1];

	if (h->n == EGRESS_HOSTS_MAX || !egress_policy_name(name, plain))
		return;
	if (h->n == h->room) {
		size_t room = h->room ? 2 * h->room : 64;
		struct host *list = mem_array(room, sizeof(*list));

		if (h->n > 0)
			memcpy(list, h->list, h->n * sizeof(*list));
		free(h->list);
		h->list = list;
		h->room = room;
	}
	h->list[h->n++] = (struct host){mem_strdup(plain), *a};
}

struct egress_hosts *egress_hosts_read(struct str text)
{
	struct egress_hosts *h = mem_alloc(sizeof(*h));
	union address a;
	struct str line, word;

	while (next_line(&text, &line)) {
		if (!next_word(&line, &word) || !read_address(word, &a))
			continue;
		while (next_word(&line, &word))
			add(h, word, &a);
	}
	return h;
}

struct egress_hosts *egress_hosts_free(struct egress_hosts *h)
{
	if (!h)
		return NULL;
	for (size_t i = 0; i < h->n; i++)
		free(h->list[i].name);
	free(h->list);
	free(h);
	return NULL;
}

size_t egress_hosts_count(const struct egress_hosts *h)
{
	return h->n;
}

size_t egress_hosts_find(const struct egress_hosts *h, const char *name, uint16_t port,
        union address *out, size_t max)
{
	static const int families[] = {AF_INET, AF_INET6};
	size_t n = 0;

	for (int f = 0; f < 2; f++) {
		for (size_t i = 0; i < h->n && n < max; i++) {
			if (h->list[i].address.sa.sa_family != families[f] ||
			        strcmp(h->list[i].name, name) != 0)
				continue;
			out[n] = h->list[i].address;
			set_port(&out[n++], port);
		}
	}
	return n;
}
