/*
 * libhsa-runtime64, opened at run time, without its headers. Types, numbers and names are from hsa.h and hsa_ext_amd.h
 * 1.6 of ROCR-Runtime c7785a6d (2024-10, runtime/hsa-runtime/inc). Handles are structs of one 64-bit number.
 */
#define _GNU_SOURCE
#include "rocm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef int hsa_status_t;
typedef struct {
	uint64_t handle;
} hsa_agent_t, hsa_pool_t;

enum {
	INFO_BREAK = 1, /* HSA_STATUS_INFO_BREAK: a callback ended the iteration */
	STATUS_ERROR = 0x1000,
	AGENT_INFO_DEVICE = 17,
	DEVICE_TYPE_GPU = 1,
	AGENT_INFO_BDFID = 0xA006,
	AGENT_INFO_DOMAIN = 0xA00F,
	POOL_INFO_SEGMENT = 0,
	SEGMENT_GLOBAL = 0,
	POOL_INFO_GLOBAL_FLAGS = 1,
	POOL_COARSE_GRAINED = 4,
	POOL_INFO_ALLOC_ALLOWED = 5,
	POINTER_TYPE_HSA = 1,
};

/* hsa_amd_pointer_info_t, which only grows; size is set by the caller. */
struct pointer_info {
	uint32_t size;
	int type;
	void *agent_base, *host_base;
	size_t bytes;
	void *user_data;
	hsa_agent_t owner;
	uint32_t global_flags;
};

/* The last two functions may be missing: they were added in version 1.1 of the extension. */
#define SYMBOLS(X)                                                                                                     \
	X(hsa_status_string, (hsa_status_t, const char **))                                                            \
	X(hsa_init, (void))                                                                                            \
	X(hsa_shut_down, (void))                                                                                       \
	X(hsa_iterate_agents, (hsa_status_t(*)(hsa_agent_t, void *), void *))                                          \
	X(hsa_agent_get_info, (hsa_agent_t, int, void *))                                                              \
	X(hsa_memory_copy, (void *, const void *, size_t))                                                             \
	X(hsa_amd_agent_iterate_memory_pools, (hsa_agent_t, hsa_status_t(*)(hsa_pool_t, void *), void *))              \
	X(hsa_amd_memory_pool_get_info, (hsa_pool_t, int, void *))                                                     \
	X(hsa_amd_memory_pool_allocate, (hsa_pool_t, size_t, uint32_t, void **))                                       \
	X(hsa_amd_memory_pool_free, (void *))                                                                          \
	X(hsa_amd_memory_fill, (void *, uint32_t, size_t))                                                             \
	X(hsa_amd_memory_lock, (void *, size_t, hsa_agent_t *, int, void **))                                          \
	X(hsa_amd_memory_unlock, (void *))                                                                             \
	X(hsa_amd_pointer_info,                                                                                        \
	  (const void *, struct pointer_info *, void *(*)(size_t), uint32_t *, hsa_agent_t **))                        \
	X(hsa_amd_portable_export_dmabuf, (const void *, size_t, int *, uint64_t *))                                   \
	X(hsa_amd_portable_close_dmabuf, (int))

#define INDEX(name, args) S_##name,
enum { SYMBOLS(INDEX) S_COUNT, S_OPTIONAL = S_hsa_amd_portable_export_dmabuf };
_Static_assert(S_COUNT == (int)RS_ROCM_SYMBOLS, "RS_ROCM_SYMBOLS is not the number of symbols");

#define TYPE(name, args) typedef hsa_status_t(*T_##name) args;
SYMBOLS(TYPE)

#define NAME(name, args) #name,
static const char *const symbols[] = {SYMBOLS(NAME)};

#define CALL(m, name, ...) (((T_##name)(m)->symbol[S_##name])(__VA_ARGS__))

static const struct rs_gpu_error ok;

static struct rs_gpu_error result(struct rs_rocm *m, const char *op, hsa_status_t code)
{
	struct rs_gpu_error e = {.op = code ? op : NULL, .code = code};
	if (code && CALL(m, hsa_status_string, code, &e.name))
		e.name = NULL; /* the code is newer than the library */
	return e;
}

#define TRY(m, name, ...) result(m, #name, CALL(m, name, __VA_ARGS__))

struct rs_rocm *rs_rocm_new(void)
{
	struct rs_rocm *m = calloc(1, sizeof *m);
	if (m)
		m->fd = -1;
	return m;
}

/* A search for the GPU at a PCI address, and then for its pool. */
struct search {
	struct rs_rocm *m;
	uint32_t domain, function; /* function: bus, device and function, as in the low 16 bits of BDFID */
	int gpus;
	bool found;
	hsa_status_t code; /* answer of an agent or pool that could not be asked: the others are still visited */
};

/* In a partitioned GPU each partition is an agent of the same address, with its number in the high bits: the first. */
static hsa_status_t visit_agent(hsa_agent_t agent, void *data)
{
	struct search *s = data;
	struct rs_rocm *m = s->m;
	uint32_t type = 0, domain = 0, function = 0;
	hsa_status_t code = CALL(m, hsa_agent_get_info, agent, AGENT_INFO_DEVICE, &type);
	if (!code && type != DEVICE_TYPE_GPU)
		return 0;
	s->gpus++;
	if (!code)
		code = CALL(m, hsa_agent_get_info, agent, AGENT_INFO_BDFID, &function);
	if (!code)
		code = CALL(m, hsa_agent_get_info, agent, AGENT_INFO_DOMAIN, &domain);
	if (code)
		s->code = code;
	if (code || domain != s->domain || (function & 0xffff) != s->function)
		return 0;
	m->agent = agent.handle;
	s->found = true;
	return INFO_BREAK;
}

/* hipMalloc and so jobs' tensors use the coarse-grained pool of a GPU. */
static hsa_status_t visit_pool(hsa_pool_t pool, void *data)
{
	struct search *s = data;
	struct rs_rocm *m = s->m;
	uint32_t segment = 0, flags = 0;
	bool allowed = false;
	hsa_status_t code = CALL(m, hsa_amd_memory_pool_get_info, pool, POOL_INFO_SEGMENT, &segment);
	if (!code && segment != SEGMENT_GLOBAL)
		return 0;
	if (!code)
		code = CALL(m, hsa_amd_memory_pool_get_info, pool, POOL_INFO_GLOBAL_FLAGS, &flags);
	if (!code)
		code = CALL(m, hsa_amd_memory_pool_get_info, pool, POOL_INFO_ALLOC_ALLOWED, &allowed);
	if (code)
		s->code = code;
	if (code || !allowed || !(flags & POOL_COARSE_GRAINED))
		return 0;
	m->pool = pool.handle;
	m->pools = 1;
	return INFO_BREAK;
}

static hsa_status_t unbroken(hsa_status_t code)
{
	return code == INFO_BREAK ? 0 : code;
}

struct rs_gpu_error rs_rocm_find(struct rs_rocm *m, const char *path, const char *address, char *text, uint32_t size)
{
	struct search s = {.m = m};
	unsigned bus = 0, device = 0, function = 0;
	struct rs_gpu_error e = rs_gpu_load("load libhsa", path, symbols, S_COUNT, S_OPTIONAL, m->symbol, text, size);
	if (e.op)
		return e;
	m->exports = m->symbol[S_hsa_amd_portable_export_dmabuf] && m->symbol[S_hsa_amd_portable_close_dmabuf];
	e = TRY(m, hsa_init);
	m->running = !e.op;
	if (!e.op && sscanf(address, "%x:%x:%x.%x", &s.domain, &bus, &device, &function) == 4) {
		s.function = bus << 8 | device << 3 | function;
		e = result(m, "hsa_iterate_agents", unbroken(CALL(m, hsa_iterate_agents, visit_agent, &s)));
	}
	if (!e.op && !s.found && s.code)
		return result(m, "hsa_agent_get_info", s.code);
	if (!e.op && !s.found) {
		snprintf(text, size, "not among the %d GPUs of ROCm", s.gpus);
		return (struct rs_gpu_error){.op = "find GPU", .code = STATUS_ERROR, .name = "HSA_STATUS_ERROR"};
	}
	STEP(e, result(m, "hsa_amd_agent_iterate_memory_pools",
		       unbroken(CALL(m, hsa_amd_agent_iterate_memory_pools, (hsa_agent_t){m->agent}, visit_pool, &s))));
	if (!e.op && !m->pools && s.code)
		return result(m, "hsa_amd_memory_pool_get_info", s.code);
	return e;
}

/* ---- memory ---- */

/* Returns an error unless all of the memory is the GPU's. */
static struct rs_gpu_error placed(struct rs_rocm *m, uint64_t size)
{
	struct pointer_info i = {.size = sizeof i};
	struct rs_gpu_error e = TRY(m, hsa_amd_pointer_info, m->gpu, &i, NULL, NULL, NULL);
	uint64_t at = (uintptr_t)m->gpu - (uintptr_t)i.agent_base;
	if (!e.op && (i.type != POINTER_TYPE_HSA || i.owner.handle != m->agent || at > i.bytes || i.bytes - at < size))
		e = (struct rs_gpu_error){"hsa_amd_pointer_info", "the memory is not on this GPU", STATUS_ERROR};
	return e;
}

/* The size is a multiple of 2 MiB, and so of a page: a device maps whole pages. */
struct rs_gpu_error rs_rocm_alloc(struct rs_rocm *m, uint64_t size)
{
	const uint64_t page = 2 << 20, whole = (size + page - 1) / page * page;
	void *p = NULL;
	struct rs_gpu_error e = TRY(m, hsa_amd_memory_pool_allocate, (hsa_pool_t){m->pool}, whole, 0, &p);
	if (e.op)
		return e;
	m->gpu = p;
	m->size = size;
	STEP(e, placed(m, whole));
	STEP(e, TRY(m, hsa_amd_memory_fill, p, 0, whole / sizeof(uint32_t)));
	if (!e.op) {
		int fd = -1;
		e = TRY(m, hsa_amd_portable_export_dmabuf, p, whole, &fd, &m->offset);
		m->fd = e.op ? -1 : fd;
	}
	return e;
}

struct rs_gpu_error rs_rocm_lock(struct rs_rocm *m, void *host, uint64_t size)
{
	hsa_agent_t agent = {m->agent};
	void *p;
	struct rs_gpu_error e = TRY(m, hsa_amd_memory_lock, host, size, &agent, 1, &p);
	m->locked = e.op ? NULL : host;
	return e;
}

struct rs_gpu_error rs_rocm_write(struct rs_rocm *m, uint64_t at, const void *data, uint64_t n)
{
	return TRY(m, hsa_memory_copy, (char *)m->gpu + at, data, n);
}

struct rs_gpu_error rs_rocm_read(struct rs_rocm *m, uint64_t at, void *data, uint64_t n)
{
	return TRY(m, hsa_memory_copy, data, (char *)m->gpu + at, n);
}

/* The library keeps /dev/kfd and render nodes open until the process ends (libhsakmt/src/openclose.c, fmm.c). */
struct rs_gpu_error rs_rocm_free(struct rs_rocm *m)
{
	struct rs_gpu_error e = ok;
	if (m->fd >= 0)
		ALWAYS(e, TRY(m, hsa_amd_portable_close_dmabuf, m->fd));
	if (m->gpu)
		ALWAYS(e, TRY(m, hsa_amd_memory_pool_free, m->gpu));
	if (m->locked)
		ALWAYS(e, TRY(m, hsa_amd_memory_unlock, m->locked));
	if (m->running)
		ALWAYS(e, TRY(m, hsa_shut_down));
	free(m);
	return e;
}
