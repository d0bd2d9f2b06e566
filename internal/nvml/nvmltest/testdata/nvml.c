/*
 * A libnvidia-ml.so.1 that reads its answers from files, so that the tests use
 * the real binding, the real dlopen and the real structure layouts.
 *
 * $FAKENVML_DIR has one file per function: <function>.<gpu>, or <function> for
 * all GPUs, or <function>.<gpu>.<instance> for a MIG device. It contains the
 * nvmlReturn_t and then the function's results, numbers or a text:
 *
 *     nvmlDeviceGetMemoryInfo.0     0 150754820096 100 200
 *     nvmlDeviceGetName             0 NVIDIA H200
 *     nvmlDeviceGetPowerUsage.1     15
 *     nvmlDeviceGetUUID.1           hang
 *
 * A function without a file returns NVML_ERROR_NOT_SUPPORTED. One that hangs
 * returns after its file has changed. Compiled with -DNO_<function>, the library
 * lacks that symbol. It always lacks nvmlErrorString.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
enum { MAX_GPU = 16, MAX_MIG = 8, MAX_TEXT = 1024 };
typedef unsigned long long u64;
typedef struct { int gpu, mig; } device; /* mig is -1 for the GPU itself */

static device devices[MAX_GPU][MAX_MIG + 1];
static int inits;

/* Answers are cached if FAKENVML_STATIC is set, so that a benchmark does not measure file reads. */
static struct kept { const char *fn; const device *d; char text[MAX_TEXT]; } kept[1024];
static int nkept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int load(const char *name, char *text)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", getenv("FAKENVML_DIR"), name);
	FILE *f = fopen(path, "r");
	if (!f)
		return 0;
	text[fread(text, 1, MAX_TEXT - 1, f)] = 0;
	text[strcspn(text, "\n")] = 0;
	fclose(f);
	return 1;
}

static void read_answer(const char *fn, const device *d, char *text)
{
	char name[256];
	if (d) {
		if (d->mig < 0)
			snprintf(name, sizeof name, "%s.%d", fn, d->gpu);
		else
			snprintf(name, sizeof name, "%s.%d.%d", fn, d->gpu, d->mig);
		if (load(name, text))
			return;
	}
	if (!load(fn, text))
		strcpy(text, "3");
}

static void find_answer(const char *fn, const device *d, char *text)
{
	if (!getenv("FAKENVML_STATIC")) {
		read_answer(fn, d, text);
		return;
	}
	pthread_mutex_lock(&lock);
	int i = 0;
	while (i < nkept && (kept[i].fn != fn || kept[i].d != d))
		i++;
	if (i == nkept) {
		read_answer(fn, d, kept[i].text);
		kept[i].fn = fn, kept[i].d = d, nkept++;
	}
	strcpy(text, kept[i].text);
	pthread_mutex_unlock(&lock);
}

/* answer waits while the file contains hang, and returns the return value; text gets the rest. */
static int answer(const char *fn, const device *d, char *text)
{
	if (!inits)
		return UNINITIALIZED;
	while (find_answer(fn, d, text), strcmp(text, "hang") == 0)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	char *rest;
	int code = strtol(text, &rest, 10);
	memmove(text, rest + (*rest == ' '), strlen(rest) + 1);
	return code;
}

static int numbers(const char *fn, const device *d, u64 *v, int want)
{
	char text[MAX_TEXT], *p = text;
	int code = answer(fn, d, text);
	for (int i = 0; code == SUCCESS && i < want; i++)
		v[i] = strtoull(p, &p, 10);
	return code;
}

static int string(const char *fn, const device *d, char *out, unsigned len)
{
	char text[MAX_TEXT];
	int code = answer(fn, d, text);
	if (code == SUCCESS)
		snprintf(out, len, "%s", text);
	return code;
}

static int one(const char *fn, const device *d, unsigned *out, int index)
{
	u64 v[8] = { 0 };
	int code = numbers(fn, d, v, index + 1);
	if (code == SUCCESS)
		*out = v[index];
	return code;
}

static void log_call(const char *fn)
{
	char log[4096];
	snprintf(log, sizeof log, "%s/log", getenv("FAKENVML_DIR"));
	FILE *f = fopen(log, "a");
	fprintf(f, "%s\n", fn);
	fclose(f);
}

/* The driver's device file, open while the library is initialized. */
static int device_fd = -1;

static int init(const char *fn)
{
	log_call(fn);
	inits++;
	char text[MAX_TEXT];
	int code = answer(fn, NULL, text);
	if (code != SUCCESS) {
		inits--;
		return code;
	}
	char path[4096];
	snprintf(path, sizeof path, "%s/nvidiactl", getenv("FAKENVML_DIR"));
	if (device_fd < 0)
		device_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return SUCCESS;
}

#ifndef NO_nvmlInit_v2
int nvmlInit_v2(void) { return init(__func__); }
#endif
#ifndef NO_nvmlInit
int nvmlInit(void) { return init(__func__); }
#endif
#ifndef NO_nvmlShutdown
int nvmlShutdown(void)
{
	if (!inits)
		return UNINITIALIZED;
	log_call(__func__);
	if (--inits == 0) {
		close(device_fd);
		device_fd = -1;
	}
	return SUCCESS;
}
#endif

#ifndef NO_nvmlSystemGetDriverVersion
int nvmlSystemGetDriverVersion(char *s, unsigned len) { return string(__func__, NULL, s, len); }
#endif
#ifndef NO_nvmlDeviceGetCount_v2
int nvmlDeviceGetCount_v2(unsigned *n) { return one(__func__, NULL, n, 0); }
#endif
#ifndef NO_nvmlDeviceGetCount
int nvmlDeviceGetCount(unsigned *n) { return one(__func__, NULL, n, 0); }
#endif

static int handle(const char *fn, unsigned i, device **d)
{
	char text[MAX_TEXT];
	*d = &devices[i][0];
	**d = (device){ .gpu = i, .mig = -1 };
	return answer(fn, *d, text);
}
#ifndef NO_nvmlDeviceGetHandleByIndex_v2
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device **d) { return handle(__func__, i, d); }
#endif
#ifndef NO_nvmlDeviceGetHandleByIndex
int nvmlDeviceGetHandleByIndex(unsigned i, device **d) { return handle(__func__, i, d); }
#endif

#ifndef NO_nvmlDeviceGetUUID
int nvmlDeviceGetUUID(device *d, char *s, unsigned len) { return string(__func__, d, s, len); }
#endif
#ifndef NO_nvmlDeviceGetName
int nvmlDeviceGetName(device *d, char *s, unsigned len) { return string(__func__, d, s, len); }
#endif

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
#ifndef NO_nvmlDeviceGetPciInfo_v3
int nvmlDeviceGetPciInfo_v3(device *d, pci_info *p)
{
	memset(p, 0, sizeof *p);
	int code = string(__func__, d, p->bus_id, sizeof p->bus_id);
	strncpy(p->legacy, p->bus_id + 4, sizeof p->legacy - 1);
	return code;
}
#endif
#ifndef NO_nvmlDeviceGetPciInfo_v2
int nvmlDeviceGetPciInfo_v2(device *d, pci_info *p)
{
	memset(p, 0, sizeof *p);
	return string(__func__, d, p->legacy, sizeof p->legacy);
}
#endif
#ifndef NO_nvmlDeviceGetPciInfo
int nvmlDeviceGetPciInfo(device *d, pci_info *p)
{
	memset(p, 0, sizeof *p);
	return string(__func__, d, p->legacy, sizeof p->legacy);
}
#endif

/* total, free, used, as in nvmlMemory_t; version 2: total, reserved, free, used */
typedef struct { unsigned version; u64 v[4]; } memory_v2;
#ifndef NO_nvmlDeviceGetMemoryInfo_v2
int nvmlDeviceGetMemoryInfo_v2(device *d, memory_v2 *m)
{
	if (m->version != (sizeof *m | 2u << 24))
		return 25;
	return numbers(__func__, d, m->v, 4);
}
#endif
#ifndef NO_nvmlDeviceGetMemoryInfo
int nvmlDeviceGetMemoryInfo(device *d, u64 *v) { return numbers(__func__, d, v, 3); }
#endif
/* total, free, used */
#ifndef NO_nvmlDeviceGetBAR1MemoryInfo
int nvmlDeviceGetBAR1MemoryInfo(device *d, u64 *v) { return numbers(__func__, d, v, 3); }
#endif

#ifndef NO_nvmlDeviceGetUtilizationRates
int nvmlDeviceGetUtilizationRates(device *d, unsigned *out)
{
	u64 v[2];
	int code = numbers(__func__, d, v, 2);
	if (code == SUCCESS)
		out[0] = v[0], out[1] = v[1];
	return code;
}
#endif
/* corrected: volatile, aggregate; uncorrected: volatile, aggregate */
#ifndef NO_nvmlDeviceGetTotalEccErrors
int nvmlDeviceGetTotalEccErrors(device *d, int type, int counter, u64 *out)
{
	u64 v[4];
	int code = numbers(__func__, d, v, 4);
	if (code == SUCCESS)
		*out = v[type * 2 + counter];
	return code;
}
#endif
#ifndef NO_nvmlDeviceGetRemappedRows
int nvmlDeviceGetRemappedRows(device *d, unsigned *cor, unsigned *unc, unsigned *pending, unsigned *failure)
{
	u64 v[4];
	int code = numbers(__func__, d, v, 4);
	if (code == SUCCESS)
		*cor = v[0], *unc = v[1], *pending = v[2], *failure = v[3];
	return code;
}
#endif
#ifndef NO_nvmlDeviceGetPcieReplayCounter
int nvmlDeviceGetPcieReplayCounter(device *d, unsigned *n) { return one(__func__, d, n, 0); }
#endif
#ifndef NO_nvmlDeviceGetTemperature
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *t) { return one(__func__, d, t, sensor); }
#endif
typedef struct { unsigned version, sensor; int temperature; } temperature;
#ifndef NO_nvmlDeviceGetTemperatureV
int nvmlDeviceGetTemperatureV(device *d, temperature *t)
{
	if (t->version != (sizeof *t | 1u << 24))
		return 25;
	return one(__func__, d, (unsigned *)&t->temperature, t->sensor);
}
#endif
#ifndef NO_nvmlDeviceGetPowerUsage
int nvmlDeviceGetPowerUsage(device *d, unsigned *mw) { return one(__func__, d, mw, 0); }
#endif
/* graphics, sm, mem */
#ifndef NO_nvmlDeviceGetClockInfo
int nvmlDeviceGetClockInfo(device *d, int type, unsigned *mhz) { return one(__func__, d, mhz, type); }
#endif
#ifndef NO_nvmlDeviceGetCurrentClocksEventReasons
int nvmlDeviceGetCurrentClocksEventReasons(device *d, u64 *v) { return numbers(__func__, d, v, 1); }
#endif
#ifndef NO_nvmlDeviceGetSupportedClocksEventReasons
int nvmlDeviceGetSupportedClocksEventReasons(device *d, u64 *v) { return numbers(__func__, d, v, 1); }
#endif
#ifndef NO_nvmlDeviceGetCurrentClocksThrottleReasons
int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, u64 *v) { return numbers(__func__, d, v, 1); }
#endif
#ifndef NO_nvmlDeviceGetSupportedClocksThrottleReasons
int nvmlDeviceGetSupportedClocksThrottleReasons(device *d, u64 *v) { return numbers(__func__, d, v, 1); }
#endif

/* The file: pid, memory, GPU instance, compute instance; pid, memory, … */
typedef struct { unsigned pid; u64 memory; unsigned gi, ci; } process;
typedef struct { unsigned pid; u64 memory; } process_v1;
static int processes(const char *fn, const device *d, unsigned *n, process *out, process_v1 *out_v1)
{
	char text[MAX_TEXT], *p = text;
	process all[64];
	unsigned count = 0, room = *n;
	int code = answer(fn, d, text);
	if (code != SUCCESS)
		return code;
	while (*p && count < 64) {
		process *e = &all[count++];
		e->pid = strtoull(p, &p, 10), e->memory = strtoull(p, &p, 10);
		e->gi = strtoull(p, &p, 10), e->ci = strtoull(p, &p, 10);
	}
	*n = count;
	if (count > room)
		return INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < count; i++)
		if (out)
			out[i] = all[i];
		else
			out_v1[i] = (process_v1){ all[i].pid, all[i].memory };
	return SUCCESS;
}
#ifndef NO_nvmlDeviceGetComputeRunningProcesses_v3
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *n, process *p) { return processes(__func__, d, n, p, NULL); }
#endif
#ifndef NO_nvmlDeviceGetComputeRunningProcesses_v2
int nvmlDeviceGetComputeRunningProcesses_v2(device *d, unsigned *n, process *p) { return processes(__func__, d, n, p, NULL); }
#endif
#ifndef NO_nvmlDeviceGetComputeRunningProcesses
int nvmlDeviceGetComputeRunningProcesses(device *d, unsigned *n, process_v1 *p) { return processes(__func__, d, n, NULL, p); }
#endif
#ifndef NO_nvmlDeviceGetGraphicsRunningProcesses_v3
int nvmlDeviceGetGraphicsRunningProcesses_v3(device *d, unsigned *n, process *p) { return processes(__func__, d, n, p, NULL); }
#endif
#ifndef NO_nvmlDeviceGetGraphicsRunningProcesses_v2
int nvmlDeviceGetGraphicsRunningProcesses_v2(device *d, unsigned *n, process *p) { return processes(__func__, d, n, p, NULL); }
#endif
#ifndef NO_nvmlDeviceGetGraphicsRunningProcesses
int nvmlDeviceGetGraphicsRunningProcesses(device *d, unsigned *n, process_v1 *p) { return processes(__func__, d, n, NULL, p); }
#endif

/*
 * A set has the events of one GPU: the n-th call of nvmlEventSetWait_v2 for a set returns the n-th number of its
 * answer, and a timeout (10) after the last.
 */
typedef struct { device *d; int taken; } event_set;
typedef struct { event_set *handle; } set_handle;
typedef struct { device *d; u64 type, data; unsigned gi, ci; } event;
#ifndef NO_nvmlEventSetCreate
int nvmlEventSetCreate(set_handle *s)
{
	log_call(__func__);
	s->handle = calloc(1, sizeof *s->handle);
	return inits ? SUCCESS : UNINITIALIZED;
}
int nvmlEventSetFree(set_handle s)
{
	log_call(__func__);
	free(s.handle);
	return inits ? SUCCESS : UNINITIALIZED;
}
#endif
#ifndef NO_nvmlDeviceRegisterEvents
int nvmlDeviceRegisterEvents(device *d, u64 types, set_handle s)
{
	char text[MAX_TEXT];
	s.handle->d = d;
	return types == 8 ? answer(__func__, d, text) : 2;
}
#endif
static int wait_event(const char *fn, set_handle s, event *e, unsigned ms)
{
	char text[MAX_TEXT], *p = text;
	int code = answer(fn, s.handle->d, text);
	if (code != SUCCESS)
		return code == NOT_SUPPORTED ? 10 : code;
	for (int i = 0; i <= s.handle->taken; i++) {
		while (*p == ' ')
			p++;
		if (!*p)
			return ms ? 999 : 10;
		e->data = strtoull(p, &p, 10);
	}
	s.handle->taken++;
	e->d = s.handle->d, e->type = 8;
	return SUCCESS;
}
#ifndef NO_nvmlEventSetWait_v2
int nvmlEventSetWait_v2(set_handle s, event *e, unsigned ms) { return wait_event(__func__, s, e, ms); }
#endif
#ifndef NO_nvmlEventSetWait
int nvmlEventSetWait(set_handle s, event *e, unsigned ms) { return wait_event(__func__, s, e, ms); }
#endif

#ifndef NO_nvmlDeviceGetMigMode
int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending)
{
	u64 v[2];
	int code = numbers(__func__, d, v, 2);
	if (code == SUCCESS)
		*current = v[0], *pending = v[1];
	return code;
}
#endif
#ifndef NO_nvmlDeviceGetMaxMigDeviceCount
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *n) { return one(__func__, d, n, 0); }
#endif
#ifndef NO_nvmlDeviceGetMigDeviceHandleByIndex
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned i, device **mig)
{
	char text[MAX_TEXT];
	*mig = &devices[d->gpu][i + 1];
	**mig = (device){ .gpu = d->gpu, .mig = i };
	return answer(__func__, *mig, text);
}
#endif
#ifndef NO_nvmlDeviceGetGpuInstanceId
int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) { return one(__func__, d, id, 0); }
#endif
#ifndef NO_nvmlDeviceGetComputeInstanceId
int nvmlDeviceGetComputeInstanceId(device *d, unsigned *id) { return one(__func__, d, id, 0); }
#endif
