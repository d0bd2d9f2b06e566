/*
 * The state that all processes of a fake fabric share: one file, mapped by all of them. layout.go has the same structs,
 * and a process that maps the file compares the sizes.
 */
#ifndef FABRIC_H
#define FABRIC_H

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The headers map these names to inline functions; the library defines the functions themselves. */
#undef ibv_reg_mr
#undef ibv_get_device_list
#undef ibv_query_port

enum { MAX_RECVS = 16, MAX_DEVICES = 32, MAX_GIDS = 16, MAX_GROUPS = 16, MAX_PKEYS = 8, MAX_OBJECTS = 2048, MAX_READS = 16 };
#define FABRIC_MAGIC 0x66616b6576657262ULL

typedef _Atomic uint64_t word;

struct gid {
	word hi, lo; /* halves of the GID in sysfs */
	word type;   /* 0: empty entry; 1: IB or RoCE v1; 2: RoCE v2 */
	word bits;   /* prefix length of the subnet */
};

/* Knobs, which a test may change while others run: layout.go, words(). */
struct knobs {
	word rate, latency, group, down, drop_after, drop_larger;
	word fail_every, fail_status, fail_vendor, retry_timeout;
	word list_errno, open_errno, reg_errno, cq_errno, qp_errno, init_errno, rtr_errno, rts_errno;
	word hidden, crash_at, hang_open, hang_post, hang_poll, corrupt, blocked, lose, late, park;
	word grh_required, iwarp, inline_errno, ack_delay, odd_mtu, rtr_delay;
	word reads, dmabuf_errno, stamps, other_clock, drop_port;
};

struct device {
	word used;
	char node[64], name[64], counters[512]; /* counters: directory of the port's counters */
	word port, link_layer, active_mtu, max_mtu, guid;
	struct gid gids[MAX_GIDS];
	word pkeys[MAX_PKEYS]; /* 0 for an empty entry */
	struct knobs k;
	word busy;                 /* time until which the wire is busy, CLOCK_MONOTONIC */
	word posts, writes, bytes; /* counts since the knobs were last set */
	word xmit, rcv, xmit_packets, rcv_packets;
};

enum kind { FREE, CONTEXT, PD, CQ, MR, QP, AH };

/* object is any object that a process has open on a device. */
struct object {
	word kind, pid, device, gen, pd;
	word addr, iova, length, access;                       /* MR; access also for a QP */
	word state, dest_qpn, sq_psn, rq_psn, mtu, sgid_index; /* QP */
	word sgid_hi, sgid_lo, dgid_hi, dgid_lo, sgid_type;    /* QP, from RTR on */
	/* Fields of a QP: receives posted and used, and the time when the last one completes. */
	word recvs, arrived, arrive_at, imms[16];
	/* Fields of a QP, set from RTR on; pkey from INIT on, timeout from RTS on. */
	word global, dlid, sl, tclass, flow_label, pkey, timeout;
	word reads; /* QP, from RTR on: number that it serves at a time */
};

struct fabric {
	word magic, size, object_size, device_size;
	word owner;    /* process that holds the lock; 0 if none */
	char dir[512]; /* directory of the file and of the FIFOs for events */
	word groups[MAX_GROUPS]; /* time until which each shared wire is busy */
	struct device devices[MAX_DEVICES];
	struct object objects[MAX_OBJECTS];
};

/* State of a process. */
struct fdev {
	struct ibv_device ibv;
	struct fabric *f;
	struct device *d;
	int refs; /* lists and contexts that use it */
};

struct fctx {
	struct object *o;
	struct fdev *dev;
	int counter_fds[MAX_DEVICES][4]; /* 0 if not open yet */
	struct verbs_context v;          /* must be last */
};

struct entry { /* a posted work request */
	uint64_t posted, due, bytes, packets; /* due is UINT64_MAX while it waits for its turn */
	uint64_t wire; /* time for which it occupies the wire */
	struct device *peer, *sender; /* sender: device whose wire the bytes use; the peer for a read */
	uint32_t imm;
	bool read;
	struct object *they; /* destination QP of a write with immediate */
	bool signaled;
	struct ibv_wc wc;
};

struct fcq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex; /* has the same beginning */
	};
	struct ibv_wc wc; /* entry that ex returns while polled */
	uint64_t stamp;   /* time of completion */
	struct object *o;
	struct fqp *qps; /* QPs that send with it */
	struct fqp *receivers;
	int users;       /* number of QPs that use it */
};

struct fqp {
	struct ibv_qp ibv;
	struct object *o;
	struct fqp *next, *next_receiver;
	uint64_t recv_ids[MAX_RECVS], received;
	struct ibv_qp_attr attr;
	struct ibv_qp_cap cap;
	int sq_sig_all;
	struct entry *ring; /* cap.max_send_wr entries; head and tail only grow */
	uint64_t head, begun, tail, last_due; /* entries from begun on wait for their turn */
	uint64_t reads, read_due[MAX_READS];  /* reads begun, and when the last ones complete */
};

#pragma GCC visibility push(hidden) /* only verbs are exported */

extern pthread_mutex_t process_lock; /* taken before the fabric's lock; protects rings and lists */

struct fabric *fabric_open(void);
void fabric_lock(struct fabric *f);
void fabric_unlock(struct fabric *f);
bool alive(uint64_t pid);
struct object *object_new(struct fabric *f, enum kind kind, struct device *d);
void object_free(struct object *o);
uint32_t object_number(struct fabric *f, struct object *o); /* 24 bits: QP number, and part of keys */
struct object *object_of(struct fabric *f, enum kind kind, uint32_t number);
struct device *device_with_gid(struct fabric *f, uint64_t hi, uint64_t lo, uint64_t type);
int reach(struct fabric *f, struct device *d, const struct ibv_ah_attr *ah, struct device **peer);
uint16_t lid_of(struct fabric *f, struct device *d);
void gid_words(const union ibv_gid *gid, uint64_t *hi, uint64_t *lo);
uint64_t now_ns(void);
bool failed(uint64_t err); /* sets errno */

struct fctx *ctx_of(struct ibv_context *c);
struct fcq *cq_new(struct ibv_context *c, uint32_t cqe, void *cq_context);
void add_stamps(struct fctx *x);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
void flush_from(struct fqp *q, uint64_t from, uint64_t due);

#pragma GCC visibility pop

#endif
