/*
 * A fake libcuda: the memory of the GPU is a memfd, so that a fake adapter can write to it by address and by
 * descriptor. Environment: FAKECUDA_INTEGRATED, FAKECUDA_NO_RDMA, FAKECUDA_NO_DMABUF (1); FAKECUDA_FAIL=FUNCTION:CODE;
 * FAKEGPU_LEDGER=FILE records the allocations. -DNO_EXPORT and -DNO_ALLOC omit a function. It has its own
 * declarations, so that a mistake in those of cuda.c is not repeated here.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
enum { SUCCESS = 0, INVALID_VALUE = 1, OOM = 2, NO_CONTEXT = 201, NOT_READY = 600, NOT_SUPPORTED = 801 };
#define MAX 16
#define SIZE ((size_t)64 << 20) /* bytes of the GPU's memory */

struct block {
	char *p;
	size_t size;
	int fd;
};
struct copy {
	void *to;
	CUdeviceptr from;
	size_t n;
};
struct stream {
	struct copy copy[256];
	int begun, done;
};
struct event {
	struct stream *stream;
	int at, asked;
};

static struct block blocks[MAX];
static int contexts, memories, hosts, streams, events;
static int depth; /* depth of one thread; not __thread, which LeakSanitizer sometimes fails to scan here */
static char context;

static void ledger(void)
{
	const char *path = getenv("FAKEGPU_LEDGER");
	FILE *f = path ? fopen(path, "w") : NULL;
	if (!f)
		return;
	fprintf(f, "contexts=%d memories=%d hosts=%d streams=%d events=%d", contexts, memories, hosts, streams, events);
	fclose(f);
}

static CUresult planned(const char *call)
{
	const char *fail = getenv("FAKECUDA_FAIL");
	size_t n = strlen(call);
	return fail && !strncmp(fail, call, n) && fail[n] == ':' ? atoi(fail + n + 1) : SUCCESS;
}

static int on(const char *knob)
{
	return getenv(knob) && *getenv(knob) == '1';
}

#define PLANNED                                                                                                        \
	if (planned(__func__))                                                                                         \
	return planned(__func__)
#define IN_CONTEXT                                                                                                     \
	if (!depth)                                                                                                    \
	return NO_CONTEXT;                                                                                             \
	PLANNED

CUresult cuGetErrorName(CUresult code, const char **name)
{
	static const struct {
		CUresult code;
		const char *name;
	} names[] = {{1, "CUDA_ERROR_INVALID_VALUE"},  {2, "CUDA_ERROR_OUT_OF_MEMORY"},   {34, "CUDA_ERROR_STUB_LIBRARY"},
		     {100, "CUDA_ERROR_NO_DEVICE"},    {201, "CUDA_ERROR_INVALID_CONTEXT"}, {801, "CUDA_ERROR_NOT_SUPPORTED"},
		     {999, "CUDA_ERROR_UNKNOWN"}};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].code == code)
			return *name = names[i].name, SUCCESS;
	*name = NULL;
	return INVALID_VALUE;
}

CUresult cuInit(unsigned flags)
{
	PLANNED;
	return flags ? INVALID_VALUE : SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = 12040;
	return SUCCESS;
}

CUresult cuDeviceGetCount(int *n)
{
	PLANNED;
	*n = 2;
	return SUCCESS;
}

CUresult cuDeviceGet(int *device, int i)
{
	*device = i;
	return SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int size, int device)
{
	snprintf(id, size, "0000:%s:00.0", device ? "B3" : "0F");
	return SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, int device)
{
	PLANNED;
	switch (attribute) {
	case 18:
		*value = on("FAKECUDA_INTEGRATED");
		break;
	case 116:
		*value = !on("FAKECUDA_NO_RDMA");
		break;
	case 124:
		*value = !on("FAKECUDA_NO_DMABUF");
		break;
	default:
		return INVALID_VALUE;
	}
	return device == 1 ? SUCCESS : INVALID_VALUE; /* the tests use the second GPU */
}

CUresult cuDevicePrimaryCtxRetain(void **c, int device)
{
	PLANNED;
	contexts++, *c = &context, (void)device;
	return ledger(), SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(int device)
{
	contexts--, (void)device;
	ledger();
	PLANNED;
	return depth ? NO_CONTEXT : SUCCESS; /* a push without a pop */
}

CUresult cuCtxPushCurrent_v2(void *c)
{
	PLANNED;
	depth++;
	return c == &context ? SUCCESS : NO_CONTEXT;
}

CUresult cuCtxPopCurrent_v2(void **c)
{
	if (!depth)
		return NO_CONTEXT;
	depth--, *c = &context;
	return SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	IN_CONTEXT;
	return SUCCESS;
}

static struct block *find(CUdeviceptr p, size_t n)
{
	for (int i = 0; i < MAX; i++)
		if (blocks[i].p && p >= (CUdeviceptr)blocks[i].p && p + n <= (CUdeviceptr)blocks[i].p + blocks[i].size)
			return &blocks[i];
	return NULL;
}

#ifndef NO_ALLOC
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t size)
{
	IN_CONTEXT;
	int i = 0;
	while (i < MAX && blocks[i].p)
		i++;
	if (i == MAX || size > SIZE)
		return OOM;
	struct block b = {.size = size, .fd = memfd_create("fakecuda", MFD_CLOEXEC)};
	if (b.fd < 0 || ftruncate(b.fd, size))
		return OOM;
	b.p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
	if (b.p == MAP_FAILED)
		return OOM;
	memset(b.p, 0xdb, size); /* a GPU's memory is not zeroed */
	blocks[i] = b, memories++, *p = (CUdeviceptr)b.p;
	return ledger(), SUCCESS;
}
#endif

CUresult cuMemFree_v2(CUdeviceptr p)
{
	IN_CONTEXT;
	struct block *b = find(p, 0);
	if (!b || (CUdeviceptr)b->p != p)
		return INVALID_VALUE;
	munmap(b->p, b->size), close(b->fd);
	b->p = NULL, memories--;
	return ledger(), SUCCESS;
}

CUresult cuMemsetD8_v2(CUdeviceptr p, unsigned char value, size_t n)
{
	IN_CONTEXT;
	return find(p, n) ? memset((void *)p, value, n), SUCCESS : INVALID_VALUE;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n)
{
	IN_CONTEXT;
	return find(to, n) ? memcpy((void *)to, from, n), SUCCESS : INVALID_VALUE;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n)
{
	IN_CONTEXT;
	return find(from, n) ? memcpy(to, (void *)from, n), SUCCESS : INVALID_VALUE;
}

CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
	IN_CONTEXT;
	if (flags & ~7u || !(*p = malloc(n)))
		return OOM;
	memset(*p, 0xdb, n);
	hosts++;
	return ledger(), SUCCESS;
}

CUresult cuMemFreeHost(void *p)
{
	IN_CONTEXT;
	free(p), hosts--;
	return ledger(), SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr p)
{
	IN_CONTEXT;
	return attribute == 6 && *(const int *)value == 1 && find(p, 1) ? SUCCESS : INVALID_VALUE;
}

#ifndef NO_EXPORT
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr p, size_t n, int type, unsigned long long flags)
{
	IN_CONTEXT;
	struct block *b = find(p, n);
	if (!b || (CUdeviceptr)b->p != p || n % sysconf(_SC_PAGESIZE) || type != 1 || flags)
		return INVALID_VALUE;
	*(int *)handle = fcntl(b->fd, F_DUPFD_CLOEXEC, 0);
	return SUCCESS;
}
#endif

/* ---- streams: copies are delayed, so that a read before their completion is detected ---- */

static void copies(struct stream *s, int until)
{
	for (; s->done < until; s->done++) {
		struct copy *c = &s->copy[s->done % 256];
		memcpy(c->to, (void *)c->from, c->n);
	}
}

CUresult cuStreamCreate(void **s, unsigned flags)
{
	IN_CONTEXT;
	(void)flags;
	*s = calloc(1, sizeof(struct stream)), streams++;
	return ledger(), SUCCESS;
}

CUresult cuStreamSynchronize(void *s)
{
	IN_CONTEXT;
	copies(s, ((struct stream *)s)->begun);
	return SUCCESS;
}

CUresult cuStreamDestroy_v2(void *s)
{
	IN_CONTEXT;
	free(s), streams--;
	return ledger(), SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, void *stream)
{
	IN_CONTEXT;
	struct stream *s = stream;
	if (!find(from, n) || s->begun - s->done == 256)
		return INVALID_VALUE;
	s->copy[s->begun++ % 256] = (struct copy){to, from, n};
	return SUCCESS;
}

CUresult cuEventCreate(void **e, unsigned flags)
{
	IN_CONTEXT;
	(void)flags;
	*e = calloc(1, sizeof(struct event)), events++;
	return ledger(), SUCCESS;
}

CUresult cuEventRecord(void *event, void *stream)
{
	IN_CONTEXT;
	struct stream *s = stream;
	*(struct event *)event = (struct event){s, s->begun, 0};
	return SUCCESS;
}

CUresult cuEventQuery(void *event)
{
	IN_CONTEXT;
	struct event *e = event;
	if (!e->stream)
		return SUCCESS;
	if (!e->asked++)
		return NOT_READY;
	copies(e->stream, e->at);
	return SUCCESS;
}

CUresult cuEventDestroy_v2(void *e)
{
	IN_CONTEXT;
	free(e), events--;
	return ledger(), SUCCESS;
}
