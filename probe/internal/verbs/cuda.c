/*
 * libcuda, opened at run time, without its headers. Types, numbers and names are from cuda.h of CUDA 12.4 and the CUDA
 * Driver API reference; cuda.h's macros add the suffix _v2 to names. A context is current only within a call, because
 * Go moves between threads.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include "rail.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;

enum {
	INVALID_VALUE = 1, /* CUDA_ERROR_INVALID_VALUE; also for an attribute that the driver does not know */
	NO_DEVICE = 100,
	NOT_READY = 600,
	ATTRIBUTE_INTEGRATED = 18,
	ATTRIBUTE_GPU_DIRECT_RDMA = 116,
	ATTRIBUTE_DMA_BUF = 124,
	POINTER_SYNC_MEMOPS = 6,
	HANDLE_DMA_BUF_FD = 1,
	HOST_PORTABLE = 1,
	STREAM_NON_BLOCKING = 1,
	EVENT_DISABLE_TIMING = 2,
};

/* The last function may be missing: it was added in CUDA 11.7. */
#define SYMBOLS(X)                                                                                                     \
	X(cuGetErrorName, (CUresult, const char **))                                                                   \
	X(cuInit, (unsigned))                                                                                          \
	X(cuDriverGetVersion, (int *))                                                                                 \
	X(cuDeviceGetCount, (int *))                                                                                   \
	X(cuDeviceGet, (CUdevice *, int))                                                                              \
	X(cuDeviceGetPCIBusId, (char *, int, CUdevice))                                                                \
	X(cuDeviceGetAttribute, (int *, int, CUdevice))                                                                \
	X(cuDevicePrimaryCtxRetain, (void **, CUdevice))                                                               \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                                    \
	X(cuCtxPushCurrent_v2, (void *))                                                                               \
	X(cuCtxPopCurrent_v2, (void **))                                                                               \
	X(cuCtxSynchronize, (void))                                                                                    \
	X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                      \
	X(cuMemFree_v2, (CUdeviceptr))                                                                                 \
	X(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t))                                                         \
	X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                                        \
	X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                              \
	X(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, void *))                                                 \
	X(cuMemHostAlloc, (void **, size_t, unsigned))                                                                 \
	X(cuMemFreeHost, (void *))                                                                                     \
	X(cuPointerSetAttribute, (const void *, int, CUdeviceptr))                                                     \
	X(cuStreamCreate, (void **, unsigned))                                                                         \
	X(cuStreamSynchronize, (void *))                                                                               \
	X(cuStreamDestroy_v2, (void *))                                                                                \
	X(cuEventCreate, (void **, unsigned))                                                                          \
	X(cuEventRecord, (void *, void *))                                                                             \
	X(cuEventQuery, (void *))                                                                                      \
	X(cuEventDestroy_v2, (void *))                                                                                 \
	X(cuMemGetHandleForAddressRange, (void *, CUdeviceptr, size_t, int, unsigned long long))

#define INDEX(name, args) S_##name,
enum { SYMBOLS(INDEX) S_COUNT, S_OPTIONAL = S_cuMemGetHandleForAddressRange };
_Static_assert(S_COUNT == (int)RS_CUDA_SYMBOLS, "RS_CUDA_SYMBOLS is not the number of symbols");

#define TYPE(name, args) typedef CUresult(*T_##name) args;
SYMBOLS(TYPE)

#define NAME(name, args) #name,
static const char *const symbols[] = {SYMBOLS(NAME)};

#define CALL(m, name, ...) (((T_##name)(m)->symbol[S_##name])(__VA_ARGS__))

static const struct rs_gpu_error ok;

static struct rs_gpu_error result(struct rs_cuda *m, const char *op, CUresult code)
{
	struct rs_gpu_error e = {.op = code ? op : NULL, .code = code};
	if (code && CALL(m, cuGetErrorName, code, &e.name))
		e.name = NULL; /* the code is newer than the library */
	return e;
}

#define TRY(m, name, ...) result(m, #name, CALL(m, name, __VA_ARGS__))

struct rs_cuda *rs_cuda_new(void)
{
	struct rs_cuda *m = calloc(1, sizeof *m);
	if (m)
		m->fd = -1;
	return m;
}

static bool same(const char *a, const char *b)
{
	unsigned x[3], y[3];
	return sscanf(a, "%x:%x:%x", x, x + 1, x + 2) == 3 && sscanf(b, "%x:%x:%x", y, y + 1, y + 2) == 3 &&
	       !memcmp(x, y, sizeof x);
}

static struct rs_gpu_error attribute(struct rs_cuda *m, int which, int32_t *value)
{
	CUresult code = CALL(m, cuDeviceGetAttribute, value, which, m->device);
	if (code)
		*value = 0;
	return result(m, "cuDeviceGetAttribute", code == INVALID_VALUE ? 0 : code);
}

struct rs_gpu_error rs_cuda_find(struct rs_cuda *m, const char *path, const char *address, char *text, uint32_t size)
{
	int count = 0;
	struct rs_gpu_error e = rs_gpu_load("load libcuda", path, symbols, S_COUNT, S_OPTIONAL, m->symbol, text, size);
	m->exports = !e.op && m->symbol[S_OPTIONAL];
	STEP(e, TRY(m, cuInit, 0));
	STEP(e, TRY(m, cuDriverGetVersion, &m->driver));
	STEP(e, TRY(m, cuDeviceGetCount, &count));
	for (int i = 0; !e.op && i < count; i++) {
		char id[32] = "";
		STEP(e, TRY(m, cuDeviceGet, &m->device, i));
		STEP(e, TRY(m, cuDeviceGetPCIBusId, id, sizeof id, m->device));
		if (e.op || !same(id, address))
			continue;
		STEP(e, attribute(m, ATTRIBUTE_INTEGRATED, &m->integrated));
		STEP(e, attribute(m, ATTRIBUTE_GPU_DIRECT_RDMA, &m->gpu_direct));
		STEP(e, attribute(m, ATTRIBUTE_DMA_BUF, &m->dmabuf));
		return e;
	}
	if (!e.op) {
		snprintf(text, size, "not among the %d GPUs of CUDA", count);
		e = (struct rs_gpu_error){.op = "find GPU", .code = NO_DEVICE, .name = "CUDA_ERROR_NO_DEVICE"};
	}
	return e;
}

/* ---- memory ---- */

static struct rs_gpu_error push(struct rs_cuda *m)
{
	return TRY(m, cuCtxPushCurrent_v2, m->context);
}

static struct rs_gpu_error pop(struct rs_cuda *m)
{
	void *context;
	return TRY(m, cuCtxPopCurrent_v2, &context);
}

/* The size is a multiple of 2 MiB, and so of a page: a dma-buf must begin and end on a page boundary. */
static struct rs_gpu_error on_gpu(struct rs_cuda *m, bool export)
{
	const uint64_t page = 2 << 20, size = (m->size + page - 1) / page * page;
	const int on = 1;
	CUdeviceptr p = 0;
	struct rs_gpu_error e = TRY(m, cuMemAlloc_v2, &p, size);
	m->gpu = p;
	STEP(e, TRY(m, cuPointerSetAttribute, &on, POINTER_SYNC_MEMOPS, p));
	STEP(e, TRY(m, cuMemsetD8_v2, p, 0, size));
	STEP(e, TRY(m, cuCtxSynchronize));
	if (export && !e.op) {
		int fd = -1;
		e = TRY(m, cuMemGetHandleForAddressRange, &fd, p, size, HANDLE_DMA_BUF_FD, 0);
		m->fd = e.op ? -1 : fd;
	}
	return e;
}

static struct rs_gpu_error staging(struct rs_cuda *m)
{
	struct rs_stage *s = &m->stage;
	s->memory = m;
	struct rs_gpu_error e = TRY(m, cuStreamCreate, &s->stream, STREAM_NON_BLOCKING);
	for (; !e.op && s->events < RS_COPIES; s->events += !e.op)
		e = TRY(m, cuEventCreate, &s->event[s->events], EVENT_DISABLE_TIMING);
	return e;
}

struct rs_gpu_error rs_cuda_alloc(struct rs_cuda *m, uint64_t gpu, uint64_t host, uint32_t exported)
{
	void *context = NULL;
	struct rs_gpu_error e = TRY(m, cuDevicePrimaryCtxRetain, &context, m->device);
	if (e.op)
		return e;
	m->context = context;
	m->size = gpu;
	m->host_size = host;
	e = push(m);
	if (e.op)
		return e;
	if (gpu)
		e = on_gpu(m, exported);
	if (host && !e.op) {
		e = TRY(m, cuMemHostAlloc, &m->host, host, HOST_PORTABLE);
		if (e.op)
			m->host = NULL;
		else
			memset(m->host, 0, host);
	}
	if (gpu && host && !e.op)
		e = staging(m);
	ALWAYS(e, pop(m));
	return e;
}

/* cuMemcpyHtoD may return before the bytes are on the GPU, and a device would read stale ones. */
struct rs_gpu_error rs_cuda_write(struct rs_cuda *m, uint64_t at, const void *data, uint64_t n)
{
	struct rs_gpu_error e = push(m);
	if (e.op)
		return e;
	STEP(e, TRY(m, cuMemcpyHtoD_v2, m->gpu + at, data, n));
	STEP(e, TRY(m, cuCtxSynchronize));
	ALWAYS(e, pop(m));
	return e;
}

struct rs_gpu_error rs_cuda_read(struct rs_cuda *m, uint64_t at, void *data, uint64_t n)
{
	struct rs_gpu_error e = push(m);
	if (e.op)
		return e;
	STEP(e, TRY(m, cuMemcpyDtoH_v2, data, m->gpu + at, n));
	ALWAYS(e, pop(m));
	return e;
}

static struct rs_gpu_error release(struct rs_cuda *m)
{
	struct rs_stage *s = &m->stage;
	struct rs_gpu_error e = push(m);
	const bool current = !e.op;
	if (s->stream)
		ALWAYS(e, TRY(m, cuStreamSynchronize, s->stream));
	for (uint32_t i = 0; i < s->events; i++)
		ALWAYS(e, TRY(m, cuEventDestroy_v2, s->event[i]));
	if (s->stream)
		ALWAYS(e, TRY(m, cuStreamDestroy_v2, s->stream));
	if (m->gpu)
		ALWAYS(e, TRY(m, cuMemFree_v2, m->gpu));
	if (m->host)
		ALWAYS(e, TRY(m, cuMemFreeHost, m->host));
	if (current)
		ALWAYS(e, pop(m));
	ALWAYS(e, TRY(m, cuDevicePrimaryCtxRelease_v2, m->device));
	return e;
}

struct rs_gpu_error rs_cuda_free(struct rs_cuda *m)
{
	if (m->fd >= 0)
		close(m->fd);
	struct rs_gpu_error e = m->context ? release(m) : ok;
	free(m);
	return e;
}

/* ---- staging ---- */

static struct rs_error failure(struct rs_gpu_error e)
{
	return (struct rs_error){.op = e.op, .err = e.op ? -EIO : 0, .vendor = (uint32_t)e.code, .name = e.name};
}

struct rs_error rs_stage_begin(struct rs_stage *s, uint32_t slot, uint64_t gpu, uint64_t host, uint64_t n)
{
	struct rs_cuda *m = s->memory;
	if (slot >= s->events || n > m->size || gpu > m->size - n || n > m->host_size || host > m->host_size - n)
		return (struct rs_error){.op = "copy outside memory", .err = -EINVAL};
	struct rs_gpu_error e = push(m);
	if (e.op)
		return failure(e);
	STEP(e, TRY(m, cuMemcpyDtoHAsync_v2, (char *)m->host + host, m->gpu + gpu, n, s->stream));
	STEP(e, TRY(m, cuEventRecord, s->event[slot], s->stream));
	ALWAYS(e, pop(m));
	return failure(e);
}

int rs_stage_ready(struct rs_stage *s, uint32_t slot, struct rs_error *error)
{
	struct rs_gpu_error e = push(s->memory);
	if (!e.op) {
		CUresult code = CALL(s->memory, cuEventQuery, s->event[slot]);
		e = result(s->memory, "cuEventQuery", code == NOT_READY ? 0 : code);
		ALWAYS(e, pop(s->memory));
		if (!e.op)
			return code != NOT_READY;
	}
	*error = failure(e);
	return -1;
}
