/* Memory of an AMD GPU, or host memory that it may access: see rocm.c. rs_rocm_free frees it. */
#ifndef RS_ROCM_H
#define RS_ROCM_H

#include <stdint.h>

#include "gpu.h"

enum { RS_ROCM_SYMBOLS = 16 };

struct rs_rocm {
	void *symbol[RS_ROCM_SYMBOLS];
	uint64_t agent;   /* handle of the GPU */
	uint64_t pool;    /* handle of the pool of its memory */
	int32_t running;  /* hsa_init succeeded */
	int32_t pools;    /* pools that can be used: 0 or 1 */
	int32_t exports;  /* the library exports dma-bufs */
	void *gpu;        /* memory on the GPU, or NULL */
	uint64_t size;    /* bytes of it */
	void *locked;     /* memory on the host that the GPU may access, or NULL */
	int fd;           /* dma-buf; -1 if there is none */
	uint64_t offset;  /* offset of the memory in the dma-buf */
};

struct rs_rocm *rs_rocm_new(void);
/* Loads libhsa-runtime64, starts it, and finds the GPU at a PCI address and its pool. It uses no GPU memory. */
struct rs_gpu_error rs_rocm_find(struct rs_rocm *m, const char *path, const char *address, char *text, uint32_t size);
/* Allocates zeroed memory on the GPU, and exports it as a dma-buf. */
struct rs_gpu_error rs_rocm_alloc(struct rs_rocm *m, uint64_t size);
/* Lets the GPU access memory on the host, which the caller frees after rs_rocm_free. */
struct rs_gpu_error rs_rocm_lock(struct rs_rocm *m, void *host, uint64_t size);
struct rs_gpu_error rs_rocm_write(struct rs_rocm *m, uint64_t at, const void *data, uint64_t n);
struct rs_gpu_error rs_rocm_read(struct rs_rocm *m, uint64_t at, void *data, uint64_t n);
/* Frees everything, including m, even after errors; returns the first error. */
struct rs_gpu_error rs_rocm_free(struct rs_rocm *m);

#endif
