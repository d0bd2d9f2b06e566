/*
 * Who takes the next bytes of a burst, and how many.
 *
 * The loss of work stealing is at the end: a slow rail that takes a large chunk
 * last lets all others wait. So a rail takes only what it will be done with
 * when everybody is.
 */
#include "shim.h"

static double min(double a, double b)
{
	return a < b ? a : b;
}

/* Bytes per nanosecond since the first post; 0 while nothing completed. */
static double rate(const struct rs_share *s)
{
	return s->alive && s->done > 0 && s->age > 0 ? (double)s->done / (double)s->age : 0;
}

/* Whole pages, or whole words where there is no page. */
static int64_t align(int64_t n)
{
	return n >= 4096 ? n & ~INT64_C(4095) : n & ~INT64_C(7);
}

/* The chunk for a rail that steals, 0 if it had better not. */
static double fair(const struct rs_share *share, uint32_t n, uint32_t i, double unclaimed, const struct rs_plan *p)
{
	double mine = rate(&share[i]), sum = 0, best = 0, busy = 0, alive = 0;
	for (uint32_t j = 0; j < n; j++) {
		if (!share[j].alive)
			continue;
		double r = rate(&share[j]);
		sum += r;
		best = r > best ? r : best;
		busy += (double)share[j].inflight;
		alive++;
	}
	double least = min((double)p->min_chunk, unclaimed);
	double chunk = min((double)p->chunk, unclaimed / (4 * alive));
	if (mine == 0) /* its first ones: small, for it may turn out to be slow */
		return least;
	if (chunk < least)
		chunk = least;
	if (busy == 0 && mine >= best) /* somebody must */
		return chunk;
	/* What this rail moves until all are done, and in the time in which the
	 * fastest moves one smallest chunk; less what it has to do already. */
	double fits = mine * ((unclaimed + busy) / sum + (double)p->min_chunk / best) - (double)share[i].inflight;
	return fits < least ? 0 : min(chunk, fits);
}

/* What of the unclaimed there is time for: a burst that its limit will end
 * must end for all rails at once, too. Never less than a smallest chunk, for a
 * rate may have been misjudged. */
static int64_t timely(const struct rs_share *share, uint32_t n, int64_t unclaimed, int64_t left, const struct rs_plan *p)
{
	double sum = 0, busy = 0;
	for (uint32_t j = 0; j < n; j++) {
		sum += rate(&share[j]);
		busy += share[j].alive ? (double)share[j].inflight : 0;
	}
	double time = sum * (double)left - busy;
	if (sum == 0 || time >= (double)unclaimed)
		return unclaimed;
	int64_t most = time > (double)p->min_chunk ? align((int64_t)time) : p->min_chunk;
	return most < unclaimed ? most : unclaimed;
}

int64_t rs_claim(const struct rs_share *share, uint32_t n, uint32_t i, int64_t unclaimed, int64_t left,
		 const struct rs_plan *p)
{
	const struct rs_share *me = &share[i];
	if (!me->alive || unclaimed <= 0 || me->writes >= me->window)
		return 0;
	if (p->stealing)
		unclaimed = timely(share, n, unclaimed, left, p);
	double chunk = p->stealing ? fair(share, n, i, (double)unclaimed, p) : (double)p->chunk;
	/* Not more in flight than a quarter of a second's worth: a burst that is
	 * told to stop waits for that. */
	if (me->writes >= 2 && (double)me->inflight + chunk > rate(me) * 250e6)
		return 0;
	return chunk >= (double)unclaimed ? unclaimed : align((int64_t)chunk);
}
