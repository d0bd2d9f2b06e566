/*
 * A burst: one loop on one thread over all rails, from the first post to the last completion. It keeps every rail at
 * full depth for a time, and measures during that time. Every wait in it is bounded.
 *
 * A rail's bytes are counted from one completion to another (window.c), so the figure excludes the start and the end of
 * the burst. Both completions are taken only in passes that directly followed the previous pass: the time of a
 * completion that waited to be polled is too late.
 */
#include "rail.h"

#include <errno.h>
#include <stddef.h>

enum { POLLED = 32 }; /* maximum completions per poll */

/* FOLLOW waits until each queue pair has completed a write after the measured window, at full depth. */
enum phase { FILL, MEASURE, FOLLOW, DRAIN };

struct burst {
	const int32_t *cancelled;
	int64_t *progress;
	const struct rs_plan *plan;
	struct rs_rail **rail;
	struct rs_part *part;
	struct rs_lane *lane;
	uint32_t n;
	enum phase phase;
	int64_t start;
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
		return; /* an earlier burst's */
	l->inflight[q]--;
	l->writes--;
	if (l->ended)
		return; /* the end of the burst, without bytes */
	l->got[q]++;
	b->part[i].bytes += b->plan->load[i].chunk;
	__atomic_store_n(&b->progress[i], b->part[i].bytes, __ATOMIC_RELAXED);
}

/* Returns the number of writes that completed between two moments. */
static int64_t counted(const struct burst *b, uint32_t i, enum rs_moment from, enum rs_moment to)
{
	const struct rs_edge *e = b->lane[i].edge;
	return e[from].set && e[to].set ? (e[to].bytes - e[from].bytes) / b->plan->load[i].chunk : 0;
}

static void put(struct burst *b, uint32_t i, enum rs_moment m, int64_t t, int64_t late)
{
	rs_edge_put(&b->lane[i], m, t, late, b->part[i].bytes);
}

/* Moves the end of the measurement to t, or starts it there. Both times may be too late by the preceding gap. */
static void mark(struct burst *b, uint32_t i, int64_t t, int64_t late)
{
	struct rs_lane *l = &b->lane[i];
	struct rs_part *p = &b->part[i];
	if (!l->edge[RS_FIRST].set) {
		put(b, i, RS_FIRST, t, late);
		l->before = l->widest;
	} else {
		p->gap = l->widest > p->gap ? l->widest : p->gap;
	}
	put(b, i, RS_LAST, t, late);
	l->widest = 0;
	int64_t time = t - l->edge[RS_FIRST].at, writes = counted(b, i, RS_FIRST, RS_LAST);
	for (int k = 1; k <= 2; k++) {
		enum rs_moment m = k == 1 ? RS_QUARTER : RS_HALF;
		if (!l->edge[m].set && 4 * time >= k * b->plan->window && 4 * writes >= k * (int64_t)b->plan->writes)
			put(b, i, m, t, late);
	}
}

/* Takes the completions of a rail and returns their number. */
static int reap(struct burst *b, uint32_t i)
{
	struct ibv_wc wc[POLLED];
	struct rs_lane *l = &b->lane[i];
	int n = 0, got;
	do { /* takes all, so that nothing waits in a gap between two visits */
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
	if (l->writes == 0 && b->phase == MEASURE && l->edge[RS_FIRST].set)
		l->dry = 1;
	/* The longer the measurement, the less a gap matters. Gaps of a software device are not our error: it completes
	 * writes while the kernel has the processor. What arrived between the previous poll and the reading of its time
	 * belongs to the previous gap. */
	int64_t since = t - l->edge[RS_FULL].at, window = since > b->plan->window ? since : b->plan->window;
	int64_t longest = gap > l->gap ? gap : l->gap;
	l->gap = gap;
	if (n > 0)
		rs_completed(l, b->rail[i]->spec.qps, t, longest, b->phase < DRAIN);
	if (n > 0 && b->phase == MEASURE && (b->plan->software || longest <= window / RS_EDGE))
		mark(b, i, t, longest);
	return n;
}

/*
 * Returns the number of writes that a rail may have in flight: 2 at first, and one more for each completion. On a slow
 * link it is limited to what the rail carries in RS_QUEUE, because a stopped burst waits for these writes, and RC must
 * not mistake a queue for a loss.
 */
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

/* Returns the number of a rail's writes that are being copied. */
static uint32_t copying(const struct rs_rail *r)
{
	return r->failed.op ? 0 : r->begun - r->copied;
}

/*
 * Posts copied writes, and starts the next copies: as many copies may be in flight as writes at full depth, if the
 * rings have room for both.
 */
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

/* Posts as many writes as a rail may have in flight, evenly over its queue pairs. */
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

/*
 * Posts the last write of each working rail as soon as nothing else is in flight on it, so that a hung rail does not
 * keep the others from being verified. Reads need no last write: their bytes are in memory when they complete. Returns
 * the number of posted writes.
 */
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

static double between(const struct burst *b, uint32_t i, enum rs_moment from, enum rs_moment to, double *unsure)
{
	return rs_between(&b->lane[i], b->rail[i]->spec.qps, b->plan->load[i].chunk, from, to, unsure);
}

static double rate(const struct burst *b, uint32_t i, enum rs_moment from, enum rs_moment to)
{
	return rs_rate(&b->lane[i], b->rail[i]->spec.qps, b->plan->load[i].chunk, from, to);
}

/* Returns whether the error of the edges is at most 1/part of what lies between them, in time and in bytes. */
static int precise(const struct burst *b, uint32_t i, int64_t part)
{
	const struct rs_edge *first = &b->lane[i].edge[RS_FIRST], *last = &b->lane[i].edge[RS_LAST];
	double unsure, bytes = between(b, i, RS_FIRST, RS_LAST, &unsure);
	return b->plan->software ||
	       (last->at - first->at >= part * (first->late + last->late) && unsure * (double)part <= bytes);
}

/* Returns whether the error of the first edge alone exceeds 1/part: a later edge may be better. */
static int vague(const struct burst *b, uint32_t i, int64_t part)
{
	double unsure, bytes = between(b, i, RS_FIRST, RS_LAST, &unsure);
	unsure = rs_unsure(&b->lane[i], b->rail[i]->spec.qps, b->plan->load[i].chunk, RS_FIRST);
	return !b->plan->software && unsure * (double)part > bytes;
}

/*
 * Returns whether a rail had about as many copied writes in flight at both edges. If not, writes that were copied
 * before a gap have left after it at wire speed, or the reverse.
 */
static int steady(const struct burst *b, uint32_t i, int64_t part)
{
	const struct rs_edge *e = b->lane[i].edge;
	int64_t more = (int64_t)e[RS_LAST].writes - (int64_t)e[RS_FIRST].writes;
	return b->plan->software || !b->rail[i]->stage ||
	       (more < 0 ? -more : more) * part <= counted(b, i, RS_FIRST, RS_LAST);
}

/*
 * Returns whether a rail's rate rises all the time. A rail that paused in the first quarter has its rate in the second.
 */
static int rises(const struct burst *b, uint32_t i)
{
	double first = rate(b, i, RS_FIRST, RS_QUARTER), second = rate(b, i, RS_QUARTER, RS_HALF);
	double half = rate(b, i, RS_FIRST, RS_HALF), rest = rate(b, i, RS_HALF, RS_LAST);
	return !b->plan->software && first > 0 && second > 1.02 * first && rest > 1.02 * second && rest > 1.05 * half;
}

/*
 * Returns whether a rail had nothing in flight for a while, and so was idle. Copies from a GPU may be slower than the
 * rail.
 */
static int dry(const struct burst *b, uint32_t i)
{
	return !b->plan->software && !b->rail[i]->stage && b->lane[i].dry;
}

/* Restarts the measurement of a rail at its next completion. */
static void restart(struct burst *b, uint32_t i)
{
	struct rs_lane *l = &b->lane[i];
	l->edge[RS_FULL] = l->edge[RS_LAST];
	for (enum rs_moment m = RS_FIRST; m <= RS_LAST; m++)
		l->edge[m].set = 0;
	l->dry = 0;
	l->shortest = 0;
	b->part[i].gap = 0;
}

static int all_measured(struct burst *b)
{
	int all = 1;
	for (uint32_t i = 0; i < b->n; i++) {
		struct rs_lane *l = &b->lane[i];
		if (counted(b, i, RS_FIRST, RS_LAST) < (int64_t)b->plan->writes ||
		    l->edge[RS_LAST].at - l->edge[RS_FIRST].at < b->plan->window) {
			all = 0;
		} else if (vague(b, i, 200) || !steady(b, i, 100)) {
			restart(b, i);
			all = 0;
		} else if (l->windows < RS_WINDOWS - 1 && rises(b, i)) {
			l->windows++;
			restart(b, i);
			all = 0;
		} else if (!precise(b, i, 100)) {
			all = 0;
		}
	}
	return all;
}

/* Ends the measurement. */
static void leave(struct burst *b, int64_t t)
{
	for (uint32_t i = 0; i < b->n; i++)
		put(b, i, RS_OVER, t, 0);
}

/*
 * Returns the phase after a window that all rails filled. An adapter with one queue pair needs no FOLLOW: its last
 * completion is the edge.
 */
static enum phase follow(struct burst *b, int64_t t)
{
	int all = 1, exact = 1;
	for (uint32_t i = 0; i < b->n; i++) {
		all = all && (b->rail[i]->spec.qps == 1 || rs_followed(&b->lane[i], b->rail[i]->spec.qps, RS_OVER));
		exact = exact && precise(b, i, 100);
	}
	if (!all && t - b->lane[0].edge[RS_OVER].at < b->plan->window)
		return FOLLOW; /* does not wait for a queue pair in a timeout */
	return exact ? DRAIN : MEASURE;
}

/* Returns the phase after a pass over all rails. */
static enum phase next(struct burst *b, int64_t t)
{
	int full = 1;
	if (b->plan->window == 0) { /* nothing is measured: each queue pair posts one write or a few */
		for (uint32_t i = 0; i < b->n; i++)
			if (copying(b->rail[i]))
				return FILL;
		return DRAIN; /* all writes are posted */
	}
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->rail[i]->failed.op || b->part[i].bytes >= b->plan->load[i].cap)
			return DRAIN; /* after any failure, the common window of all rails is over */
		/* A rail that has not completed a queue by then is so slow that fewer writes in flight keep it full. */
		int64_t least = t < b->plan->window ? depth(b, i) : 2;
		full = full && b->part[i].bytes >= b->plan->load[i].chunk * least;
	}
	if (t >= b->plan->slow)
		return DRAIN;
	if (b->phase == FILL && full) {
		for (uint32_t i = 0; i < b->n; i++) {
			b->lane[i].widest = b->lane[i].shortest = 0;
			put(b, i, RS_FULL, t, 0);
		}
		return MEASURE;
	}
	if (b->phase == MEASURE && all_measured(b)) {
		leave(b, t);
		return follow(b, t);
	}
	return b->phase == FOLLOW ? follow(b, t) : b->phase;
}

/* Runs until all writes completed or every rail failed; returns 0 or -errno. */
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
			enum phase was = b->phase;
			b->phase = next(b, t);
			if (was == MEASURE && b->phase == DRAIN && b->lane[0].edge[RS_OVER].at < t)
				leave(b, t); /* time is up, or a rail failed */
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

/*
 * A rail may have been blocked before its first completion or after its last one. Then these are not the edges of the
 * time in which all rails were at full depth. The gap shows whether this thread was blocked instead. Returns the edges.
 */
static void stretch(struct burst *b, uint32_t i, enum rs_moment *from, enum rs_moment *to)
{
	struct rs_part *p = &b->part[i];
	struct rs_lane *l = &b->lane[i];
	const struct rs_edge *e = l->edge;
	int64_t writes = counted(b, i, RS_FIRST, RS_LAST);
	*from = RS_FIRST;
	*to = RS_LAST;
	if (writes == 0)
		return;
	int64_t each = (e[RS_LAST].at - e[RS_FIRST].at) / writes, least = b->plan->window / 8;
	int64_t after = e[RS_OVER].at - e[RS_LAST].at, before = e[RS_FIRST].at - e[RS_FULL].at;
	if (after > least && after > 2 * each * (counted(b, i, RS_LAST, RS_OVER) + 1)) {
		*to = RS_OVER;
		p->gap = l->widest > p->gap ? l->widest : p->gap;
	}
	if (before > least && before > 2 * each * (counted(b, i, RS_FULL, RS_FIRST) + 1)) {
		*from = RS_FULL;
		p->gap = l->before > p->gap ? l->before : p->gap;
	}
}

/*
 * A gap longer than a full queue lasts may have left the rail idle: the figure is then ours, not the rail's. The same
 * applies if the edges are off by more than 2 % of the time.
 */
static void judge(struct burst *b, uint32_t i)
{
	const struct rs_load *load = &b->plan->load[i];
	struct rs_part *p = &b->part[i];
	struct rs_lane *l = &b->lane[i];
	enum rs_moment from, to;
	double unsure;
	if (b->plan->window == 0)
		return; /* no window to measure */
	stretch(b, i, &from, &to);
	if (counted(b, i, from, to) > 0) {
		p->first = l->edge[from].at;
		p->last = l->edge[to].at;
		p->measured = (int64_t)between(b, i, from, to, &unsure);
	}
	int64_t time = p->last - p->first;
	if (p->measured <= 0 || time <= 0) {
		p->measured = 0;
		p->disturbed = 1;
		p->gap = l->widest;
		return;
	}
	uint32_t queue = depth(b, i);
	if (b->rail[i]->stage) /* two queues, one of which may be short */
		queue = (queue < RS_COPIES ? queue : RS_COPIES) / 2;
	double bytes = ((double)queue - 1) * (double)load->chunk;
	double lasts = bytes / ((double)p->measured / (double)time) - (double)load->rtt;
	p->disturbed = dry(b, i) || !precise(b, i, 50) || !steady(b, i, 50) ||
		       (!b->plan->software && (double)p->gap > lasts);
	p->ramping = !p->disturbed && rises(b, i);
	p->early = p->ramping ? rate(b, i, RS_FIRST, RS_HALF) : 0;
	p->late = p->ramping ? rate(b, i, RS_HALF, RS_LAST) : 0;
}

int32_t rs_burst(const int32_t *cancelled, int64_t *progress, struct rs_rail **rail, uint32_t n,
		 const struct rs_plan *plan, struct rs_part *part, struct rs_lane *lane)
{
	struct burst b = {.cancelled = cancelled, .progress = progress, .plan = plan, .rail = rail, .n = n, .part = part,
			  .lane = lane, .start = rs_now()};
	for (uint32_t i = 0; i < n; i++) {
		part[i] = (struct rs_part){.first = -1, .last = -1};
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
