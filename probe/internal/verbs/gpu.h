/* Declarations that the libraries of GPUs share: gpu.c. */
#ifndef RS_GPU_H
#define RS_GPU_H

#include <stdint.h>

/* op is NULL without a failure. code is the library's status with its name; 0 refers to a text beside it. */
struct rs_gpu_error {
	const char *op;
	const char *name;
	int32_t code;
};

/*
 * Loads a library and finds its symbols; those from optional on may be missing. The library is never unloaded, because
 * it has threads. A failure is of this op.
 */
struct rs_gpu_error rs_gpu_load(const char *op, const char *path, const char *const *names, uint32_t n,
				uint32_t optional, void **symbol, char *text, uint32_t size);

/* Runs calls until one fails. */
#define STEP(e, ...)                                                                                                   \
	do {                                                                                                           \
		if (!(e).op)                                                                                           \
			(e) = (__VA_ARGS__);                                                                           \
	} while (0)

/* Keeps the first error, but runs all calls. */
#define ALWAYS(e, ...)                                                                                                 \
	do {                                                                                                           \
		struct rs_gpu_error next = (__VA_ARGS__);                                                              \
		(e) = (e).op ? (e) : next;                                                                             \
	} while (0)

#endif
