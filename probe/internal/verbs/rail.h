/* What the C files share and Go does not see. */
#ifndef RAILSCOPE_RAIL_H
#define RAILSCOPE_RAIL_H

#include <infiniband/verbs.h>
#include <stdatomic.h>

#include "shim.h"

struct rs_rail {
	struct rs_lib lib; /* a copy, for the original is Go's */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[RS_MAX_QPS];
	struct rs_spec spec;
	uint32_t max_inline, psn[RS_MAX_QPS];
	uint32_t ethernet, connected;
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t posts;         /* ever; makes every wr_id another */
	struct rs_error failed; /* the first failure of a write: nothing is posted after it */
};

struct rs_run {
	_Atomic int32_t cancelled;
	uint32_t rails;
	_Atomic int64_t done[];
};

enum {
	RS_US = 1000,
	RS_MS = 1000 * RS_US,
	RS_LAST_WAIT = 100 * RS_MS /* for what is in flight when a run is cancelled */
};

int64_t rs_now(void);

/* Lets others have the processor, when nothing came for a while: where the
 * kernel does the work (Soft-RoCE), it may need this very processor. */
void rs_relax(int64_t idle);

/* Makes a name for a write: which slot it is in, and which one of all writes. */
uint64_t rs_name(struct rs_rail *rail, uint32_t slot);

/* Posts a write from range of the rail's memory to the same range of the peer's. */
struct rs_error rs_post(struct rs_rail *rail, uint64_t id, struct rs_range range);

struct rs_error rs_completion(const struct ibv_wc *wc);

/* Keeps the first failure of a rail, and returns it. A flushed write only says
 * that there was another before it. */
struct rs_error rs_fail(struct rs_rail *rail, struct rs_error e);

/* Why the rail cannot write, if it cannot. */
struct rs_error rs_usable(struct rs_rail *rail);

/* Moves the queue pairs to ERR: nothing that is still in flight arrives later. */
void rs_rail_stop(struct rs_rail *rail);

#endif
