/* Which container a request means: pure functions of what the request carries (spec of the session
 * rules: api.h). */
#include "api/api.h"

#include "base/id.h"
#include "tool/tool.h"

#include <stdlib.h>

#define ID_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* How much of a session key counts: its end. */
enum { SESSION_TAIL = 20, CONTAINER_ID_MAX = 40, GENERATED_HEX = 12 };

bool api_container_id_valid(struct str id)
{
	return id.n <= CONTAINER_ID_MAX && str_in_set(id, ID_CHARS);
}

bool api_session_container(struct str key, char out[41])
{
	out[0] = '\0';
	if (!str_in_set(key, ID_CHARS))
		return false;
	if (key.n > SESSION_TAIL)
		key = (struct str){key.p + key.n - SESSION_TAIL, SESSION_TAIL};
	str_format(out, 41, "sess_%.*s", (int)key.n, key.p);
	return true;
}

bool api_container_choose(const struct api_container_hints *h, char out[41])
{
	uint8_t hash[32];
	char hex[65];

	if (h->reference.p) {
		str_copy(out, 41, h->reference);
		return true;
	}
	for (size_t i = 0; i < API_SESSION_KEYS; i++) {
		if (!h->session[i].p)
			continue;
		if (api_session_container(h->session[i], out))
			return true;
		break; /* the first key that is there decides; a bad one means: no session */
	}
	if (h->replayed.p && api_container_id_valid(h->replayed)) {
		str_copy(out, 41, h->replayed);
		return true;
	}
	id_sha256(h->request_seed, hash);
	id_hex(hash, sizeof(hash), hex);
	str_format(out, 41, "gen_%.*s", GENERATED_HEX, hex);
	return false;
}

void api_shell_settle(struct shell_settings *s, const struct api_container_hints *h)
{
	if (s->native_path || s->engine != SHELL_ENGINE_AUTO) {
		s->may_be_native = s->native_path != NULL;
		return;
	}
	s->may_be_native = !h->session[0].p && !h->session[1].n && !h->reference.n &&
	                   !h->replayed.n && !s->container_id.n && !s->n_file_ids;
}

void turn_request_free(struct turn_request *r)
{
	r->conversation = conversation_free(r->conversation);
	r->echo = NULL; /* lay in the conversation's arena */
	r->shell = NULL;
}
