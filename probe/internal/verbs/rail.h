/* Declarations that the C files share and Go does not use. */
#ifndef RAILSCOPE_RAIL_H
#define RAILSCOPE_RAIL_H

#include <infiniband/verbs.h>

#include "shim.h"

struct rs_rail {
	struct rs_lib lib; /* a copy: the original is Go memory */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;         /* CQ of writes */
	struct ibv_cq_ex *stamped; /* cq as one with stamps; NULL without them */
	uint64_t ticks;            /* mask of the adapter's clock */
	double tick;               /* ns */
	struct ibv_cq *arrive; /* CQ of the peer's last writes */
	struct ibv_mr *mr;
	struct ibv_qp *qp[RS_MAX_QPS];
	struct rs_spec spec;
	uint64_t local;        /* address of the memory */
	uint32_t max_inline, ethernet, connected;
	uint32_t reads;        /* reads in flight that this end supports */
	uint32_t global;      /* the port accepts no packet without a GRH */
	uint16_t pkey_index;
	union ibv_gid gid;
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t posts;               /* number of posts; makes every wr_id unique */
	int64_t written[RS_MAX_QPS];  /* writes of this burst, by queue pair */
	int64_t ring, pass;           /* bytes that each queue pair fills; shift of the first pass in pages */
	/* The source is on a GPU, and writes are copied to this host first; NULL without copies. */
	struct rs_stage *stage;
	/* This ring has the queue pairs whose writes are not posted yet, in order. */
	uint8_t copying[RS_COPIES];
	uint32_t begun, copied;       /* entries added to and removed from the ring */
	int64_t ahead[RS_MAX_QPS];    /* writes in the ring, by queue pair */
	struct rs_error failed; /* first failure of a write: nothing is posted after it */
};

enum {
	RS_US = 1000,
	RS_MS = 1000 * RS_US,
	RS_CANCEL_WAIT = 100 * RS_MS, /* time for writes in flight after a cancel */
	RS_QUEUE = 250 * RS_MS,       /* maximum time for a rail's writes in flight */
	RS_SPIN = 20 * RS_MS,         /* time without a completion before a burst yields the processor */
	RS_EDGE = 256,                /* minimum ratio of a window to the gap at its edges */
	RS_WINDOWS = 4,               /* windows in which a rail may reach its rate */
	RS_PAGE = 4096,
	RS_SHIFTS = 1024 /* places in the source, one page apart */
};

static inline int rs_cancelled(const int32_t *flag)
{
	return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

int64_t rs_now(void);

/* Yields the processor after an idle time: the kernel may need this one for the transfer (Soft-RoCE). */
void rs_relax(int64_t idle);

/*
 * Posts the next write of a queue pair: to the next place of its ring in the peer's memory, from the same place of the
 * source, shifted by one page in each pass. A read exchanges the ends: the ring is ours, the source the peer's. A
 * source on a GPU is first copied to a ring of ours, laid out like the peer's.
 */
struct rs_error rs_post(struct rs_rail *rail, uint32_t q, int64_t length);

/* Starts the copy of a queue pair's next write after those being copied, to its place in the ring. Does not wait. */
void rs_copy(struct rs_rail *rail, uint32_t q, int64_t length);

/* Returns the queue pair whose next write is copied, to be posted now; RS_MAX_QPS if there is none. Does not wait. */
uint32_t rs_copied(struct rs_rail *rail);

/* Drops copies whose writes will not be posted. */
void rs_forget_copies(struct rs_rail *rail);

/* Starts an asynchronous copy of n bytes from offset gpu to offset host: cuda.c. */
struct rs_error rs_stage_begin(struct rs_stage *s, uint32_t slot, uint64_t gpu, uint64_t host, uint64_t n);
/* Returns 1 if the slot's last copy is complete, 0 if not, -1 with an error. */
int rs_stage_ready(struct rs_stage *s, uint32_t slot, struct rs_error *e);

/*
 * Posts the write with immediate that ends a queue pair's burst. When the peer's receive completes, all earlier writes
 * are in memory (IBTA 1.5, 9.5 and o9-20). A READ is not a documented fence under relaxed ordering.
 */
struct rs_error rs_post_last(struct rs_rail *rail, uint32_t q);

struct rs_error rs_completion(const struct rs_rail *rail, const struct ibv_wc *wc);

/* ---- window.c ---- */

/* Sets a moment of a burst to t, which may be too late by late, with bytes completed by then. */
void rs_edge_put(struct rs_lane *lane, enum rs_moment m, int64_t t, int64_t late, int64_t bytes);
/* Records the completions of a visit at t, which may have arrived up to late earlier. full: the rail is kept full. */
void rs_completed(struct rs_lane *lane, uint32_t qps, int64_t t, int64_t late, int full);
/* Returns whether every queue pair has completed a write after the moment. */
int rs_followed(const struct rs_lane *lane, uint32_t qps, enum rs_moment m);
/* Returns the bytes that a rail carried between two moments, and sets unsure to their error. */
double rs_between(const struct rs_lane *lane, uint32_t qps, int64_t chunk, enum rs_moment from, enum rs_moment to,
		  double *unsure);
/* Returns the error of the bytes up to a moment. */
double rs_unsure(const struct rs_lane *lane, uint32_t qps, int64_t chunk, enum rs_moment m);
/* Returns the rate between two moments in bytes per ns; 0 if one is not set. */
double rs_rate(const struct rs_lane *lane, uint32_t qps, int64_t chunk, enum rs_moment from, enum rs_moment to);

/* Returns the name of the operation for errors. */
static inline const char *rs_op(const struct rs_rail *rail)
{
	return rail->spec.read ? "read" : "write";
}

/* Records the first failure of a rail, and returns it. A flushed write only shows that an earlier one failed. */
struct rs_error rs_fail(struct rs_rail *rail, struct rs_error e);

/* Returns the reason why the rail cannot write, if any. */
struct rs_error rs_usable(struct rs_rail *rail);

#endif
