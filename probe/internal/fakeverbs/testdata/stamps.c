/* Completion queues with timestamps, and their clock. */
#include "fabric.h"

enum { NS_PER_TICK = 2 };
#define TICKS ((1ULL << 40) - 1) /* mask */

static uint64_t ticks(uint64_t ns) { return ns / NS_PER_TICK; }

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	struct fcq *q = (struct fcq *)cq;

	if (attr->comp_mask)
		return EINVAL;
	if (poll_cq(&q->ibv, 1, &q->wc) == 0)
		return ENOENT;
	cq->wr_id = q->wc.wr_id;
	cq->status = q->wc.status;
	return 0;
}

static void end_poll(struct ibv_cq_ex *cq) { (void)cq; }

static uint32_t read_vendor_err(struct ibv_cq_ex *cq) { return ((struct fcq *)cq)->wc.vendor_err; }

static uint64_t read_completion_ts(struct ibv_cq_ex *cq)
{
	uint64_t other = ctx_of(cq->context)->dev->d->k.other_clock ? TICKS / 2 : 0;
	return (ticks(((struct fcq *)cq)->stamp) + other) & TICKS;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *attr)
{
	if (attr->channel || attr->comp_vector || attr->comp_mask || attr->wc_flags & ~(uint64_t)IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		return errno = EOPNOTSUPP, NULL;
	struct fcq *q = cq_new(c, attr->cqe, attr->cq_context);
	if (!q)
		return NULL;
	q->ex.start_poll = start_poll;
	q->ex.end_poll = end_poll;
	q->ex.read_vendor_err = read_vendor_err;
	if (attr->wc_flags)
		q->ex.read_completion_ts = read_completion_ts;
	return &q->ex;
}

static int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size)
{
	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof *attr)
		return EINVAL;
	memset(attr, 0, size);
	attr->completion_timestamp_mask = TICKS;
	attr->hca_core_clock = 1000000 / NS_PER_TICK; /* kHz */
	return ibv_query_device(c, &attr->orig_attr);
}

static int query_rt_values(struct ibv_context *c, struct ibv_values_ex *values)
{
	(void)c;
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	if (values->comp_mask)
		values->raw_clock = (struct timespec){.tv_nsec = (long)ticks(now_ns())};
	return 0;
}

void add_stamps(struct fctx *x)
{
	x->v.create_cq_ex = create_cq_ex;
	x->v.query_device_ex = query_device_ex;
	x->v.query_rt_values = query_rt_values;
}
