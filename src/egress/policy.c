#include "egress/policy.h"

#include "base/mem.h"
#include "proto/egress.h"

#include <stdlib.h>

struct egress_policy {
	char *label;
	bool all, private;
	char *allow[EGRESS_ALLOW_MAX];
	size_t n_allow;
	char *deny[EGRESS_DENY_MAX];
	size_t n_deny;
};

/* Lines come in one order; each kind may follow itself or an earlier one. */
enum line_kind { LINE_LABEL, LINE_PRIVATE, LINE_ALL, LINE_ALLOW, LINE_DENY, LINE_UNKNOWN };

static enum line_kind line_kind(struct str line, struct str *ret_rest)
{
	static const struct {
		const char *word;
		enum line_kind kind;
	} WORDS[] = {{"label ", LINE_LABEL}, {"allow ", LINE_ALLOW}, {"deny ", LINE_DENY}};

	*ret_rest = (struct str){NULL, 0};
	if (str_is(line, "private"))
		return LINE_PRIVATE;
	if (str_is(line, "all"))
		return LINE_ALL;
	for (size_t i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]); i++) {
		size_t n = strlen(WORDS[i].word);

		if (!str_starts(line, WORDS[i].word))
			continue;
		*ret_rest = (struct str){line.p + n, line.n - n};
		return WORDS[i].kind;
	}
	return LINE_UNKNOWN;
}

static bool pattern_valid(struct str s)
{
	return s.n <= EGRESS_NAME_MAX &&
	       str_in_set(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.*") && s.p[s.n - 1] != '.';
}

static bool label_valid(struct str s)
{
	if (s.n == 0 || s.n > EGRESS_LABEL_MAX)
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] < 0x20 || s.p[i] > 0x7e)
			return false;
	return true;
}

static const char *add_pattern(char **list, size_t *n, size_t max, struct str s)
{
	if (*n == max)
		return "too many patterns";
	if (!pattern_valid(s))
		return "a pattern is malformed";
	list[(*n)++] = mem_strndup(s.p, s.n);
	return NULL;
}

static const char *add_line(struct egress_policy *p, enum line_kind kind, struct str rest)
{
	switch (kind) {
	case LINE_LABEL:
		if (p->label || !label_valid(rest))
			return "the label is malformed";
		p->label = mem_strndup(rest.p, rest.n);
		return NULL;
	case LINE_PRIVATE:
		if (p->private)
			return "a line is there twice";
		p->private = true;
		return NULL;
	case LINE_ALL:
		if (p->all)
			return "a line is there twice";
		p->all = true;
		return NULL;
	case LINE_ALLOW:
		return add_pattern(p->allow, &p->n_allow, EGRESS_ALLOW_MAX, rest);
	case LINE_DENY:
		return add_pattern(p->deny, &p->n_deny, EGRESS_DENY_MAX, rest);
	case LINE_UNKNOWN:
		break;
	}
	return "a line is unknown";
}

static const char *read_lines(struct egress_policy *p, struct str lines)
{
	enum line_kind last = LINE_LABEL, kind;
	const char *wrong = NULL;

	if (lines.n > EGRESS_POLICY_MAX)
		return "it is too large";
	while (lines.n > 0 && !wrong) {
		const char *end = memchr(lines.p, '\n', lines.n);
		struct str line, rest;

		if (!end)
			return "its last line has no end";
		line = (struct str){lines.p, (size_t)(end - lines.p)};
		lines.p = end + 1;
		lines.n -= line.n + 1;
		kind = line_kind(line, &rest);
		if (kind < last)
			return "its lines are out of order";
		last = kind;
		wrong = add_line(p, kind, rest);
	}
	if (!wrong && !p->label)
		return "it has no label";
	return wrong;
}

struct egress_policy *egress_policy_nothing(void)
{
	struct egress_policy *p = mem_alloc(sizeof(*p));

	p->label = mem_strdup("");
	return p;
}

struct egress_policy *egress_policy_parse(struct str lines, struct error *err)
{
	struct egress_policy *p = mem_alloc(sizeof(*p));
	const char *wrong = read_lines(p, lines);

	if (!wrong)
		return p;
	error_set(err, ERR_INVALID, "the network policy cannot be read: %s", wrong);
	return egress_policy_free(p);
}

struct egress_policy *egress_policy_free(struct egress_policy *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < p->n_allow; i++)
		free(p->allow[i]);
	for (size_t i = 0; i < p->n_deny; i++)
		free(p->deny[i]);
	free(p->label);
	free(p);
	return NULL;
}

struct str egress_policy_label(const struct egress_policy *p)
{
	return str_of(p->label);
}

bool egress_policy_all(const struct egress_policy *p)
{
	return p->all;
}

bool egress_policy_private(const struct egress_policy *p)
{
	return p->private;
}

/* The parts between stars are looked for from the left, each in the first place where it fits: a
 * later place would leave no more room for those that follow. */
bool egress_policy_match(struct str pattern, struct str name)
{
	const char *star = memchr(pattern.p, '*', pattern.n);
	size_t n = star ? (size_t)(star - pattern.p) : pattern.n;

	if (!star)
		return str_eq(pattern, name);
	if (n > name.n || memcmp(pattern.p, name.p, n) != 0)
		return false;
	for (;;) {
		const char *found;

		pattern = (struct str){pattern.p + n + 1, pattern.n - n - 1};
		name = (struct str){name.p + n, name.n - n};
		star = memchr(pattern.p, '*', pattern.n);
		if (!star)
			break;
		n = (size_t)(star - pattern.p);
		found = memmem(name.p, name.n, pattern.p, n);
		if (!found)
			return false;
		name = (struct str){found, name.n - (size_t)(found - name.p)};
	}
	return pattern.n <= name.n &&
	       memcmp(pattern.p, name.p + name.n - pattern.n, pattern.n) == 0;
}

bool egress_policy_allows(const struct egress_policy *p, struct str name, const char **ret_rule)
{
	*ret_rule = NULL;
	for (size_t i = 0; i < p->n_deny; i++) {
		if (!egress_policy_match(str_of(p->deny[i]), name))
			continue;
		*ret_rule = p->deny[i];
		return false;
	}
	if (p->all)
		return true;
	for (size_t i = 0; i < p->n_allow; i++)
		if (egress_policy_match(str_of(p->allow[i]), name))
			return true;
	return false;
}

bool egress_policy_name(struct str name, char *out)
{
	size_t label = 0;
	bool number = true;

	if (name.n > 0 && name.p[name.n - 1] == '.')
		name.n--;
	if (name.n == 0 || name.n > EGRESS_NAME_MAX)
		return false;
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (c == '.') {
			if (label == 0)
				return false;
			label = 0;
			number = true;
			out[i] = c;
			continue;
		}
		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		if (++label > 63 ||
		        !str_in_set((struct str){&c, 1}, "abcdefghijklmnopqrstuvwxyz0123456789-_"))
			return false;
		number = number && c >= '0' && c <= '9';
		out[i] = c;
	}
	out[name.n] = '\0';
	return label > 0 && !number;
}
