/* Transfers: messages over all rails at once, one transfer after the other. Every wait is bounded. */
#include "rail.h"

#include <errno.h>
#include <stddef.h>

enum { POLLED = 16 /* maximum completions per poll */, WARMUP = 3 /* transfers without samples */ };

/* Posts what a rail may have in flight, and takes its completions; returns the number of completed messages. */
static uint32_t turn(struct rs_rail *r, struct rs_share *s, struct rs_error *e)
{
	struct ibv_wc wc[POLLED];
	while (s->posted < s->count && s->posted - s->completed < r->spec.depth && !e->op)
		*e = rs_post(r, s->posted++ % r->spec.qps, s->chunk);
	if (e->op)
		return 0;
	uint32_t before = s->completed;
	int got = ibv_poll_cq(r->cq, POLLED, wc);
	if (got < 0)
		*e = rs_fail(r, (struct rs_error){.op = "poll CQ", .err = -EIO});
	for (int k = 0; k < got; k++) {
		if (wc[k].status != IBV_WC_SUCCESS)
			*e = rs_fail(r, rs_completion(r, &wc[k]));
		else if (wc[k].wr_id >= s->first_id)
			s->completed++;
	}
	return s->completed - before;
}

/* Makes one transfer. failed is set to the rail of an error. */
static struct rs_error move(const int32_t *cancelled, struct rs_rail **rail, uint32_t n, struct rs_share *share,
			    int64_t deadline, int64_t *took, uint32_t *failed)
{
	struct rs_error e = {0};
	for (uint32_t i = 0; i < n; i++) {
		share[i].posted = share[i].completed = 0;
		share[i].first_id = (rail[i]->posts + 1) * RS_MAX_QPS;
	}
	int64_t begin = rs_now(), progress = begin, since = 0; /* since: time of the cancel */
	for (;;) {
		uint32_t open = 0, got = 0;
		for (uint32_t i = 0; i < n; i++) {
			if (share[i].completed == share[i].count)
				continue;
			got += turn(rail[i], &share[i], &e);
			if (share[i].completed < share[i].count) {
				open++;
				*failed = i;
			}
			if (e.op)
				return e;
		}
		int64_t t = rs_now();
		*took = t - begin;
		if (!open)
			return e;
		progress = got ? t : progress;
		since = since || !rs_cancelled(cancelled) ? since : t;
		int over = since && t - since > RS_CANCEL_WAIT;
		if (over || *took > deadline)
			return rs_fail(rail[*failed],
				       (struct rs_error){.op = rs_op(rail[*failed]), .err = over ? -ECANCELED : -ETIMEDOUT});
		if (t - progress > RS_MS) /* an earlier yield would distort the figure */
			rs_relax(t - progress);
	}
}

struct rs_error rs_transfers(const int32_t *cancelled, struct rs_rail **rail, uint32_t n, struct rs_share *share,
			     uint32_t times, int64_t limit, int64_t deadline, int64_t *sample, uint32_t *taken,
			     uint32_t *failed)
{
	struct rs_error e = {0};
	int64_t start = rs_now();
	*taken = 0;
	for (uint32_t i = 0; i < n && !e.op; i++) {
		*failed = i;
		e = rs_usable(rail[i]);
	}
	/* A warm-up counts as a sample until another one replaces it. */
	for (uint32_t i = 0; !e.op && i < times + WARMUP && (i == 0 || rs_now() - start < limit); i++) {
		if (rs_cancelled(cancelled))
			return (struct rs_error){.op = rs_op(rail[0]), .err = -ECANCELED};
		uint32_t at = i < WARMUP ? 0 : i - WARMUP;
		e = move(cancelled, rail, n, share, deadline, &sample[at], failed);
		if (!e.op)
			*taken = at + 1;
	}
	for (uint32_t i = 0; e.op && i < n; i++)
		rs_rail_stop(rail[i]);
	return e;
}
