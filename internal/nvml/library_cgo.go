//go:build cgo

package nvml

// #cgo CFLAGS: -Wall -Wextra
// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// char *forward_open(const char *path);
// int forward_close(const char *path);
import "C"

import (
	"cmp"
	"errors"
	"strings"
	"unsafe"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// go-nvml calls a C function even if the library lacks it, which would end the process, so forward.c defines every
// function in each version that go-nvml may choose. [gonvml.Return] is an error whose SUCCESS is not nil and whose text
// needs nvmlErrorString, so it is compared and converted here, and never printed.

// NewLibrary returns the libnvidia-ml at path, or the linker's if empty. A process opens at most one of them at a
// time.
func NewLibrary(path string) Library {
	return &library{path: cmp.Or(path, "libnvidia-ml.so.1")}
}

type library struct {
	path    string
	binding gonvml.Interface
}

type answer func(gonvml.Device) ([4]uint64, gonvml.Return)

// answers has the calls for each query; the first that the library has is used.
var answers = map[Query][]answer{
	QueryUtilization: {func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		u, ret := d.GetUtilizationRates()
		return [4]uint64{uint64(u.Gpu), uint64(u.Memory)}, ret
	}},
	QueryBAR1: {func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		m, ret := d.GetBAR1MemoryInfo()
		return [4]uint64{m.Bar1Total, m.Bar1Used}, ret
	}},
	QueryECCCorrected: {ecc(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.AGGREGATE_ECC)},
	QueryECCUncorr:    {ecc(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.AGGREGATE_ECC)},
	QueryECCVolatile:  {ecc(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC)},
	QueryECCVolUncorr: {ecc(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC)},
	QueryRemappedRows: {func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		cor, unc, pending, failure, ret := d.GetRemappedRows()
		return [4]uint64{uint64(cor), uint64(unc), flag(pending), flag(failure)}, ret
	}},
	QueryPCIeReplays: {func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		n, ret := d.GetPcieReplayCounter()
		return [4]uint64{uint64(n)}, ret
	}},
	QueryTemperature: {
		one(func(d gonvml.Device) (uint32, gonvml.Return) { return d.GetTemperature(gonvml.TEMPERATURE_GPU) }),
		temperature,
	},
	QueryPower:         {one(gonvml.Device.GetPowerUsage)},
	QueryClockSM:       {clock(gonvml.CLOCK_SM)},
	QueryClockMemory:   {clock(gonvml.CLOCK_MEM)},
	QueryClockGraphics: {clock(gonvml.CLOCK_GRAPHICS)},
	QueryThrottled: {one(gonvml.Device.GetCurrentClocksEventReasons),
		one(gonvml.Device.GetCurrentClocksThrottleReasons)},
	QueryThrottles: {one(gonvml.Device.GetSupportedClocksEventReasons),
		one(gonvml.Device.GetSupportedClocksThrottleReasons)},
	QueryMIGMode: {func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		current, pending, ret := d.GetMigMode()
		return [4]uint64{uint64(current), uint64(pending)}, ret
	}},
}

func one[T uint32 | uint64](call func(gonvml.Device) (T, gonvml.Return)) answer {
	return func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		v, ret := call(d)
		return [4]uint64{uint64(v)}, ret
	}
}

func ecc(kind gonvml.MemoryErrorType, since gonvml.EccCounterType) answer {
	return one(func(d gonvml.Device) (uint64, gonvml.Return) { return d.GetTotalEccErrors(kind, since) })
}

func clock(of gonvml.ClockType) answer {
	return one(func(d gonvml.Device) (uint32, gonvml.Return) { return d.GetClockInfo(of) })
}

// temperature is for drivers that lack the older call.
func temperature(d gonvml.Device) ([4]uint64, gonvml.Return) {
	t, ret := d.GetTemperatureV().V1()
	if t.Temperature < 0 {
		return [4]uint64{NotAvailable}, ret
	}
	return [4]uint64{uint64(t.Temperature)}, ret
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (l *library) Open() error {
	path := C.CString(l.path)
	defer C.free(unsafe.Pointer(path))
	if text := C.forward_open(path); text != nil {
		defer C.free(unsafe.Pointer(text))
		return &Error{Call: "dlopen", Code: CodeLibrary, Err: errors.New(C.GoString(text))}
	}
	l.binding = gonvml.New(gonvml.WithLibraryPath(l.path))
	ret := l.binding.Init()
	if ret != gonvml.SUCCESS && l.close() && Code(ret) == CodeVersionMismatch {
		err := errors.New("this library cannot be unloaded, so that a newer one is not tried; restart railscope")
		return &Error{Call: "nvmlInit_v2", Code: CodeVersionMismatch, Err: err}
	}
	return fail("nvmlInit_v2", ret)
}

func (l *library) Close() { l.close() }

func (l *library) close() bool {
	_ = l.binding.Shutdown() // the library is closed in any case
	path := C.CString(l.path)
	defer C.free(unsafe.Pointer(path))
	return C.forward_close(path) != 0
}

func fail(call string, ret gonvml.Return) error {
	if ret == gonvml.SUCCESS {
		return nil
	}
	return &Error{Call: call, Code: Code(ret)}
}

func (l *library) Driver() (string, error) {
	version, ret := l.binding.SystemGetDriverVersion()
	return version, fail("nvmlSystemGetDriverVersion", ret)
}

func (l *library) Count() (int, error) {
	n, ret := l.binding.DeviceGetCount()
	return n, fail("nvmlDeviceGetCount_v2", ret)
}

func (l *library) GPU(index int) (Device, error) {
	d, ret := l.binding.DeviceGetHandleByIndex(index)
	return &device{l, d}, fail("nvmlDeviceGetHandleByIndex_v2", ret)
}

type device struct {
	library *library
	handle  gonvml.Device
}

// Identity implements [Device]. Its error is that of the first call that failed.
func (d *device) Identity() (id Identity, err error) {
	for _, part := range []struct {
		into *string
		call string
		get  func() (string, gonvml.Return)
	}{
		{&id.UUID, "nvmlDeviceGetUUID", d.handle.GetUUID},
		{&id.Name, "nvmlDeviceGetName", d.handle.GetName},
		{&id.BusID, "nvmlDeviceGetPciInfo_v3", d.busID},
	} {
		value, ret := part.get()
		if ret == gonvml.SUCCESS {
			*part.into = strings.ToValidUTF8(value, "?")
		}
		err = cmp.Or(err, fail(part.call, ret))
	}
	return id, err
}

func (d *device) busID() (string, gonvml.Return) {
	pci, ret := d.handle.GetPciInfo()
	if pci.BusId[0] == 0 { // drivers fill it since version 3 of the call
		return text(pci.BusIdLegacy[:]), ret
	}
	return text(pci.BusId[:]), ret
}

func text(chars []int8) string {
	return unix.ByteSliceToString(unsafe.Slice((*byte)(unsafe.Pointer(&chars[0])), len(chars)))
}

func (d *device) Memory() (Memory, error) {
	m, ret := d.handle.GetMemoryInfo_v2()
	err := fail("nvmlDeviceGetMemoryInfo_v2", ret)
	if err == nil {
		return Memory{Total: m.Total, Free: m.Free, Used: m.Used, Reserved: m.Reserved}, nil
	}
	if _, reason := CodeOf(err).meaning(); reason != sysfs.ReasonUnsupported {
		return Memory{}, err
	}
	old, ret := d.handle.GetMemoryInfo()
	return Memory{Total: old.Total, Free: old.Free, Used: old.Used, Reserved: NotAvailable},
		fail("nvmlDeviceGetMemoryInfo", ret)
}

func (d *device) Numbers(q Query) (v [4]uint64, err error) {
	ret := gonvml.ERROR_FUNCTION_NOT_FOUND
	for _, answer := range answers[q] {
		v, ret = answer(d.handle)
		if ret != gonvml.ERROR_FUNCTION_NOT_FOUND {
			break
		}
	}
	return v, fail(string(q), ret)
}

func (d *device) Processes(graphics bool) ([]Process, error) {
	call, list := "nvmlDeviceGetComputeRunningProcesses_v3", d.handle.GetComputeRunningProcesses
	if graphics {
		call, list = "nvmlDeviceGetGraphicsRunningProcesses_v3", d.handle.GetGraphicsRunningProcesses
	}
	infos, ret := list()
	if err := fail(call, ret); err != nil {
		return nil, err
	}
	processes := make([]Process, len(infos))
	for i, p := range infos {
		processes[i] = Process{PID: p.Pid, GPUInstance: p.GpuInstanceId, ComputeInstance: p.ComputeInstanceId,
			Memory: p.UsedGpuMemory}
	}
	return processes, nil
}

func (d *device) Instances() ([]Instance, error) {
	n, ret := d.handle.GetMaxMigDeviceCount()
	if err := fail("nvmlDeviceGetMaxMigDeviceCount", ret); err != nil {
		return nil, err
	}
	var list []Instance
	var failed error
	for i := range min(n, 64) { // at most seven on every GPU so far
		instance, err := d.instance(i)
		switch {
		case err == nil:
			list = append(list, instance)
		case CodeOf(err) != CodeNotFound: // not found: there is no instance
			failed = cmp.Or(failed, err)
		}
	}
	return list, failed
}

func (d *device) instance(index int) (Instance, error) {
	handle, ret := d.handle.GetMigDeviceHandleByIndex(index)
	if err := fail("nvmlDeviceGetMigDeviceHandleByIndex", ret); err != nil {
		return Instance{}, err
	}
	gi, ret := handle.GetGpuInstanceId()
	err := fail("nvmlDeviceGetGpuInstanceId", ret)
	ci, ret := handle.GetComputeInstanceId()
	err = cmp.Or(err, fail("nvmlDeviceGetComputeInstanceId", ret))
	return Instance{GPUInstance: gi, ComputeInstance: ci, Device: &device{d.library, handle}}, err
}

// XIDs implements [Device]. Events go to the set from the registration on.
func (d *device) XIDs() (Events, error) {
	set, ret := d.library.binding.EventSetCreate()
	if err := fail("nvmlEventSetCreate", ret); err != nil {
		return nil, err
	}
	err := fail("nvmlDeviceRegisterEvents", d.handle.RegisterEvents(gonvml.EventTypeXidCriticalError, set))
	if err != nil {
		_ = set.Free() // the earlier error is more useful
		return nil, err
	}
	return events{set}, nil
}

type events struct{ gonvml.EventSet }

// Next implements [Events]. With a timeout of 0, NVML returns what is queued.
func (e events) Next() (xid uint64, ok bool, err error) {
	event, ret := e.Wait(0)
	if ret == gonvml.ERROR_TIMEOUT {
		return 0, false, nil
	}
	return event.EventData, ret == gonvml.SUCCESS, fail("nvmlEventSetWait", ret)
}

func (e events) Free() { _ = e.EventSet.Free() } // nothing can be done about it
