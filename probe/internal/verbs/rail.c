/* A rail: its device, memory and queue pairs, from open to close. */
#include "library.h"

#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static const struct rs_error ok;

/* Returns the bytes of an enum ibv_mtu, which comes from a driver. */
static uint32_t mtu_bytes(uint32_t mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

/* Bit 15 of an entry marks full membership. Two limited members cannot exchange packets. */
static struct rs_error find_pkey(struct rs_rail *r, uint32_t entries)
{
	uint32_t found = 0;
	if (!r->spec.pkey || r->ethernet)
		return ok;
	for (uint32_t i = 0; i < entries && found != (r->spec.pkey | 0x8000); i++) {
		__be16 entry;
		if (CALL(&r->lib, ibv_query_pkey)(r->context, (uint8_t)r->spec.port, (int)i, &entry))
			continue;
		uint32_t pkey = be16toh(entry);
		if (pkey != r->spec.pkey && pkey != (r->spec.pkey | 0x8000))
			continue;
		found = pkey;
		r->pkey_index = (uint16_t)i;
	}
	return fault("find pkey", found ? 0 : -ENOENT);
}

static struct rs_error query(struct rs_rail *r, struct rs_info *info)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	memset(&port, 0, sizeof port); /* an old ABI fills only a part */
	int32_t err = TRY(CALL(&r->lib, ibv_query_port)(r->context, (uint8_t)r->spec.port, (void *)&port));
	if (err)
		return fault("query port", err);
	err = TRY(CALL(&r->lib, ibv_query_gid)(r->context, (uint8_t)r->spec.port, (int)r->spec.gid_index, &r->gid));
	if (err)
		return fault("query GID", err);
	err = TRY(CALL(&r->lib, ibv_query_device)(r->context, &device));
	if (err)
		return fault("query device", err);
	r->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	r->global = r->ethernet || (port.flags & IBV_QPF_GRH_REQUIRED);
	info->state = (int32_t)port.state;
	info->active_mtu = mtu_bytes(port.active_mtu);
	info->max_mtu = mtu_bytes(port.max_mtu);
	info->lid = port.lid;
	info->ack_delay = device.local_ca_ack_delay;
	int reads = r->spec.target ? device.max_qp_rd_atom : device.max_qp_init_rd_atom;
	info->reads = r->reads = reads < 1 ? 1 : reads > UINT8_MAX ? UINT8_MAX : (uint32_t)reads;
	memcpy(info->gid, r->gid.raw, sizeof info->gid);
	return find_pkey(r, port.pkey_tbl_len);
}

/* Every queue pair can hold all writes in flight, because it is unknown which one completes first. */
static struct ibv_qp *create_qp(struct rs_rail *r, uint32_t max_inline)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = r->cq,
		.recv_cq = r->arrive,
		.cap = {.max_send_wr = r->spec.depth, .max_recv_wr = RS_RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = max_inline},
		.qp_type = IBV_QPT_RC,
	};
	errno = 0;
	struct ibv_qp *qp = CALL(&r->lib, ibv_create_qp)(r->pd, &attr);
	if (qp)
		r->max_inline = attr.cap.max_inline_data;
	return qp;
}

static struct rs_error init_qp(struct rs_rail *r, uint32_t i)
{
	r->qp[i] = create_qp(r, 8);
	if (!r->qp[i] && errno == EINVAL)
		r->qp[i] = create_qp(r, 0); /* a device without inline data refuses 8 bytes */
	if (!r->qp[i])
		return fault("create QP", failed());
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = r->pkey_index,
		.port_num = (uint8_t)r->spec.port,
		.qp_access_flags = !r->spec.target ? 0 : r->spec.read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE,
	};
	return fault("INIT", TRY(CALL(&r->lib, ibv_modify_qp)(r->qp[i], &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)));
}

/*
 * Creates a CQ whose completions have the adapter's time. The functions that it uses are inline in verbs.h, and call
 * through the context.
 */
static struct rs_error create_stamped(struct rs_rail *r)
{
	struct ibv_device_attr_ex device = {0};
	struct ibv_cq_init_attr_ex attr = {.cqe = r->spec.depth,
					   .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct verbs_context *x = verbs_get_ctx_op(r->context, query_device_ex);
	if (!x || x->query_device_ex(r->context, NULL, &device, sizeof device) || !device.hca_core_clock ||
	    !device.completion_timestamp_mask)
		return fault("create CQ with timestamps", -EOPNOTSUPP);
	r->ticks = device.completion_timestamp_mask;
	r->tick = 1e6 / (double)device.hca_core_clock; /* kHz */
	errno = 0;
	if (!(r->stamped = ibv_create_cq_ex(r->context, &attr)))
		return fault("create CQ with timestamps", failed());
	r->cq = ibv_cq_ex_to_cq(r->stamped);
	return ok;
}

static struct rs_error create_cq(struct rs_rail *r)
{
	if (r->spec.stamps)
		return create_stamped(r);
	errno = 0;
	r->cq = CALL(&r->lib, ibv_create_cq)(r->context, (int)r->spec.depth, NULL, NULL, 0);
	return fault("create CQ", r->cq ? 0 : failed());
}

static struct rs_error prepare(struct rs_rail *r, struct rs_info *info)
{
	struct rs_error e = rs_open(&r->lib, r->spec.device, &r->context);
	if (!e.op)
		e = query(r, info);
	if (e.op)
		return e;
	fcntl(r->context->async_fd, F_SETFL, fcntl(r->context->async_fd, F_GETFL) | O_NONBLOCK);
	errno = 0;
	if (!(r->pd = CALL(&r->lib, ibv_alloc_pd)(r->context)))
		return fault("allocate PD", failed());
	e = create_cq(r);
	if (e.op)
		return e;
	errno = 0;
	if (!(r->arrive = CALL(&r->lib, ibv_create_cq)(r->context, (int)(r->spec.qps * RS_RECEIVES), NULL, NULL, 0)))
		return fault("create CQ", failed());
	for (uint32_t i = 0; i < r->spec.qps && !e.op; i++) {
		e = init_qp(r, i);
		info->qpn[i] = e.op ? 0 : r->qp[i]->qp_num;
	}
	return e;
}

struct rs_error rs_rail_open(const struct rs_lib *lib, const struct rs_spec *spec, struct rs_rail **rail,
			     struct rs_info *info)
{
	struct rs_rail *r = calloc(1, sizeof *r);
	if (!r)
		return fault("map memory", -ENOMEM);
	r->lib = *lib;
	r->spec = *spec;
	memset(info, 0, sizeof *info);
	struct rs_error e = prepare(r, info);
	if (e.op)
		rs_rail_close(r);
	else
		*rail = r;
	return e;
}

static unsigned access_of(const struct rs_rail *r)
{
	if (!r->spec.target)
		return r->spec.read ? IBV_ACCESS_LOCAL_WRITE : 0;
	return r->spec.read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
}

struct rs_error rs_rail_register(struct rs_rail *r, const struct rs_area *m, uint32_t *rkey)
{
	void *at = (void *)(uintptr_t)m->addr;
	unsigned access = access_of(r), relaxed = access | IBV_ACCESS_RELAXED_ORDERING;
	if (r->mr)
		return fault("register memory", -EBUSY);
	if (m->dmabuf >= 0 && !CALL(&r->lib, ibv_reg_dmabuf_mr))
		return fault("register dma-buf", -ENOSYS);
	errno = 0;
	if (m->dmabuf >= 0)
		r->mr = CALL(&r->lib, ibv_reg_dmabuf_mr)(r->pd, m->offset, m->size, m->addr, m->dmabuf, (int)relaxed);
	else if (CALL(&r->lib, ibv_reg_mr_iova2))
		r->mr = CALL(&r->lib, ibv_reg_mr_iova2)(r->pd, at, m->size, m->addr, relaxed);
	else
		r->mr = CALL(&r->lib, ibv_reg_mr)(r->pd, at, m->size, (int)access);
	if (!r->mr)
		return fault(m->dmabuf >= 0 ? "register dma-buf" : m->device ? "register GPU memory" : "register memory",
			     failed());
	r->local = m->addr;
	r->stage = r->spec.target ? NULL : m->stage;
	if (m->device)
		r->max_inline = 0; /* the CPU would read inline data */
	*rkey = r->mr->rkey;
	return ok;
}

/* Sets whether packets need a GRH, with which routers forward. A subnet prefix is the first half of a GID. */
static void address(const struct rs_rail *r, uint32_t i, const struct rs_remote *to, struct ibv_ah_attr *ah)
{
	int elsewhere = !r->ethernet && memcmp(r->gid.raw, to->gid, 8) != 0;
	*ah = (struct ibv_ah_attr){.port_num = (uint8_t)r->spec.port, .dlid = (uint16_t)to->lid, .sl = to->service_level};
	if (!r->global && !elsewhere)
		return;
	/* Without an SA of the routers' own, the prefix contains a LID of the other subnet: FLID, as in NCCL. */
	uint16_t flid = (uint16_t)(to->gid[4] << 8 | to->gid[5]);
	if (elsewhere && flid && memcmp(r->gid.raw + 6, to->gid + 6, 2))
		ah->dlid = flid;
	ah->is_global = 1;
	ah->grh.sgid_index = (uint8_t)r->spec.gid_index;
	ah->grh.hop_limit = 64;
	ah->grh.traffic_class = to->traffic_class;
	ah->grh.flow_label = to->flow_label[i];
	memcpy(ah->grh.dgid.raw, to->gid, sizeof to->gid);
}

/* Returns the number of reads that may be in flight on a queue pair, from this end or the peer's: what both support. */
static uint8_t reads(const struct rs_rail *r, const struct rs_remote *to, int ours)
{
	if (!r->spec.read || ours == (r->spec.target != 0) || to->reads < 1)
		return 1;
	return (uint8_t)(to->reads < r->reads ? to->reads : r->reads);
}

static struct rs_error to_rtr(struct rs_rail *r, uint32_t i, const struct rs_remote *to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = to->qpn[i],
		.rq_psn = to->psn[i],
		.max_dest_rd_atomic = reads(r, to, 0),
		.min_rnr_timer = 12, /* 0.64 ms; IBTA 9.7.5.2.8 */
	};
	address(r, i, to, &attr.ah_attr);
	while (attr.path_mtu < IBV_MTU_4096 && 128u << attr.path_mtu < to->mtu)
		attr.path_mtu++;
	return fault("RTR", TRY(CALL(&r->lib, ibv_modify_qp)(r->qp[i], &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)));
}

static struct rs_error to_rts(struct rs_rail *r, uint32_t i, const struct rs_remote *to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = r->spec.psn[i],
		.timeout = to->timeout,
		.retry_cnt = to->retries,
		.rnr_retry = 6, /* 7 would retry forever */
		.max_rd_atomic = reads(r, to, 1),
	};
	return fault("RTS", TRY(CALL(&r->lib, ibv_modify_qp)(r->qp[i], &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC)));
}

struct rs_error rs_rail_connect(struct rs_rail *r, const struct rs_remote *to)
{
	struct rs_error e = ok;
	for (uint32_t i = 0; i < r->spec.qps && !e.op; i++)
		e = to_rtr(r, i, to);
	for (uint32_t i = 0; i < r->spec.qps && !e.op; i++)
		e = to_rts(r, i, to);
	r->remote_addr = to->addr;
	r->rkey = to->rkey;
	r->connected = !e.op;
	return e;
}

void rs_rail_stop(struct rs_rail *r)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	for (uint32_t i = 0; i < r->spec.qps; i++)
		if (r->qp[i])
			CALL(&r->lib, ibv_modify_qp)(r->qp[i], &attr, IBV_QP_STATE);
}

enum { EVENTS = 256 }; /* read at a time: further events only repeat */

/* Events of the device, this port and queue pairs; worse ones have a higher rank. Other events need no action. */
#define EVENT(name, rank) {name, #name, rank}
static const struct {
	enum ibv_event_type type;
	const char *name;
	int rank;
} events[] = {
	EVENT(IBV_EVENT_DEVICE_FATAL, 3),  EVENT(IBV_EVENT_PORT_ERR, 2), EVENT(IBV_EVENT_QP_FATAL, 1),
	EVENT(IBV_EVENT_QP_ACCESS_ERR, 1), EVENT(IBV_EVENT_QP_REQ_ERR, 1), EVENT(IBV_EVENT_CQ_ERR, 1),
};

struct rs_error rs_rail_event(struct rs_rail *r)
{
	struct ibv_async_event event;
	struct rs_error worst = ok;
	int rank = 0;
	for (int i = 0; i < EVENTS && CALL(&r->lib, ibv_get_async_event)(r->context, &event) == 0; i++) {
		int elsewhere = event.event_type == IBV_EVENT_PORT_ERR && event.element.port_num != (int)r->spec.port;
		for (size_t k = 0; k < sizeof events / sizeof events[0]; k++) {
			if (events[k].type != event.event_type || events[k].rank <= rank || elsewhere)
				continue;
			rank = events[k].rank;
			worst = fault(events[k].name, -EIO);
		}
		CALL(&r->lib, ibv_ack_async_event)(&event); /* destroying a QP waits for the acknowledgement */
	}
	return worst;
}

struct rs_error rs_rail_close(struct rs_rail *r)
{
	int32_t first = 0, err;
#define UNDO(name, handle)                                                                                             \
	if ((handle) && (err = TRY(CALL(&r->lib, name)(handle))) && !first)                                            \
		first = err;
	for (uint32_t i = 0; i < RS_MAX_QPS; i++)
		UNDO(ibv_destroy_qp, r->qp[i])
	UNDO(ibv_dereg_mr, r->mr)
	UNDO(ibv_destroy_cq, r->arrive)
	UNDO(ibv_destroy_cq, r->cq)
	UNDO(ibv_dealloc_pd, r->pd)
	UNDO(ibv_close_device, r->context)
#undef UNDO
	free(r);
	return fault("close", first);
}
