/* Compiles the loop of package verbs, unmodified, with the model's clock and adapters in place of the machine's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"
#include "weather.h"

static int lr_clock_gettime(clockid_t id, struct timespec *t);
static int lr_nanosleep(const struct timespec *t, struct timespec *rest);
static int lr_sched_yield(void);

/* The prefix avoids a conflict in test binaries, which also contain package verbs. */
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
#define rs_arrivals lr_rs_arrivals
#define rs_copy lr_rs_copy
#define rs_copied lr_rs_copied
#define rs_forget_copies lr_rs_forget_copies
#define rs_stage_begin lr_rs_stage_begin
#define rs_stage_ready lr_rs_stage_ready
#define rs_edge_put lr_rs_edge_put
#define rs_completed lr_rs_completed
#define rs_followed lr_rs_followed
#define rs_between lr_rs_between
#define rs_rate lr_rs_rate
#define rs_unsure lr_rs_unsure

#define clock_gettime lr_clock_gettime
#define nanosleep lr_nanosleep
#define sched_yield lr_sched_yield
#include "write.h" /* links into package verbs, so that go rebuilds this package when they change: */
#include "window.h" /* it does not track files elsewhere */
#include "burst.h"
#undef clock_gettime
#undef nanosleep
#undef sched_yield

enum { PENDING = 1024 }; /* writes in flight per rail */
enum { READS = 16 };     /* reads that an adapter has open per queue pair, as on ConnectX */

/* A write that is not completely on the wire yet. */
struct write {
	struct ibv_wc wc;
	int64_t posted, length, left;
	int lost;
};

/* A queue pair. */
struct flow {
	struct write queue[PENDING]; /* a ring */
	uint32_t head, count;
	int64_t blocked;             /* time before which it sends nothing, because it waits for an acknowledgement */
	int waits;                   /* its last write was lost, and no other has followed */
};

struct port {
	const struct lr_rail *is;
	struct flow *flow;
	struct ibv_wc done[PENDING]; /* a ring in order of completion */
	int64_t at[PENDING];         /* when each completion becomes visible */
	uint32_t head, count, held;  /* the last held ones are an incomplete group */
	int64_t since, last;         /* completion time of the group's first write, and of the last write */
	uint32_t writes, turn;       /* writes in flight; queue pair that the wire serves next */
	double free;                 /* time when the wire becomes free */
	int64_t posts;
	int64_t asked[READS];        /* completion times of the last READS reads */
	int dead;
	double bytes;                /* bytes carried */
	struct sent { int64_t t; double bytes; } *sent; /* bytes over time */
	size_t log, room;
};

/* Copies of a rail, in sequence. */
struct rs_stage {
	double rate;
	int64_t free, ready[RS_COPIES];
};

static struct {
	const struct lr_model *model;
	struct port port[LR_RAILS];
	int64_t now, stalls; /* stalls: time of the thread's next stall */
	double link_free;
	uint32_t turn;                  /* rail that the shared link serves next */
	uint64_t random;
} sim;

/* Returns a uniform number in [0, 1): xorshift64*, Vigna 2016. */
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

enum { STEP = 500 }; /* time in ns for which a varying rate is treated as constant */

/* Returns when a rail that begins to send at t has sent this many bytes. */
static double finish(const struct lr_rail *r, double t, int64_t bytes)
{
	if (!lr_varies(r))
		return t + (double)bytes / r->rate;
	for (double left = (double)bytes;; t += STEP) {
		double now = r->rate * lr_weather(r, (int64_t)t);
		if (left <= now * STEP)
			return t + (now > 0 ? left / now : 0);
		left -= now * STEP;
	}
}

/* Records bytes that a rail has carried. */
static void note(struct port *p, int64_t t, double bytes)
{
	p->bytes += bytes;
	if (p->log && t - p->sent[p->log - 1].t < STEP) {
		p->sent[p->log - 1].bytes = p->bytes;
		return;
	}
	if (p->log == p->room) {
		p->room = p->room ? 2 * p->room : 1024;
		p->sent = realloc(p->sent, p->room * sizeof *p->sent);
		if (!p->sent)
			abort();
	}
	p->sent[p->log++] = (struct sent){t, p->bytes};
}

/* Returns the bytes that a rail had carried at a time. */
static double carried_until(const struct port *p, int64_t t)
{
	struct sent before = {0};
	size_t low = 0, high = p->log;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (p->sent[mid].t <= t)
			low = mid + 1;
		else
			high = mid;
	}
	if (low > 0)
		before = p->sent[low - 1];
	if (low == p->log || p->sent[low].t == before.t)
		return before.bytes;
	return before.bytes + (p->sent[low].bytes - before.bytes) * (double)(t - before.t) / (double)(p->sent[low].t - before.t);
}

/*
 * Completes a write at t. The adapter holds completions until their group is full, or the first one has waited for
 * hold.
 */
static void complete(struct port *p, const struct write *w, int64_t t)
{
	const struct lr_rail *r = p->is;
	t = t > p->last ? t : p->last;
	p->last = t;
	if (p->held && t > p->since + r->hold)
		p->held = 0;
	if (p->held++ == 0)
		p->since = t;
	uint32_t k = (p->head + p->count++) % PENDING;
	p->done[k] = w->wc;
	p->at[k] = r->group > 1 ? p->since + r->hold : t;
	if (p->held < r->group)
		return;
	for (uint32_t i = 0; i < p->held; i++)
		p->at[(p->head + p->count - 1 - i) % PENDING] = t;
	p->held = 0;
}

static struct write *first_write(struct flow *f) { return &f->queue[f->head]; }

/* Returns when a queue pair has something to send; INT64_MAX for never. */
static int64_t ready(struct flow *f)
{
	if (f->count == 0)
		return INT64_MAX;
	int64_t posted = first_write(f)->posted;
	return posted > f->blocked ? posted : f->blocked;
}

/* Returns the queue pair of a rail that sends next, and sets t to its time, given that the wire is free at t. */
static struct flow *turn(struct port *p, double *t)
{
	int64_t soonest = INT64_MAX;
	for (uint32_t q = 0; q < p->is->qps && !p->dead; q++)
		if (ready(&p->flow[q]) < soonest)
			soonest = ready(&p->flow[q]);
	if (soonest == INT64_MAX)
		return NULL;
	*t = (double)soonest > *t ? (double)soonest : *t;
	for (uint32_t k = 0; k < p->is->qps; k++) {
		struct flow *f = &p->flow[(p->turn + k) % p->is->qps];
		if ((double)ready(f) <= *t)
			return f;
	}
	return NULL;
}

/* Sends the bytes of a queue pair's turn, from t to end. */
static void sent(struct port *p, struct flow *f, int64_t t, int64_t bytes, int64_t end)
{
	const struct lr_rail *r = p->is;
	struct write *w = first_write(f);
	p->turn = ((uint32_t)(f - p->flow) + 1) % r->qps;
	if (r->stops && end >= r->stops) {
		p->dead = 1; /* poll_cq reports it later */
		return;
	}
	note(p, t, 0);
	note(p, end, (double)bytes);
	w->left -= bytes;
	if (w->left > 0)
		return;
	if (w->lost) { /* a later write shows the loss to the peer, which reports it; otherwise a timeout does */
		note(p, end, -(double)w->length);
		w->lost = 0;
		w->left = w->length;
		f->waits = f->count == 1 || r->silent;
		f->blocked = end + (f->waits ? r->timeout : r->rtt);
		return;
	}
	struct write done = *w;
	f->head = (f->head + 1) % PENDING;
	f->count--;
	complete(p, &done, end + r->rtt + (int64_t)((double)r->rtt_jitter * lr_drawn(r->seed, p->posts)));
}

static int64_t quantum(const struct port *p, struct flow *f)
{
	int64_t left = first_write(f)->left, most = p->is->quantum;
	return most && left > most ? most : left;
}

/* Advances a wire to the current time. */
static void serve(struct port *p)
{
	for (;;) {
		double t = p->free;
		struct flow *f = turn(p, &t);
		if (!f || t >= (double)sim.now)
			return;
		int64_t bytes = quantum(p, f);
		p->free = finish(p->is, t, bytes);
		sent(p, f, (int64_t)t, bytes, (int64_t)p->free);
	}
}

/* Advances the shared link to the current time. It serves the rails in turn. */
static void serve_link(void)
{
	for (;;) {
		struct port *best = NULL;
		struct flow *flow = NULL;
		double soonest = INFINITY;
		for (uint32_t k = 0; k < sim.model->rails; k++) {
			struct port *p = &sim.port[(sim.turn + k) % sim.model->rails];
			double t = sim.link_free;
			struct flow *f = p->is->link ? turn(p, &t) : NULL;
			if (f && t < soonest)
				best = p, flow = f, soonest = t;
		}
		if (!best || soonest >= (double)sim.now)
			return;
		int64_t bytes = quantum(best, flow);
		sim.link_free = soonest + (double)bytes / sim.model->link_rate;
		sim.turn = (uint32_t)(best - sim.port) + 1;
		sent(best, flow, (int64_t)soonest, bytes, (int64_t)sim.link_free);
	}
}

/* A read reaches the peer after its turn and half a round trip; its bytes take the other half. */
static void post_read(struct port *p, const struct write *w)
{
	const struct lr_rail *r = p->is;
	int64_t *before = &p->asked[p->posts++ % READS], asked = *before > sim.now ? *before : sim.now;
	double there = (double)(asked + r->rtt / 2), begin = there > p->free ? there : p->free;
	p->free = finish(r, begin, w->length);
	note(p, (int64_t)begin, 0);
	note(p, (int64_t)p->free, (double)w->length);
	*before = (int64_t)p->free + r->rtt / 2;
	complete(p, w, *before);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct port *p = qp->qp_context;
	const struct lr_rail *r = p->is;
	int read = wr->opcode == IBV_WR_RDMA_READ;
	if (p->writes == PENDING || read != (int)r->read) {
		*bad = wr;
		return p->writes == PENDING ? ENOMEM : EINVAL;
	}
	spend(sim.model->post);
	p->writes++;
	int64_t length = wr->num_sge ? wr->sg_list->length : 0;
	struct write w = {.wc = {.wr_id = wr->wr_id, .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RDMA_WRITE},
			  .posted = sim.now, .length = length, .left = length};
	if (read) {
		post_read(p, &w);
		return 0;
	}
	struct flow *f = &p->flow[qp->qp_num];
	p->posts++;
	w.lost = p->posts == r->loses || (r->loses_every && p->posts % r->loses_every == 0);
	if (f->waits && !r->silent && sim.now + r->rtt < f->blocked) {
		f->blocked = sim.now + r->rtt;
		f->waits = 0;
	}
	f->queue[(f->head + f->count++) % PENDING] = w;
	return 0;
}

/* A rail that stopped reports its failure after all 8 attempts. */
static void give_up(struct port *p)
{
	const struct lr_rail *r = p->is;
	if (!p->dead || sim.now <= r->stops + 8 * r->timeout)
		return;
	for (uint32_t q = 0, n = 0; q < r->qps; q++) {
		for (struct flow *f = &p->flow[q]; f->count; f->count--, n++) {
			struct write w = *first_write(f);
			w.wc.status = n ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;
			f->head = (f->head + 1) % PENDING;
			complete(p, &w, sim.now);
		}
	}
}

static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	struct port *p = cq->cq_context;
	int n = 0;
	spend(sim.model->poll);
	if (p->is->link)
		serve_link();
	else
		serve(p);
	give_up(p);
	while (n < room && p->count && p->at[p->head] <= sim.now) {
		wc[n++] = p->done[p->head];
		p->head = (p->head + 1) % PENDING;
		p->count--;
		p->writes--;
		p->held = p->held < p->count ? p->held : p->count;
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

/* The model does nothing after a failure. */
void rs_rail_stop(struct rs_rail *r)
{
	(void)r;
}

/* The rails of a run. */
static struct {
	struct ibv_context context;
	struct rs_rail rail[LR_RAILS];
	struct ibv_cq cq[LR_RAILS];
	struct ibv_qp qp[LR_RAILS][RS_MAX_QPS];
	struct flow flow[LR_RAILS][RS_MAX_QPS];
	struct ibv_mr mr;
	struct rs_stage stage[LR_RAILS];
} used;

static void prepare(const struct lr_model *m)
{
	for (uint32_t i = 0; i < LR_RAILS; i++)
		free(sim.port[i].sent); /* left by the previous run */
	memset(&sim, 0, sizeof sim);
	memset(&used, 0, sizeof used);
	used.context = (struct ibv_context){.ops = {.poll_cq = poll_cq, .post_send = post_send}};
	sim.model = m;
	sim.random = m->random * UINT64_C(0x9e3779b97f4a7c15); /* spreads the bits of a small seed */
	sim.stalls = m->stall ? m->first : INT64_MAX;
	if (m->stall && m->random)
		schedule_stall();
	for (uint32_t i = 0; i < m->rails; i++) {
		struct rs_rail *r = &used.rail[i];
		sim.port[i].is = &m->rail[i];
		used.cq[i] = (struct ibv_cq){.context = &used.context, .cq_context = &sim.port[i]};
		sim.port[i].flow = used.flow[i];
		r->cq = &used.cq[i];
		for (uint32_t q = 0; q < m->rail[i].qps; q++) {
			used.qp[i][q] = (struct ibv_qp){.context = &used.context, .qp_context = &sim.port[i], .qp_num = q};
			r->qp[q] = &used.qp[i][q];
		}
		r->mr = &used.mr;
		r->spec = (struct rs_spec){.qps = m->rail[i].qps, .read = m->rail[i].read, .depth = 1};
		r->connected = 1;
		used.stage[i] = (struct rs_stage){.rate = m->rail[i].copies};
		r->stage = m->rail[i].copies > 0 ? &used.stage[i] : NULL;
	}
}

int32_t lr_latency(const struct lr_model *m, const int64_t *at, uint32_t n, int64_t limit, int64_t *sample,
		   uint32_t *taken)
{
	const int32_t cancelled = 0;
	struct rs_error e;
	prepare(m);
	used.rail[0].ring = used.rail[0].local = RS_PAGE;
	if (at)
		e = rs_arrivals(&cancelled, &used.rail[0], 8, at, n, 0, limit, sample, taken);
	else
		e = rs_latency(&cancelled, &used.rail[0], 8, n, limit, sample, NULL, taken);
	return e.status ? e.status : e.err;
}

void lr_run(const struct lr_model *m, const struct lr_burst *o, struct lr_result *result)
{
	struct rs_rail *rails[LR_RAILS];
	struct rs_part part[LR_RAILS];
	struct rs_load load[LR_RAILS];
	struct rs_plan plan = {.window = o->window, .slow = o->slow, .deadline = o->deadline, .writes = o->writes,
			       .load = load};
	prepare(m);
	for (uint32_t i = 0; i < m->rails; i++) {
		rails[i] = &used.rail[i];
		rails[i]->spec.depth = o->load[i].depth;
		load[i] = (struct rs_load){.chunk = o->load[i].chunk, .cap = o->load[i].cap, .rtt = o->load[i].rtt,
					   .depth = o->load[i].depth};
		load[i].ring = 2 * load[i].chunk * load[i].depth; /* per queue pair */
	}
	int32_t cancelled = 0;
	int64_t progress[LR_RAILS];
	static struct rs_lane lane[LR_RAILS];
	rs_burst(&cancelled, progress, rails, m->rails, &plan, part, lane); /* errors are in the parts */
	result->elapsed = sim.now;
	int64_t start = m->clock; /* first reading of the clock */
	for (uint32_t i = 0; i < m->rails; i++) {
		const struct rs_error *e = &part[i].error;
		int64_t from = start + part[i].first - m->rail[i].rtt, to = start + part[i].last - m->rail[i].rtt;
		double could = 0;
		for (int64_t t = from; t < to; t += STEP)
			could += m->rail[i].rate * lr_weather(&m->rail[i], t) * (double)(to - t < STEP ? to - t : STEP);
		result->rail[i] = (struct lr_part){.bytes = part[i].bytes, .measured = part[i].measured,
						   .first = part[i].first, .last = part[i].last, .gap = part[i].gap,
						   .disturbed = part[i].disturbed, .ramping = part[i].ramping,
						   .early = part[i].early, .late = part[i].late,
						   .could = could,
						   .carried = carried_until(&sim.port[i], to) - carried_until(&sim.port[i], from),
						   .failed = e->status ? e->status : e->err};
	}
}
