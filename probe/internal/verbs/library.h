/*
 * libibverbs, opened at run time: a host without it runs the same program. verbs.h provides types and inline functions
 * (ibv_post_send and ibv_poll_cq call through function pointers of the context); CALL calls everything else.
 */
#ifndef RAILSCOPE_LIBRARY_H
#define RAILSCOPE_LIBRARY_H

#include "rail.h"

#include <errno.h>

/* These are macros around the functions in verbs.h. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

/* The last two functions may be missing. */
#define SYMBOLS(X)                                                                                                     \
	X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) X(ibv_open_device) X(ibv_close_device)   \
	X(ibv_query_port) X(ibv_query_gid) X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_dereg_mr)             \
	X(ibv_create_cq) X(ibv_destroy_cq) X(ibv_create_qp) X(ibv_modify_qp) X(ibv_destroy_qp) X(ibv_query_device)     \
	X(ibv_query_pkey) X(ibv_get_async_event) X(ibv_ack_async_event) X(ibv_reg_mr_iova2)                            \
	X(ibv_reg_dmabuf_mr)

#define INDEX(name) S_##name,
enum { SYMBOLS(INDEX) S_COUNT, S_OPTIONAL = S_ibv_reg_mr_iova2 };
_Static_assert(S_COUNT == (int)RS_SYMBOLS, "RS_SYMBOLS is not the number of symbols");

#define CALL(lib, name) ((__typeof__(&name))(lib)->symbol[S_##name])

/*
 * Functions of libibverbs return errno, -errno, -1 with errno set, or NULL with errno set. TRY and failed() convert
 * these to -errno.
 */
#define TRY(call) (errno = 0, negative(call))
static inline int32_t negative(int rc)
{
	if (rc == -1 && errno)
		return -errno;
	return rc > 0 ? -rc : rc;
}

static inline int32_t failed(void)
{
	return errno ? -errno : -EIO;
}

static inline struct rs_error fault(const char *op, int32_t err)
{
	return (struct rs_error){.op = err ? op : NULL, .err = err};
}

/* Lists the devices; the caller frees the list with ibv_free_device_list. */
struct rs_error rs_list(const struct rs_lib *lib, struct ibv_device ***devices, int *n);

/* Opens a device; the caller closes it with ibv_close_device. */
struct rs_error rs_open(const struct rs_lib *lib, const char *name, struct ibv_context **context);

#endif
