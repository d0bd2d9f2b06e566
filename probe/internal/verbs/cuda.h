/* Memory of an NVIDIA GPU, or pinned by its driver: see cuda.c. All of it lives in C and is freed by rs_cuda_free. */
#ifndef RS_CUDA_H
#define RS_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "shim.h"

enum { RS_CUDA_SYMBOLS = 29 };

/* op is NULL if nothing failed. code is a CUresult with its name; 0: see text of rs_cuda_find. */
struct rs_cuda_error {
	const char *op;
	const char *name;
	int32_t code;
};

struct rs_cuda;

/* The copies of a staged source from the GPU to the host: rs_stage_begin of rail.h. One thread at a time may use it. */
struct rs_stage {
	struct rs_cuda *memory;
	void *stream;
	void *event[RS_COPIES];
	uint32_t events;
};

struct rs_cuda {
	void *symbol[RS_CUDA_SYMBOLS];
	int32_t device;
	int32_t driver;                        /* 12040: CUDA 12.4 */
	int32_t integrated, gpu_direct, dmabuf; /* attributes; 0 also if the driver does not know them */
	int32_t exports;                       /* libcuda has cuMemGetHandleForAddressRange */
	void *context;
	uint64_t gpu, size;
	void *host;
	uint64_t host_size;
	int fd; /* -1: none */
	struct rs_stage stage;
};

struct rs_cuda *rs_cuda_new(void);
/* Loads libcuda and finds the GPU at a PCI address. It makes no context, so it takes no GPU memory. */
struct rs_cuda_error rs_cuda_find(struct rs_cuda *m, const char *path, const char *address, char *text, uint32_t size);
/* Allocates zeroed memory on the GPU, on the host, or both for copies; 0: none. exported: that of the GPU, as a
 * dma-buf. */
struct rs_cuda_error rs_cuda_alloc(struct rs_cuda *m, uint64_t gpu, uint64_t host, uint32_t exported);
struct rs_cuda_error rs_cuda_write(struct rs_cuda *m, uint64_t at, const void *data, uint64_t n);
struct rs_cuda_error rs_cuda_read(struct rs_cuda *m, uint64_t at, void *data, uint64_t n);
/* Frees everything, whatever fails, and m itself; returns the first error. */
struct rs_cuda_error rs_cuda_free(struct rs_cuda *m);

#endif
