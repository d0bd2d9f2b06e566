/* Queue pairs and their states. */
#include "fabric.h"

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct fctx *x = ctx_of(pd->context);
	struct ibv_qp_cap *cap = &init->cap;

	if (failed(x->dev->d->k.qp_errno))
		return NULL;
	if (init->qp_type != IBV_QPT_RC || !init->send_cq || !init->recv_cq || init->srq || cap->max_send_wr < 1 || cap->max_send_wr > 8192 ||
	    cap->max_send_sge > 30 || cap->max_inline_data > 1024 || cap->max_recv_wr > MAX_RECVS) {
		errno = EINVAL;
		return NULL;
	}
	if (cap->max_inline_data > 0 && failed(x->dev->d->k.inline_errno))
		return NULL;
	struct fqp *q = calloc(1, sizeof *q);
	struct entry *ring = calloc(cap->max_send_wr, sizeof *ring);
	if (!q || !ring || !(q->o = object_new(x->dev->f, QP, x->dev->d))) {
		free(q);
		free(ring);
		return NULL;
	}
	q->ring = ring;
	q->cap = *cap;
	q->sq_sig_all = init->sq_sig_all;
	q->o->pd = pd->handle;
	q->ibv = (struct ibv_qp){.context = pd->context, .qp_context = init->qp_context, .pd = pd, .send_cq = init->send_cq,
		.recv_cq = init->recv_cq, .qp_type = init->qp_type, .state = IBV_QPS_RESET};
	q->ibv.qp_num = q->ibv.handle = object_number(x->dev->f, q->o);
	struct fcq *send = (struct fcq *)init->send_cq;
	pthread_mutex_lock(&process_lock);
	q->next = send->qps;
	send->qps = q;
	send->users++;
	struct fcq *recv = (struct fcq *)init->recv_cq;
	q->next_receiver = recv->receivers;
	recv->receivers = q;
	recv->users++;
	pthread_mutex_unlock(&process_lock);
	return &q->ibv;
}

/* cancel flushes incomplete entries. The caller holds the fabric's lock. */
static void cancel(struct fqp *q)
{
	uint64_t now = now_ns();

	for (uint64_t i = q->head; i < q->tail; i++)
		if (q->ring[i % q->cap.max_send_wr].due > now) {
			flush_from(q, i, now);
			return;
		}
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct fqp *q = (struct fqp *)qp;
	struct fcq *send = (struct fcq *)qp->send_cq;

	pthread_mutex_lock(&process_lock);
	for (struct fqp **p = &send->qps; *p; p = &(*p)->next)
		if (*p == q) {
			*p = q->next;
			break;
		}
	send->users--;
	struct fcq *recv = (struct fcq *)qp->recv_cq;
	for (struct fqp **p = &recv->receivers; *p; p = &(*p)->next_receiver)
		if (*p == q) {
			*p = q->next_receiver;
			break;
		}
	recv->users--;
	pthread_mutex_unlock(&process_lock);
	struct fabric *f = ctx_of(qp->context)->dev->f;
	fabric_lock(f);
	cancel(q);
	object_free(q->o);
	fabric_unlock(f);
	free(q->ring);
	free(q);
	return 0;
}

/* Transitions that the kernel requires and allows (drivers/infiniband/core/verbs.c, qp_state_table, RC). */
static const struct transition {
	enum ibv_qp_state from, to;
	int required, optional;
} transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
};

static bool allowed(uint64_t from, enum ibv_qp_state to, int mask)
{
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return mask == 0;
	for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++) {
		const struct transition *t = &transitions[i];
		if (t->from == from && t->to == to)
			return (mask & t->required) == t->required && (mask & ~(t->required | t->optional)) == 0;
	}
	return false;
}

static int to_init(struct fqp *q, struct device *d, struct ibv_qp_attr *a, int mask)
{
	if (d->k.init_errno)
		return (int)d->k.init_errno;
	if (((mask & IBV_QP_PORT) && a->port_num != d->port) || ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index >= MAX_PKEYS))
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX)
		q->o->pkey = d->pkeys[a->pkey_index];
	if (mask & IBV_QP_PORT)
		q->attr.port_num = a->port_num;
	return 0;
}

static int to_rtr(struct fqp *q, struct fabric *f, struct device *d, struct ibv_qp_attr *a)
{
	struct device *peer;

	if (d->k.rtr_errno)
		return (int)d->k.rtr_errno;
	if (a->path_mtu < IBV_MTU_256 || a->path_mtu > d->active_mtu || a->dest_qp_num >> 24 || a->rq_psn >> 24 ||
	    a->max_dest_rd_atomic > (d->k.reads ? d->k.reads : MAX_READS))
		return EINVAL;
	int err = reach(f, d, &a->ah_attr, &peer);
	if (err)
		return err;
	struct object *o = q->o;
	struct gid *ours = &d->gids[a->ah_attr.grh.sgid_index];
	uint64_t hi, lo;
	gid_words(&a->ah_attr.grh.dgid, &hi, &lo);
	if (!a->ah_attr.is_global) {
		hi = peer->gids[0].hi;
		lo = peer->gids[0].lo;
	}
	o->global = a->ah_attr.is_global;
	o->dlid = a->ah_attr.dlid;
	o->sl = a->ah_attr.sl;
	o->tclass = a->ah_attr.grh.traffic_class;
	o->flow_label = a->ah_attr.grh.flow_label;
	o->dgid_hi = hi;
	o->dgid_lo = lo;
	o->sgid_index = a->ah_attr.grh.sgid_index;
	o->sgid_hi = ours->hi;
	o->sgid_lo = ours->lo;
	o->sgid_type = ours->type;
	o->mtu = 128u << a->path_mtu;
	o->dest_qpn = a->dest_qp_num;
	o->rq_psn = a->rq_psn;
	o->reads = a->max_dest_rd_atomic;
	q->attr.ah_attr = a->ah_attr;
	q->attr.path_mtu = a->path_mtu;
	q->attr.dest_qp_num = a->dest_qp_num;
	q->attr.rq_psn = a->rq_psn;
	q->attr.max_dest_rd_atomic = a->max_dest_rd_atomic;
	q->attr.min_rnr_timer = a->min_rnr_timer;
	return 0;
}

static int to_rts(struct fqp *q, struct device *d, struct ibv_qp_attr *a, int mask)
{
	if (!(mask & IBV_QP_SQ_PSN))
		return 0; /* already in that state */
	if (d->k.rts_errno)
		return (int)d->k.rts_errno;
	if (a->sq_psn >> 24 || a->timeout > 31 || a->retry_cnt > 7 || a->rnr_retry > 7 ||
	    a->max_rd_atomic > (d->k.reads ? d->k.reads : MAX_READS))
		return EINVAL;
	q->o->sq_psn = a->sq_psn;
	q->attr.sq_psn = a->sq_psn;
	q->attr.timeout = a->timeout;
	q->o->timeout = a->timeout;
	q->attr.retry_cnt = a->retry_cnt;
	q->attr.rnr_retry = a->rnr_retry;
	q->attr.max_rd_atomic = a->max_rd_atomic;
	return 0;
}

static int modify(struct fqp *q, struct fabric *f, struct device *d, struct ibv_qp_attr *a, int mask)
{
	uint64_t from = q->o->state;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? a->qp_state : (enum ibv_qp_state)from;
	int err = 0;

	if (!allowed(from, to, mask & ~IBV_QP_STATE))
		return EINVAL;
	switch (to) {
	case IBV_QPS_RESET:
		cancel(q);
		q->head = q->tail;
		break;
	case IBV_QPS_INIT:
		err = to_init(q, d, a, mask);
		break;
	case IBV_QPS_RTR:
		err = to_rtr(q, f, d, a);
		break;
	case IBV_QPS_RTS:
		err = to_rts(q, d, a, mask);
		break;
	default: /* ERR */
		cancel(q);
	}
	if (err)
		return err;
	if (mask & IBV_QP_ACCESS_FLAGS)
		q->o->access = a->qp_access_flags;
	q->o->state = to;
	q->ibv.state = to;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct fctx *x = ctx_of(qp->context);

	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RTR)
		usleep((useconds_t)(x->dev->d->k.rtr_delay / 1000)); /* before the locks, so that others continue */
	pthread_mutex_lock(&process_lock);
	fabric_lock(x->dev->f);
	int err = modify((struct fqp *)qp, x->dev->f, x->dev->d, attr, mask);
	fabric_unlock(x->dev->f);
	pthread_mutex_unlock(&process_lock);
	errno = err;
	return err;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct fqp *q = (struct fqp *)qp;

	(void)mask;
	pthread_mutex_lock(&process_lock);
	*attr = q->attr;
	attr->qp_state = attr->cur_qp_state = qp->state = (enum ibv_qp_state)q->o->state;
	attr->qp_access_flags = (unsigned int)q->o->access;
	attr->cap = q->cap;
	*init = (struct ibv_qp_init_attr){.qp_context = qp->qp_context, .send_cq = qp->send_cq, .recv_cq = qp->recv_cq, .cap = q->cap,
		.qp_type = qp->qp_type, .sq_sig_all = q->sq_sig_all};
	pthread_mutex_unlock(&process_lock);
	return 0;
}
