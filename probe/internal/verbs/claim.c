/*
 * Which rail writes the next bytes of a burst, and how many. Work stealing loses time at the end: all others wait for a
 * slow rail that took a large chunk last. So a rail takes only what it finishes when the others do.
 */
#include "shim.h"

/* Near the end, chunks of stealing rails shrink to 1/16 of the plan's, of whole pages. */
static int64_t smallest(const struct rs_plan *p)
{
	int64_t n = p->chunk / 16 & ~INT64_C(4095);
	return p->chunk < 4096 ? p->chunk : n < 4096 ? 4096 : n;
}

static double min(double a, double b)
{
	return a < b ? a : b;
}

/* Bytes per nanosecond since the first post; 0 before the first completion. */
static double rate(const struct rs_share *s)
{
	return s->alive && s->done > 0 && s->age > 0 ? (double)s->done / (double)s->age : 0;
}

/* Whole pages, or whole words below a page. */
static int64_t align(int64_t n)
{
	return n >= 4096 ? n & ~INT64_C(4095) : n & ~INT64_C(7);
}

/* The chunk for a stealing rail; 0: it would finish too late. */
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
	double least = min((double)smallest(p), unclaimed);
	double chunk = min((double)p->chunk, unclaimed / (4 * alive));
	if (mine == 0) /* its first ones are small: it may be slow */
		return least;
	if (chunk < least)
		chunk = least;
	if (busy == 0 && mine >= best) /* or nobody would take the rest */
		return chunk;
	/* What this rail moves until all rails have finished, plus the time that the fastest needs for a smallest chunk;
	 * less what it has in flight. */
	double fits = mine * ((unclaimed + busy) / sum + (double)smallest(p) / best) - (double)share[i].inflight;
	return fits < least ? 0 : min(chunk, fits);
}

/* How many unclaimed bytes the rails can write before the limit: they must finish together there, too. At least a
 * smallest chunk, since a rate may be misjudged. */
static int64_t timely(const struct rs_share *share, uint32_t n, int64_t unclaimed, int64_t left,
		      const struct rs_plan *p)
{
	double sum = 0, busy = 0;
	for (uint32_t j = 0; j < n; j++) {
		sum += rate(&share[j]);
		busy += share[j].alive ? (double)share[j].inflight : 0;
	}
	double time = sum * (double)left - busy;
	if (sum == 0 || time >= (double)unclaimed)
		return unclaimed;
	int64_t most = time > (double)smallest(p) ? align((int64_t)time) : smallest(p);
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
	/* At most 250 ms worth in flight: a cancelled burst waits for that. */
	if (me->writes >= 2 && (double)me->inflight + chunk > rate(me) * 250e6)
		return 0;
	return chunk >= (double)unclaimed ? unclaimed : align((int64_t)chunk);
}
