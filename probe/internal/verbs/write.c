/* Single writes: posting, failures, latency. */
#define _GNU_SOURCE
#include "rail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum {
	WARMUP = 3,              /* writes without samples: they fill caches, address translation and ARP */
	SPIN = 60 * RS_US,       /* time before an arrival in which the thread does not sleep */
	MIN_AWAY = 2 * RS_US,    /* longer than two polls and readings of a slow clock */
	AWAY_PART = 4,           /* part of a sample, as a divisor, up to which its error is accepted */
};

int64_t rs_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void rs_relax(int64_t idle)
{
	if (idle > RS_MS)
		nanosleep(&(struct timespec){.tv_nsec = 30 * RS_US}, NULL);
	else if (idle > 30 * RS_US)
		sched_yield();
}

struct rs_error rs_fail(struct rs_rail *r, struct rs_error e)
{
	if (!r->failed.op || (r->failed.status == IBV_WC_WR_FLUSH_ERR && e.status && e.status != IBV_WC_WR_FLUSH_ERR))
		r->failed = e;
	return r->failed;
}

struct rs_error rs_usable(struct rs_rail *r)
{
	if (!r->failed.op && (!r->connected || !r->mr))
		return (struct rs_error){.op = "use", .err = -ENOTCONN};
	return r->failed;
}

static struct rs_error post(struct rs_rail *r, uint32_t q, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	wr->wr_id = ++r->posts * RS_MAX_QPS + q;
	wr->send_flags |= IBV_SEND_SIGNALED;
	wr->wr.rdma.rkey = r->rkey;
	errno = 0;
	int rc = ibv_post_send(r->qp[q], wr, &bad);
	if (rc == 0)
		return (struct rs_error){0};
	int32_t err = rc == -1 && errno ? errno : abs(rc);
	return rs_fail(r, (struct rs_error){.op = r->spec.read ? "post read" : "post write", .err = -err});
}

/* Matches Place in package transfer, which the verifying end uses. */
static void place(const struct rs_rail *r, uint32_t q, int64_t i, int64_t length, uint64_t *ring, uint64_t *source)
{
	int64_t slots = r->ring / length > 0 ? r->ring / length : 1;
	*ring = (uint64_t)(q * r->ring + i % slots * length);
	*source = (uint64_t)((i % slots * 61 + i / slots + r->pass) % RS_SHIFTS * RS_PAGE);
}

void rs_copy(struct rs_rail *r, uint32_t q, int64_t length)
{
	uint64_t ring, source;
	uint32_t slot = r->begun++ % RS_COPIES;
	place(r, q, r->written[q] + r->ahead[q]++, length, &ring, &source);
	r->copying[slot] = (uint8_t)q;
	rs_fail(r, rs_stage_begin(r->stage, slot, source, ring, (uint64_t)length));
}

uint32_t rs_copied(struct rs_rail *r)
{
	struct rs_error e = {0};
	uint32_t slot = r->copied % RS_COPIES;
	if (r->failed.op || r->copied == r->begun || rs_stage_ready(r->stage, slot, &e) == 0)
		return RS_MAX_QPS;
	if (rs_fail(r, e).op)
		return RS_MAX_QPS;
	r->copied++;
	r->ahead[r->copying[slot]]--;
	return r->copying[slot];
}

void rs_forget_copies(struct rs_rail *r)
{
	r->copied = r->begun;
	for (uint32_t q = 0; q < RS_MAX_QPS; q++)
		r->ahead[q] = 0;
}

struct rs_error rs_post(struct rs_rail *r, uint32_t q, int64_t length)
{
	uint64_t ring, source;
	int read = r->spec.read != 0;
	place(r, q, r->written[q]++, length, &ring, &source);
	struct ibv_sge sge = {.addr = r->local + (read || r->stage ? ring : source), .length = (uint32_t)length,
			      .lkey = r->mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		.send_flags = !read && sge.length <= r->max_inline ? IBV_SEND_INLINE : 0,
		.wr.rdma = {.remote_addr = r->remote_addr + (read ? source : ring)},
	};
	return post(r, q, &wr);
}

struct rs_error rs_post_last(struct rs_rail *r, uint32_t q)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl((uint32_t)r->pass),
		.wr.rdma = {.remote_addr = r->remote_addr},
	};
	return post(r, q, &wr);
}

static struct rs_error receive(struct rs_rail *r, uint32_t q)
{
	struct ibv_recv_wr *bad, wr = {.wr_id = q};
	errno = 0;
	int rc = ibv_post_recv(r->qp[q], &wr, &bad);
	if (rc == 0)
		return (struct rs_error){0};
	return (struct rs_error){.op = "post receive", .err = -(rc == -1 && errno ? errno : abs(rc))};
}

struct rs_error rs_rail_expect(struct rs_rail *r)
{
	struct rs_error e = {0};
	for (uint32_t i = 0; i < r->spec.qps * RS_RECEIVES && !e.op; i++)
		e = receive(r, i % r->spec.qps);
	return e;
}

struct rs_error rs_rail_arrived(const int32_t *cancelled, struct rs_rail *r, uint32_t pass, int64_t limit)
{
	int64_t start = rs_now();
	for (uint32_t missing = (1u << r->spec.qps) - 1; missing;) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(r->arrive, 1, &wc);
		int64_t waited = rs_now() - start;
		if (n < 0)
			return (struct rs_error){.op = "poll CQ", .err = -EIO};
		if (n > 0 && wc.status != IBV_WC_SUCCESS)
			return rs_completion(r, &wc);
		if (waited > limit) /* even if the peer continues to write */
			return (struct rs_error){.op = "write", .err = -ETIMEDOUT};
		if (rs_cancelled(cancelled))
			return (struct rs_error){.op = "write", .err = -ECANCELED};
		if (n > 0) {
			uint32_t q = (uint32_t)wc.wr_id % RS_MAX_QPS;
			struct rs_error e = receive(r, q);
			if (e.op)
				return e;
			if (ntohl(wc.imm_data) == pass) /* otherwise it ended a burst that was not verified */
				missing &= ~(1u << q);
		} else {
			rs_relax(waited);
		}
	}
	return (struct rs_error){0};
}

struct rs_error rs_completion(const struct rs_rail *r, const struct ibv_wc *wc)
{
	return (struct rs_error){.op = rs_op(r), .status = (int32_t)wc->status, .vendor = wc->vendor_err};
}

/* Takes one completion, and its stamp by the adapter. */
static int poll(struct rs_rail *r, struct ibv_wc *wc, uint64_t *stamp)
{
	struct ibv_poll_cq_attr none = {0};
	if (!r->stamped)
		return ibv_poll_cq(r->cq, 1, wc);
	int rc = ibv_start_poll(r->stamped, &none);
	if (rc)
		return rc == ENOENT ? 0 : -1;
	*wc = (struct ibv_wc){.wr_id = r->stamped->wr_id, .status = r->stamped->status};
	if (wc->status == IBV_WC_SUCCESS)
		*stamp = ibv_wc_read_completion_ts(r->stamped);
	else
		wc->vendor_err = ibv_wc_read_vendor_err(r->stamped);
	ibv_end_poll(r->stamped);
	return 1;
}

/* *t is the time of the last reading of the clock, and gap gets the time between the last two. */
static struct rs_error await(const int32_t *cancelled, struct rs_rail *r, int64_t posted, int64_t limit, int64_t *t,
			     uint64_t *stamp, int64_t *gap)
{
	uint64_t id = r->posts * RS_MAX_QPS; /* ID of the last post, on the first queue pair */
	int64_t since = 0;                   /* time of the cancel */
	for (;;) {
		struct ibv_wc wc;
		int n = poll(r, &wc, stamp);
		int64_t last = *t;
		*t = rs_now();
		*gap = *t - last;
		if (n < 0)
			return rs_fail(r, (struct rs_error){.op = "poll CQ", .err = -EIO});
		if (n > 0 && wc.wr_id == id)
			return wc.status == IBV_WC_SUCCESS ? (struct rs_error){0} : rs_fail(r, rs_completion(r, &wc));
		if (*t - posted > limit)
			return rs_fail(r, (struct rs_error){.op = rs_op(r), .err = -ETIMEDOUT});
		if (!since && rs_cancelled(cancelled))
			since = *t;
		if (since && *t - since > RS_CANCEL_WAIT)
			return rs_fail(r, (struct rs_error){.op = rs_op(r), .err = -ECANCELED});
		if (*t - posted > RS_MS) /* an earlier yield would distort the figure */
			rs_relax(*t - posted);
	}
}

/* Reads the adapter's clock, in ticks. The read crosses PCIe, and takes about 1 µs. */
static struct rs_error ticks(struct rs_rail *r, uint64_t *now)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	int err = ibv_query_rt_values_ex(r->context, &values);
	*now = (uint64_t)values.raw_clock.tv_nsec;
	return (struct rs_error){.op = err ? "read the adapter's clock" : NULL, .err = -abs(err)};
}

/*
 * Returns the time from a reading of the adapter's clock to its stamp. An adapter may stamp with another clock than the
 * readable one (mlx5 with real time): then the stamp is not between two readings.
 */
static struct rs_error in_adapter(struct rs_rail *r, uint64_t before, uint64_t stamp, int64_t *ns)
{
	uint64_t after, until = (stamp - before) & r->ticks;
	struct rs_error e = ticks(r, &after);
	if (!e.op && until > ((after - before) & r->ticks))
		e = (struct rs_error){.op = "create CQ with timestamps", .err = -EOPNOTSUPP};
	*ns = (int64_t)((double)until * r->tick);
	return e;
}

/* Copies the next write from the GPU. The copy is part of the latency. */
static struct rs_error await_copy(const int32_t *cancelled, struct rs_rail *r, int64_t size, int64_t since,
				  int64_t limit)
{
	rs_copy(r, 0, size);
	while (rs_copied(r) == RS_MAX_QPS && !r->failed.op) {
		int64_t waited = rs_now() - since;
		if (waited > limit || rs_cancelled(cancelled))
			rs_fail(r, (struct rs_error){.op = rs_op(r), .err = waited > limit ? -ETIMEDOUT : -ECANCELED});
		else if (waited > RS_MS)
			rs_relax(waited);
	}
	return r->failed;
}

/* gap, if not NULL, gets how long the thread may have been away before it saw the completion. */
static struct rs_error measure(const int32_t *cancelled, struct rs_rail *r, int64_t size, int64_t limit, int64_t *t,
			       int64_t *sample, int64_t *adapter, int64_t *gap)
{
	int64_t away = 0;
	uint64_t before = 0, stamp = 0;
	struct rs_error e = {0};
	int64_t asked = adapter ? rs_now() : 0;
	if (adapter)
		e = ticks(r, &before);
	if (e.op)
		return e;
	int64_t posted = rs_now();
	if (r->stage)
		e = await_copy(cancelled, r, size, posted, limit);
	if (!e.op)
		e = rs_post(r, 0, size);
	if (gap)
		*t = rs_now(); /* the post of a software device takes long, and is part of the latency */
	if (!e.op)
		e = await(cancelled, r, posted, limit, t, &stamp, gap ? gap : &away);
	if (e.op) {
		rs_rail_stop(r);
		return e;
	}
	*sample = *t - posted;
	if (!adapter)
		return e;
	e = in_adapter(r, before, stamp, adapter);
	*adapter -= (posted - asked) / 2; /* the clock was read about half way between */
	*adapter = *adapter < 0 ? 0 : *adapter < *sample ? *adapter : *sample;
	return e;
}

/* Waits until t. Sleeps while that is far, because others may need the processor. */
static void wait_until(const int32_t *cancelled, int64_t t)
{
	for (int64_t left = t - rs_now(); left > 0 && !rs_cancelled(cancelled); left = t - rs_now())
		if (left > 2 * SPIN)
			nanosleep(&(struct timespec){.tv_nsec = left - SPIN < RS_MS ? left - SPIN : RS_MS}, NULL);
}

/*
 * Reports whether the thread may have been away for too large a part of a sample: the write may have completed long
 * before it was seen.
 */
static int unseen(int64_t gap, int64_t sample)
{
	return gap > MIN_AWAY && gap * AWAY_PART > sample;
}

struct rs_error rs_latency(const int32_t *cancelled, struct rs_rail *r, int64_t size, uint32_t n, int64_t limit,
			   int64_t *sample, int64_t *adapter, uint32_t *taken)
{
	struct rs_error e = rs_usable(r);
	int64_t start = rs_now(), t = start;
	*taken = 0;
	rs_forget_copies(r);
	/* A warm-up counts as a sample until another one replaces it. */
	for (uint32_t i = 0; !e.op && i < n + WARMUP && (i == 0 || t - start < limit); i++) {
		if (rs_cancelled(cancelled))
			return (struct rs_error){.op = rs_op(r), .err = -ECANCELED};
		uint32_t at = i < WARMUP ? 0 : i - WARMUP;
		e = measure(cancelled, r, size, limit, &t, &sample[at], adapter ? &adapter[at] : NULL, NULL);
		if (!e.op)
			*taken = at + 1;
	}
	return e;
}

struct rs_error rs_arrivals(const int32_t *cancelled, struct rs_rail *r, int64_t size, const int64_t *at, uint32_t n,
			    int32_t software, int64_t limit, int64_t *sample, uint32_t *taken)
{
	struct rs_error e = rs_usable(r);
	int64_t gap, warm, t = rs_now(), posted = t, seen = 1;
	*taken = 0;
	rs_forget_copies(r);
	for (uint32_t i = 0; !e.op && i < WARMUP; i++)
		e = measure(cancelled, r, size, limit, &t, &warm, NULL, &gap);
	for (int64_t i = 0, start = t; !e.op && i < n && t - start < limit; i++) {
		int64_t last = t, planned = start + at[i];
		wait_until(cancelled, planned);
		if (rs_cancelled(cancelled))
			return (struct rs_error){.op = rs_op(r), .err = -ECANCELED};
		e = measure(cancelled, r, size, limit, &t, &sample[*taken], NULL, &gap);
		if (e.op)
			break;
		/* The path did not answer between that time and the previous completion, however fast it is now. */
		int64_t left = planned > posted ? last - planned : 0;
		posted = t - sample[*taken];
		if (seen && left > sample[*taken])
			sample[*taken] = left;
		seen = software || !unseen(gap, sample[*taken]);
		if (seen)
			++*taken;
	}
	return e;
}
