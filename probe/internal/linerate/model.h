/*
 * A model of adapters in virtual time, for the loop of package verbs.
 *
 * Times are nanoseconds. Nothing sleeps: only the modelled costs of the loop's calls to libibverbs and the clock
 * advance the clock.
 */
#ifndef LINERATE_MODEL_H
#define LINERATE_MODEL_H

#include <stdint.h>

enum { LR_RAILS = 16 };

struct lr_rail {
	double rate;     /* payload, bytes per ns */
	int64_t rtt;     /* from the last byte on the wire to the completion */
	int64_t rtt_jitter; /* maximum random addition to rtt */
	uint32_t qps;    /* queue pairs, which the adapter serves in turn */
	int64_t quantum; /* bytes per turn of a queue pair; 0 for a whole write */
	uint32_t group;  /* completions that are reported together; up to 1 for each */
	int64_t hold;    /* maximum delay of a completion by group */
	int64_t stops;   /* time after which nothing completes; 0 for never */
	/* Numbers of the write that is lost once, from 1, and of a write whose multiples are; 0 for none. */
	int64_t loses, loses_every;
	uint32_t silent; /* the peer does not report a loss, so a timeout occurs */
	int64_t timeout; /* timeout for an acknowledgement */
	uint32_t link;   /* rails of one link share its rate; 0 for none */
	double copies;   /* rate of copies from a GPU before the writes, bytes per ns; 0 for no copies */
	uint32_t read;   /* it reads: incoming bytes have their own wire */

	/* Variations of the rate. */
	uint64_t seed;
	int64_t pauses, resumes;      /* start and end of a pause */
	int64_t pause, pause_every;   /* duration and period of pauses at random times */
	int64_t ramp;                 /* time until the full rate, which rises from the share ramp_from */
	double ramp_from;
	int64_t cut, cut_every;       /* duration and period of cuts to 1/2 of the rate */
	int64_t jitter_every;         /* period in which the rate is lower by a random share of up to jitter */
	double jitter;
};

struct lr_model {
	struct lr_rail rail[LR_RAILS];
	uint32_t rails;
	double link_rate;           /* rate of link 1, bytes per ns */
	int64_t post, poll, entry;  /* cost of a post, of an empty poll, and of one completion */
	int64_t clock;              /* cost of reading the clock */
	int64_t copy, query;        /* cost of starting a copy, and of querying its completion */
	int64_t copy_late;          /* delay until the completion of a copy is visible */
	/* The thread stalls for stall ns, at first and then with the period every; 0 for one stall. */
	int64_t stall, first, every;
	/* If not 0, this seeds random stalls with the mean period every, also for the first. */
	uint64_t random;
};

struct lr_load {
	int64_t chunk, cap, rtt;
	uint32_t depth;
};

struct lr_burst {
	int64_t window, slow, deadline;
	uint32_t writes;
	struct lr_load load[LR_RAILS];
};

struct lr_part {
	int64_t bytes, measured, first, last, gap;
	uint32_t disturbed, ramping;
	double early, late;    /* bytes per ns */
	double could, carried; /* bytes in the measured window: with unlimited queues, and actual */
	int32_t failed; /* enum ibv_wc_status, or -errno */
};

struct lr_result {
	struct lr_part rail[LR_RAILS];
	int64_t elapsed;
};

void lr_run(const struct lr_model *model, const struct lr_burst *burst, struct lr_result *result);

/*
 * Measures the latency of 8 B writes over the first rail, one after another, or at times after the first ones if at is
 * not NULL. Returns 0, a status or -errno.
 */
int32_t lr_latency(const struct lr_model *model, const int64_t *at, uint32_t n, int64_t limit, int64_t *sample,
		   uint32_t *taken);

#endif
