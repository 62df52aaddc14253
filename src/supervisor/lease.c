#include "supervisor/lease.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>

struct lease_table {
	const struct sup_config *cfg;
	uint32_t first, n;
	struct {
		bool taken;
		int userns;
	} * rows;
};

struct lease_table *lease_table_new(const struct sup_config *cfg, uint32_t first, uint32_t n)
{
	struct lease_table *t = mem_alloc(sizeof(*t));
	t->cfg = cfg;
	t->first = first;
	t->n = n;
	t->rows = mem_array(n, sizeof(t->rows[0]));
	for (uint32_t i = 0; i < n; i++)
		t->rows[i].userns = -1;
	return t;
}

struct lease_table *lease_table_free(struct lease_table *t)
{
	if (!t)
		return NULL;
	for (uint32_t i = 0; i < t->n; i++)
		sys_close(&t->rows[i].userns);
	free(t->rows);
	free(t);
	return NULL;
}

int lease_take(struct lease_table *t, uint32_t *ret, struct fail *f)
{
	uint32_t n = 0;
	while (n < t->n && t->rows[n].taken)
		n++;
	if (n == t->n)
		return fail_set(f, SUP_E_CAPACITY, 0, "no free id range");
	if (t->rows[n].userns < 0) {
		int fd = sys_userns(sup_uid_storage(t->cfg), lease_uid(t, n));
		if (fd < 0)
			return fail_set(f, SUP_E_SYSTEM, fd, "make user namespace");
		t->rows[n].userns = fd;
	}
	t->rows[n].taken = true;
	*ret = n;
	return 0;
}

void lease_return(struct lease_table *t, uint32_t lease)
{
	t->rows[lease].taken = false;
}

uid_t lease_uid(const struct lease_table *t, uint32_t lease)
{
	return sup_uid_lease(t->cfg, t->first + lease);
}

int lease_home_userns(const struct lease_table *t, uint32_t lease)
{
	return t->rows[lease].userns;
}
