/* A burst: one loop on one thread over all rails, from the first post to the last completion. Every wait is bounded. */
#include "rail.h"

#include <errno.h>

enum { POLLED = 16 }; /* completions per poll */

struct burst {
	const int32_t *cancelled;
	int64_t *progress;
	const struct rs_plan *plan;
	struct rs_rail **rail;
	struct rs_part *part;
	struct rs_share *share;
	struct rs_write *writes;
	struct rs_range *todo;
	uint32_t n, todos; /* todos: of the stack */
	int64_t start;
};

static struct rs_write *writes(struct burst *b, uint32_t i)
{
	return b->writes + (size_t)i * b->plan->depth;
}

/* Takes a rail out of the burst. When stealing, the others write what it had in flight. */
static void remove_rail(struct burst *b, uint32_t i)
{
	struct rs_write *w = writes(b, i);
	b->share[i] = (struct rs_share){.done = b->share[i].done};
	for (uint32_t k = 0; k < b->plan->depth && b->plan->stealing; k++) {
		if (w[k].id)
			b->todo[b->todos++] = w[k].range;
		w[k].id = 0;
	}
}

static void complete(struct burst *b, uint32_t i, const struct ibv_wc *wc, int64_t t)
{
	struct rs_share *share = &b->share[i];
	if (wc->status != IBV_WC_SUCCESS) {
		rs_fail(b->rail[i], rs_completion(wc));
		if (share->alive)
			remove_rail(b, i);
		return;
	}
	uint64_t k = wc->wr_id & 0xffff;
	if (!share->alive || k >= b->plan->depth || writes(b, i)[k].id != wc->wr_id)
		return; /* of a removed rail, or unknown */
	struct rs_write *w = &writes(b, i)[k];
	w->id = 0;
	share->inflight -= w->range.length;
	share->done += w->range.length;
	share->writes--;
	share->window += share->window < b->plan->depth;
	b->part[i].writes++;
	b->part[i].last = t - b->start;
	__atomic_store_n(&b->progress[i], share->done, __ATOMIC_RELAXED);
}

/* Handles the completions of a rail; returns their number. */
static int poll_rail(struct burst *b, uint32_t i)
{
	struct ibv_wc wc[POLLED];
	int n = ibv_poll_cq(b->rail[i]->cq, POLLED, wc);
	int64_t t = rs_now();
	if (n < 0 && b->share[i].alive) {
		rs_fail(b->rail[i], (struct rs_error){.op = "poll CQ", .err = -EIO});
		remove_rail(b, i);
	}
	for (int k = 0; k < n; k++)
		complete(b, i, &wc[k], t);
	return n > 0 ? n : 0;
}

/* Cuts a rail's next write from the unclaimed ranges. Its offset is within the total, and it ends at a multiple of the
 * buffer's size at the latest. */
static struct rs_range next_write(struct burst *b, uint32_t i, int64_t t)
{
	struct rs_range *from = &b->todo[b->plan->stealing && b->todos ? b->todos - 1 : i];
	int64_t unclaimed = 0, left = b->plan->limit > 0 ? b->plan->limit - (t - b->start) : INT64_MAX;
	if (!b->plan->stealing)
		unclaimed = from->length;
	for (uint32_t k = 0; k < b->todos; k++)
		unclaimed += b->todo[k].length;
	if (unclaimed == 0)
		return (struct rs_range){0};
	struct rs_range cut = {.at = from->at, .length = rs_claim(b->share, b->n, i, unclaimed, left, b->plan)};
	int64_t end = b->plan->size - cut.at % b->plan->size;
	if (cut.length > from->length)
		cut.length = from->length;
	if (cut.length > end)
		cut.length = end;
	from->at += cut.length;
	from->length -= cut.length;
	if (b->plan->stealing && from->length == 0)
		b->todos--;
	return cut;
}

/* Posts as many writes as a rail may have in flight. */
static void post_writes(struct burst *b, uint32_t i, int64_t t)
{
	struct rs_share *share = &b->share[i];
	while (share->alive) {
		struct rs_range cut = next_write(b, i, t);
		if (cut.length == 0)
			return;
		uint32_t k = 0;
		while (writes(b, i)[k].id) /* one is free: there are as many as the largest window */
			k++;
		writes(b, i)[k] = (struct rs_write){.id = rs_wr_id(b->rail[i], k), .range = cut};
		if (b->part[i].first < 0)
			b->part[i].first = t - b->start;
		share->writes++;
		share->inflight += cut.length;
		cut.at %= b->plan->size;
		if (rs_post(b->rail[i], writes(b, i)[k].id, cut).op)
			remove_rail(b, i);
	}
}

/* Polls and posts on each rail once; returns the number of completions. */
static int sweep(struct burst *b, int stop)
{
	int n = 0;
	for (uint32_t i = 0; i < b->n; i++)
		n += poll_rail(b, i);
	int64_t t = rs_now();
	for (uint32_t i = 0; i < b->n; i++)
		b->share[i].age = b->part[i].first < 0 ? 0 : t - b->start - b->part[i].first;
	for (uint32_t i = 0; i < b->n && !stop; i++)
		post_writes(b, i, t);
	return n;
}

/* Runs until everything completed or no rail is left; otherwise returns why not. */
static int32_t run(struct burst *b)
{
	int64_t progress = b->start, end = b->plan->deadline;
	int32_t why = 0;
	for (int64_t t = 0;;) {
		if (!why && rs_cancelled(b->cancelled)) {
			why = -ECANCELED;
			end = t + RS_CANCEL_WAIT < end ? t + RS_CANCEL_WAIT : end;
		}
		int n = sweep(b, why || (b->plan->limit > 0 && t >= b->plan->limit));
		uint32_t inflight = 0;
		for (uint32_t i = 0; i < b->n; i++)
			inflight += b->share[i].writes;
		if (inflight == 0)
			return why;
		t = rs_now() - b->start;
		if (t >= end)
			break;
		if (n > 0)
			progress = t + b->start;
		else
			rs_relax(t + b->start - progress);
	}
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->share[i].writes > 0)
			rs_fail(b->rail[i], (struct rs_error){.op = "write", .err = why ? why : -ETIMEDOUT});
	}
	return why ? why : -ETIMEDOUT;
}

/* Notes each rail's failure, and stops rails that failed. */
static void finish(struct burst *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		b->part[i].bytes = b->share[i].done;
		if (b->part[i].first < 0)
			b->part[i].first = 0;
		if (!b->rail[i]->failed.op)
			continue;
		b->part[i].error = b->rail[i]->failed;
		rs_rail_stop(b->rail[i]);
	}
}

int32_t rs_burst(const int32_t *cancelled, int64_t *progress, struct rs_rail **rail, uint32_t n,
		 const struct rs_plan *plan, struct rs_part *part, struct rs_share *share, struct rs_write *writes,
		 struct rs_range *todo)
{
	struct burst b = {.cancelled = cancelled, .progress = progress, .plan = plan, .rail = rail, .n = n, .part = part,
			  .share = share, .writes = writes, .todo = todo, .todos = plan->stealing};
	for (uint32_t i = 0; i < n; i++) {
		part[i] = (struct rs_part){.first = -1, .error = rs_usable(rail[i])};
		share[i] = (struct rs_share){.alive = !part[i].error.op, .window = plan->depth < 2 ? plan->depth : 2};
	}
	b.start = rs_now();
	int32_t why = run(&b);
	finish(&b);
	return why;
}
