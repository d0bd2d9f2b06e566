/*
 * The functions of libnvidia-ml that go-nvml calls for railscope. Each is forwarded to the library that is open.
 *
 * go-nvml leaves them undefined: the dynamic linker binds each at its first call, after which glibc never unloads the
 * library (NODELETE, "due to reference from main program"), and a missing function ends the process with exit code 127.
 * Defined here, the library can be closed and a newer one opened, and a missing function returns
 * NVML_ERROR_FUNCTION_NOT_FOUND. They are hidden, so that no library binds to them.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

enum { SUCCESS = 0, FUNCTION_NOT_FOUND = 13 };

typedef void *ptr; /* also for a structure of one pointer, which both ABIs pass like a pointer */
typedef unsigned int num; /* also for enums of nvml.h */

/* Parameters of nvml.h's functions, and the arguments to forward. */
#define V (void), ()
#define P (ptr a), (a)
#define PN (ptr a, num b), (a, b)
#define NP (num a, ptr b), (a, b)
#define PP (ptr a, ptr b), (a, b)
#define PPN (ptr a, ptr b, num c), (a, b, c)
#define PNP (ptr a, num b, ptr c), (a, b, c)
#define PPP (ptr a, ptr b, ptr c), (a, b, c)
#define PLP (ptr a, unsigned long long b, ptr c), (a, b, c)
#define PNNP (ptr a, num b, num c, ptr d), (a, b, c, d)
#define PPPPP (ptr a, ptr b, ptr c, ptr d, ptr e), (a, b, c, d, e)

#define FUNCTIONS(F) \
	F(nvmlInit_v2, V) F(nvmlInit, V) F(nvmlSystemGetDriverVersion, PN) \
	F(nvmlDeviceGetCount_v2, P) F(nvmlDeviceGetCount, P) \
	F(nvmlDeviceGetHandleByIndex_v2, NP) F(nvmlDeviceGetHandleByIndex, NP) \
	F(nvmlDeviceGetUUID, PPN) F(nvmlDeviceGetName, PPN) \
	F(nvmlDeviceGetPciInfo_v3, PP) F(nvmlDeviceGetPciInfo_v2, PP) F(nvmlDeviceGetPciInfo, PP) \
	F(nvmlDeviceGetMemoryInfo_v2, PP) F(nvmlDeviceGetMemoryInfo, PP) F(nvmlDeviceGetBAR1MemoryInfo, PP) \
	F(nvmlDeviceGetComputeRunningProcesses_v3, PPP) F(nvmlDeviceGetGraphicsRunningProcesses_v3, PPP) \
	F(nvmlDeviceGetComputeRunningProcesses_v2, PPP) F(nvmlDeviceGetGraphicsRunningProcesses_v2, PPP) \
	F(nvmlDeviceGetComputeRunningProcesses, PPP) F(nvmlDeviceGetGraphicsRunningProcesses, PPP) \
	F(nvmlDeviceGetMigMode, PPP) F(nvmlDeviceGetMaxMigDeviceCount, PP) F(nvmlDeviceGetMigDeviceHandleByIndex, PNP) \
	F(nvmlDeviceGetGpuInstanceId, PP) F(nvmlDeviceGetComputeInstanceId, PP) \
	F(nvmlDeviceGetTotalEccErrors, PNNP) F(nvmlDeviceGetRemappedRows, PPPPP) F(nvmlDeviceGetPcieReplayCounter, PP) \
	F(nvmlDeviceGetTemperature, PNP) F(nvmlDeviceGetTemperatureV, PP) \
	F(nvmlDeviceGetUtilizationRates, PP) F(nvmlDeviceGetPowerUsage, PP) F(nvmlDeviceGetClockInfo, PNP) \
	F(nvmlDeviceGetCurrentClocksEventReasons, PP) F(nvmlDeviceGetCurrentClocksThrottleReasons, PP) \
	F(nvmlDeviceGetSupportedClocksEventReasons, PP) F(nvmlDeviceGetSupportedClocksThrottleReasons, PP) \
	F(nvmlEventSetCreate, P) F(nvmlDeviceRegisterEvents, PLP) F(nvmlEventSetFree, P) \
	F(nvmlEventSetWait_v2, PPN) F(nvmlEventSetWait, PPN)

#define HIDDEN __attribute__((visibility("hidden")))
#define FORWARD(function, signature) FORWARD_(function, signature)
#define FORWARD_(function, parameters, arguments) \
	static int (*library_##function) parameters; \
	HIDDEN int function parameters \
	{ \
		return library_##function ? library_##function arguments : FUNCTION_NOT_FOUND; \
	}
FUNCTIONS(FORWARD)

/* go-nvml closes the library only after nvmlShutdown succeeded, so its failure is hidden. */
static int (*library_nvmlShutdown)(void);
HIDDEN int nvmlShutdown(void)
{
	if (library_nvmlShutdown)
		library_nvmlShutdown();
	return SUCCESS;
}

#define ENTRY(function, signature) { #function, (void **)&library_##function },
static const struct { const char *name; void **address; } functions[] = { FUNCTIONS(ENTRY) ENTRY(nvmlShutdown, V) };
enum { FUNCTION_COUNT = sizeof functions / sizeof functions[0] };

/* One library is open at a time. No function may be called while it is opened or closed. */
static void *library;

/* forward_open opens the library at path. It returns NULL, or an error text that the caller must free. */
HIDDEN char *forward_open(const char *path)
{
	if (library)
		return strdup("another NVML library is open in this process");
	library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!library)
		return strdup(dlerror());
	for (int i = 0; i < FUNCTION_COUNT; i++)
		*functions[i].address = dlsym(library, functions[i].name);
	return NULL;
}

/* forward_close closes the library. It returns 1 if the library at path is still loaded afterwards, else 0. */
HIDDEN int forward_close(const char *path)
{
	for (int i = 0; i < FUNCTION_COUNT; i++)
		*functions[i].address = NULL;
	if (library)
		dlclose(library);
	library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	int loaded = library != NULL;
	if (loaded)
		dlclose(library);
	library = NULL;
	return loaded;
}
