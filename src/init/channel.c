#include "init/channel.h"

#include "init/command.h"
#include "init/discard.h"
#include "init/loop.h"
#include "init/message.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_BATCH 16 /* messages of one channel before the others get a turn */

static struct {
	struct {
		bool open, broken;
		int socket;
	} table[INIT_MAX_CHANNELS];
	bool some_broken;
} channels;

int channel_open(int socket)
{
	for (uint32_t i = 0; i < INIT_MAX_CHANNELS; i++) {
		int rc;

		if (channels.table[i].open)
			continue;
		rc = loop_add(socket, LOOP_CHANNEL, i);
		if (rc < 0) {
			close(socket);
			return rc;
		}
		channels.table[i].open = true;
		channels.table[i].broken = false;
		channels.table[i].socket = socket;
		return 0;
	}
	close(socket);
	return -EMFILE;
}

static void mark_broken(uint32_t index)
{
	channels.table[index].broken = true;
	channels.some_broken = true;
}

/* Returns 0, or a negative errno when the message is not one of a gateway's. */
static int dispatch(uint32_t index, struct message *m)
{
	const struct init_id *id;

	switch (message_op(m)) {
	case INIT_RUN:
		return command_submit(index, m);
	case INIT_KILL:
		id = message_as(m, sizeof *id, 0);
		if (!id)
			return -EBADMSG;
		command_kill(index, id->id);
		return 0;
	case INIT_DISCARD:
		if (!message_as(m, sizeof *id, 1) && !message_as(m, sizeof *id, 2))
			return -EBADMSG;
		return discard_add(m);
	default:
		return -EBADMSG;
	}
}

void channel_ready(uint32_t index)
{
	static struct message m;

	for (int i = 0; i < MAX_BATCH; i++) {
		int rc;

		if (!channels.table[index].open || channels.table[index].broken)
			return;
		rc = message_receive(channels.table[index].socket, MSG_DONTWAIT, &m);
		if (rc == -EAGAIN)
			return;
		if (rc > 0) {
			rc = dispatch(index, &m);
			packet_close(&m.packet);
			if (rc == 0)
				continue;
		}
		mark_broken(index);
	}
}

void channel_send(
        uint32_t index, int op, void *structure, size_t size, const int *fds, size_t n_fds)
{
	if (channels.table[index].broken)
		return;
	if (message_send(channels.table[index].socket, op, structure, size, fds, n_fds) < 0)
		mark_broken(index);
}

void channel_sweep(void)
{
	/* Dropping commands lets others start, which may break further channels. */
	while (channels.some_broken) {
		channels.some_broken = false;
		for (uint32_t i = 0; i < INIT_MAX_CHANNELS; i++) {
			if (!channels.table[i].open || !channels.table[i].broken)
				continue;
			channels.table[i].open = false;
			loop_close(channels.table[i].socket);
			command_drop_channel(i);
		}
	}
}
