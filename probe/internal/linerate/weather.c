/* How the rates of rails vary. */
#include "weather.h"

/* splitmix64 */
double lr_drawn(uint64_t seed, int64_t period)
{
	uint64_t x = seed + (uint64_t)(period + 1) * UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (double)((x ^ x >> 31) >> 11) / (double)(UINT64_C(1) << 53);
}

double lr_weather(const struct lr_rail *r, int64_t t)
{
	double part = 1;
	if (r->resumes && t >= r->pauses && t < r->resumes)
		return 0;
	if (r->pause_every) { /* at a random time of each period */
		int64_t period = t / r->pause_every, at = t % r->pause_every;
		int64_t from = (int64_t)(lr_drawn(r->seed, period) * (double)(r->pause_every - r->pause));
		if (at >= from && at < from + r->pause)
			return 0;
	}
	if (r->ramp && t < r->ramp)
		part = r->ramp_from + (1 - r->ramp_from) * (double)t / (double)r->ramp;
	if (r->cut_every) { /* congestion notification: half of the rate, which then recovers */
		int64_t since = t % r->cut_every;
		if (since < r->cut)
			part *= 0.5 + 0.5 * (double)since / (double)r->cut;
	}
	if (r->jitter_every)
		part *= 1 - r->jitter * lr_drawn(r->seed, t / r->jitter_every);
	return part;
}

int lr_varies(const struct lr_rail *r)
{
	return r->resumes || r->pause_every || r->ramp || r->cut_every || r->jitter_every;
}
