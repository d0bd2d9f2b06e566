/* Loads libibverbs, with the versions of its symbols. */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME(name) #name,
static const char *const symbols[] = {SYMBOLS(NAME)};

/* Versions are from libibverbs/libibverbs.map.in of rdma-core. IBVERBS_1.0 is an older ABI with the same names. */
static void *lookup(void *handle, int i)
{
	void *p = NULL;
#ifdef __GLIBC__
	p = dlvsym(handle, symbols[i],
		   i == S_ibv_reg_dmabuf_mr  ? "IBVERBS_1.12"
		   : i == S_ibv_reg_mr_iova2 ? "IBVERBS_1.8"
					     : "IBVERBS_1.1");
#endif
	return p ? p : dlsym(handle, symbols[i]);
}

struct rs_error rs_load(struct rs_lib *lib, const char *path, char *text, uint32_t size)
{
	int i = 0;
	*lib = (struct rs_lib){.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
	while (lib->handle && i < S_COUNT) {
		lib->symbol[i] = lookup(lib->handle, i);
		if (!lib->symbol[i] && i < S_OPTIONAL)
			break;
		i++;
	}
	if (i == S_COUNT)
		return (struct rs_error){0};
	const char *why = dlerror();
	snprintf(text, size, "%s", why ? why : "");
	return fault("load libibverbs", lib->handle ? -ENOSYS : -ENOENT);
}

void rs_file(const struct rs_lib *lib, char *path, uint32_t size)
{
	struct link_map *map = NULL;
	char *real = NULL;
	if (dlinfo(lib->handle, RTLD_DI_LINKMAP, &map) == 0 && map)
		real = realpath(map->l_name, NULL);
	snprintf(path, size, "%s", real ? real : "");
	free(real);
}

struct rs_error rs_list(const struct rs_lib *lib, struct ibv_device ***devices, int *n)
{
	*n = 0;
	errno = 0;
	*devices = CALL(lib, ibv_get_device_list)(n);
	return fault("list devices", *devices ? 0 : failed());
}

struct rs_error rs_check(const struct rs_lib *lib)
{
	struct ibv_device **devices;
	int n;
	struct rs_error e = rs_list(lib, &devices, &n);
	if (!e.op)
		CALL(lib, ibv_free_device_list)(devices);
	return e;
}

struct rs_error rs_open(const struct rs_lib *lib, const char *name, struct ibv_context **context)
{
	struct ibv_device **devices;
	int n;
	struct rs_error e = rs_list(lib, &devices, &n);
	if (e.op)
		return e;
	e = fault("find device", -ENODEV);
	for (int i = 0; i < n; i++) {
		if (strcmp(CALL(lib, ibv_get_device_name)(devices[i]), name))
			continue;
		if (devices[i]->transport_type == IBV_TRANSPORT_IWARP) {
			e = fault("open device", -EPROTONOSUPPORT);
			break;
		}
		errno = 0;
		*context = CALL(lib, ibv_open_device)(devices[i]);
		e = fault("open device", *context ? 0 : failed());
		break;
	}
	CALL(lib, ibv_free_device_list)(devices);
	return e;
}

struct rs_error rs_watch_open(struct rs_lib lib, const char *name, struct rs_watch *w)
{
	*w = (struct rs_watch){.lib = lib};
	struct rs_error e = rs_open(&w->lib, name, &w->context);
	if (e.op)
		return e;
	w->fd = w->context->async_fd;
	w->character = w->context->device->dev_name;
	return fault("watch device", TRY(fcntl(w->fd, F_SETFL, fcntl(w->fd, F_GETFL) | O_NONBLOCK)));
}

int32_t rs_watch_next(const struct rs_watch *w, int32_t *port)
{
	struct ibv_async_event event;
	if (CALL(&w->lib, ibv_get_async_event)(w->context, &event))
		return -1;
	*port = event.event_type >= IBV_EVENT_PORT_ACTIVE ? event.element.port_num : 0;
	CALL(&w->lib, ibv_ack_async_event)(&event);
	return (int32_t)event.event_type;
}

void rs_watch_close(struct rs_watch *w)
{
	if (w->context)
		CALL(&w->lib, ibv_close_device)(w->context);
	w->context = NULL;
}
