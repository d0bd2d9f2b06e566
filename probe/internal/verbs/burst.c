/*
 * A burst: one loop on one thread over all rails, from the first post to the last completion. It keeps every rail at
 * full depth for a time, and measures within that. Every wait in it is bounded.
 *
 * What a rail carries is counted from one completion to another, so neither the start nor the end of the burst is in
 * the figure. Both are taken only in sweeps that followed the one before at once: a completion that waited to be polled
 * has a time that is too late.
 */
#include "rail.h"

#include <errno.h>
#include <stddef.h>

enum { POLLED = 32 }; /* completions taken at a time */

enum phase { FILL, MEASURE, DRAIN };

struct burst {
	const int32_t *cancelled;
	int64_t *progress;
	const struct rs_plan *plan;
	struct rs_rail **rail;
	struct rs_part *part;
	struct rs_lane *lane;
	uint32_t n;
	enum phase phase;
	int64_t start, over; /* when every rail was at full depth for the last time */
};

static void settle(struct burst *b, uint32_t i, const struct ibv_wc *wc)
{
	struct rs_lane *l = &b->lane[i];
	uint32_t q = wc->wr_id & (RS_MAX_QPS - 1);
	if (wc->status != IBV_WC_SUCCESS) {
		rs_fail(b->rail[i], rs_completion(b->rail[i], wc));
		return;
	}
	if (wc->wr_id < l->first_id || l->inflight[q] == 0)
		return; /* of a burst before this one */
	l->inflight[q]--;
	l->writes--;
	if (l->ended)
		return; /* this one has no bytes */
	l->pending += b->plan->load[i].chunk;
	l->waiting++;
	b->part[i].bytes += b->plan->load[i].chunk;
	__atomic_store_n(&b->progress[i], b->part[i].bytes, __ATOMIC_RELAXED);
}

/* Moves the end of what is measured to now, or puts its beginning here. Both times may be too late by the gap before. */
static void mark(struct burst *b, uint32_t i, int64_t t, int64_t gap)
{
	struct rs_lane *l = &b->lane[i];
	struct rs_part *p = &b->part[i];
	if (p->first < 0) {
		p->first = t;
		l->first_writes = l->writes;
		l->late_first = gap;
		l->early = l->waiting;
		l->before = l->widest;
	} else {
		l->late_last = gap;
		p->measured += l->pending;
		l->counted += l->waiting;
		p->gap = l->widest > p->gap ? l->widest : p->gap;
	}
	p->last = t;
	l->last_writes = l->writes;
	l->pending = l->widest = 0;
	l->waiting = 0;
}

/* Takes the completions of a rail; returns how many there were. */
static int reap(struct burst *b, uint32_t i)
{
	struct ibv_wc wc[POLLED];
	struct rs_lane *l = &b->lane[i];
	int n = 0, got;
	do { /* all that there are: a gap between two visits means that nothing waited in between */
		got = ibv_poll_cq(b->rail[i]->cq, POLLED, wc);
		if (got < 0)
			rs_fail(b->rail[i], (struct rs_error){.op = "poll CQ", .err = -EIO});
		for (int k = 0; k < got; k++)
			settle(b, i, &wc[k]);
		n += got > 0 ? got : 0;
	} while (got == POLLED && n < (int)b->plan->load[i].depth);
	int64_t t = rs_now() - b->start, gap = t - l->visited;
	l->visited = t;
	if (gap > l->widest)
		l->widest = gap;
	/* The longer it takes, the less a gap matters. A software device completes writes while the kernel has the
	 * processor: its gaps are no error of ours. What came after the poll before this one, and before its time was
	 * taken, is in the gap before. */
	int64_t since = t - l->full, window = since > b->plan->window ? since : b->plan->window;
	int64_t longest = gap > l->gap ? gap : l->gap;
	l->gap = gap;
	if (n > 0 && b->phase == MEASURE && (b->plan->software || longest <= window / RS_EDGE))
		mark(b, i, t, longest);
	return n;
}

/* How many writes a rail may have in flight: two at first, and one more for each that completed. On a slow link no more
 * than it carries in RS_QUEUE: a burst that is stopped waits for them, and RC must not take a queue for a loss. */
static uint32_t depth(const struct burst *b, uint32_t i)
{
	const struct rs_load *load = &b->plan->load[i];
	int64_t completed = b->part[i].bytes / load->chunk, most = completed + 2;
	if (b->plan->window == 0)
		return load->depth;
	if (b->lane[i].visited > 0) {
		double queue = (double)completed / (double)b->lane[i].visited * RS_QUEUE;
		most = queue < (double)most ? (int64_t)queue : most;
	}
	if (most < 2)
		most = 2;
	return most < load->depth ? (uint32_t)most : load->depth;
}

/* Chooses the queue pair that writes next: the one with the fewest writes. */
static uint32_t choose(const struct rs_rail *r, struct rs_lane *l)
{
	uint32_t q = 0;
	for (uint32_t k = 1; k < r->spec.qps; k++)
		q = l->inflight[k] < l->inflight[q] ? k : q;
	l->inflight[q]++;
	return q;
}

/* How many writes of a rail are being copied. */
static uint32_t copying(const struct rs_rail *r)
{
	return r->failed.op ? 0 : r->begun - r->copied;
}

/* Posts what is copied, and begins to copy what follows: beside a full depth of writes as many copies are in flight, if
 * the rings have room for both. */
static void feed_copied(struct burst *b, uint32_t i, uint32_t most)
{
	const struct rs_load *load = &b->plan->load[i];
	struct rs_rail *r = b->rail[i];
	struct rs_lane *l = &b->lane[i];
	for (uint32_t q; l->writes < most && (q = rs_copied(r)) < RS_MAX_QPS; l->writes++)
		rs_post(r, q, load->chunk);
	int64_t room = r->spec.qps * (load->ring / load->chunk) - l->writes;
	most = most < RS_COPIES ? most : RS_COPIES;
	room = room < most ? room : most;
	for (; !r->failed.op && copying(r) < room && (b->plan->window || l->copies < load->depth); l->copies++)
		rs_copy(r, choose(r, l), load->chunk);
}

/* Posts as much as a rail may have in flight, evenly over its queue pairs. */
static void feed(struct burst *b, uint32_t i)
{
	struct rs_rail *r = b->rail[i];
	struct rs_lane *l = &b->lane[i];
	uint32_t most = depth(b, i);
	if (r->stage)
		feed_copied(b, i, most);
	else
		for (; !r->failed.op && l->writes < most; l->writes++)
			rs_post(r, choose(r, l), b->plan->load[i].chunk);
}

/* Ends what each rail that works has written, as soon as nothing else is in flight on it: one that hangs must not keep
 * the others from being verified. A read needs no end: its bytes are in memory when it completes. Returns how many
 * writes it posted. */
static uint32_t feed_last(struct burst *b)
{
	uint32_t writes = 0;
	for (uint32_t i = 0; i < b->n; i++) {
		struct rs_rail *r = b->rail[i];
		struct rs_lane *l = &b->lane[i];
		if (l->writes > 0 || l->ended)
			continue;
		l->ended = 1;
		for (uint32_t q = 0; q < r->spec.qps && !r->spec.read && !r->failed.op; q++) {
			if (rs_post_last(r, q).op)
				break;
			l->inflight[q]++;
			l->writes++;
			writes++;
		}
	}
	return writes;
}

/* Whether the times of the edges are off by less than a part of what lies between them. */
static int precise(const struct burst *b, uint32_t i, int64_t part)
{
	const struct rs_lane *l = &b->lane[i];
	return b->plan->software || b->part[i].last - b->part[i].first >= part * (l->late_first + l->late_last);
}

/* Whether a rail had about as many copied writes in flight at both edges. Else some that were copied before a gap have
 * left after it, as fast as the wire is, or the reverse. */
static int steady(const struct burst *b, uint32_t i, int64_t part)
{
	const struct rs_lane *l = &b->lane[i];
	int64_t more = (int64_t)l->last_writes - (int64_t)l->first_writes;
	return b->plan->software || !b->rail[i]->stage || (more < 0 ? -more : more) * part <= l->counted;
}

/* Measures a rail anew from its next completion. */
static void restart(struct burst *b, uint32_t i)
{
	struct rs_lane *l = &b->lane[i];
	l->full = b->part[i].last;
	l->counted = 0;
	b->part[i].first = -1;
	b->part[i].measured = b->part[i].gap = 0;
}

static int all_measured(struct burst *b)
{
	int all = 1;
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->lane[i].counted < b->plan->writes || b->part[i].last - b->part[i].first < b->plan->window ||
		    !precise(b, i, 100)) {
			all = 0;
		} else if (!steady(b, i, 100)) {
			restart(b, i);
			all = 0;
		}
	}
	return all;
}

/* Which phase it is after a sweep. */
static enum phase next(struct burst *b, int64_t t)
{
	int full = 1;
	if (b->plan->window == 0) { /* nothing is measured: one write or a few for each queue pair */
		for (uint32_t i = 0; i < b->n; i++)
			if (copying(b->rail[i]))
				return FILL;
		return DRAIN; /* all are posted */
	}
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->rail[i]->failed.op || b->part[i].bytes >= b->plan->load[i].cap)
			return DRAIN; /* whoever failed, a window that all rails share has ended */
		/* A rail that has not completed a queue by then is so slow that it is full with less in flight. */
		int64_t least = t < b->plan->window ? depth(b, i) : 2;
		full = full && b->part[i].bytes >= b->plan->load[i].chunk * least;
	}
	if (t >= b->plan->slow || (b->phase == MEASURE && all_measured(b)))
		return DRAIN;
	if (b->phase == FILL && full) {
		for (uint32_t i = 0; i < b->n; i++) {
			b->lane[i].pending = b->lane[i].widest = b->lane[i].waiting = 0;
			b->lane[i].full = t;
		}
		return MEASURE;
	}
	return b->phase;
}

/* Until all is done or nobody is left; returns why not. */
static int32_t drive(struct burst *b)
{
	int64_t t = 0, progress = 0, end = b->plan->deadline;
	int32_t why = 0;
	for (;;) {
		uint32_t writes = 0;
		int n = 0;
		if (!why && rs_cancelled(b->cancelled)) {
			why = -ECANCELED;
			b->phase = DRAIN;
			end = t + RS_CANCEL_WAIT < end ? t + RS_CANCEL_WAIT : end;
		}
		for (uint32_t i = 0; i < b->n; i++) {
			n += reap(b, i);
			if (b->phase < DRAIN)
				feed(b, i);
			writes += b->rail[i]->failed.op ? 0 : b->lane[i].writes;
			writes += b->phase < DRAIN ? copying(b->rail[i]) : 0;
		}
		t = rs_now() - b->start;
		if (b->phase < DRAIN) {
			b->phase = next(b, t);
			b->over = t;
		}
		if (b->phase == DRAIN && !why)
			writes += feed_last(b);
		if (writes == 0)
			return why;
		if (t >= end)
			break;
		if (n > 0)
			progress = t;
		else if (b->plan->software || t - progress > RS_SPIN)
			rs_relax(t - progress);
	}
	for (uint32_t i = 0; i < b->n; i++)
		if (b->lane[i].writes > 0 || (b->phase < DRAIN && copying(b->rail[i])))
			rs_fail(b->rail[i], (struct rs_error){.op = rs_op(b->rail[i]), .err = why ? why : -ETIMEDOUT});
	return why ? why : -ETIMEDOUT;
}

/* A rail may have stood still before its first completion or after its last: then these are not the edges of what it
 * carried while all were at full depth. Or this thread did: the gap tells. */
static void stretch(struct burst *b, uint32_t i)
{
	struct rs_part *p = &b->part[i];
	struct rs_lane *l = &b->lane[i];
	if (l->counted == 0)
		return;
	int64_t each = (p->last - p->first) / l->counted, least = b->plan->window / 8;
	int64_t after = b->over - p->last, before = p->first - l->full;
	if (after > least && after > 2 * each * (l->waiting + 1)) {
		p->measured += l->pending;
		p->last = b->over;
		p->gap = l->widest > p->gap ? l->widest : p->gap;
	}
	if (before > least && before > 2 * each * (l->early + 1)) {
		p->measured += (int64_t)l->early * b->plan->load[i].chunk;
		p->first = l->full;
		p->gap = l->before > p->gap ? l->before : p->gap;
	}
}

/* A gap longer than a full queue lasts may have let the rail idle: what was measured is then ours, not the rail's. So is
 * a time whose edges are off by more than 2 %. */
static void judge(struct burst *b, uint32_t i)
{
	const struct rs_load *load = &b->plan->load[i];
	struct rs_part *p = &b->part[i];
	int64_t time = p->last - p->first;
	if (b->plan->window == 0)
		return; /* nothing was to be measured */
	stretch(b, i);
	time = p->last - p->first;
	if (p->measured == 0 || time <= 0) {
		p->disturbed = 1;
		p->gap = b->lane[i].widest;
		return;
	}
	uint32_t queue = depth(b, i);
	if (b->rail[i]->stage) /* two queues, of which neither is always full */
		queue = (queue < RS_COPIES ? queue : RS_COPIES) / 2;
	double rate = (double)p->measured / (double)time;
	double lasts = ((double)queue - 1) * (double)load->chunk / rate - (double)load->rtt;
	p->disturbed = !precise(b, i, 50) || !steady(b, i, 50) || (!b->plan->software && (double)p->gap > lasts);
}

int32_t rs_burst(const int32_t *cancelled, int64_t *progress, struct rs_rail **rail, uint32_t n,
		 const struct rs_plan *plan, struct rs_part *part, struct rs_lane *lane)
{
	struct burst b = {.cancelled = cancelled, .progress = progress, .plan = plan, .rail = rail, .n = n, .part = part,
			  .lane = lane, .start = rs_now()};
	for (uint32_t i = 0; i < n; i++) {
		part[i] = (struct rs_part){.first = -1};
		lane[i] = (struct rs_lane){.first_id = (rail[i]->posts + 1) * RS_MAX_QPS};
		for (uint32_t q = 0; q < RS_MAX_QPS; q++)
			rail[i]->written[q] = 0;
		rail[i]->ring = plan->load[i].ring;
		rail[i]->pass = plan->pass;
		rs_forget_copies(rail[i]);
		rs_fail(rail[i], rs_usable(rail[i]));
	}
	int32_t why = drive(&b);
	for (uint32_t i = 0; i < n; i++) {
		judge(&b, i);
		for (uint32_t q = 0; q < RS_MAX_QPS; q++)
			part[i].written[q] = rail[i]->written[q];
		part[i].error = rail[i]->failed;
		if (part[i].error.op)
			rs_rail_stop(rail[i]);
	}
	return why;
}
