/*
 * The process: control messages in, containers kept by their id. The control socket is the
 * supervisor's, and a message that is not exactly as it must be ends the process: it is started
 * anew and told everything again. A policy is another matter: its lines come from a gateway, and
 * one that cannot be read allows nothing, in that container alone.
 */
#include "egress/egress.h"

#include "base/log.h"
#include "base/mem.h"
#include "egress/confine.h"
#include "egress/internal.h"
#include "packet/packet.h"
#include "proto/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ADD_FDS = 1 + EGRESS_LISTENERS, CONTROL_BATCH = 64, DESCRIPTORS_KEPT = 1024 };

/* The lines of a memfd that nobody can change any more. */
static struct egress_policy *read_policy(int fd, struct error *err)
{
	_cleanup_free_ char *lines = NULL;
	const int sealed = F_SEAL_WRITE | F_SEAL_SHRINK;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & sealed) != sealed) {
		error_set(err, ERR_PROTOCOL, "the network policy is not sealed");
		return NULL;
	}
	if (fstat(fd, &st) < 0 || st.st_size > EGRESS_POLICY_MAX) {
		error_set(err, ERR_PROTOCOL, "the network policy is too large");
		return NULL;
	}
	lines = mem_alloc((size_t)st.st_size + 1);
	if (pread(fd, lines, (size_t)st.st_size, 0) != st.st_size) {
		error_set(err, ERR_IO, "the network policy cannot be read");
		return NULL;
	}
	return egress_policy_parse((struct str){lines, (size_t)st.st_size}, err);
}

static struct egress_container *find(struct egress *e, uint64_t id)
{
	struct egress_container *c;

	LIST_FOREACH(c, &e->containers, link)
	{
		if (c->id == id)
			return c;
	}
	return NULL;
}

static int broken(struct egress *e, const char *what)
{
	return error_set(e->err, ERR_PROTOCOL, "control socket: %s", what);
}

static int add(struct egress *e, const struct egress_add *m, struct packet *p)
{
	struct egress_policy *policy;
	struct error err;

	if (p->n_fds != ADD_FDS)
		return broken(e, "a container came without its descriptors");
	if (find(e, m->id))
		return broken(e, "a container came twice");
	policy = read_policy(p->fds[0], &err);
	if (!policy) {
		LOG(LOG_ERROR, "egress_policy", LOG_S("error", err.text),
		        LOG_N("container", m->id));
		policy = egress_policy_nothing();
	}
	close(p->fds[0]);
	p->n_fds = 0;
	if (!egress_container_new(e, m->id, policy, p->fds + 1))
		return broken(e, "a container's descriptors are no sockets");
	return 0;
}

/* The first ones must do; later ones that do not leave it at the last that did. */
static int sources(struct egress *e, const struct packet *p)
{
	struct error err;
	int r = egress_resolver_sources(e->resolver, p->fds[0], p->fds[1], &err);

	if (r == 0)
		e->has_sources = true;
	else if (e->has_sources)
		LOG(LOG_ERROR, "egress_sources", LOG_S("error", err.text));
	else
		*e->err = err;
	return e->has_sources ? 0 : r;
}

static int take(struct egress *e, const void *message, size_t size, struct packet *p)
{
	struct egress_header h;
	struct egress_add a;
	struct egress_remove r;

	if (p->lost || p->len < sizeof(h) || p->len > size)
		return broken(e, "a message is too short, too long or lost its descriptors");
	memcpy(&h, message, sizeof(h));
	if (h.size != p->len)
		return broken(e, "a message has another size than it says");
	if (h.op == EGRESS_ADD && p->len == sizeof(a)) {
		memcpy(&a, message, sizeof(a));
		return add(e, &a, p);
	}
	if (h.op == EGRESS_REMOVE && p->len == sizeof(r) && p->n_fds == 0) {
		memcpy(&r, message, sizeof(r));
		egress_container_free(find(e, r.id));
		return 0;
	}
	if (h.op == EGRESS_SINK && p->len == sizeof(h) && p->n_fds == 1) {
		egress_records_add_sink(e->records, p->fds[0]);
		p->n_fds = 0;
		return 0;
	}
	if (h.op == EGRESS_SOURCES && p->len == sizeof(h) && p->n_fds == 2)
		return sources(e, p);
	return broken(e, "a message is unknown");
}

static void on_control(evutil_socket_t fd, short what, void *arg)
{
	union {
		struct egress_header h;
		struct egress_add a;
		struct egress_remove r;
	} m;
	struct egress *e = arg;

	for (int i = 0; i < CONTROL_BATCH; i++) {
		struct packet p;
		int r = packet_receive(fd, MSG_DONTWAIT, &m, sizeof(m), ADD_FDS, &p);

		if (r == -EAGAIN)
			return;
		if (r < 0)
			r = error_errno(e->err, -r, "control socket");
		else if (r > 0) {
			r = take(e, &m, sizeof(m), &p);
			packet_close(&p);
			if (r == 0)
				continue;
		}
		e->failed = r;
		event_base_loopbreak(e->base);
		return;
	}
}

static void limits_fit(struct egress *e, size_t descriptors)
{
	/* Each connection has two, each container four; lookups and gateways some. */
	size_t room = descriptors > 2 * DESCRIPTORS_KEPT ? (descriptors - DESCRIPTORS_KEPT) / 3
	                                                 : descriptors / 4;

	if (e->limits.all_connections > room)
		e->limits.all_connections = (unsigned)room;
}

static int start(struct egress *e, const struct egress_options *o, struct error *err)
{
	struct event_config *config = event_config_new();
	int r;

	if (!config)
		return error_set(err, ERR_NOMEM, "no event loop can be made");
	event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
	e->base = event_base_new_with_config(config);
	event_config_free(config);
	if (!e->base)
		return error_set(err, ERR_NOMEM, "no event loop can be made");
	e->own = address_own_new(o->own_ports, o->n_own_ports);
	e->records = egress_records_new(e->base);
	evutil_secure_rng_init();
	e->resolver = egress_resolver_new(e->base, err);
	if (!e->resolver)
		return -ERR_IO;
	limits_fit(e, egress_confine_limits());
	r = egress_confine_filter(err);
	return r;
}

static void end(struct egress *e)
{
	while (!LIST_EMPTY(&e->containers))
		egress_container_free(LIST_FIRST(&e->containers));
	egress_resolver_free(e->resolver);
	egress_records_free(e->records);
	address_own_free(e->own);
	if (e->base)
		event_base_free(e->base);
	free(e);
}

int egress_run(int control_fd, const struct egress_options *options, struct error *err)
{
	struct egress *e = mem_alloc(sizeof(*e));
	struct event control;
	int r;

	prctl(PR_SET_NAME, "brig: egress", 0, 0, 0);
	e->limits = options->limits;
	e->err = err;
	LIST_INIT(&e->containers);
	r = start(e, options, err);
	if (r == 0) {
		event_assign(&control, e->base, control_fd, EV_READ | EV_PERSIST, on_control, e);
		event_add(&control, NULL);
		event_base_dispatch(e->base);
		event_del(&control);
		r = e->failed;
	}
	end(e);
	return r;
}
