/*
 * All that Go sees of C. Types have a fixed width, times are nanoseconds of CLOCK_MONOTONIC, sizes and offsets are
 * bytes. What can fail returns a struct rs_error, never errno: between two calls from Go the thread may change. No
 * pointer to Go memory is kept after a call returned.
 */
#ifndef RAILSCOPE_SHIM_H
#define RAILSCOPE_SHIM_H

#include <stdint.h>

enum {
	RS_SYMBOLS = 22, /* functions of libibverbs in use */
	RS_NAME = 64,    /* of a device: IBV_SYSFS_NAME_MAX of rdma-core */
	RS_MAX_QPS = 16, /* per rail */
	RS_RECEIVES = 8, /* per queue pair of a target: as many bursts may end before it looks */
	RS_COPIES = 32   /* from a GPU in flight, per rail */
};

struct rs_error {
	const char *op;  /* what failed, as a message names it; NULL: nothing */
	int32_t err;     /* -errno; 0 where a completion says more */
	int32_t status;  /* enum ibv_wc_status */
	uint32_t vendor; /* vendor_err of the completion, or a CUresult */
	const char *name; /* of that; NULL: none */
};

/* ---- library: library.c ---- */

struct rs_lib {
	void *handle;
	void *symbol[RS_SYMBOLS];
};

/* Loads libibverbs. It stays loaded: providers leave threads and exit handlers behind. text gets the dynamic linker's
 * message on failure. */
struct rs_error rs_load(struct rs_lib *lib, const char *path, char *text, uint32_t size);

/* The file that was loaded, symlinks resolved; empty when unknown. */
void rs_file(const struct rs_lib *lib, char *path, uint32_t size);

/* Lists the devices. */
struct rs_error rs_check(const struct rs_lib *lib);

/* ---- rail: rail.c ---- */

struct rs_rail; /* one port of one device, with queue pairs to one peer */

struct rs_info {
	int32_t state; /* enum ibv_port_state */
	uint32_t active_mtu, max_mtu; /* bytes; 0: unknown */
	uint32_t lid;
	uint32_t ack_delay; /* that the device may need for an acknowledgement: 4.096 us << ack_delay (IBTA 9.7.6.1.3) */
	uint32_t reads;     /* in flight, that a queue pair can answer (of a target) or ask for */
	uint8_t gid[16];
	uint32_t qpn[RS_MAX_QPS];
};

struct rs_spec {
	char device[RS_NAME];
	uint32_t port, gid_index, qps, depth;
	uint32_t pkey;   /* of InfiniBand; 0: the first of the port's table */
	uint32_t target; /* the peer writes to this end's memory, or reads from it */
	uint32_t read;   /* the asker reads in place of writing */
	uint32_t stamps; /* the adapter's clock is to stamp completions; such a rail makes no bursts */
	uint32_t psn[RS_MAX_QPS];
};

struct rs_remote {
	uint64_t addr;
	uint32_t rkey, lid;
	uint8_t gid[16];
	uint32_t qpn[RS_MAX_QPS], psn[RS_MAX_QPS];
	uint32_t flow_label[RS_MAX_QPS]; /* 20 bits; 0: the driver's choice */
	uint32_t mtu;			 /* bytes */
	uint32_t reads;			 /* of rs_info */
	uint8_t timeout, retries, traffic_class, service_level;
};

/* Memory as a device sees it. */
struct rs_area {
	uint64_t addr, size;
	int32_t dmabuf;  /* a descriptor that exports it from its start; -1: none */
	uint32_t device; /* the CPU must not touch it: it is on a GPU */
	struct rs_stage *stage; /* copies to it what is on a GPU; NULL: nothing is */
};

struct rs_error rs_rail_open(const struct rs_lib *lib, const struct rs_spec *spec, struct rs_rail **rail,
			     struct rs_info *info);
/* The peer may touch the memory of a target only, and that only in the way of this rail. */
struct rs_error rs_rail_register(struct rs_rail *rail, const struct rs_area *memory, uint32_t *rkey);
struct rs_error rs_rail_connect(struct rs_rail *rail, const struct rs_remote *remote);
/* Prepares every queue pair for the writes that end the peer's bursts. */
struct rs_error rs_rail_expect(struct rs_rail *rail);
/* Waits until every queue pair has ended the burst with this pass: all that it wrote is in memory then. */
struct rs_error rs_rail_arrived(const int32_t *cancelled, struct rs_rail *rail, uint32_t pass, int64_t limit);
/* Moves the queue pairs to ERR: nothing that is still on the way arrives later. */
void rs_rail_stop(struct rs_rail *rail);
/* What the device reported about this rail since the last call: that it, its port or a queue pair failed. It does not
 * wait. */
struct rs_error rs_rail_event(struct rs_rail *rail);
/* Frees the rail in any case, and returns the first failure. */
struct rs_error rs_rail_close(struct rs_rail *rail);

/* ---- writes and reads: write.c, burst.c; where it makes no difference, both are called writes ---- */

/* Writes size bytes n times, one after the other; sample gets the times from post to completion, taken their number.
 * adapter, of a rail with stamps, gets the part of each until the adapter stamped the completion; else NULL. Another
 * thread may set cancelled. */
struct rs_error rs_latency(const int32_t *cancelled, struct rs_rail *rail, int64_t size, uint32_t n, int64_t limit,
			   int64_t *sample, int64_t *adapter, uint32_t *taken);

/* What one rail carries in a transfer. The caller sets the first two. */
struct rs_share {
	int64_t chunk;  /* bytes of a message */
	uint32_t count; /* of messages */
	uint32_t posted, completed;
	uint64_t first_id; /* wr_id: earlier ones are of another transfer */
};

/* Makes so many transfers, one after the other, each over all rails at once, and no other one after limit; one may take
 * until deadline. sample gets the times from the first post to the last completion, taken their number, failed the rail
 * that an error is of. Another thread may set cancelled. */
struct rs_error rs_transfers(const int32_t *cancelled, struct rs_rail **rail, uint32_t n, struct rs_share *share,
			     uint32_t times, int64_t limit, int64_t deadline, int64_t *sample, uint32_t *taken,
			     uint32_t *failed);

/* What one rail carries in a burst. */
struct rs_load {
	int64_t chunk;  /* of one write */
	int64_t cap;    /* bytes after which the burst ends, whatever was measured */
	int64_t rtt;    /* of a small write */
	int64_t ring;   /* bytes that each queue pair fills: of the peer's memory, or of ours by reads */
	uint32_t depth; /* writes in flight, over all queue pairs */
};

struct rs_plan {
	int64_t window;         /* to measure, with every rail at full depth */
	int64_t slow, deadline; /* since the start: no posts after the one, writes in flight are abandoned after the other */
	uint32_t writes;        /* fewest within the measured time, per rail */
	uint32_t software;      /* the kernel does the work of the devices */
	uint32_t pass;          /* pages by which the source is shifted in the first pass over a ring */
	const struct rs_load *load;
};

struct rs_part {
	int64_t bytes;       /* completed */
	int64_t measured;    /* of them, between two completions with every rail at full depth */
	int64_t first, last; /* those two; since the start */
	int64_t gap;         /* the longest time between two polls from first to last, or of all if nothing was measured */
	uint32_t disturbed;  /* the rail may have been idle in a gap: no figure */
	int64_t written[RS_MAX_QPS];
	struct rs_error error;
};

/* The state of a rail during a burst. */
struct rs_lane {
	uint32_t inflight[RS_MAX_QPS], writes; /* per queue pair, and of the rail */
	uint64_t first_id;                     /* wr_id: earlier ones are of another burst */
	int64_t visited, gap;                  /* when completions were last taken; since the time before */
	int64_t pending, widest;               /* bytes completed and longest gap since part->last */
	int64_t late_first, late_last;         /* by which part->first and part->last may be too late */
	uint32_t waiting, counted;             /* writes completed since part->last, and before */
	uint32_t early;                        /* and between full and part->first */
	int64_t full, before;                  /* from when it is measured; longest gap between then and part->first */
	uint32_t copies;                       /* begun, of a rail whose source is on a GPU */
	uint32_t first_writes, last_writes;    /* writes, at part->first and part->last */
	uint32_t ended;                        /* its last writes are posted: those with immediate */
};

/* Keeps n rails at full depth for a time, measures what each carries, and returns 0, -ECANCELED or -ETIMEDOUT. The
 * caller gives the memory. A rail that fails ends the burst for all: what they share has changed. Another thread may
 * set cancelled, and read the bytes completed per rail in progress. */
int32_t rs_burst(const int32_t *cancelled, int64_t *progress, struct rs_rail **rail, uint32_t n,
		 const struct rs_plan *plan, struct rs_part *part, struct rs_lane *lane);

#endif
