/* Objects on an open device: protection domains, regions, completion queues, address handles. */
#include "fabric.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct fctx *x = ctx_of(c);
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	struct object *o = pd ? object_new(x->dev->f, PD, x->dev->d) : NULL;

	if (!o) {
		free(pd);
		return NULL;
	}
	pd->context = c;
	pd->handle = object_number(x->dev->f, o);
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct fabric *f = ctx_of(pd->context)->dev->f;

	for (int i = 0; i < MAX_OBJECTS; i++) {
		struct object *o = &f->objects[i];
		if (o->kind >= MR && o->pd == pd->handle && o->pid == (uint64_t)getpid())
			return EBUSY;
	}
	object_free(object_of(f, PD, pd->handle));
	free(pd);
	return 0;
}

/* mapped reports whether a byte can be read. Registration pins pages, so they must exist. */
static bool mapped(const void *p)
{
	char byte;
	struct iovec to = {&byte, 1}, from = {(void *)p, 1};
	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno == ENOSYS; /* ENOSYS occurs in qemu-user */
}

/* fmr is a registered region. */
struct fmr {
	struct ibv_mr ibv;
	void *map; /* mapping of a dma-buf; NULL if there is none */
};

static struct ibv_mr *region(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct fctx *x = ctx_of(pd->context);

	if (length == 0 || ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return errno = EINVAL, NULL;
	struct fmr *r = calloc(1, sizeof *r);
	struct object *o = r ? object_new(x->dev->f, MR, x->dev->d) : NULL;
	if (!o) {
		free(r);
		return NULL;
	}
	o->pd = pd->handle;
	o->addr = (uintptr_t)addr;
	o->iova = iova;
	o->length = length;
	o->access = access;
	struct ibv_mr *mr = &r->ibv;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->handle = mr->lkey = object_number(x->dev->f, o);
	mr->rkey = mr->lkey | 1u << 31; /* different keys, so that a mix-up is detected */
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	if (failed(ctx_of(pd->context)->dev->d->k.reg_errno))
		return NULL;
	if (length && (!mapped(addr) || !mapped((char *)addr + length - 1)))
		return errno = EFAULT, NULL;
	return region(pd, addr, length, iova, access);
}

/* Any file can represent a dma-buf. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	struct stat st;

	if (failed(ctx_of(pd->context)->dev->d->k.dmabuf_errno))
		return NULL;
	if ((offset ^ iova) & 0xfff || fstat(fd, &st) || length > (uint64_t)st.st_size || offset > (uint64_t)st.st_size - length)
		return errno = EINVAL, NULL; /* as uverbs_std_types_mr.c and ib_umem_dmabuf_get */
	void *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	if (map == MAP_FAILED)
		return NULL;
	struct ibv_mr *mr = region(pd, map, length, iova, (unsigned)access);
	if (!mr) {
		int err = errno;
		munmap(map, length);
		errno = err;
		return NULL;
	}
	((struct fmr *)mr)->map = map;
	mr->addr = (void *)(uintptr_t)offset; /* as in rdma-core */
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fabric *f = ctx_of(mr->context)->dev->f;

	fabric_lock(f); /* no write is in flight after this */
	object_free(object_of(f, MR, mr->handle));
	fabric_unlock(f);
	if (((struct fmr *)mr)->map)
		munmap(((struct fmr *)mr)->map, mr->length);
	free(mr);
	return 0;
}

/* cq_new returns a completion queue without its functions. */
struct fcq *cq_new(struct ibv_context *c, uint32_t cqe, void *cq_context)
{
	struct fctx *x = ctx_of(c);

	if (failed(x->dev->d->k.cq_errno))
		return NULL;
	if (cqe < 1 || cqe > 1 << 20)
		return errno = EINVAL, NULL;
	struct fcq *q = calloc(1, sizeof *q);
	if (!q || !(q->o = object_new(x->dev->f, CQ, x->dev->d))) {
		free(q);
		return NULL;
	}
	q->ibv.context = c;
	q->ibv.cq_context = cq_context;
	q->ibv.cqe = (int)cqe;
	return q;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	if (channel || vector != 0)
		return errno = EINVAL, NULL;
	struct fcq *q = cq_new(c, (uint32_t)cqe, cq_context);
	return q ? &q->ibv : NULL;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fcq *q = (struct fcq *)cq;

	if (q->users)
		return EBUSY;
	object_free(q->o);
	free(q);
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct fctx *x = ctx_of(pd->context);
	struct device *peer;

	if (failed((uint64_t)reach(x->dev->f, x->dev->d, attr, &peer)))
		return NULL;
	struct ibv_ah *ah = calloc(1, sizeof *ah);
	struct object *o = ah ? object_new(x->dev->f, AH, x->dev->d) : NULL;
	if (!o) {
		free(ah);
		return NULL;
	}
	o->pd = pd->handle;
	ah->context = pd->context;
	ah->pd = pd;
	ah->handle = object_number(x->dev->f, o);
	return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	object_free(object_of(ctx_of(ah->context)->dev->f, AH, ah->handle));
	free(ah);
	return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {"success", "local length error", "local QP operation error", "local EE context operation error",
		"local protection error", "Work Request Flushed Error", "memory bind operation error", "bad response error", "local access error",
		"remote invalid request error", "remote access error", "remote operation error", "transport retry counter exceeded",
		"RNR retry counter exceeded"};
	return (unsigned)status < sizeof names / sizeof names[0] ? names[status] : "unknown";
}
