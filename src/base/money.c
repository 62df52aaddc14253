#include "base/money.h"

#include "base/error.h"

enum { MONEY_DIGITS = 12 };
#define MONEY_DOLLAR INT64_C(1000000000000)

static struct money money_clamp(__int128 pico)
{
	if (pico > INT64_MAX)
		return (struct money){INT64_MAX};
	if (pico < INT64_MIN)
		return (struct money){INT64_MIN};
	return (struct money){(int64_t)pico};
}

bool money_parse(struct str s, struct money *ret)
{
	const char *point = s.n ? memchr(s.p, '.', s.n) : NULL;
	struct str whole = {s.p, point ? (size_t)(point - s.p) : s.n};
	struct str fraction = {point ? point + 1 : NULL, point ? s.n - whole.n - 1 : 0};
	uint64_t dollars, pico = 0;
	__int128 sum;
	size_t i;

	if (!str_to_u64(whole, &dollars))
		return false;
	if (whole.n > 1 && whole.p[0] == '0')
		return false;
	if (point) {
		if (fraction.n > MONEY_DIGITS || !str_to_u64(fraction, &pico))
			return false;
		for (i = fraction.n; i < MONEY_DIGITS; i++)
			pico *= 10;
	}
	sum = (__int128)dollars * MONEY_DOLLAR + pico;
	if (sum > INT64_MAX)
		return false;
	ret->pico = (int64_t)sum;
	return true;
}

struct money money_add(struct money a, struct money b)
{
	return money_clamp((__int128)a.pico + b.pico);
}

struct money money_mul(struct money a, uint64_t times, uint64_t divisor)
{
	/* |a| ≤ 2^63 and times < 2^64: the product stays below 2^127. */
	__int128 product = (__int128)a.pico * times;
	__int128 quotient, rest;

	if (divisor == 0)
		BUG("money divided by 0");
	quotient = product / divisor;
	rest = product % divisor;
	if (rest < 0) {
		quotient--;
		rest += divisor;
	}
	if (rest >= (__int128)divisor - rest)
		quotient++;
	return money_clamp(quotient);
}

int money_write(struct buf *out, struct money m)
{
	/* Two's complement by hand: -INT64_MIN has no int64_t. */
	uint64_t pico = m.pico < 0 ? 0 - (uint64_t)m.pico : (uint64_t)m.pico;
	uint64_t fraction = pico % MONEY_DOLLAR;
	char digits[MONEY_DIGITS];
	size_t n = MONEY_DIGITS, i;

	if (m.pico < 0)
		buf_putc(out, '-');
	buf_u64(out, pico / MONEY_DOLLAR);
	if (fraction) {
		for (i = MONEY_DIGITS; i-- > 0; fraction /= 10)
			digits[i] = (char)('0' + fraction % 10);
		while (digits[n - 1] == '0')
			n--;
		buf_putc(out, '.');
		buf_append(out, digits, n);
	}
	return buf_error(out);
}
