#include "guard/regex.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <re2/re2.h>
#include <re2/set.h>
#include <string>
#include <vector>

namespace {

const int64_t kProgramMemory = 8 << 20; /* of one expression, with its automata */
const int64_t kSetMemory = 64 << 20;

RE2::Options options(bool ignore_case, int64_t memory)
{
	RE2::Options o;

	o.set_log_errors(false);
	o.set_case_sensitive(!ignore_case);
	o.set_max_mem(memory);
	return o;
}

} // namespace

struct regex {
	RE2 re;

	regex(re2::StringPiece pattern, bool ignore_case)
	    : re(pattern, options(ignore_case, kProgramMemory))
	{
	}
};

struct regex_set {
	RE2::Set set;
	size_t n = 0;

	regex_set() : set(options(false, kSetMemory), RE2::UNANCHORED)
	{
	}
};

struct regex *regex_new(struct str pattern, bool ignore_case, char *why, size_t why_size)
{
	struct regex *r = new (std::nothrow) regex(re2::StringPiece(pattern.p, pattern.n), ignore_case);

	if (r != nullptr && r->re.ok())
		return r;
	if (why_size > 0) {
		std::string text = r != nullptr ? r->re.error() : "no memory";
		size_t n = text.size() < why_size ? text.size() : why_size - 1;

		memcpy(why, text.data(), n);
		why[n] = 0;
	}
	delete r;
	return nullptr;
}

struct regex *regex_free(struct regex *r)
{
	delete r;
	return nullptr;
}

bool regex_find(const struct regex *r, struct str text, size_t from, size_t *ret_begin, size_t *ret_end)
{
	re2::StringPiece all(text.p, text.n), found;

	if (from > text.n || !r->re.Match(all, from, text.n, RE2::UNANCHORED, &found, 1))
		return false;
	*ret_begin = static_cast<size_t>(found.data() - text.p);
	*ret_end = *ret_begin + found.size();
	return true;
}

struct regex_set *regex_set_new(const struct str *patterns, const bool *ignore_case, size_t n)
{
	struct regex_set *s = new (std::nothrow) regex_set();

	if (s == nullptr)
		return nullptr;
	for (size_t i = 0; i < n; i++) {
		std::string p(patterns[i].p, patterns[i].n);

		if (ignore_case[i])
			p = "(?i)" + p;
		if (s->set.Add(p, nullptr) != static_cast<int>(i)) {
			delete s;
			return nullptr;
		}
	}
	s->n = n;
	if (!s->set.Compile()) {
		delete s;
		return nullptr;
	}
	return s;
}

struct regex_set *regex_set_free(struct regex_set *s)
{
	delete s;
	return nullptr;
}

void regex_set_match(const struct regex_set *s, struct str text, bool *matched)
{
	std::vector<int> which;
	RE2::Set::ErrorInfo error = {RE2::Set::kNoError};
	bool any = s->set.Match(re2::StringPiece(text.p, text.n), &which, &error);

	for (size_t i = 0; i < s->n; i++)
		matched[i] = !any && error.kind != RE2::Set::kNoError;
	for (int i : which)
		matched[i] = true;
}
