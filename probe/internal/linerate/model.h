/*
 * A model of adapters in virtual time, for the loop of package verbs.
 *
 * Times are nanoseconds. Nothing sleeps: every call of the loop into libibverbs or to the clock costs what the model
 * says, and only that moves the clock.
 */
#ifndef LINERATE_MODEL_H
#define LINERATE_MODEL_H

#include <stdint.h>

enum { LR_RAILS = 16 };

struct lr_rail {
	double rate;     /* payload, bytes per ns */
	int64_t rtt;     /* from the last byte on the wire to the completion */
	int64_t stops;   /* from then on nothing completes; 0: never */
	int64_t pauses, resumes; /* nothing is carried in between */
	int64_t loses;   /* number of the write that is lost once, from 1; 0: none */
	int64_t timeout; /* of an acknowledgement */
	uint32_t link;   /* rails of one link share its rate; 0: none */
	double copies;   /* of what it writes, from a GPU before that: bytes per ns; 0: none */
	uint32_t read;   /* it reads: what arrives has a wire of its own, beside that of what is written */
};

struct lr_model {
	struct lr_rail rail[LR_RAILS];
	uint32_t rails;
	double link_rate;           /* of link 1, bytes per ns */
	int64_t post, poll, entry;  /* a post; an empty poll; one completion taken */
	int64_t clock;              /* a reading of the clock */
	int64_t copy, query;        /* to begin a copy; to ask if it is complete */
	int64_t copy_late;          /* from the last byte of a copy until that is seen */
	int64_t stall, first, every; /* the thread loses stall ns at first, and again every so many; every 0: once */
	uint64_t random;            /* not 0: stalls come at random, every ns apart on average, also the first; the seed */
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
	uint32_t disturbed;
	int32_t failed; /* enum ibv_wc_status, or -errno */
};

struct lr_result {
	struct lr_part rail[LR_RAILS];
	int64_t elapsed;
};

void lr_run(const struct lr_model *model, const struct lr_burst *burst, struct lr_result *result);

#endif
