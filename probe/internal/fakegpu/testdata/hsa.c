/*
 * A fake libhsa-runtime64: the memory of a GPU is a part of a memfd, so that a fake adapter can write to it by
 * descriptor. The CPU cannot access it at its address, and copies use a second mapping. It is not at the start of the
 * memfd. Environment: FAKEHSA_NO_POOL, FAKEHSA_ELSEWHERE (1); FAKEHSA_FAIL=FUNCTION:STATUS; FAKEGPU_LEDGER=FILE records
 * the allocations. -DNO_EXPORT and -DNO_ALLOCATE omit a function. It has its own declarations, so that a mistake in
 * those of rocm.c is not repeated here.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uint32_t hsa_status_t;
typedef struct hsa_agent_s {
	uint64_t handle;
} hsa_agent_t;
typedef struct hsa_amd_memory_pool_s {
	uint64_t handle;
} hsa_amd_memory_pool_t;
typedef struct {
	uint32_t size;
	uint32_t type;
	void *agentBaseAddress;
	void *hostBaseAddress;
	size_t sizeInBytes;
	void *userData;
	hsa_agent_t agentOwner;
	uint32_t global_flags;
} hsa_amd_pointer_info_t;

enum {
	SUCCESS = 0,
	INVALID_ARGUMENT = 0x1001,
	INVALID_ALLOCATION = 0x1003,
	INVALID_AGENT = 0x1004,
	OUT_OF_RESOURCES = 0x1008,
	RESOURCE_FREE = 0x100A,
	NOT_INITIALIZED = 0x100B,
	INVALID_MEMORY_POOL = 40,
	MAX = 16,
	BEFORE = 0x10000, /* bytes of the memfd before the memory */
};
#define SIZE ((size_t)64 << 20) /* bytes of a GPU's memory */

/* A CPU, a GPU on another bus, one in another domain, one in two partitions, in any order. */
static const struct {
	bool gpu;
	uint32_t domain, bdfid;
} agents[] = {{false, 0, 0}, {true, 0, 0x0f00}, {true, 1, 0xb300}, {true, 0, 0x1000b300}, {true, 0, 0xb300}};
enum { AGENTS = sizeof agents / sizeof *agents, TESTED = 3 };

static struct block {
	char *p, *copy; /* p has no access */
	size_t size;
	int fd, agent;
} blocks[MAX];
static struct lock {
	char *p;
	size_t size;
} locks[MAX];
static int inits, memories, hosts, exports;

static void ledger(void)
{
	const char *path = getenv("FAKEGPU_LEDGER");
	FILE *f = path ? fopen(path, "w") : NULL;
	if (!f)
		return;
	fprintf(f, "inits=%d memories=%d hosts=%d exports=%d", inits, memories, hosts, exports);
	fclose(f);
}

static hsa_status_t planned(const char *call)
{
	const char *fail = getenv("FAKEHSA_FAIL");
	size_t n = strlen(call);
	return fail && !strncmp(fail, call, n) && fail[n] == ':' ? strtoul(fail + n + 1, NULL, 0) : SUCCESS;
}

static bool on(const char *knob)
{
	return getenv(knob) && *getenv(knob) == '1';
}

#define PLANNED                                                                                                        \
	if (planned(__func__))                                                                                         \
	return planned(__func__)
#define RUNNING                                                                                                        \
	if (!inits)                                                                                                    \
	return NOT_INITIALIZED;                                                                                        \
	PLANNED

hsa_status_t hsa_status_string(hsa_status_t status, const char **text)
{
	static const struct {
		hsa_status_t status;
		const char *text;
	} all[] = {{0x1000, "HSA_STATUS_ERROR: A generic error has occurred."},
		   {INVALID_ALLOCATION, "HSA_STATUS_ERROR_INVALID_ALLOCATION: The requested allocation is not valid."},
		   {INVALID_AGENT, "HSA_STATUS_ERROR_INVALID_AGENT: The agent is invalid."},
		   {OUT_OF_RESOURCES, "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate resources."}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i].status == status)
			return *text = all[i].text, SUCCESS;
	return INVALID_ARGUMENT;
}

hsa_status_t hsa_init(void)
{
	PLANNED;
	inits++;
	return ledger(), SUCCESS;
}

hsa_status_t hsa_shut_down(void)
{
	RUNNING;
	inits--;
	return ledger(), SUCCESS;
}

hsa_status_t hsa_iterate_agents(hsa_status_t (*callback)(hsa_agent_t, void *), void *data)
{
	RUNNING;
	hsa_status_t status = SUCCESS;
	for (uint64_t i = 0; i < AGENTS && !status; i++)
		status = callback((hsa_agent_t){i + 100}, data);
	return status;
}

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, uint32_t attribute, void *value)
{
	RUNNING;
	if (agent.handle < 100 || agent.handle >= 100 + AGENTS)
		return INVALID_AGENT;
	if (agent.handle == 101 && on("FAKEHSA_SICK")) /* the GPU on another bus */
		return INVALID_AGENT;
	switch (attribute) {
	case 17:
		return *(uint32_t *)value = agents[agent.handle - 100].gpu, SUCCESS;
	case 0xA006:
		return *(uint32_t *)value = agents[agent.handle - 100].bdfid, SUCCESS;
	case 0xA00F:
		return *(uint32_t *)value = agents[agent.handle - 100].domain, SUCCESS;
	}
	return INVALID_ARGUMENT;
}

/* Pools of an agent, as GpuAgent::InitRegionList makes them: group memory, fine-grained, coarse-grained. */
hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent,
						hsa_status_t (*callback)(hsa_amd_memory_pool_t, void *), void *data)
{
	RUNNING;
	hsa_status_t status = SUCCESS;
	for (uint64_t i = 0; i < 3 && !status; i++)
		status = callback((hsa_amd_memory_pool_t){agent.handle * 10 + i}, data);
	return status;
}

hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool, uint32_t attribute, void *value)
{
	RUNNING;
	uint64_t kind = pool.handle % 10;
	if (pool.handle < 1000 || kind > 2 || (kind == 1 && on("FAKEHSA_SICK")))
		return INVALID_MEMORY_POOL;
	switch (attribute) {
	case 0: /* 3 is the group segment */
		return *(uint32_t *)value = kind ? 0 : 3, SUCCESS;
	case 1:
		return *(uint32_t *)value = kind == 1 ? 2 : 4, SUCCESS;
	case 5:
		return *(bool *)value = kind && !on("FAKEHSA_NO_POOL"), SUCCESS;
	}
	return INVALID_ARGUMENT;
}

static struct block *find(const void *p, size_t n)
{
	for (int i = 0; i < MAX; i++)
		if (blocks[i].p && (char *)p >= blocks[i].p && (char *)p + n <= blocks[i].p + blocks[i].size)
			return &blocks[i];
	return NULL;
}

#ifndef NO_ALLOCATE
hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags, void **p)
{
	RUNNING;
	int i = 0;
	while (i < MAX && blocks[i].p)
		i++;
	if (pool.handle % 10 != 2 || flags || !size)
		return INVALID_ARGUMENT;
	if (i == MAX || size > SIZE)
		return OUT_OF_RESOURCES;
	struct block b = {.size = size, .agent = pool.handle / 10 - 100, .fd = memfd_create("fakehsa", MFD_CLOEXEC)};
	if (b.fd < 0 || ftruncate(b.fd, BEFORE + size))
		return OUT_OF_RESOURCES;
	b.p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	b.copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, BEFORE);
	if (b.p == MAP_FAILED || b.copy == MAP_FAILED)
		return OUT_OF_RESOURCES;
	memset(b.copy, 0xdb, size); /* a GPU's memory is not zeroed */
	blocks[i] = b, memories++, *p = b.p;
	return ledger(), SUCCESS;
}
#endif

hsa_status_t hsa_amd_memory_pool_free(void *p)
{
	RUNNING;
	struct block *b = find(p, 0);
	if (!b || b->p != p)
		return INVALID_ALLOCATION;
	munmap(b->p, b->size), munmap(b->copy, b->size), close(b->fd);
	b->p = NULL, memories--;
	return ledger(), SUCCESS;
}

hsa_status_t hsa_amd_memory_fill(void *p, uint32_t value, size_t count)
{
	RUNNING;
	struct block *b = find(p, count * 4);
	if (!b)
		return INVALID_ALLOCATION;
	for (size_t i = 0; i < count; i++)
		memcpy(b->copy + ((char *)p - b->p) + i * 4, &value, 4);
	return SUCCESS;
}

hsa_status_t hsa_memory_copy(void *to, const void *from, size_t n)
{
	RUNNING;
	struct block *target = find(to, n), *source = find(from, n);
	if (target)
		to = target->copy + ((char *)to - target->p);
	if (source)
		from = source->copy + ((char *)from - source->p);
	if (!target == !source)
		return INVALID_ALLOCATION; /* the code under test copies between GPU and host only */
	return memcpy(to, from, n), SUCCESS;
}

hsa_status_t hsa_amd_pointer_info(const void *p, hsa_amd_pointer_info_t *info, void *(*alloc)(size_t), uint32_t *n,
				  hsa_agent_t **accessible)
{
	RUNNING;
	struct block *b = find(p, 1);
	if (info->size < sizeof *info || alloc || n || accessible)
		return INVALID_ARGUMENT;
	*info = (hsa_amd_pointer_info_t){.size = sizeof *info};
	if (!b)
		return SUCCESS; /* unknown memory */
	info->type = 1, info->agentBaseAddress = b->p, info->sizeInBytes = b->size, info->global_flags = 4;
	info->agentOwner.handle = on("FAKEHSA_ELSEWHERE") ? 100 : 100 + b->agent;
	return SUCCESS;
}

hsa_status_t hsa_amd_memory_lock(void *p, size_t size, hsa_agent_t *list, int n, void **agent_p)
{
	RUNNING;
	int i = 0;
	while (i < MAX && locks[i].p)
		i++;
	if (!p || !size || n != 1 || !list || list->handle != 100 + TESTED || i == MAX)
		return INVALID_ARGUMENT;
	locks[i] = (struct lock){p, size}, hosts++, *agent_p = (char *)p + 1; /* another address than the host's */
	return ledger(), SUCCESS;
}

hsa_status_t hsa_amd_memory_unlock(void *p)
{
	RUNNING;
	for (int i = 0; i < MAX; i++)
		if (p && locks[i].p == p) {
			unsigned char vector; /* the memory must still be mapped */
			if (mincore(p, 1, &vector))
				return INVALID_ALLOCATION;
			locks[i].p = NULL, hosts--;
			return ledger(), SUCCESS;
		}
	return INVALID_ARGUMENT;
}

#ifndef NO_EXPORT
hsa_status_t hsa_amd_portable_export_dmabuf(const void *p, size_t size, int *fd, uint64_t *offset)
{
	RUNNING;
	struct block *b = find(p, size);
	if (!b)
		return INVALID_ALLOCATION;
	*fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 0), *offset = BEFORE + ((char *)p - b->p), exports++;
	return ledger(), SUCCESS;
}

hsa_status_t hsa_amd_portable_close_dmabuf(int fd)
{
	RUNNING;
	exports--;
	return ledger(), close(fd) ? RESOURCE_FREE : SUCCESS;
}
#endif
