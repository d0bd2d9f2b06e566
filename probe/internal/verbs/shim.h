/*
 * All that Go sees of C. Types have a fixed width, times are nanoseconds of CLOCK_MONOTONIC, sizes and offsets are
 * bytes. What can fail returns a struct rs_error, never errno: between two calls from Go the thread may change. No
 * pointer to Go memory is kept after a call returned.
 */
#ifndef RAILSCOPE_SHIM_H
#define RAILSCOPE_SHIM_H

#include <stdint.h>

enum {
	RS_SYMBOLS = 17, /* functions of libibverbs in use */
	RS_NAME = 64,    /* of a device: IBV_SYSFS_NAME_MAX of rdma-core */
	RS_MAX_QPS = 16  /* per rail */
};

struct rs_error {
	const char *op;  /* what failed, as a message names it; NULL: nothing */
	int32_t err;     /* -errno; 0 where a completion says more */
	int32_t status;  /* enum ibv_wc_status */
	uint32_t vendor; /* vendor_err of the completion */
};

/* ---- library: shim.c ---- */

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

/* ---- rail: shim.c ---- */

struct rs_rail; /* one port of one device, with queue pairs to one peer */

struct rs_info {
	int32_t state; /* enum ibv_port_state */
	uint32_t active_mtu, max_mtu;
	uint32_t lid;
	uint8_t gid[16];
	uint32_t qpn[RS_MAX_QPS];
};

struct rs_spec {
	char device[RS_NAME];
	uint32_t port, gid_index, qps, depth;
	uint32_t psn[RS_MAX_QPS];
};

struct rs_remote {
	uint64_t addr;
	uint32_t rkey, lid;
	uint8_t gid[16];
	uint32_t qpn[RS_MAX_QPS], psn[RS_MAX_QPS];
	uint32_t mtu; /* bytes */
	uint8_t timeout, retries, traffic_class;
};

struct rs_error rs_rail_open(const struct rs_lib *lib, const struct rs_spec *spec, struct rs_rail **rail,
			     struct rs_info *info);
struct rs_error rs_rail_register(struct rs_rail *rail, void *memory, uint64_t size, uint32_t *rkey);
struct rs_error rs_rail_connect(struct rs_rail *rail, const struct rs_remote *remote);
/* Frees the rail in any case, and returns the first failure. */
struct rs_error rs_rail_close(struct rs_rail *rail);

/* ---- writes: write.c, burst.c ---- */

/* Writes 8 bytes n times, one after the other; sample gets the times from post to completion, taken their number.
 * Another thread may set cancelled. */
struct rs_error rs_latency(const int32_t *cancelled, struct rs_rail *rail, uint32_t n, int64_t limit, int64_t *sample,
			   uint32_t *taken);

struct rs_range {
	int64_t at, length;
};

struct rs_plan {
	int64_t total;           /* to write */
	int64_t size;            /* of the buffer, and of the peer's */
	int64_t chunk;           /* most of one write */
	int64_t limit, deadline; /* since the start */
	uint32_t depth;          /* writes in flight per rail */
	uint32_t stealing;
};

struct rs_part {
	int64_t bytes, writes;
	int64_t first, last; /* first post, last completion; since the start */
	struct rs_error error;
};

/* The state of a rail during a burst. */
struct rs_share {
	int64_t inflight; /* bytes posted and not completed */
	int64_t done;     /* bytes completed */
	int64_t age;      /* since its first post */
	uint32_t writes;  /* in flight */
	uint32_t window;  /* most writes in flight: 2, and one more per completion, up to the plan's depth */
	uint32_t alive;
};

struct rs_write {
	uint64_t id; /* wr_id; 0: free */
	struct rs_range range;
};

/* Writes plan->total bytes over n rails, and returns 0, -ECANCELED or -ETIMEDOUT. The caller gives the memory: share
 * for n rails, writes for plan->depth of each rail, and todo, which begins with the whole total when stealing, or with
 * a range per rail, and has room for all writes besides. What is left in writes and todo has not completed. Another
 * thread may set cancelled, and read the bytes completed per rail in progress. */
int32_t rs_burst(const int32_t *cancelled, int64_t *progress, struct rs_rail **rail, uint32_t n,
		 const struct rs_plan *plan, struct rs_part *part, struct rs_share *share, struct rs_write *writes,
		 struct rs_range *todo);

/* ---- scheduling: claim.c; runs without a device ---- */

/* How many of the unclaimed bytes rail i of n writes next; 0: none now. left is the time until the plan's limit. */
int64_t rs_claim(const struct rs_share *share, uint32_t n, uint32_t i, int64_t unclaimed, int64_t left,
		 const struct rs_plan *plan);

#endif
