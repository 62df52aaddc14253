/*
 * What gateways, inits and children can make of the supervisor: the input is a script of datagrams
 * (through message_check, as the loop does), words of inits, deaths, failures of the host, time.
 * The table, the queue and the pool are real; below them, where the kernel begins, is a host of
 * this file that does nothing but answer. At the end everything is stopped and must be gone.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "supervisor/live_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GATEWAYS 3
#define LIVE     4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct {
	uint64_t now_ms;
	const uint8_t *at, *end;
	unsigned fail; /* bits: what the host refuses for now */
	enum disk_room room;
	uint32_t homes; /* bits: keys that have one */
	uint32_t kept;  /* homes made ahead */
	pid_t last_pid;
	enum sandbox_event says; /* what the next read brings */
	int maker_says; /* … and maker_read: -1 its end, 2 what was ordered, 3 a failure */
	uint64_t maker_id;
	enum maker_what maker_makes;
	uint32_t asked[GATEWAYS], answered[GATEWAYS];
	uint32_t ended;
} world;

enum {
	FAIL_PREPARE = 1,
	FAIL_CLAIM = 2,
	FAIL_CHANNEL = 4,
	FAIL_REMOVE = 8,
	FAIL_MAKER = 16,
	FAIL_DELETE = 32
};

static uint8_t byte(void)
{
	return world.at < world.end ? *world.at++ : 0;
}

/* ---- the clock and the log ---- */

uint64_t clock_mono_ms(void)
{
	return world.now_ms;
}

uint64_t clock_mono_ns(void)
{
	return world.now_ms * 1000000;
}

int64_t clock_wall_s(void)
{
	return 1000;
}

void log_event(enum log_level level, const char *event, const struct log_field *fields, size_t n)
{
}

void log_text(enum log_level level, const char *event, const char *fmt, ...)
{
}

/* ---- sandboxes ---- */

static int refuse(unsigned bit, struct fail *f)
{
	return world.fail & bit ? fail_set(f, SUP_E_SYSTEM, EIO, "a step") : 0;
}

static int world_prepare(
        struct sandbox_host *h, uint64_t number, struct sandbox *sb, struct fail *f)
{
	*sb = (struct sandbox){
	        .pidfd = -1, .control = -1, .userns = -1, .netns = -1, .scratch = IMAGE_NONE};
	if (refuse(FAIL_PREPARE, f) < 0)
		return -1;
	sb->pid = ++world.last_pid;
	sb->control = open("/dev/null", O_RDONLY | O_CLOEXEC);
	sb->has_lease = sb->has_cgroup = true;
	return 0;
}

static int world_give_root(
        struct sandbox *sb, const struct image *scratch, int root, struct fail *f)
{
	if (sb->has_root)
		BUG("a second root");
	sb->has_root = true;
	return refuse(FAIL_CLAIM, f);
}

static int world_claim(struct sandbox_host *h, struct sandbox *sb, const struct sandbox_spec *spec,
        bool *ret_created, int ret_net[NETNS_SOCKETS], struct fail *f)
{
	uint32_t bit = 1u << (spec->key[0] & 31);
	if (sb->pid <= 0 || sb->control < 0)
		BUG("a claim on what is gone");
	sb->has_root = true;
	*ret_created = !(world.homes & bit);
	if (*ret_created && world.kept)
		world.kept--;
	world.homes |= bit;
	for (int i = 0; spec->network && i < NETNS_SOCKETS; i++)
		ret_net[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return refuse(FAIL_CLAIM, f);
}

static void on_network_add(void *ctx, uint64_t id, const int fds[LIVE_NETWORK_FDS])
{
	for (int i = 0; i < LIVE_NETWORK_FDS; i++)
		if (fcntl(fds[i], F_GETFD) < 0)
			BUG("egress is given a descriptor that is none");
}

static void on_network_remove(void *ctx, uint64_t id)
{
}

static enum sandbox_event world_read(struct sandbox *sb, struct fail *f, char text[64])
{
	enum sandbox_event says = world.says;
	if (sb->control < 0)
		BUG("read after the end");
	/* The order of PREPARED and READY is read's own to check. */
	if ((says == SANDBOX_PREPARED && sb->stage != SANDBOX_IS_NEW) ||
	        (says == SANDBOX_READY && sb->stage != SANDBOX_IS_PREPARED))
		says = SANDBOX_BROKEN;
	world.says = SANDBOX_NOTHING;
	if (says == SANDBOX_PREPARED)
		sb->stage = SANDBOX_IS_PREPARED;
	if (says == SANDBOX_READY)
		sb->stage = SANDBOX_IS_READY;
	if (says == SANDBOX_BROKEN) {
		memcpy(text, "step", 5);
		fail_set(f, SUP_E_SYSTEM, EPROTO, text);
	}
	return says;
}

static int world_channel(struct sandbox *sb, int fd)
{
	if (sb->stage != SANDBOX_IS_READY)
		BUG("a channel to an init that is not ready");
	return world.fail & FAIL_CHANNEL ? -EAGAIN : 0;
}

static void world_freeze(struct sandbox_host *h, struct sandbox *sb, bool on)
{
	if (!sb->has_cgroup)
		BUG("frozen after the end");
}

static void world_kill(struct sandbox_host *h, struct sandbox *sb)
{
}

static bool world_remove(struct sandbox_host *h, struct sandbox *sb)
{
	sys_close(&sb->control);
	if (sb->pid > 0)
		BUG("removed before it was reaped");
	if (world.fail & FAIL_REMOVE)
		return false;
	sb->has_lease = sb->has_cgroup = false;
	return true;
}

static const struct runtime runtime_world = {
        .name = "fuzz",
        .prepare = world_prepare,
        .give_root = world_give_root,
        .claim = world_claim,
        .read = world_read,
        .channel = world_channel,
        .freeze = world_freeze,
        .kill = world_kill,
        .remove = world_remove,
};

/* ---- disk ---- */

bool disk_home_exists(const struct disk *d, const uint8_t key[SUP_KEY_LEN])
{
	return world.homes >> (key[0] & 31) & 1;
}

uint64_t disk_home_used(const struct disk *d, const uint8_t key[SUP_KEY_LEN])
{
	return 4096;
}

int disk_home_delete(struct disk *d, const uint8_t key[SUP_KEY_LEN])
{
	if (world.fail & FAIL_DELETE)
		return -EIO;
	world.homes &= ~(1u << (key[0] & 31));
	return 0;
}

void disk_home_keep(struct disk *d, const struct disk_home *home)
{
	if (++world.kept > SUP_MAX_POOL)
		BUG("more homes than can be kept");
}

uint32_t disk_homes_kept(const struct disk *d)
{
	return world.kept;
}

uint32_t disk_images(const struct disk *d)
{
	return 2;
}

enum disk_room disk_room(const struct disk *d)
{
	return world.room;
}

/* ---- the maker ---- */

int maker_start(struct maker *m, struct disk *d, struct fail *f)
{
	if (refuse(FAIL_MAKER, f) < 0)
		return -1;
	*m = (struct maker){
	        .pid = ++world.last_pid, .sock = open("/dev/null", O_RDONLY | O_CLOEXEC)};
	return 0;
}

static int order(struct maker *m, enum maker_what what)
{
	if (m->busy)
		BUG("two orders at once");
	if (world.fail & FAIL_MAKER)
		return -EPIPE;
	m->busy = true;
	world.maker_makes = what;
	return 0;
}

int maker_order_home(struct maker *m)
{
	return order(m, MAKER_HOME);
}

int maker_order_root(struct maker *m, uint64_t id, uint32_t image, int userns, uid_t owner)
{
	world.maker_id = id;
	return order(m, MAKER_ROOT);
}

int maker_read(struct maker *m, struct maker_made *ret)
{
	int says = world.maker_says;
	world.maker_says = 0;
	if (says < 2 || !m->busy)
		return says < 0 ? -1 : 0; /* gone; nothing yet */
	m->busy = false;
	*ret = (struct maker_made){.what = world.maker_makes,
	        .id = world.maker_id,
	        .failed = says == 3,
	        .f = {.why = SUP_E_SYSTEM, .errnum = EIO, .step = "make"},
	        .home = DISK_HOME_NONE,
	        .scratch = IMAGE_NONE,
	        .root = -1};
	return 1;
}

void maker_stop(struct maker *m)
{
	sys_close(&m->sock);
	m->busy = false;
}

/* ---- no file workers here: what they do is not in the table ---- */

void workers_open(struct live *l)
{
}

bool worker_is_ending(const struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	return false;
}

bool worker_serves(const struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	return false;
}

bool worker_saves(const struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	return false;
}

bool worker_has_room(struct live *l)
{
	return !(world.fail & FAIL_REMOVE);
}

int worker_give(
        struct live *l, const uint8_t key[SUP_KEY_LEN], bool saver, int *ret_sock, struct fail *f)
{
	if (refuse(FAIL_CHANNEL, f) < 0)
		return -1;
	*ret_sock = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

bool worker_end_key(struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	return false;
}

bool worker_control(struct live *l, uint64_t id)
{
	return false;
}

bool worker_reaped(struct live *l, pid_t pid)
{
	return false;
}

bool workers_tick(struct live *l, uint64_t now, uint64_t *due)
{
	*due = UINT64_MAX;
	return false;
}

void workers_stop(struct live *l)
{
}

bool workers_empty(const struct live *l)
{
	return true;
}

/* ---- what goes out ---- */

static size_t size_of_answer(uint16_t op)
{
	switch (op) {
	case SUP_CLAIMED:
		return sizeof(struct sup_claimed);
	case SUP_FAILED:
		return sizeof(struct sup_failed);
	case SUP_STATUS_IS:
		return sizeof(struct sup_status);
	case SUP_ENDED:
		return sizeof(struct sup_ended);
	case SUP_NODE_IS:
		return sizeof(struct sup_node);
	default:
		return op == SUP_DONE || op == SUP_FILES_ARE ? sizeof(struct sup_simple) : 0;
	}
}

static void check_answer(const void *msg, size_t len, int fd)
{
	struct sup_header h;
	memcpy(&h, msg, sizeof(h));
	if (h.size != len || size_of_answer(h.op) != len)
		BUG("an answer %u of %zu bytes", h.op, len);
	if ((fd >= 0) != (h.op == SUP_CLAIMED || h.op == SUP_FILES_ARE))
		BUG("answer %u with descriptor %d", h.op, fd);
	if (h.op == SUP_FAILED) {
		struct sup_failed f;
		memcpy(&f, msg, sizeof(f));
		if (f.why < SUP_E_INVALID || f.why > SUP_E_STOPPING ||
		        !memchr(f.step, '\0', sizeof(f.step)) || !f.step[0])
			BUG("failed with %u", f.why);
	}
}

static void on_send(void *ctx, uint32_t gateway, const void *msg, size_t len, int fd)
{
	if (gateway >= GATEWAYS)
		BUG("an answer to gateway %u", gateway);
	check_answer(msg, len, fd);
	if (++world.answered[gateway] > world.asked[gateway])
		BUG("more answers than questions");
}

static void on_send_all(void *ctx, const void *msg, size_t len)
{
	check_answer(msg, len, -1);
	world.ended++;
}

static int on_watch(void *ctx, int fd, uint64_t id)
{
	if (fd < 0 || id < LIVE_FIRST_ID)
		BUG("watched %d as %llu", fd, (unsigned long long)id);
	return 0;
}

static void on_unwatch(void *ctx, int fd)
{
	if (fd < 0)
		BUG("unwatched what is closed");
}

/* ---- the script ---- */

static const uint16_t ops[] = {
        SUP_CLAIM, SUP_CANCEL, SUP_RELEASE, SUP_SLEEP, SUP_DELETE, SUP_KEEP, SUP_STATUS, SUP_FILES,
        SUP_NODE};

/* A message that may well be sound. */
static size_t make_message(union message *m)
{
	static const uint8_t sizes[] = {sizeof(m->claim), sizeof(m->simple), sizeof(m->hold),
	        sizeof(m->key), sizeof(m->key), sizeof(m->keep), sizeof(m->key), sizeof(m->files),
	        sizeof(m->simple)};
	uint8_t which = byte() % sizeof(sizes), key = byte() % 6, odd = byte();
	memset(m, 0, sizeof(*m));
	m->h = (struct sup_header){ops[which], sizes[which], byte() % 8};
	if (m->h.op == SUP_RELEASE) {
		m->hold.hold = byte();
	} else if (m->h.op != SUP_CANCEL && m->h.op != SUP_NODE) {
		m->key.key[0] = key;
	}
	if (m->h.op == SUP_KEEP)
		m->keep.keep_ms = (uint64_t)odd << (byte() % 32);
	if (m->h.op == SUP_FILES)
		m->files.flags = odd;
	if (m->h.op == SUP_CLAIM) {
		m->claim.memory_mib = 16 + (odd & 3) * 400;
		m->claim.cpu_milli = 50;
		m->claim.processes = 16;
		m->claim.image = odd >> 2 & 3;
		m->claim.workspace_live = odd >> 4 & 3;
		m->claim.workspace[0] = key & 1;
		m->claim.policy[0] = odd >> 6 & 1;
		m->claim.flags = odd >> 7;
		m->claim.wait_ms = byte() * 256u;
		m->claim.hostname[0] = 'a';
	}
	return sizes[which];
}

static void receive(struct live *l, bool raw)
{
	union message m;
	uint32_t gateway = byte() % GATEWAYS;
	size_t len;
	bool with_fds = false;
	if (raw) {
		len = byte() * 2u;
		with_fds = len & 1;
		size_t have = (size_t)(world.end - world.at);
		have = have < len ? have : len;
		memset(&m, 0, sizeof(m));
		memcpy(&m, world.at, have);
		world.at += have;
	} else {
		len = make_message(&m);
	}
	with_fds = raw ? with_fds : message_has_policy(&m, len);
	if (message_check(&m, len, with_fds)) {
		live_gateway_gone(l, gateway);
		world.answered[gateway] = world.asked[gateway] = 0;
		return;
	}
	world.asked[gateway]++;
	/* At times the descriptor was lost for want of room. */
	live_request(l, gateway, &m,
	        with_fds && (m.h.seq & 3) ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
}

static struct container *pick(struct live *l)
{
	unsigned n = byte() % (LIVE + 1);
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	if (n-- == 0)
		break;
	return c;
}

static void step(struct live *l)
{
	static const enum sandbox_event words[] = {
	        SANDBOX_NOTHING, SANDBOX_PREPARED, SANDBOX_READY, SANDBOX_BROKEN, SANDBOX_GONE};
	uint8_t what = byte();
	struct container *c;
	switch (what % 12) {
	case 0:
	case 1:
	case 2:
		receive(l, false);
		break;
	case 3:
		receive(l, true);
		break;
	case 4:
	case 5:
		c = pick(l);
		world.says = words[byte() % 5];
		live_control(l, c ? c->generation : byte());
		break;
	case 6:
		c = pick(l);
		live_reaped(l, c && c->sb.pid > 0 ? c->sb.pid : byte() ? l->pool.maker.pid : 12345);
		break;
	case 7:
		world.now_ms += (uint64_t)byte() << (byte() % 12);
		break;
	case 8:
		live_gateway_gone(l, what / 12 % GATEWAYS);
		world.answered[what / 12 % GATEWAYS] = world.asked[what / 12 % GATEWAYS] = 0;
		break;
	case 9:
		world.fail = byte();
		break;
	case 10:
		world.room = (enum disk_room)(byte() % 3);
		break;
	default:
		world.maker_says = what / 12 % 5 - 1;
		live_control(l, LIVE_FIRST_ID);
	}
	live_tick(l);
	if (live_wants_step(l))
		live_step(l);
	if (l->n_containers > LIVE)
		BUG("%u containers", l->n_containers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct sup_config cfg = {.gateways = GATEWAYS,
	        .n_leases = LIVE,
	        .live = LIVE,
	        .pool = 1,
	        .memory_mib = 256,
	        .max_memory_mib = 1024,
	        .sleep_after_ms = 60000,
	        .sandbox = true};
	struct sandbox_host host = {
	        .cfg = &cfg, .runtime = &runtime_world, .cgroup.mode = INIT_CG_V2};
	struct live_out out = {on_send, on_send_all, on_watch, on_unwatch, NULL, on_network_add,
	        on_network_remove};
	memset(&world, 0, sizeof(world));
	world.at = data;
	world.end = data + n;
	world.now_ms = 1000000;
	world.last_pid = 100000;
	struct live *l = live_new(&host, &cfg, &out);
	while (world.at < world.end)
		step(l);
	world.fail = 0;
	live_stop(l);
	for (int i = 0; i < 100 && !live_empty(l); i++) {
		struct container *c, *next;
		for (c = TAILQ_FIRST(&l->containers); c; c = next) {
			next = TAILQ_NEXT(c, link);
			if (c->sb.pid > 0)
				live_reaped(l, c->sb.pid);
		}
		if (l->pool.maker.pid)
			live_reaped(l, l->pool.maker.pid);
		world.now_ms += 11000;
		live_tick(l);
	}
	if (!live_empty(l) || l->n_waiting)
		BUG("%u containers and %u requests are left", l->n_containers, l->n_waiting);
	live_free(l);
	return 0;
}
