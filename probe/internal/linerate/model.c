/* The loop of package verbs, unmodified, with the clock and the adapters of the model in place of the machine's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"

static int lr_clock_gettime(clockid_t id, struct timespec *t);
static int lr_nanosleep(const struct timespec *t, struct timespec *rest);
static int lr_sched_yield(void);

/* A test binary has package verbs as well. */
#define rs_burst lr_rs_burst
#define rs_rail_stop lr_rs_rail_stop
#define rs_now lr_rs_now
#define rs_relax lr_rs_relax
#define rs_fail lr_rs_fail
#define rs_usable lr_rs_usable
#define rs_post lr_rs_post
#define rs_post_last lr_rs_post_last
#define rs_rail_expect lr_rs_rail_expect
#define rs_completion lr_rs_completion
#define rs_rail_arrived lr_rs_rail_arrived
#define rs_latency lr_rs_latency
#define rs_copy lr_rs_copy
#define rs_copied lr_rs_copied
#define rs_forget_copies lr_rs_forget_copies
#define rs_stage_begin lr_rs_stage_begin
#define rs_stage_ready lr_rs_stage_ready

#define clock_gettime lr_clock_gettime
#define nanosleep lr_nanosleep
#define sched_yield lr_sched_yield
#include "write.h" /* links into package verbs: go builds this package again when they change, and */
#include "burst.h" /* does not see what lies elsewhere */
#undef clock_gettime
#undef nanosleep
#undef sched_yield

enum { PENDING = 1024 }; /* writes in flight per rail */
enum { READS = 16 };     /* reads that adapters have open on a queue pair: of ConnectX */

struct port {
	const struct lr_rail *is;
	struct ibv_wc done[PENDING]; /* a ring, in the order of completion */
	int64_t at[PENDING];         /* when */
	int64_t length[PENDING];
	int64_t turn[READS];         /* when the read so many before completes */
	uint32_t head, count, waiting; /* the last waiting of them are not on the shared link yet */
	int64_t free; /* when the wire is */
	int64_t posts;
	int64_t takes;               /* of the write that was lost, on the wire */
	uint32_t hole;               /* it, in the ring */
	enum { WHOLE, LOST, REPAIRED } loss;
	int dead;
};

/* Copies of a rail, one after the other. */
struct rs_stage {
	double rate;
	int64_t free, ready[RS_COPIES];
};

static struct {
	const struct lr_model *model;
	struct port port[LR_RAILS];
	int64_t now, link_free, stalls; /* when the thread stalls next */
	uint32_t turn;                  /* whose write the shared link carries next */
	uint64_t random;
} sim;

/* Uniform in [0, 1): xorshift64*, Vigna 2016. */
static double uniform(void)
{
	sim.random ^= sim.random >> 12;
	sim.random ^= sim.random << 25;
	sim.random ^= sim.random >> 27;
	return (double)(sim.random * UINT64_C(2685821657736338717) >> 11) / (double)(UINT64_C(1) << 53);
}

static void schedule_stall(void)
{
	const struct lr_model *m = sim.model;
	if (m->every == 0)
		sim.stalls = INT64_MAX;
	else
		sim.stalls = sim.now + (m->random ? (int64_t)((double)m->every * 2 * uniform()) : m->every);
}

static void spend(int64_t ns)
{
	sim.now += ns;
	while (sim.now >= sim.stalls) {
		sim.now += sim.model->stall;
		schedule_stall();
	}
}

static int lr_clock_gettime(clockid_t id, struct timespec *t)
{
	(void)id;
	spend(sim.model->clock);
	*t = (struct timespec){.tv_sec = sim.now / 1000000000, .tv_nsec = sim.now % 1000000000};
	return 0;
}

static int lr_nanosleep(const struct timespec *t, struct timespec *rest)
{
	(void)rest;
	spend(t->tv_sec * 1000000000 + t->tv_nsec + 50 * RS_US); /* timer slack of an ordinary thread */
	return 0;
}

static int lr_sched_yield(void)
{
	spend(500);
	return 0;
}

/* The shared link takes one write of each rail in turn, as long as there are any. */
static void serve_link(void)
{
	for (uint32_t idle = 0; sim.link_free <= sim.now && idle < sim.model->rails; sim.turn++) {
		struct port *p = &sim.port[sim.turn % sim.model->rails];
		idle++;
		if (p->waiting == 0)
			continue;
		uint32_t k = (p->head + p->count - p->waiting--) % PENDING;
		sim.link_free += (int64_t)((double)p->length[k] / sim.model->link_rate);
		p->at[k] = sim.link_free + p->is->rtt;
		idle = 0;
	}
	if (sim.link_free < sim.now)
		sim.link_free = sim.now; /* nothing to carry */
}

/* What was lost is sent again from a moment on, and all behind it. */
static void repair(struct port *p, int64_t from)
{
	p->loss = REPAIRED;
	p->free = from + p->takes;
	p->at[p->hole] = p->free + p->is->rtt;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct port *p = qp->qp_context;
	const struct lr_rail *r = p->is;
	int read = wr->opcode == IBV_WR_RDMA_READ;
	if (p->count == PENDING || read != (int)r->read) {
		*bad = wr;
		return p->count == PENDING ? ENOMEM : EINVAL;
	}
	spend(sim.model->post);
	/* A read reaches the peer when it has its turn and half a round trip later; its bytes take the other half. */
	int64_t asked = read && p->turn[p->posts % READS] > sim.now ? p->turn[p->posts % READS] : sim.now;
	int64_t there = read ? asked + r->rtt / 2 : asked, back = read ? r->rtt / 2 : r->rtt;
	int64_t length = wr->num_sge ? wr->sg_list->length : 0, begin = there > p->free ? there : p->free;
	int64_t takes = (int64_t)((double)length / r->rate);
	if (begin + takes > r->pauses && begin < r->resumes)
		begin = r->resumes;
	p->free = begin + takes;
	uint32_t k = (p->head + p->count++) % PENDING;
	p->done[k] = (struct ibv_wc){.wr_id = wr->wr_id, .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RDMA_WRITE};
	p->at[k] = r->stops && p->free >= r->stops ? INT64_MAX : p->free + back;
	p->turn[p->posts % READS] = p->at[k];
	if (r->link) { /* it waits for its turn: serve_link */
		p->at[k] = INT64_MAX;
		p->length[k] = length;
		p->waiting++;
	}
	if (++p->posts == r->loses) {
		p->loss = LOST;
		p->hole = k;
		p->takes = takes;
		p->at[k] = INT64_MAX;
	} else if (p->loss == LOST) { /* the peer misses it when something follows, and says so */
		int64_t nak = begin + r->rtt;
		repair(p, nak);
		p->at[k] = p->free += takes;
		p->at[k] += r->rtt;
	}
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	struct port *p = cq->cq_context;
	int n = 0;
	spend(sim.model->poll);
	serve_link();
	if (p->loss == LOST && sim.now > p->free + p->is->timeout) /* nothing followed */
		repair(p, p->free + p->is->timeout);
	/* A rail that stopped reports it when its retries are used up: 7 of them, and the first try. */
	if (!p->dead && p->count && p->at[p->head] == INT64_MAX && p->loss != LOST && p->is->stops && sim.now > p->is->stops + 8 * p->is->timeout) {
		p->dead = 1;
		for (uint32_t i = 0; i < p->count; i++) {
			uint32_t k = (p->head + i) % PENDING;
			p->at[k] = sim.now;
			p->done[k].status = i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;
		}
	}
	while (n < room && p->count && p->at[p->head] <= sim.now) {
		wc[n++] = p->done[p->head];
		p->head = (p->head + 1) % PENDING;
		p->count--;
		spend(sim.model->entry);
	}
	return n;
}

struct rs_error rs_stage_begin(struct rs_stage *s, uint32_t slot, uint64_t gpu, uint64_t host, uint64_t n)
{
	(void)gpu, (void)host;
	spend(sim.model->copy);
	s->free = (s->free > sim.now ? s->free : sim.now) + (int64_t)((double)n / s->rate);
	s->ready[slot] = s->free + sim.model->copy_late;
	return (struct rs_error){0};
}

int rs_stage_ready(struct rs_stage *s, uint32_t slot, struct rs_error *e)
{
	(void)e;
	spend(sim.model->query);
	return s->ready[slot] <= sim.now;
}

/* Nothing of the model goes on after a failure. */
void rs_rail_stop(struct rs_rail *r)
{
	(void)r;
}

void lr_run(const struct lr_model *m, const struct lr_burst *o, struct lr_result *result)
{
	struct ibv_context context = {.ops = {.poll_cq = poll_cq, .post_send = post_send}};
	struct rs_rail rail[LR_RAILS], *rails[LR_RAILS];
	struct ibv_cq cq[LR_RAILS];
	struct ibv_qp qp[LR_RAILS];
	struct ibv_mr mr = {0};
	struct rs_stage stage[LR_RAILS];
	struct rs_part part[LR_RAILS];
	struct rs_load load[LR_RAILS];
	struct rs_plan plan = {.window = o->window, .slow = o->slow, .deadline = o->deadline, .writes = o->writes,
			       .load = load};
	memset(&sim, 0, sizeof sim);
	memset(rail, 0, sizeof rail);
	sim.model = m;
	sim.random = m->random * UINT64_C(0x9e3779b97f4a7c15); /* many bits of a small seed */
	sim.stalls = m->stall ? m->first : INT64_MAX;
	if (m->stall && m->random)
		schedule_stall();
	for (uint32_t i = 0; i < m->rails; i++) {
		sim.port[i].is = &m->rail[i];
		cq[i] = (struct ibv_cq){.context = &context, .cq_context = &sim.port[i]};
		qp[i] = (struct ibv_qp){.context = &context, .qp_context = &sim.port[i]};
		rail[i].cq = &cq[i];
		rail[i].qp[0] = &qp[i];
		rail[i].mr = &mr;
		rail[i].spec = (struct rs_spec){.qps = 1, .read = m->rail[i].read, .depth = o->load[i].depth};
		load[i] = (struct rs_load){.chunk = o->load[i].chunk, .cap = o->load[i].cap, .rtt = o->load[i].rtt,
					   .depth = o->load[i].depth};
		load[i].ring = 2 * load[i].chunk * load[i].depth;
		rail[i].connected = 1;
		stage[i] = (struct rs_stage){.rate = m->rail[i].copies};
		rail[i].stage = m->rail[i].copies > 0 ? &stage[i] : NULL;
		rails[i] = &rail[i];
	}
	int32_t cancelled = 0;
	int64_t progress[LR_RAILS];
	struct rs_lane lane[LR_RAILS];
	rs_burst(&cancelled, progress, rails, m->rails, &plan, part, lane); /* why it failed is in the parts */
	result->elapsed = sim.now;
	for (uint32_t i = 0; i < m->rails; i++) {
		const struct rs_error *e = &part[i].error;
		result->rail[i] = (struct lr_part){.bytes = part[i].bytes, .measured = part[i].measured,
						   .first = part[i].first, .last = part[i].last, .gap = part[i].gap,
						   .disturbed = part[i].disturbed,
						   .failed = e->status ? e->status : e->err};
	}
}
