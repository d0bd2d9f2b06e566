/* Devices: list, open, attributes. */
#include "fabric.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>

struct fctx *ctx_of(struct ibv_context *c)
{
	return (struct fctx *)((char *)c - offsetof(struct fctx, v) - offsetof(struct verbs_context, context));
}

static void unref(struct fdev *dev)
{
	pthread_mutex_lock(&process_lock);
	bool last = --dev->refs == 0;
	pthread_mutex_unlock(&process_lock);
	if (last)
		free(dev);
}

struct ibv_device **ibv_get_device_list(int *num)
{
	struct fabric *f = fabric_open();
	const char *node = getenv("FAKEVERBS_NODE");
	int n = 0;

	if (num)
		*num = 0;
	if (!f || !node) {
		errno = ENOSYS; /* as without ib_uverbs */
		return NULL;
	}
	struct ibv_device **list = calloc(MAX_DEVICES + 1, sizeof *list);
	for (int i = 0; list && i < MAX_DEVICES; i++) {
		struct device *d = &f->devices[i];
		if (!d->used || strcmp(d->node, node) != 0)
			continue;
		if (failed(d->k.list_errno)) {
			int err = errno;
			ibv_free_device_list(list);
			errno = err;
			return NULL;
		}
		struct fdev *dev = d->k.hidden ? NULL : calloc(1, sizeof *dev);
		if (!dev)
			continue;
		dev->ibv.node_type = IBV_NODE_CA;
		dev->ibv.transport_type = d->k.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
		snprintf(dev->ibv.name, sizeof dev->ibv.name, "%s", d->name);
		snprintf(dev->ibv.dev_name, sizeof dev->ibv.dev_name, "uverbs%d", i);
		dev->f = f;
		dev->d = d;
		dev->refs = 1;
		list[n++] = &dev->ibv;
	}
	if (num)
		*num = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	for (int i = 0; list[i]; i++)
		unref((struct fdev *)list[i]);
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

__be64 ibv_get_device_guid(struct ibv_device *device) { return htobe64(((struct fdev *)device)->d->guid); }

int ibv_get_device_index(struct ibv_device *device)
{
	struct fdev *dev = (struct fdev *)device;
	return (int)(dev->d - dev->f->devices);
}

int ibv_fork_init(void) { return 0; }

static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	struct device *d = ctx_of(c)->dev->d;
	struct ibv_port_attr a = {0};

	if (port != d->port)
		return EINVAL;
	a.state = d->k.down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	a.phys_state = d->k.down ? 3 : 5;
	a.max_mtu = (enum ibv_mtu)d->max_mtu;
	a.active_mtu = (enum ibv_mtu)(d->k.odd_mtu ? d->k.odd_mtu : d->active_mtu);
	a.gid_tbl_len = MAX_GIDS;
	a.pkey_tbl_len = MAX_PKEYS;
	a.lid = lid_of(ctx_of(c)->dev->f, d);
	a.flags = d->k.grh_required ? IBV_QPF_GRH_REQUIRED : 0;
	a.max_msg_sz = 1u << 30;
	a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
	a.link_layer = (uint8_t)d->link_layer;
	a.active_width = 2; /* 4X */
	a.active_speed = 128;
	memset(attr, 0, len);
	memcpy(attr, &a, len < sizeof a ? len : sizeof a);
	return 0;
}

/* The exported symbol uses the struct without its last field. */
int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(c, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* open_events opens the FIFO into which the test writes a context's events. */
static int open_events(struct fabric *f, struct object *o)
{
	char path[600], stale[64];

	snprintf(path, sizeof path, "%s/events.%td", f->dir, o - f->objects);
	mkfifo(path, 0600); /* another context may have created it */
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return fd;
	while (read(fd, stale, sizeof stale) > 0)
		;
	fcntl(fd, F_SETFL, O_RDWR); /* reads block, as with the kernel's */
	return fd;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fdev *dev = (struct fdev *)device;

	while (dev->d->k.hang_open)
		usleep(1000);
	if (failed(dev->d->k.open_errno))
		return NULL;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* processes of other nodes write to this one's memory */
	struct fctx *x = calloc(1, sizeof *x);
	if (!x || !(x->o = object_new(dev->f, CONTEXT, dev->d))) {
		free(x);
		return NULL;
	}
	x->dev = dev;
	x->v.sz = sizeof x->v;
	x->v.query_port = query_port;
	struct ibv_context *c = &x->v.context;
	c->device = device;
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->num_comp_vectors = 1;
	c->cmd_fd = -1;
	c->async_fd = open_events(dev->f, x->o);
	pthread_mutex_init(&c->mutex, NULL);
	c->ops.post_send = post_send;
	c->ops.post_recv = post_recv;
	c->ops.poll_cq = poll_cq;
	if (dev->d->k.stamps)
		add_stamps(x);
	pthread_mutex_lock(&process_lock);
	dev->refs++;
	pthread_mutex_unlock(&process_lock);
	return c;
}

int ibv_close_device(struct ibv_context *c)
{
	struct fctx *x = ctx_of(c);

	for (int i = 0; i < MAX_DEVICES; i++)
		for (int j = 0; j < 4; j++)
			if (x->counter_fds[i][j] > 0)
				close(x->counter_fds[i][j]);
	if (c->async_fd >= 0)
		close(c->async_fd);
	object_free(x->o);
	unref(x->dev);
	free(x);
	return 0;
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	uint32_t record[2]; /* type, port */

	if (read(c->async_fd, record, sizeof record) != sizeof record)
		return -1;
	memset(event, 0, sizeof *event);
	event->event_type = (enum ibv_event_type)record[0];
	event->element.port_num = (int)record[1];
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	struct device *d = ctx_of(c)->dev->d;

	memset(attr, 0, sizeof *attr);
	snprintf(attr->fw_ver, sizeof attr->fw_ver, "28.39.1002");
	attr->node_guid = attr->sys_image_guid = htobe64(d->guid);
	attr->max_mr_size = UINT64_MAX;
	attr->page_size_cap = 0xfffff000;
	attr->vendor_id = 0x02c9;
	attr->vendor_part_id = 4129;
	attr->max_qp = attr->max_mr = attr->max_pd = attr->max_cq = MAX_OBJECTS;
	attr->max_qp_wr = 8192;
	attr->max_sge = 30;
	attr->max_cqe = 1 << 20;
	attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = d->k.reads ? (int)d->k.reads : MAX_READS;
	attr->max_pkeys = MAX_PKEYS;
	attr->local_ca_ack_delay = (uint8_t)d->k.ack_delay;
	attr->phys_port_cnt = (uint8_t)d->port;
	return 0;
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	struct device *d = ctx_of(c)->dev->d;

	if (port != d->port || index < 0 || index >= MAX_GIDS) {
		errno = EINVAL;
		return -1;
	}
	struct gid *g = &d->gids[index];
	uint64_t hi = htobe64(g->type ? g->hi : 0), lo = htobe64(g->type ? g->lo : 0);
	memcpy(gid->raw, &hi, 8);
	memcpy(gid->raw + 8, &lo, 8);
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags, size_t size)
{
	struct ibv_gid_entry g = {.gid_index = index, .port_num = port};
	struct device *d = ctx_of(c)->dev->d;

	if (flags || port != d->port || index >= MAX_GIDS || size < sizeof g)
		return EINVAL;
	uint64_t type = d->gids[index].type;
	if (!type)
		return ENODATA;
	ibv_query_gid(c, (uint8_t)port, (int)index, &g.gid);
	g.gid_type = type == 2 ? IBV_GID_TYPE_ROCE_V2 : d->link_layer == IBV_LINK_LAYER_ETHERNET ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_IB;
	memcpy(e, &g, sizeof g);
	return 0;
}

int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey)
{
	struct device *d = ctx_of(c)->dev->d;

	if (port != d->port || index < 0 || index >= MAX_PKEYS)
		return -1;
	*pkey = htobe16((uint16_t)d->pkeys[index]);
	return 0;
}
