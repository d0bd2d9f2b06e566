/* What the C files share and Go does not see. */
#ifndef RAILSCOPE_RAIL_H
#define RAILSCOPE_RAIL_H

#include <infiniband/verbs.h>

#include "shim.h"

struct rs_rail {
	struct rs_lib lib; /* a copy: the original is Go memory */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[RS_MAX_QPS];
	struct rs_spec spec;
	uint32_t max_inline, ethernet, connected;
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t posts;         /* in all; makes every wr_id unique */
	struct rs_error failed; /* the first failure of a write: nothing is posted after it */
};

enum {
	RS_US = 1000,
	RS_MS = 1000 * RS_US,
	RS_CANCEL_WAIT = 100 * RS_MS /* for writes in flight after a cancel */
};

static inline int rs_cancelled(const int32_t *flag)
{
	return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

int64_t rs_now(void);

/* Yields the processor after an idle time: where the kernel does the work (Soft-RoCE), it may need this very one. */
void rs_relax(int64_t idle);

/* A wr_id: the write's slot, and a number that no other write has. */
uint64_t rs_wr_id(struct rs_rail *rail, uint32_t slot);

/* Posts a write from range of the rail's memory to the same range of the peer's. */
struct rs_error rs_post(struct rs_rail *rail, uint64_t id, struct rs_range range);

struct rs_error rs_completion(const struct ibv_wc *wc);

/* Keeps the first failure of a rail, and returns it. A flushed write only means that another failed before it. */
struct rs_error rs_fail(struct rs_rail *rail, struct rs_error e);

/* Why the rail cannot write, if so. */
struct rs_error rs_usable(struct rs_rail *rail);

/* Moves the queue pairs to ERR: writes in flight do not arrive later. */
void rs_rail_stop(struct rs_rail *rail);

#endif
