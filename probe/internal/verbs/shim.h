/*
 * The whole interface between Go and C. Types have a fixed width, times are nanoseconds of CLOCK_MONOTONIC, sizes and
 * offsets are bytes. Functions that can fail return a struct rs_error, never errno, because the thread may change
 * between two calls from Go. C keeps no pointer to Go memory after a call.
 */
#ifndef RAILSCOPE_SHIM_H
#define RAILSCOPE_SHIM_H

#include <stdint.h>

enum {
	RS_SYMBOLS = 22, /* number of libibverbs functions in use */
	RS_NAME = 64,    /* device name: IBV_SYSFS_NAME_MAX of rdma-core */
	RS_MAX_QPS = 16, /* per rail */
	RS_RECEIVES = 8, /* per queue pair of a target: bursts that may end before it checks */
	RS_COPIES = 32   /* copies from a GPU in flight, per rail */
};

struct rs_error {
	const char *op;  /* failed operation, for messages; NULL if none */
	int32_t err;     /* -errno; 0 if status has the cause */
	int32_t status;  /* enum ibv_wc_status */
	uint32_t vendor; /* vendor_err of the completion, or a CUresult */
	const char *name; /* name of vendor's CUresult; NULL if none */
};

/* ---- library: library.c ---- */

struct rs_lib {
	void *handle;
	void *symbol[RS_SYMBOLS];
};

/*
 * Loads libibverbs. It stays loaded, because providers leave threads and exit handlers behind. On failure text gets the
 * message of the dynamic linker.
 */
struct rs_error rs_load(struct rs_lib *lib, const char *path, char *text, uint32_t size);

/* Returns the loaded file with symlinks resolved; empty if unknown. */
void rs_file(const struct rs_lib *lib, char *path, uint32_t size);

/* Lists the devices. */
struct rs_error rs_check(const struct rs_lib *lib);

/* ---- rail: rail.c ---- */

struct rs_rail; /* one port of one device, with queue pairs to one peer */

struct rs_info {
	int32_t state; /* enum ibv_port_state */
	uint32_t active_mtu, max_mtu; /* bytes; 0 if unknown */
	uint32_t lid;
	/* The device may need this time for an acknowledgement: 4.096 us << ack_delay (IBTA 9.7.6.1.3). */
	uint32_t ack_delay;
	uint32_t reads;     /* reads in flight that a queue pair supports: answers at a target, else requests */
	uint8_t gid[16];
	uint32_t qpn[RS_MAX_QPS];
};

struct rs_spec {
	char device[RS_NAME];
	uint32_t port, gid_index, qps, depth;
	uint32_t pkey;   /* InfiniBand partition key; 0 for the first in the port's table */
	uint32_t target; /* the peer writes to this end's memory, or reads from it */
	uint32_t read;   /* the asker reads instead of writing */
	uint32_t stamps; /* the adapter's clock stamps completions; such a rail makes no bursts */
	uint32_t psn[RS_MAX_QPS];
};

struct rs_remote {
	uint64_t addr;
	uint32_t rkey, lid;
	uint8_t gid[16];
	uint32_t qpn[RS_MAX_QPS], psn[RS_MAX_QPS];
	uint32_t flow_label[RS_MAX_QPS]; /* 20 bits; 0 lets the driver choose */
	uint32_t mtu;			 /* bytes */
	uint32_t reads;			 /* reads of rs_info */
	uint8_t timeout, retries, traffic_class, service_level;
};

/* Memory as a device sees it. */
struct rs_area {
	uint64_t addr, size;
	uint64_t offset; /* place of the memory in the dma-buf */
	int32_t dmabuf;  /* descriptor that exports it; -1 if there is none */
	uint32_t device; /* GPU memory, which the CPU must not access */
	struct rs_stage *stage; /* copies a GPU's memory to it; NULL without copies */
};

struct rs_error rs_rail_open(const struct rs_lib *lib, const struct rs_spec *spec, struct rs_rail **rail,
			     struct rs_info *info);
/* Registers memory. The peer may access only a target's, and only by this rail's operation. */
struct rs_error rs_rail_register(struct rs_rail *rail, const struct rs_area *memory, uint32_t *rkey);
struct rs_error rs_rail_connect(struct rs_rail *rail, const struct rs_remote *remote);
/* Prepares every queue pair for the writes that end the peer's bursts. */
struct rs_error rs_rail_expect(struct rs_rail *rail);
/* Waits until every queue pair has ended the burst with this pass, so that all its writes are in memory. */
struct rs_error rs_rail_arrived(const int32_t *cancelled, struct rs_rail *rail, uint32_t pass, int64_t limit);
/* Moves the queue pairs to ERR, so that no write in flight arrives later. */
void rs_rail_stop(struct rs_rail *rail);
/*
 * Returns the worst event since the last call: the device, the port or a queue pair of this rail failed. Does not wait.
 */
struct rs_error rs_rail_event(struct rs_rail *rail);
/* Always frees the rail, and returns the first failure. */
struct rs_error rs_rail_close(struct rs_rail *rail);

/* ---- writes and reads: write.c, burst.c; both are called writes unless they differ ---- */

/*
 * Writes size bytes n times in sequence. sample gets the times from post to completion, taken their number. adapter,
 * for a rail with stamps, gets the part of each time until the adapter's stamp; otherwise it is NULL. Another thread
 * may set cancelled.
 */
struct rs_error rs_latency(const int32_t *cancelled, struct rs_rail *rail, int64_t size, uint32_t n, int64_t limit,
			   int64_t *sample, int64_t *adapter, uint32_t *taken);

/*
 * Like rs_latency, with one write at each of n times after the first one, ascending: as arrivals that do not wait for
 * each other. If a time passes while the previous write is under way, the sample is at least what was left of that. A sample is left out if the
 * thread was away for more than a quarter of it when it saw the completion, unless the device is software.
 */
struct rs_error rs_arrivals(const int32_t *cancelled, struct rs_rail *rail, int64_t size, const int64_t *at, uint32_t n,
			    int32_t software, int64_t limit, int64_t *sample, uint32_t *taken);

/* One rail's part of a transfer. The caller sets the first two fields. */
struct rs_share {
	int64_t chunk;  /* bytes per message */
	uint32_t count; /* number of messages */
	uint32_t posted, completed;
	uint64_t first_id; /* wr_id of the first message: lower ones are from another transfer */
};

/*
 * Runs up to times transfers in sequence, each striped over all rails. Starts none after limit; each must finish by
 * deadline. sample gets the times from the first post to the last completion, taken their number, and failed the rail
 * of an error. Another thread may set cancelled.
 */
struct rs_error rs_transfers(const int32_t *cancelled, struct rs_rail **rail, uint32_t n, struct rs_share *share,
			     uint32_t times, int64_t limit, int64_t deadline, int64_t *sample, uint32_t *taken,
			     uint32_t *failed);

/* A device that is open to receive its asynchronous events, without any other object. */
struct rs_watch {
	struct rs_lib lib;
	struct ibv_context *context;
	const char *character; /* the character device, such as uverbs0 */
	int32_t fd;            /* readable while an event waits */
};

/* If it fails, the caller closes it, too. */
struct rs_error rs_watch_open(struct rs_lib lib, const char *name, struct rs_watch *w);
/* Returns the type of the next event, enum ibv_event_type, or -1 if none waits. port is 0 for one of the device. */
int32_t rs_watch_next(const struct rs_watch *w, int32_t *port);
void rs_watch_close(struct rs_watch *w);

/* One rail's load in a burst. */
struct rs_load {
	int64_t chunk;  /* bytes of one write */
	int64_t cap;    /* bytes after which the burst ends, even if too little was measured */
	int64_t rtt;    /* round trip of a small write */
	int64_t ring;   /* bytes that each queue pair fills: of the peer's memory, or of ours for reads */
	uint32_t depth; /* writes in flight, over all queue pairs */
};

struct rs_plan {
	int64_t window;         /* time to measure, with every rail at full depth */
	/* Since the start: no posts after slow; writes in flight are abandoned after deadline. */
	int64_t slow, deadline;
	uint32_t writes;        /* minimum number of measured writes per rail */
	uint32_t software;      /* the kernel does the devices' work */
	uint32_t pass;          /* shift of the source in the first pass over a ring, in pages */
	const struct rs_load *load;
};

struct rs_part {
	int64_t bytes;       /* completed bytes */
	int64_t measured;    /* completed bytes with every rail at full depth, from first to last */
	int64_t first, last; /* times of two completions, since the start */
	int64_t gap;         /* longest time between two polls from first to last, or of all if nothing was measured */
	uint32_t disturbed;  /* no figure: the rail may have been idle in a gap */
	uint32_t ramping;    /* no figure: the rate still rose in the last window */
	double early, late;  /* rates in the halves of that window, in bytes per ns */
	int64_t written[RS_MAX_QPS];
	struct rs_error error;
};

/*
 * Moments of a burst: when all rails reach full depth, the edges of the measurement and times in between, and when full
 * depth ends.
 */
enum rs_moment { RS_FULL, RS_FIRST, RS_QUARTER, RS_HALF, RS_LAST, RS_OVER, RS_MOMENTS };

/* State of a rail at a moment. */
struct rs_edge {
	uint32_t set, writes; /* writes in flight */
	int64_t at, late;     /* time since the start; its maximum error */
	int64_t bytes;        /* bytes completed by then */
	/* Times of each queue pair's completions before the moment, the maximum error of these, and times of the
	 * completions after it with their number at once; 0 if there are none yet. */
	int64_t before[RS_MAX_QPS], before_late[RS_MAX_QPS], after[RS_MAX_QPS];
	uint32_t writes_after[RS_MAX_QPS];
};

/* State of a rail during a burst. */
struct rs_lane {
	uint32_t inflight[RS_MAX_QPS], writes;               /* writes per queue pair, and of the rail */
	uint64_t first_id;                                   /* lower wr_ids are from another burst */
	int64_t visited, gap;                                /* time of the last visit; time since the one before */
	int64_t widest, before;                              /* longest gap since RS_LAST; from RS_FULL to RS_FIRST */
	int64_t done[RS_MAX_QPS], done_late[RS_MAX_QPS];     /* last completion of each queue pair; its maximum error */
	uint32_t got[RS_MAX_QPS];                            /* completions per queue pair in this visit */
	int64_t shortest;                                    /* shortest time between two completions of one queue pair */
	struct rs_edge edge[RS_MOMENTS];
	uint32_t copies;  /* copies started, for a rail with its source on a GPU */
	uint32_t dry;     /* a visit since RS_FIRST found nothing in flight */
	uint32_t windows; /* earlier windows, which were discarded because the rate rose */
	uint32_t ended;   /* the last writes, with immediate, are posted */
};

/*
 * Keeps n rails at full depth for a time, measures what each carries, and returns 0, -ECANCELED or -ETIMEDOUT. The
 * caller provides the memory. A rail that fails ends the burst for all, because their shared hardware has a different
 * load. Another thread may set cancelled, and read the completed bytes per rail in progress.
 */
int32_t rs_burst(const int32_t *cancelled, int64_t *progress, struct rs_rail **rail, uint32_t n,
		 const struct rs_plan *plan, struct rs_part *part, struct rs_lane *lane);

#endif
