/*
 * A client of the library for tests: it executes one command per line, and answers each with one line. A letter
 * identifies an endpoint.
 */
#include <errno.h>
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct endpoint {
	struct ibv_context *c;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	unsigned char *buf;
	size_t size;
} endpoints[16];

static void answer(const char *call, int err)
{
	if (err)
		printf("%s: errno %d\n", call, err);
	else
		printf("ok\n");
}

static struct ibv_context *open_named(const char *name, int *err)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;

	*err = list ? ENOENT : errno;
	for (int i = 0; list && list[i]; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0) {
			c = ibv_open_device(list[i]);
			*err = errno;
		}
	if (list)
		ibv_free_device_list(list);
	return c;
}

static void do_open(struct endpoint *e, const char *name, size_t size, int access, int depth)
{
	int err;

	if (!(e->c = open_named(name, &err))) {
		answer("open", err);
		return;
	}
	e->size = size;
	e->buf = calloc(1, size);
	e->pd = ibv_alloc_pd(e->c);
	if (!(e->mr = ibv_reg_mr(e->pd, e->buf, size, (unsigned)access))) {
		answer("reg_mr", errno);
		return;
	}
	if (!(e->cq = ibv_create_cq(e->c, depth, NULL, NULL, 0))) {
		answer("create_cq", errno);
		return;
	}
	struct ibv_qp_init_attr init = {.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 0};
	init.cap.max_send_wr = (unsigned)depth;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	init.cap.max_recv_wr = 2;
	init.cap.max_inline_data = 64;
	if (!(e->qp = ibv_create_qp(e->pd, &init))) {
		answer("create_qp", errno);
		return;
	}
	printf("%u %llu %u\n", e->qp->qp_num, (unsigned long long)(uintptr_t)e->buf, e->mr->rkey);
}

static void do_close(struct endpoint *e)
{
	int err = 0;

	if (e->qp)
		err |= ibv_destroy_qp(e->qp);
	if (e->cq)
		err |= ibv_destroy_cq(e->cq);
	if (e->mr)
		err |= ibv_dereg_mr(e->mr);
	if (e->pd)
		err |= ibv_dealloc_pd(e->pd);
	if (e->c)
		err |= ibv_close_device(e->c);
	free(e->buf);
	memset(e, 0, sizeof *e);
	answer("close", err);
}

static void do_init(struct endpoint *e, int port, int access, int without)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)port, .qp_access_flags = (unsigned)access};
	answer("init", ibv_modify_qp(e->qp, &a, (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) & ~without));
}

static void do_rtr(struct endpoint *e, unsigned qpn, unsigned psn, int index, const char *dgid, int mtu, int global, int without)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = (enum ibv_mtu)mtu, .dest_qp_num = qpn, .rq_psn = psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12};
	a.ah_attr.port_num = 1;
	a.ah_attr.is_global = (uint8_t)global;
	a.ah_attr.grh.sgid_index = (uint8_t)index;
	a.ah_attr.grh.hop_limit = 64;
	inet_pton(AF_INET6, dgid, a.ah_attr.grh.dgid.raw);
	answer("rtr", ibv_modify_qp(e->qp, &a, (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) & ~without));
}

static void do_rts(struct endpoint *e, unsigned psn, int without)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = 14, .retry_cnt = 7, .rnr_retry = 6, .max_rd_atomic = 1};
	answer("rts", ibv_modify_qp(e->qp, &a, (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC) & ~without));
}

static void do_post(struct endpoint *e, enum ibv_wr_opcode opcode, unsigned long long to, unsigned rkey, unsigned size, int count, unsigned flags, unsigned key_off, unsigned imm)
{
	struct ibv_sge sge = {.addr = (uintptr_t)e->buf, .length = size, .lkey = e->mr->lkey + key_off};
	int err = 0;

	for (int i = 0; i < count && !err; i++) {
		struct ibv_send_wr *bad, wr = {.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags};
		if (imm) {
			wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			wr.imm_data = htonl(imm);
		}
		wr.wr.rdma.remote_addr = to;
		wr.wr.rdma.rkey = rkey;
		err = ibv_post_send(e->qp, &wr, &bad);
	}
	answer("post", err);
}

static void do_recv(struct endpoint *e, int count)
{
	int err = 0;

	for (int i = 0; i < count && !err; i++) {
		struct ibv_recv_wr *bad, wr = {.wr_id = (uint64_t)i};
		err = ibv_post_recv(e->qp, &wr, &bad);
	}
	answer("recv", err);
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* do_poll waits for completions and prints wr_id:status/vendor of each, an immediate value, and the total time. */
static void do_poll(struct endpoint *e, int want, double limit)
{
	double start = seconds();
	struct ibv_wc wc;

	for (int got = 0, n; got < want && seconds() - start < limit; got += n) {
		n = ibv_poll_cq(e->cq, 1, &wc);
		if (n > 0 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
			printf("%llu:imm%u ", (unsigned long long)wc.wr_id, ntohl(wc.imm_data));
		else if (n > 0)
			printf("%llu:%d/%u ", (unsigned long long)wc.wr_id, wc.status, wc.vendor_err);
	}
	printf("in %.6f\n", seconds() - start);
}

static void do_query(struct endpoint *e)
{
	struct ibv_port_attr p;
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	struct ibv_device_attr d;
	union ibv_gid g;
	char text[INET6_ADDRSTRLEN];

	if (ibv_query_port(e->c, 1, &p) || ibv_query_qp(e->qp, &a, IBV_QP_STATE, &init) || ibv_query_device(e->c, &d) || ibv_query_gid(e->c, 1, 3, &g)) {
		answer("query", errno);
		return;
	}
	printf("port %d mtu %d of %d link %d qp %d fw %s gid %s\n", p.state, p.active_mtu, p.max_mtu, p.link_layer, a.qp_state, d.fw_ver,
		inet_ntop(AF_INET6, g.raw, text, sizeof text));
}

static void do_event(struct endpoint *e)
{
	struct pollfd fd = {.fd = e->c->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	if (poll(&fd, 1, 5000) != 1 || ibv_get_async_event(e->c, &event)) {
		answer("event", errno ? errno : ETIMEDOUT);
		return;
	}
	printf("event %d port %d\n", event.event_type, event.element.port_num);
	ibv_ack_async_event(&event);
}

static void do_ah(struct endpoint *e, int index, const char *dgid)
{
	struct ibv_ah_attr a = {.port_num = 1, .is_global = 1};
	a.grh.sgid_index = (uint8_t)index;
	inet_pton(AF_INET6, dgid, a.grh.dgid.raw);
	struct ibv_ah *ah = ibv_create_ah(e->pd, &a);
	answer("create_ah", ah ? ibv_destroy_ah(ah) : errno);
}

static void check(struct endpoint *e, int want)
{
	size_t wrong = 0;
	for (size_t i = 0; i < e->size; i++)
		wrong += e->buf[i] != want;
	printf("%zu wrong\n", wrong);
}

int main(void)
{
	char line[512], cmd[16], name[64];
	unsigned long long n[8];

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof line, stdin)) {
		char letter;
		name[0] = 0;
		memset(n, 0, sizeof n);
		sscanf(line, "%15s %c %63s %llu %llu %llu %llu %llu %llu %llu", cmd, &letter, name, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6);
		struct endpoint *e = &endpoints[letter & 15];
		if (!strcmp(cmd, "open"))
			do_open(e, name, n[0], (int)n[1], (int)n[2]);
		else if (!strcmp(cmd, "close"))
			do_close(e);
		else if (!strcmp(cmd, "init"))
			do_init(e, (int)n[0], (int)n[1], (int)n[2]);
		else if (!strcmp(cmd, "rtr"))
			do_rtr(e, (unsigned)n[0], (unsigned)n[1], (int)n[2], name, (int)n[3], (int)n[4], (int)n[5]);
		else if (!strcmp(cmd, "rts"))
			do_rts(e, (unsigned)n[0], (int)n[1]);
		else if (!strcmp(cmd, "write") || !strcmp(cmd, "read"))
			do_post(e, *cmd == 'r' ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, n[0], (unsigned)n[1], (unsigned)n[2], (int)n[3], (unsigned)n[4], (unsigned)n[5], (unsigned)n[6]);
		else if (!strcmp(cmd, "recv"))
			do_recv(e, (int)n[0]);
		else if (!strcmp(cmd, "poll"))
			do_poll(e, (int)n[0], (double)n[1] / 1000);
		else if (!strcmp(cmd, "err"))
			answer("err", ibv_modify_qp(e->qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE));
		else if (!strcmp(cmd, "query"))
			do_query(e);
		else if (!strcmp(cmd, "event"))
			do_event(e);
		else if (!strcmp(cmd, "ah"))
			do_ah(e, (int)n[0], name);
		else if (!strcmp(cmd, "fill"))
			memset(e->buf, (int)n[0], e->size), answer("fill", 0);
		else if (!strcmp(cmd, "check"))
			check(e, (int)n[0]);
		else if (!strcmp(cmd, "dealloc"))
			answer("dealloc", ibv_dealloc_pd(e->pd));
		else
			printf("what?\n");
	}
	return 0;
}
