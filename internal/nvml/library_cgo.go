//go:build cgo

package nvml

// #cgo CFLAGS: -Wall -Wextra
// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "forward.h"
import "C"

import (
	"errors"
	"strings"
	"unsafe"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/railscope/railscope/internal/sysfs"
)

// The rules of this file:
//
//   - go-nvml calls a C function whether or not the library has it. forward.c keeps that from ending the process, and
//     lists the functions; which of several go-nvml chooses is checked here, so that an error names the right one.
//   - [gonvml.Return] is an error whose SUCCESS is not nil, and whose text comes from nvmlErrorString, one more
//     function. So it is compared, converted here, and never printed.

const defaultLibrary = "libnvidia-ml.so.1"

// NewLibrary returns the libnvidia-ml at path, or the one that the dynamic linker finds when path is empty. Nothing is
// loaded before Open. A process has at most one of them open.
func NewLibrary(path string) Library {
	if path == "" {
		path = defaultLibrary
	}
	return &library{path: path}
}

type library struct {
	path    string
	binding gonvml.Interface
	has     map[string]bool // the functions of forward.c that the open library has
}

// answer asks one device one query.
type answer func(gonvml.Device) ([4]uint64, gonvml.Return)

// answers are the ways to answer each query, the best first; the first whose
// symbol the library has is used.
var answers = map[Query][]struct {
	symbol string
	ask    answer
}{
	QueryUtilization: {{"nvmlDeviceGetUtilizationRates", func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		u, ret := d.GetUtilizationRates()
		return [4]uint64{uint64(u.Gpu), uint64(u.Memory)}, ret
	}}},
	QueryBAR1: {{"nvmlDeviceGetBAR1MemoryInfo", func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		m, ret := d.GetBAR1MemoryInfo()
		return [4]uint64{m.Bar1Total, m.Bar1Used, m.Bar1Free}, ret
	}}},
	QueryECCCorrected: {{"nvmlDeviceGetTotalEccErrors", ecc(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.AGGREGATE_ECC)}},
	QueryECCUncorr:    {{"nvmlDeviceGetTotalEccErrors", ecc(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.AGGREGATE_ECC)}},
	QueryECCVolatile:  {{"nvmlDeviceGetTotalEccErrors", ecc(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC)}},
	QueryECCVolUncorr: {{"nvmlDeviceGetTotalEccErrors", ecc(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC)}},
	QueryRemappedRows: {{"nvmlDeviceGetRemappedRows", func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		cor, unc, pending, failure, ret := d.GetRemappedRows()
		return [4]uint64{uint64(cor), uint64(unc), flag(pending), flag(failure)}, ret
	}}},
	QueryPCIeReplays: {{"nvmlDeviceGetPcieReplayCounter", func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		n, ret := d.GetPcieReplayCounter()
		return [4]uint64{uint64(n)}, ret
	}}},
	QueryTemperature: {
		{"nvmlDeviceGetTemperature", one(func(d gonvml.Device) (uint32, gonvml.Return) {
			return d.GetTemperature(gonvml.TEMPERATURE_GPU)
		})},
		{"nvmlDeviceGetTemperatureV", temperature},
	},
	QueryPower:         {{"nvmlDeviceGetPowerUsage", one(gonvml.Device.GetPowerUsage)}},
	QueryClockSM:       {{"nvmlDeviceGetClockInfo", clock(gonvml.CLOCK_SM)}},
	QueryClockMemory:   {{"nvmlDeviceGetClockInfo", clock(gonvml.CLOCK_MEM)}},
	QueryClockGraphics: {{"nvmlDeviceGetClockInfo", clock(gonvml.CLOCK_GRAPHICS)}},
	QueryThrottled: {
		{"nvmlDeviceGetCurrentClocksEventReasons", one(gonvml.Device.GetCurrentClocksEventReasons)},
		{"nvmlDeviceGetCurrentClocksThrottleReasons", one(gonvml.Device.GetCurrentClocksThrottleReasons)},
	},
	QueryThrottles: {
		{"nvmlDeviceGetSupportedClocksEventReasons", one(gonvml.Device.GetSupportedClocksEventReasons)},
		{"nvmlDeviceGetSupportedClocksThrottleReasons", one(gonvml.Device.GetSupportedClocksThrottleReasons)},
	},
	QueryMIGMode: {{"nvmlDeviceGetMigMode", func(d gonvml.Device) ([4]uint64, gonvml.Return) {
		current, pending, ret := d.GetMigMode()
		return [4]uint64{uint64(current), uint64(pending)}, ret
	}}},
}

// one is the answer of a call that gives a single number.
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

// temperature is how drivers answer that no longer have the older call.
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

// Open implements [Library].
func (l *library) Open() error {
	path := C.CString(l.path)
	defer C.free(unsafe.Pointer(path))
	if text := C.forward_open(path); text != nil {
		defer C.free(unsafe.Pointer(text))
		return &Error{Call: "dlopen", Code: CodeLibrary, Err: errors.New(C.GoString(text))}
	}
	l.has = map[string]bool{}
	for i := C.int(0); ; i++ {
		var has C.int
		name := C.forward_name(i, &has)
		if name == nil {
			break
		}
		l.has[C.GoString(name)] = has != 0
	}
	l.binding = gonvml.New(gonvml.WithLibraryPath(l.path))
	call, err := l.need("nvmlInit_v2", "nvmlInit")
	if err == nil {
		err = fail(call, l.binding.Init())
	}
	if err == nil {
		return nil
	}
	if e, _ := errors.AsType[*Error](err); l.close() && e.Code == CodeVersionMismatch {
		e.Err = errors.New("this library cannot be unloaded, so that a newer one is not tried; restart railscope")
	}
	return err
}

// Close implements [Library].
func (l *library) Close() { l.close() }

// close reports whether the library is still loaded.
func (l *library) close() bool {
	l.binding.Shutdown()
	path := C.CString(l.path)
	defer C.free(unsafe.Pointer(path))
	return C.forward_close(path) != 0
}

// need returns the first of the names that the library has. The order must be
// the one in which go-nvml prefers them.
func (l *library) need(names ...string) (string, error) {
	for _, name := range names {
		if l.has[name] {
			return name, nil
		}
	}
	return "", &Error{Call: names[0], Code: CodeNoFunction}
}

// fail makes an error of what a call returned, nil of success.
func fail(call string, ret gonvml.Return) error {
	if ret == gonvml.SUCCESS {
		return nil
	}
	return &Error{Call: call, Code: Code(ret)}
}

func (l *library) Driver() (string, error) {
	call, err := l.need("nvmlSystemGetDriverVersion")
	if err != nil {
		return "", err
	}
	version, ret := l.binding.SystemGetDriverVersion()
	return version, fail(call, ret)
}

func (l *library) Count() (int, error) {
	call, err := l.need("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
	if err != nil {
		return 0, err
	}
	n, ret := l.binding.DeviceGetCount()
	return n, fail(call, ret)
}

func (l *library) GPU(index int) (Device, error) {
	call, err := l.need("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
	if err != nil {
		return nil, err
	}
	d, ret := l.binding.DeviceGetHandleByIndex(index)
	return &device{library: l, handle: d}, fail(call, ret)
}

// device is one handle of the library.
type device struct {
	library *library
	handle  gonvml.Device
}

func (d *device) Identity() (Identity, error) {
	var id Identity
	var first error
	get := func(into *string, call func() (string, gonvml.Return), names ...string) {
		name, err := d.library.need(names...)
		if err == nil {
			var s string
			var ret gonvml.Return
			if s, ret = call(); ret == gonvml.SUCCESS {
				*into = strings.ToValidUTF8(s, "?")
			}
			err = fail(name, ret)
		}
		if first == nil {
			first = err
		}
	}
	get(&id.UUID, d.handle.GetUUID, "nvmlDeviceGetUUID")
	get(&id.Name, d.handle.GetName, "nvmlDeviceGetName")
	get(&id.BusID, d.busID, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo")
	return id, first
}

func (d *device) busID() (string, gonvml.Return) {
	pci, ret := d.handle.GetPciInfo()
	if pci.BusId[0] == 0 { // drivers fill it since version 3 of the call
		return text(pci.BusIdLegacy[:]), ret
	}
	return text(pci.BusId[:]), ret
}

// text is a C string in an array of char.
func text(chars []int8) string {
	b := make([]byte, 0, len(chars))
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func (d *device) Memory() (Memory, error) {
	call, err := d.library.need("nvmlDeviceGetMemoryInfo_v2")
	if err == nil {
		m, ret := d.handle.GetMemoryInfo_v2()
		if err = fail(call, ret); err == nil {
			return Memory{Total: m.Total, Free: m.Free, Used: m.Used, Reserved: m.Reserved}, nil
		}
		if e, ok := errors.AsType[*Error](err); !ok || e.Reason() != sysfs.ReasonUnsupported {
			return Memory{}, err
		}
	}
	// Some drivers have the symbol and not the function behind it.
	call, err1 := d.library.need("nvmlDeviceGetMemoryInfo")
	if err1 != nil {
		return Memory{}, err
	}
	m, ret := d.handle.GetMemoryInfo()
	return Memory{Total: m.Total, Free: m.Free, Used: m.Used, Reserved: NotAvailable}, fail(call, ret)
}

func (d *device) Numbers(q Query) ([4]uint64, error) {
	for _, a := range answers[q] {
		if d.library.has[a.symbol] {
			v, ret := a.ask(d.handle)
			return v, fail(string(q), ret)
		}
	}
	return [4]uint64{}, &Error{Call: string(q), Code: CodeNoFunction}
}

func (d *device) Processes(graphics bool) ([]Process, error) {
	base, list := "nvmlDeviceGetComputeRunningProcesses", d.handle.GetComputeRunningProcesses
	if graphics {
		base, list = "nvmlDeviceGetGraphicsRunningProcesses", d.handle.GetGraphicsRunningProcesses
	}
	call, err := d.library.need(base+"_v3", base+"_v2", base)
	if err != nil {
		return nil, err
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

// maxInstances bounds what we believe of nvmlDeviceGetMaxMigDeviceCount: seven
// on every GPU so far.
const maxInstances = 64

func (d *device) Instances() ([]Instance, error) {
	for _, name := range []string{
		"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
		"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
	} {
		if _, err := d.library.need(name); err != nil {
			return nil, err
		}
	}
	n, ret := d.handle.GetMaxMigDeviceCount()
	if err := fail("nvmlDeviceGetMaxMigDeviceCount", ret); err != nil {
		return nil, err
	}
	var list []Instance
	var failed error
	for i := range min(n, maxInstances) {
		instance, err := d.instance(i)
		switch e := (*Error)(nil); {
		case err == nil:
			list = append(list, instance)
		case errors.As(err, &e) && e.Code == CodeNotFound: // no instance was made there
		case failed == nil:
			failed = err
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
	if err := fail("nvmlDeviceGetGpuInstanceId", ret); err != nil {
		return Instance{}, err
	}
	ci, ret := handle.GetComputeInstanceId()
	if err := fail("nvmlDeviceGetComputeInstanceId", ret); err != nil {
		return Instance{}, err
	}
	return Instance{GPUInstance: gi, ComputeInstance: ci, Device: &device{library: d.library, handle: handle}}, nil
}
