/* When is a call's arguments object whole? Only brackets and strings count: the tool reads the
 * rest. */
#include "provider/openai_chat.h"

void openai_chat_args_scan(struct openai_chat_args *s, struct str text)
{
	for (size_t i = 0; i < text.n; i++) {
		char c = text.p[i];

		if (s->in_string) {
			if (s->escaped)
				s->escaped = false;
			else if (c == '\\')
				s->escaped = true;
			else if (c == '"')
				s->in_string = false;
			continue;
		}
		if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
			continue;
		if (s->whole || (!s->begun && c != '{')) {
			s->broken = true;
			s->whole = false;
			return;
		}
		s->begun = true;
		if (c == '"')
			s->in_string = true;
		else if (c == '{' || c == '[')
			s->depth++;
		else if (c == '}' || c == ']')
			s->depth--;
		if (s->broken || s->depth)
			continue;
		s->whole = true;
	}
}
