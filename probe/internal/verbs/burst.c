/*
 * A burst: one loop on one thread over all rails, from the first post to the
 * last completion. Every wait in it is bounded.
 */
#include "rail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { POLLED = 16 }; /* completions taken at a time */

struct slot {
	uint64_t id; /* of the write in it; 0: free */
	struct rs_range range;
};

struct burst {
	struct rs_run *run;
	const struct rs_plan *plan;
	struct rs_rail **rail;
	struct rs_part *part;
	struct rs_share *share;
	struct slot *slots;     /* plan->depth for each rail */
	struct rs_range *todo;  /* nobody's yet: a stack when stealing, else one for each rail */
	struct rs_range *done;
	uint32_t n, todos, dones, room;
	int64_t start;
};

static struct slot *slots(struct burst *b, uint32_t i)
{
	return b->slots + (size_t)i * b->plan->depth;
}

/* Adds what completed to the ranges, in order, and joins those that touch. No
 * byte completes twice. */
static void completed(struct burst *b, struct rs_range add)
{
	struct rs_range *r = b->done;
	uint32_t i = b->dones;
	while (i > 0 && r[i - 1].at > add.at)
		i--;
	int left = i > 0 && r[i - 1].at + r[i - 1].length == add.at;
	int right = i < b->dones && add.at + add.length == r[i].at;
	if (left && right) {
		r[i - 1].length += add.length + r[i].length;
		memmove(&r[i], &r[i + 1], (--b->dones - i) * sizeof *r);
	} else if (left) {
		r[i - 1].length += add.length;
	} else if (right) {
		r[i] = (struct rs_range){.at = add.at, .length = add.length + r[i].length};
	} else if (b->dones < b->room) {
		memmove(&r[i + 1], &r[i], (b->dones++ - i) * sizeof *r);
		r[i] = add;
	}
}

/* Takes a rail out of the burst. What it had not finished is for the others. */
static void drop(struct burst *b, uint32_t i)
{
	struct slot *s = slots(b, i);
	b->share[i].alive = b->share[i].writes = 0;
	b->share[i].inflight = 0;
	for (uint32_t k = 0; k < b->plan->depth; k++) {
		if (s[k].id && b->plan->stealing)
			b->todo[b->todos++] = s[k].range;
		s[k].id = 0;
	}
}

static void settle(struct burst *b, uint32_t i, const struct ibv_wc *wc, int64_t t)
{
	struct rs_share *share = &b->share[i];
	if (wc->status != IBV_WC_SUCCESS) {
		rs_fail(b->rail[i], rs_completion(wc));
		if (share->alive)
			drop(b, i);
		return;
	}
	uint64_t k = wc->wr_id & 0xffff;
	if (!share->alive || k >= b->plan->depth || slots(b, i)[k].id != wc->wr_id)
		return; /* of a rail that was dropped, or not ours */
	struct slot *s = &slots(b, i)[k];
	s->id = 0;
	share->inflight -= s->range.length;
	share->done += s->range.length;
	share->writes--;
	share->window += share->window < b->plan->depth;
	b->part[i].bytes += s->range.length;
	b->part[i].writes++;
	b->part[i].last = t - b->start;
	completed(b, s->range);
	atomic_store_explicit(&b->run->done[i], share->done, memory_order_relaxed);
}

/* Takes the completions of a rail; returns how many there were. */
static int reap(struct burst *b, uint32_t i)
{
	struct ibv_wc wc[POLLED];
	int n = ibv_poll_cq(b->rail[i]->cq, POLLED, wc);
	int64_t t = rs_now();
	if (n < 0 && b->share[i].alive) {
		rs_fail(b->rail[i], (struct rs_error){.op = RS_POLL, .err = -EIO});
		drop(b, i);
	}
	for (int k = 0; k < n; k++)
		settle(b, i, &wc[k], t);
	return n > 0 ? n : 0;
}

/* Cuts the next write of a rail from what is nobody's. Its offset stays within
 * the bytes of the plan; where in the buffer that is, is for post. */
static struct rs_range take(struct burst *b, uint32_t i, int64_t t)
{
	struct rs_range *from = b->plan->stealing ? &b->todo[b->todos - 1] : &b->todo[i];
	int64_t unclaimed = 0, left = b->plan->limit > 0 ? b->plan->limit - (t - b->start) : INT64_MAX;
	if (b->plan->stealing && b->todos == 0)
		return (struct rs_range){0};
	for (uint32_t k = 0; b->plan->stealing && k < b->todos; k++)
		unclaimed += b->todo[k].length;
	if (!b->plan->stealing)
		unclaimed = from->length;
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

/* Posts as much as a rail may have in flight. */
static void feed(struct burst *b, uint32_t i, int64_t t)
{
	struct rs_share *share = &b->share[i];
	while (share->alive) {
		struct rs_range cut = take(b, i, t);
		if (cut.length == 0)
			return;
		uint32_t k = 0;
		while (slots(b, i)[k].id) /* one is free: there are as many as the window can become */
			k++;
		slots(b, i)[k] = (struct slot){.id = rs_name(b->rail[i], k), .range = cut};
		if (b->part[i].first < 0)
			b->part[i].first = t - b->start;
		share->writes++;
		share->inflight += cut.length;
		cut.at %= b->plan->size;
		if (rs_post(b->rail[i], slots(b, i)[k].id, cut).op)
			drop(b, i);
	}
}

/* One time around all rails; returns how many completions there were. */
static int sweep(struct burst *b, int stop)
{
	int n = 0;
	for (uint32_t i = 0; i < b->n; i++)
		n += reap(b, i);
	int64_t t = rs_now();
	for (uint32_t i = 0; i < b->n; i++)
		b->share[i].age = b->part[i].first < 0 ? 0 : t - b->start - b->part[i].first;
	for (uint32_t i = 0; i < b->n && !stop; i++)
		feed(b, i, t);
	return n;
}

/* Until all is done or nobody is left; returns why not. */
static int32_t drive(struct burst *b)
{
	int64_t progress = b->start, end = b->plan->deadline;
	int32_t why = 0;
	for (int64_t t = 0;;) {
		if (!why && atomic_load(&b->run->cancelled)) {
			why = -ECANCELED;
			end = t + RS_LAST_WAIT < end ? t + RS_LAST_WAIT : end;
		}
		int n = sweep(b, why || (b->plan->limit > 0 && t >= b->plan->limit));
		uint32_t writes = 0;
		for (uint32_t i = 0; i < b->n; i++)
			writes += b->share[i].writes;
		if (writes == 0)
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
			rs_fail(b->rail[i], (struct rs_error){.op = RS_WRITE, .err = why ? why : -ETIMEDOUT});
	}
	return why ? why : -ETIMEDOUT;
}

/* Equal parts, of whole pages where a page is less than a 256th of them. */
static void divide(struct burst *b)
{
	int64_t total = b->plan->total, unit = total / b->n >= 1 << 20 ? 4096 : 8;
	int64_t at = 0;
	for (uint32_t i = 0; i < b->n; i++) {
		int64_t end = i + 1 == b->n ? total : total / unit * (i + 1) / b->n * unit;
		b->todo[i] = (struct rs_range){.at = at, .length = end - at};
		at = end;
	}
}

static struct rs_error begin(struct burst *b)
{
	size_t writes = (size_t)b->n * b->plan->depth;
	b->share = calloc(b->n, sizeof *b->share);
	b->slots = calloc(writes, sizeof *b->slots);
	b->todo = calloc(writes + b->n + 1, sizeof *b->todo);
	if (!b->share || !b->slots || !b->todo)
		return (struct rs_error){.op = RS_MAP, .err = -ENOMEM};
	if (b->plan->stealing)
		b->todo[b->todos++] = (struct rs_range){.length = b->plan->total};
	else
		divide(b);
	for (uint32_t i = 0; i < b->n; i++) {
		struct rs_error e = rs_usable(b->rail[i]);
		b->part[i] = (struct rs_part){.first = -1, .error = e};
		b->share[i] = (struct rs_share){.alive = !e.op, .window = b->plan->depth < 2 ? b->plan->depth : 2};
		atomic_store_explicit(&b->run->done[i], 0, memory_order_relaxed);
	}
	b->start = rs_now();
	return (struct rs_error){0};
}

/* What the rails came to; the first failure if none is left. */
static struct rs_error finish(struct burst *b)
{
	struct rs_error first = {0};
	uint32_t left = 0;
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->part[i].first < 0)
			b->part[i].first = 0;
		if (b->rail[i]->failed.op) {
			b->part[i].error = b->rail[i]->failed;
			rs_rail_stop(b->rail[i]);
		}
		left += !b->part[i].error.op;
		if (!first.op)
			first = b->part[i].error;
	}
	return left ? (struct rs_error){0} : first;
}

struct rs_error rs_burst(struct rs_run *run, struct rs_rail **rail, uint32_t n, const struct rs_plan *plan,
			 struct rs_part *part, struct rs_range *done, uint32_t *dones)
{
	struct burst b = {.run = run, .plan = plan, .rail = rail, .n = n, .part = part, .done = done, .room = *dones};
	struct rs_error e = begin(&b);
	if (!e.op) {
		int32_t why = drive(&b);
		e = finish(&b);
		if (why)
			e = (struct rs_error){.op = RS_WRITE, .err = why};
	}
	*dones = b.dones;
	free(b.share);
	free(b.slots);
	free(b.todo);
	return e;
}
