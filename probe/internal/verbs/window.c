/*
 * The bytes that a rail carries between two moments of a burst.
 *
 * An adapter serves queue pairs in turn, so their completions arrive in groups, and at any moment each queue pair is in
 * the middle of a write. Such a write is split at the moment by the time since its queue pair's previous completion and
 * until its next one. This includes the time of a queue pair that waits for a timeout.
 */
#include "rail.h"

#include <stddef.h>

void rs_edge_put(struct rs_lane *l, enum rs_moment m, int64_t t, int64_t late, int64_t bytes)
{
	struct rs_edge *e = &l->edge[m];
	*e = (struct rs_edge){.set = 1, .at = t, .late = late, .bytes = bytes, .writes = l->writes};
	for (uint32_t q = 0; q < RS_MAX_QPS; q++) {
		e->before[q] = l->done[q];
		e->before_late[q] = l->done_late[q];
	}
}

/* The time of a write is the shortest time between two completions of a queue pair that were both seen in time. */
static void note_time(struct rs_lane *l, uint32_t q, int64_t t, int64_t late)
{
	int64_t time = (t - l->done[q]) / l->got[q];
	int within = l->edge[RS_FULL].set && l->done[q] >= l->edge[RS_FULL].at;
	if (within && 8 * (late + l->done_late[q]) <= time && (l->shortest == 0 || time < l->shortest))
		l->shortest = time;
}

void rs_completed(struct rs_lane *l, uint32_t qps, int64_t t, int64_t late, int full)
{
	for (uint32_t q = 0; q < qps; q++) {
		if (l->got[q] == 0)
			continue;
		if (full)
			note_time(l, q, t, late);
		for (uint32_t m = 0; m < RS_MOMENTS; m++) {
			struct rs_edge *e = &l->edge[m];
			if (!e->set || e->writes_after[q])
				continue;
			e->writes_after[q] = l->got[q];
			e->after[q] = t;
		}
		l->done[q] = t;
		l->done_late[q] = late;
		l->got[q] = 0;
	}
}

int rs_followed(const struct rs_lane *l, uint32_t qps, enum rs_moment m)
{
	for (uint32_t q = 0; q < qps; q++)
		if (!l->edge[m].writes_after[q])
			return 0;
	return 1;
}

static double part(double time, double whole)
{
	return time >= whole ? 1 : time / whole;
}

/*
 * Returns the bytes that were carried before an edge, of writes that completed after it, and adds their error to
 * unsure: a queue pair may have waited for the rail, before or after the edge, and was seen late.
 */
static double carried(const struct rs_lane *l, enum rs_moment m, uint32_t qps, int64_t chunk, double *unsure)
{
	const struct rs_edge *e = &l->edge[m];
	double sum = 0;
	for (uint32_t q = 0; q < qps; q++) {
		if (!e->writes_after[q] || e->before[q] == e->at)
			continue;
		double bytes = (double)chunk * (double)e->writes_after[q];
		double before = (double)(e->at - e->before[q]), after = (double)(e->after[q] - e->at);
		double time = (double)l->shortest * (double)e->writes_after[q]; /* duration without waiting */
		if (time == 0 || 1.125 * time > before + after)
			time = before + after;
		double most = part(before + (double)e->before_late[q], time), least = 1 - part(after, time);
		double usual = before / (before + after);
		sum += bytes * usual;
		*unsure += bytes * (most - usual > usual - least ? most - usual : usual - least);
	}
	return sum;
}

double rs_unsure(const struct rs_lane *l, uint32_t qps, int64_t chunk, enum rs_moment m)
{
	double unsure = 0;
	carried(l, m, qps, chunk, &unsure);
	return unsure;
}

double rs_between(const struct rs_lane *l, uint32_t qps, int64_t chunk, enum rs_moment from, enum rs_moment to,
		  double *unsure)
{
	const struct rs_edge *a = &l->edge[from], *z = &l->edge[to];
	*unsure = 0;
	return (double)(z->bytes - a->bytes) - carried(l, from, qps, chunk, unsure) + carried(l, to, qps, chunk, unsure);
}

double rs_rate(const struct rs_lane *l, uint32_t qps, int64_t chunk, enum rs_moment from, enum rs_moment to)
{
	double unsure;
	if (!l->edge[from].set || !l->edge[to].set || l->edge[to].at <= l->edge[from].at)
		return 0;
	return rs_between(l, qps, chunk, from, to, &unsure) / (double)(l->edge[to].at - l->edge[from].at);
}
