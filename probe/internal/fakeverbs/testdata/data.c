/* The fast verbs, post and poll, and the path of a write. */
#include "fabric.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>

/* Vendor errors, as seen by users of mlx5. */
enum { VENDOR_LOCAL = 0x51, VENDOR_REMOTE_ACCESS = 0x88, VENDOR_REMOTE_INVALID = 0x8a, VENDOR_RETRY = 0x81, VENDOR_FLUSH = 0xf9 };

enum { HEADERS = 58, MAX_IOV = 32 };

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void fail(struct entry *e, enum ibv_wc_status status, uint32_t vendor)
{
	e->wc.status = status;
	e->wc.vendor_err = vendor;
}

/* wire returns the time until which a device's wire is busy. */
static word *wire(struct fabric *f, struct device *d) { return d->k.group ? &f->groups[d->k.group % MAX_GROUPS] : &d->busy; }

/*
 * flush_from completes all entries from one on, none of which is complete, as flushed, and frees the wire. The caller
 * holds the fabric's lock.
 */
void flush_from(struct fqp *q, uint64_t from, uint64_t due)
{
	struct fabric *f = ctx_of(q->ibv.context)->dev->f;

	for (uint64_t i = from; i < q->tail; i++) {
		struct entry *e = &q->ring[i % q->cap.max_send_wr];
		fail(e, IBV_WC_WR_FLUSH_ERR, VENDOR_FLUSH);
		e->due = q->last_due = due;
		if (e->wire) {
			word *busy = wire(f, e->sender);
			*busy -= e->wire < *busy ? e->wire : *busy;
		}
		e->wire = 0;
	}
	q->begun = q->tail;
}

/*
 * gather converts a request's scatter list to local addresses; false if a key does not cover them, or does not allow
 * writes.
 */
static bool gather(struct fabric *f, struct fqp *q, const struct ibv_send_wr *wr, struct iovec *iov)
{
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];
		iov[i] = (struct iovec){(void *)(uintptr_t)s->addr, s->length};
		if (wr->send_flags & IBV_SEND_INLINE || s->length == 0)
			continue;
		struct object *mr = object_of(f, MR, s->lkey);
		if (!mr || mr->pid != (uint64_t)getpid() || mr->pd != q->o->pd || s->addr < mr->iova || s->length > mr->length ||
		    s->addr - mr->iova > mr->length - s->length || (wr->opcode == IBV_WR_RDMA_READ && !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
			return false;
		iov[i].iov_base = (void *)(uintptr_t)(mr->addr + (s->addr - mr->iova));
	}
	return true;
}

/* copy_by_file is for qemu-user, which lacks process_vm_writev and maps the guest's addresses one to one. */
static int copy_by_file(uint64_t pid, uint64_t there, const struct iovec *here, int n, uint64_t length, bool read)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
	int fd = open(path, (read ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? ESRCH : errno;
	ssize_t copied = read ? preadv(fd, here, n, (off_t)there) : pwritev(fd, here, n, (off_t)there);
	int err = errno;
	close(fd);
	if (copied == 0)
		return ESRCH; /* the process is gone, but its file is still open */
	return copied < 0 ? err : (uint64_t)copied == length ? 0 : EFAULT;
}

/* copy writes to a process, or reads from it; returns 0 or an errno. */
static int copy(uint64_t pid, uint64_t there, const struct iovec *here, int n, uint64_t length, bool read)
{
	if (pid == (uint64_t)getpid()) {
		for (int i = 0; i < n; i++) {
			void *remote = (void *)(uintptr_t)there;
			memmove(read ? here[i].iov_base : remote, read ? remote : here[i].iov_base, here[i].iov_len);
			there += here[i].iov_len;
		}
		return 0;
	}
	struct iovec remote = {(void *)(uintptr_t)there, length};
	ssize_t copied = (read ? process_vm_readv : process_vm_writev)((pid_t)pid, here, (unsigned long)n, &remote, 1, 0);
	if (copied < 0)
		return errno == ENOSYS ? copy_by_file(pid, there, here, n, length, read) : errno;
	return (uint64_t)copied == length ? 0 : EFAULT;
}

/* corrupt changes the middle byte of the copy of a write or read, at the receiving end. */
static void corrupt(uint64_t pid, uint64_t to, const struct iovec *from, int n, uint64_t length, bool read)
{
	uint64_t at = length / 2, left = at;
	for (int i = 0; i < n; i++) {
		if (left >= from[i].iov_len) {
			left -= from[i].iov_len;
			continue;
		}
		unsigned char *here = (unsigned char *)from[i].iov_base + left, byte = *here ^ 0xff;
		if (read)
			*here = byte;
		else
			copy(pid, to + at, &(struct iovec){&byte, 1}, 1, 1, false);
		return;
	}
}

/*
 * peer_of finds the QP at the other end if it exists, is ready to receive, is connected to this one, and expects this
 * one's sequence numbers.
 */
static struct object *peer_of(struct fabric *f, struct fqp *q, struct device *d, struct device **peer)
{
	struct object *us = q->o, *they = object_of(f, QP, (uint32_t)us->dest_qpn);
	struct gid *ours = &d->gids[us->sgid_index];

	/* No device has it with this type: the other end uses another RoCE version. */
	*peer = device_with_gid(f, us->dgid_hi, us->dgid_lo, us->sgid_type);
	if (!they || !*peer || (*peer)->k.down || (*peer)->k.blocked || &f->devices[they->device] != *peer)
		return NULL;
	if (they->state != IBV_QPS_RTR && they->state != IBV_QPS_RTS)
		return NULL;
	if (!ours->type || ours->hi != us->sgid_hi || ours->lo != us->sgid_lo || ours->type != us->sgid_type)
		return NULL; /* the address no longer exists */
	if (they->dest_qpn != q->ibv.qp_num || they->rq_psn != us->sq_psn || they->dgid_hi != us->sgid_hi || they->dgid_lo != us->sgid_lo)
		return NULL;
	if ((they->pkey ^ us->pkey) & 0x7fff || !((they->pkey | us->pkey) & 0x8000))
		return NULL; /* different partitions, or two limited members */
	return they;
}

/*
 * delayed is a write whose bytes did not arrive when acknowledged: late ones arrive with the next immediate, parked
 * ones after a failure, if the destination queue pair still accepts them.
 */
static struct {
	uint64_t after, at, length; /* time, and place in the region */
	unsigned char *bytes;
	uint32_t qp, mr; /* numbers, because both may be gone by then */
	bool parked;
} delayed;

static void delay(const struct ibv_send_wr *wr, const struct iovec *from, uint64_t length, uint64_t qp, uint64_t after, bool parked)
{
	free(delayed.bytes);
	delayed.after = after;
	delayed.at = wr->wr.rdma.remote_addr;
	delayed.length = 0;
	delayed.bytes = malloc(length);
	delayed.qp = (uint32_t)qp;
	delayed.mr = wr->wr.rdma.rkey & ~(1u << 31);
	delayed.parked = parked;
	for (int i = 0; i < wr->num_sge && delayed.bytes; i++) {
		memcpy(delayed.bytes + delayed.length, from[i].iov_base, from[i].iov_len);
		delayed.length += from[i].iov_len;
	}
}

static void deliver(struct fabric *f)
{
	struct object *qp = object_of(f, QP, delayed.qp), *mr = object_of(f, MR, delayed.mr);
	if (qp && mr && delayed.at >= mr->iova && delayed.at - mr->iova + delayed.length <= mr->length &&
	    (!delayed.parked || qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS))
		copy(mr->pid, mr->addr + (delayed.at - mr->iova), &(struct iovec){delayed.bytes, delayed.length}, 1, delayed.length, false);
	free(delayed.bytes);
	delayed.bytes = NULL;
}

/* crowded reports whether a read exceeds the number that the peer's queue pair serves at a time. */
static bool crowded(const struct fqp *q, const struct object *they)
{
	uint64_t open = 1, now = now_ns();

	for (uint64_t i = q->head; i < q->tail; i++)
		open += q->ring[i % q->cap.max_send_wr].read && q->ring[i % q->cap.max_send_wr].due > now;
	return open > they->reads && q->attr.max_rd_atomic > they->reads;
}

/* udp_port is rdma_flow_label_to_udp_sport of the kernel's ib_verbs.h. */
static uint64_t udp_port(uint64_t flow_label) { return ((flow_label & 0x3fff) ^ (flow_label >> 14)) | 0xc000; }

/*
 * transfer executes a write or read, or makes it fail. It copies the bytes at once, even if the request waits for the
 * wire. The caller holds the fabric's lock.
 */
static void transfer(struct fqp *q, const struct ibv_send_wr *wr, struct entry *e)
{
	struct fctx *x = ctx_of(q->ibv.context);
	struct fabric *f = x->dev->f;
	struct device *d = x->dev->d;
	struct iovec iov[MAX_IOV];
	uint64_t written = ++d->writes, carried = d->bytes += e->bytes, access = e->read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;

	if (!gather(f, q, wr, iov)) {
		fail(e, IBV_WC_LOC_PROT_ERR, VENDOR_LOCAL);
		return;
	}
	if (d->k.fail_every && written % d->k.fail_every == 0) {
		fail(e, (enum ibv_wc_status)d->k.fail_status, (uint32_t)d->k.fail_vendor);
		return;
	}
	if (delayed.bytes && now_ns() >= delayed.after && (delayed.parked || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM))
		deliver(f);
	bool dropped = d->k.down || d->k.blocked || (d->k.drop_after && carried > d->k.drop_after) || (d->k.drop_larger && e->bytes > d->k.drop_larger) ||
		       (d->k.drop_port && d->k.drop_port == udp_port(q->o->flow_label));
	struct object *they = dropped ? NULL : peer_of(f, q, d, &e->peer);
	uint64_t at = wr->wr.rdma.remote_addr;
	struct object *mr = wr->wr.rdma.rkey >> 31 ? object_of(f, MR, wr->wr.rdma.rkey & ~(1u << 31)) : NULL;
	if (!they) {
		if (d->k.park && e->bytes && !e->read)
			delay(wr, iov, e->bytes, q->o->dest_qpn, now_ns() + d->k.retry_timeout, true);
		fail(e, IBV_WC_RETRY_EXC_ERR, VENDOR_RETRY);
		return;
	}
	if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		if (they->recvs == they->arrived) {
			fail(e, IBV_WC_RNR_RETRY_EXC_ERR, VENDOR_RETRY);
			return;
		}
		e->they = they;
	}
	e->sender = e->read ? e->peer : d;
	if (!(they->access & access) || (e->bytes > they->mtu && q->o->mtu > they->mtu) || (e->read && crowded(q, they))) {
		fail(e, IBV_WC_REM_INV_REQ_ERR, VENDOR_REMOTE_INVALID);
		they->state = IBV_QPS_ERR;
		return;
	}
	e->packets = e->bytes ? (e->bytes + q->o->mtu - 1) / q->o->mtu : 1;
	if (e->bytes == 0)
		return; /* without bytes, the key is irrelevant */
	int err = EFAULT;
	if (mr && mr->pid == they->pid && mr->pd == they->pd && (mr->access & access) && at >= mr->iova && e->bytes <= mr->length &&
	    at - mr->iova <= mr->length - e->bytes) {
		if ((d->k.lose && written == d->k.lose) || (d->k.late && written == d->k.late && !e->read)) {
			if (written == d->k.late && !e->read)
				delay(wr, iov, e->bytes, q->o->dest_qpn, 0, false);
			return;
		}
		err = copy(mr->pid, mr->addr + (at - mr->iova), iov, wr->num_sge, e->bytes, e->read);
	}
	if (err == ESRCH) {
		fail(e, IBV_WC_RETRY_EXC_ERR, VENDOR_RETRY);
	} else if (err) {
		if (err == EPERM)
			fprintf(stderr, "fakeverbs: may not access process %d\n", (int)mr->pid);
		fail(e, IBV_WC_REM_ACCESS_ERR, VENDOR_REMOTE_ACCESS);
		they->state = IBV_QPS_ERR;
	} else if (d->k.corrupt && written >= d->k.corrupt && (written - d->k.corrupt) % 16 == 0) {
		corrupt(mr->pid, mr->addr + (at - mr->iova), iov, wr->num_sge, e->bytes, e->read);
	}
}

/* due_at returns when a request that begins now completes: the wire serves requests in sequence. */
static uint64_t due_at(struct fabric *f, struct device *d, struct entry *e, uint64_t now)
{
	uint64_t rate = e->sender ? e->sender->k.rate : 0;

	if (e->wc.status == IBV_WC_WR_FLUSH_ERR)
		return now;
	if (e->wc.status == IBV_WC_RETRY_EXC_ERR)
		return now + d->k.retry_timeout;
	if (rate && e->wc.status == IBV_WC_SUCCESS) {
		word *busy = wire(f, e->sender);
		e->wire = (uint64_t)((double)e->bytes * 1e9 / (double)rate);
		*busy = now = later(now, *busy) + e->wire;
	}
	return now + d->k.latency;
}

/*
 * begin starts posted requests in turn: a read waits while the queue pair has its maximum of open reads. The caller
 * holds the fabric's lock.
 */
static void begin(struct fqp *q)
{
	struct fctx *x = ctx_of(q->ibv.context);
	uint64_t most = q->attr.max_rd_atomic ? q->attr.max_rd_atomic : 1;

	for (; q->begun < q->tail; q->begun++) {
		struct entry *e = &q->ring[q->begun % q->cap.max_send_wr];
		uint64_t now = e->posted;
		if (e->read && q->reads >= most) {
			uint64_t before = q->read_due[(q->reads - most) % MAX_READS];
			if (before > now_ns())
				return;
			now = later(now, before);
		}
		e->due = q->last_due = later(due_at(x->dev->f, x->dev->d, e, now), q->last_due);
		if (e->read)
			q->read_due[q->reads++ % MAX_READS] = e->due;
		if (e->they && e->wc.status == IBV_WC_SUCCESS) {
			e->they->imms[e->they->arrived++ % MAX_RECVS] = e->imm;
			e->they->arrive_at = e->due;
		}
	}
}

static int post_one(struct fqp *q, const struct ibv_send_wr *wr)
{
	struct fctx *x = ctx_of(q->ibv.context);
	struct entry e = {.signaled = q->sq_sig_all || wr->send_flags & IBV_SEND_SIGNALED, .read = wr->opcode == IBV_WR_RDMA_READ,
		.imm = wr->imm_data, .posted = now_ns(), .due = UINT64_MAX};

	if ((wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM && !e.read) || wr->num_sge < 0 || (unsigned)wr->num_sge > q->cap.max_send_sge)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		e.bytes += wr->sg_list[i].length;
	if (e.bytes > 1u << 30 || (wr->send_flags & IBV_SEND_INLINE && (e.read || e.bytes > q->cap.max_inline_data)))
		return EINVAL;
	if (q->o->state != IBV_QPS_RTS && q->o->state != IBV_QPS_ERR)
		return EINVAL;
	if (q->tail - q->head == q->cap.max_send_wr)
		return ENOMEM;
	e.wc = (struct ibv_wc){.wr_id = wr->wr_id, .opcode = e.read ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE, .qp_num = q->ibv.qp_num, .byte_len = (uint32_t)e.bytes};
	fabric_lock(x->dev->f);
	if (q->o->state == IBV_QPS_ERR) {
		fail(&e, IBV_WC_WR_FLUSH_ERR, VENDOR_FLUSH);
	} else {
		transfer(q, wr, &e);
		if (e.wc.status != IBV_WC_SUCCESS)
			q->o->state = IBV_QPS_ERR;
	}
	q->ring[q->tail++ % q->cap.max_send_wr] = e;
	begin(q);
	fabric_unlock(x->dev->f);
	return 0;
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct device *d = ctx_of(qp->context)->dev->d;
	volatile uintptr_t nowhere = 0;

	for (; wr; wr = wr->next) {
		while (d->k.hang_post)
			usleep(1000);
		uint64_t n = ++d->posts;
		if (d->k.crash_at && n == d->k.crash_at)
			*(volatile char *)nowhere = 0;
		pthread_mutex_lock(&process_lock);
		int err = post_one((struct fqp *)qp, wr);
		pthread_mutex_unlock(&process_lock);
		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

/* Only a write with immediate uses a receive, because nothing here sends. */
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fqp *q = (struct fqp *)qp;

	for (; wr; wr = wr->next) {
		pthread_mutex_lock(&process_lock);
		bool room = q->o->recvs - q->received < q->cap.max_recv_wr;
		if (room)
			q->recv_ids[q->o->recvs++ % MAX_RECVS] = wr->wr_id;
		pthread_mutex_unlock(&process_lock);
		if (!room) {
			*bad = wr;
			return ENOMEM;
		}
	}
	return 0;
}

/* arrivals completes receives, and flushes those of a queue pair in error. */
static int arrivals(struct fcq *cq, int n, struct ibv_wc *wc)
{
	int got = 0;

	for (struct fqp *q = cq->receivers; q && got < n; q = q->next_receiver)
		if (q->received >= q->o->arrived && q->received < q->o->recvs && q->o->state == IBV_QPS_ERR) {
			q->o->arrived++;
			wc[got++] = (struct ibv_wc){.wr_id = q->recv_ids[q->received++ % MAX_RECVS], .status = IBV_WC_WR_FLUSH_ERR,
				.vendor_err = VENDOR_FLUSH, .qp_num = q->ibv.qp_num};
		} else if (q->received < q->o->arrived && q->o->arrive_at <= now_ns())
			wc[got++] = (struct ibv_wc){.wr_id = q->recv_ids[q->received % MAX_RECVS],
				.imm_data = (uint32_t)q->o->imms[q->received++ % MAX_RECVS], .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
				.wc_flags = IBV_WC_WITH_IMM, .qp_num = q->ibv.qp_num};
	return got;
}

static void write_counter(struct fctx *x, struct device *d, int which, uint64_t value)
{
	static const char *const names[] = {"port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"};
	int *fd = &x->counter_fds[d - x->dev->f->devices][which];
	char text[600];

	if (*fd == 0 && d->counters[0]) {
		snprintf(text, sizeof text, "%s/%s", d->counters, names[which]);
		*fd = open(text, O_WRONLY | O_CLOEXEC);
	}
	int n = snprintf(text, sizeof text, "%llu\n", (unsigned long long)value);
	if (*fd > 0 && pwrite(*fd, text, (size_t)n, 0) < 0)
		fprintf(stderr, "fakeverbs: cannot count in %s\n", d->counters);
}

/* account adds completed requests to the counters of both ports, which count units of 4 bytes. */
static void account(struct fctx *x, const struct entry *e)
{
	struct device *d = e->sender, *to = e->read ? x->dev->d : e->peer;
	uint64_t wire = e->bytes + HEADERS * e->packets;

	fabric_lock(x->dev->f);
	write_counter(x, d, 0, (d->xmit += wire) / 4);
	write_counter(x, d, 2, d->xmit_packets += e->packets);
	write_counter(x, to, 1, (to->rcv += wire) / 4);
	write_counter(x, to, 3, to->rcv_packets += e->packets);
	fabric_unlock(x->dev->f);
}

/* cut lets writes time out that were in flight when the link went down. */
static void cut(struct fqp *q, struct device *d, uint64_t now)
{
	for (uint64_t i = q->head; i < q->tail; i++) {
		struct entry *e = &q->ring[i % q->cap.max_send_wr];
		if (e->due <= now || e->wc.status != IBV_WC_SUCCESS || !(d->k.down || e->peer->k.down))
			continue;
		fabric_lock(ctx_of(q->ibv.context)->dev->f);
		flush_from(q, i, now + d->k.retry_timeout);
		fabric_unlock(ctx_of(q->ibv.context)->dev->f);
		fail(e, IBV_WC_RETRY_EXC_ERR, VENDOR_RETRY);
		q->o->state = IBV_QPS_ERR;
		return;
	}
}

/* next_due returns the index after the next entry that is complete and reported; 0 if there is none. */
static uint64_t next_due(const struct fqp *q, uint64_t now)
{
	for (uint64_t i = q->head; i < q->tail; i++) {
		const struct entry *e = &q->ring[i % q->cap.max_send_wr];
		if (e->due > now)
			return 0;
		if (e->signaled || e->wc.status != IBV_WC_SUCCESS)
			return i + 1;
	}
	return 0;
}

static int poll_locked(struct fcq *cq, int n, struct ibv_wc *wc)
{
	struct fctx *x = ctx_of(cq->ibv.context);
	uint64_t now = now_ns();
	int got = 0;

	for (struct fqp *q = cq->qps; q; q = q->next) {
		cut(q, x->dev->d, now);
		if (q->begun == q->tail)
			continue;
		fabric_lock(x->dev->f);
		begin(q);
		fabric_unlock(x->dev->f);
	}
	while (got < n) {
		struct fqp *first = NULL;
		uint64_t until = 0, due = UINT64_MAX;
		for (struct fqp *q = cq->qps; q; q = q->next) {
			uint64_t i = next_due(q, now);
			if (i && q->ring[(i - 1) % q->cap.max_send_wr].due < due) {
				first = q;
				until = i;
				due = q->ring[(i - 1) % q->cap.max_send_wr].due;
			}
		}
		if (!first)
			break;
		for (; first->head < until; first->head++) {
			struct entry *e = &first->ring[first->head % first->cap.max_send_wr];
			if (e->wc.status == IBV_WC_SUCCESS)
				account(x, e);
			wc[got] = e->wc;
			cq->stamp = e->due;
		}
		got++;
	}
	return got;
}

int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	if (ctx_of(cq->context)->dev->d->k.hang_poll)
		return 0;
	pthread_mutex_lock(&process_lock);
	int got = arrivals((struct fcq *)cq, n, wc);
	got += poll_locked((struct fcq *)cq, n - got, wc + got);
	pthread_mutex_unlock(&process_lock);
	return got;
}
