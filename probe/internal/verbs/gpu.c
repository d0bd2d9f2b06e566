#define _GNU_SOURCE
#include "gpu.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

struct rs_gpu_error rs_gpu_load(const char *op, const char *path, const char *const *names, uint32_t n,
				uint32_t optional, void **symbol, char *text, uint32_t size)
{
	const struct rs_gpu_error ok = {0}, failed = {.op = op};
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		snprintf(text, size, "%s", dlerror());
		return failed;
	}
	for (uint32_t i = 0; i < n; i++) {
		symbol[i] = dlsym(handle, names[i]);
		if (!symbol[i] && i < optional) {
			snprintf(text, size, "%s has no %s", path, names[i]);
			dlclose(handle);
			return failed;
		}
	}
	return ok;
}
