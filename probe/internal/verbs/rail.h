/* What the C files share and Go does not see. */
#ifndef RAILSCOPE_RAIL_H
#define RAILSCOPE_RAIL_H

#include <infiniband/verbs.h>

#include "shim.h"

struct rs_rail {
	struct rs_lib lib; /* a copy: the original is Go memory */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;         /* of writes */
	struct ibv_cq_ex *stamped; /* the same with stamps; NULL: without */
	uint64_t ticks;            /* of its clock: a mask */
	double tick;               /* ns */
	struct ibv_cq *arrive; /* of the peer's last writes */
	struct ibv_mr *mr;
	struct ibv_qp *qp[RS_MAX_QPS];
	struct rs_spec spec;
	uint64_t local;        /* its address */
	uint32_t max_inline, ethernet, connected;
	uint32_t reads;        /* in flight, that this end manages */
	uint32_t global;      /* the port accepts no packet without a GRH */
	uint16_t pkey_index;
	union ibv_gid gid;
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t posts;               /* in all; makes every wr_id unique */
	int64_t written[RS_MAX_QPS];  /* writes of this burst */
	int64_t ring, pass;           /* bytes that each queue pair fills; pages of the first shift */
	struct rs_stage *stage;       /* of a source on a GPU: its writes are copied to this host first; NULL: no copies */
	uint8_t copying[RS_COPIES];   /* queue pairs whose writes are not posted yet, in their order: a ring */
	uint32_t begun, copied;       /* what entered and left it */
	int64_t ahead[RS_MAX_QPS];    /* of them, by queue pair */
	struct rs_error failed; /* the first failure of a write: nothing is posted after it */
};

enum {
	RS_US = 1000,
	RS_MS = 1000 * RS_US,
	RS_CANCEL_WAIT = 100 * RS_MS, /* for writes in flight after a cancel */
	RS_QUEUE = 250 * RS_MS,       /* that a rail may need for its writes in flight */
	RS_SPIN = 20 * RS_MS,         /* without a completion, before a burst yields the processor */
	RS_EDGE = 256,                /* a window is at least that many times the gap at its edges */
	RS_PAGE = 4096,
	RS_SHIFTS = 1024 /* places in the source, a page apart */
};

static inline int rs_cancelled(const int32_t *flag)
{
	return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

int64_t rs_now(void);

/* Yields the processor after an idle time: where the kernel does the work (Soft-RoCE), it may need this very one. */
void rs_relax(int64_t idle);

/* Posts the next write of a queue pair: to the next place of the ring that it owns in the peer's memory, from the same
 * place of the source, shifted by one page in each pass. A read is the same with the ends exchanged: the ring is ours,
 * the source the peer's. A source on a GPU is copied to a ring of ours first, which is like the peer's. */
struct rs_error rs_post(struct rs_rail *rail, uint32_t q, int64_t length);

/* Begins to copy what a queue pair writes after all that is being copied, to its place in the ring. Does not wait. */
void rs_copy(struct rs_rail *rail, uint32_t q, int64_t length);

/* Returns the queue pair whose next write is copied, to be posted now; RS_MAX_QPS: none is. It does not wait. */
uint32_t rs_copied(struct rs_rail *rail);

/* Forgets copies whose writes will not be posted. */
void rs_forget_copies(struct rs_rail *rail);

/* Starts an asynchronous copy of n bytes, from one offset to the other: cuda.c. */
struct rs_error rs_stage_begin(struct rs_stage *s, uint32_t slot, uint64_t gpu, uint64_t host, uint64_t n);
/* Reports whether the slot's last copy is complete: 1, 0, or -1 with an error. */
int rs_stage_ready(struct rs_stage *s, uint32_t slot, struct rs_error *e);

/* Posts the write with immediate that ends what a queue pair writes. When the peer's receive completes, all writes
 * before it are in memory (IBTA 1.5, 9.5 and o9-20). A READ is no documented fence under relaxed ordering. */
struct rs_error rs_post_last(struct rs_rail *rail, uint32_t q);

struct rs_error rs_completion(const struct rs_rail *rail, const struct ibv_wc *wc);

/* The operation as an error names it. */
static inline const char *rs_op(const struct rs_rail *rail)
{
	return rail->spec.read ? "read" : "write";
}

/* Keeps the first failure of a rail, and returns it. A flushed write only means that another failed before it. */
struct rs_error rs_fail(struct rs_rail *rail, struct rs_error e);

/* Why the rail cannot write, if so. */
struct rs_error rs_usable(struct rs_rail *rail);

#endif
