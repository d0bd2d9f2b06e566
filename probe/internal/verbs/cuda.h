/* Memory of an NVIDIA GPU, or host memory pinned by its driver: see cuda.c. C owns all of it; rs_cuda_free frees it. */
#ifndef RS_CUDA_H
#define RS_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "gpu.h"
#include "shim.h"

enum { RS_CUDA_SYMBOLS = 29 };

struct rs_cuda;

/*
 * Copies of a staged source from the GPU to the host: rs_stage_begin of rail.h. Only one thread at a time may use it.
 */
struct rs_stage {
	struct rs_cuda *memory;
	void *stream;
	void *event[RS_COPIES];
	uint32_t events;
};

struct rs_cuda {
	void *symbol[RS_CUDA_SYMBOLS];
	int32_t device;
	int32_t driver;                        /* 12040 is CUDA 12.4 */
	int32_t integrated, gpu_direct, dmabuf; /* attributes; also 0 if the driver does not know them */
	int32_t exports;                       /* libcuda has cuMemGetHandleForAddressRange */
	void *context;
	uint64_t gpu, size;
	void *host;
	uint64_t host_size;
	int fd; /* -1 if there is none */
	struct rs_stage stage;
};

struct rs_cuda *rs_cuda_new(void);
/* Loads libcuda and finds the GPU at a PCI address. It creates no context, so it uses no GPU memory. */
struct rs_gpu_error rs_cuda_find(struct rs_cuda *m, const char *path, const char *address, char *text, uint32_t size);
/*
 * Allocates zeroed memory on the GPU, on the host, or both for copies; size 0 allocates none. exported: GPU memory is a
 * dma-buf.
 */
struct rs_gpu_error rs_cuda_alloc(struct rs_cuda *m, uint64_t gpu, uint64_t host, uint32_t exported);
struct rs_gpu_error rs_cuda_write(struct rs_cuda *m, uint64_t at, const void *data, uint64_t n);
struct rs_gpu_error rs_cuda_read(struct rs_cuda *m, uint64_t at, void *data, uint64_t n);
/* Frees everything, including m, even after errors; returns the first error. */
struct rs_gpu_error rs_cuda_free(struct rs_cuda *m);

#endif
