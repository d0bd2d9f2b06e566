//go:build cgo

package verbs

// #include "shim.h"
import "C"

import (
	"math/rand/v2"
	"net/netip"
	"unsafe"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// These bounds of package rail and of C must be equal.
const (
	_ = uint(rail.MaxQueuePairs - C.RS_MAX_QPS)
	_ = uint(C.RS_MAX_QPS - rail.MaxQueuePairs)
)

// Rail is one port of one device, with queue pairs to one peer. After a failed write it posts no more, and every call
// returns that failure: close it, and open another.
type Rail struct {
	c      *C.struct_rs_rail // nil after Close
	spec   Spec
	info   Info
	memory Area  // registered memory; zero if there is none
	remote int64 // bytes of the peer's memory
}

// OpenRail opens a device and creates queue pairs in state INIT: peers may write after they are connected and know the
// registered memory. Reasons: NoProvider, IWARP, DevPerm, NoGID, PKey, NoRC, Memlock, NoTimestamps, DeviceFatal.
func (l *Library) OpenRail(s Spec) (*Rail, error) {
	if len(s.Device) >= C.RS_NAME || s.Port < 1 || s.Port > 255 || s.GIDIndex < 0 || s.GIDIndex > 255 ||
		s.QueuePairs < 1 || s.QueuePairs > rail.MaxQueuePairs || s.Depth < 1 || s.Depth > 1024 || s.Flow < 0 {
		return nil, misuse(s.Device, "port, GID index, queue pairs or depth out of range")
	}
	spec := C.struct_rs_spec{port: C.uint32_t(s.Port), gid_index: C.uint32_t(s.GIDIndex), qps: C.uint32_t(s.QueuePairs),
		depth: C.uint32_t(s.Depth), pkey: C.uint32_t(s.PKey), target: flag(s.Target), read: flag(s.Op == transfer.Read),
		stamps: flag(s.Stamps)}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&spec.device)), C.RS_NAME), s.Device)
	r := &Rail{spec: s, info: Info{End: transfer.End{
		QPNs: make([]uint32, s.QueuePairs),
		PSNs: make([]uint32, s.QueuePairs),
	}}}
	// Random numbers keep packets of an earlier queue pair from matching one of these.
	for i := range r.info.PSNs {
		r.info.PSNs[i] = rand.Uint32() & 0xffffff //nolint:gosec // not a secret
		spec.psn[i] = C.uint32_t(r.info.PSNs[i])
	}
	var info C.struct_rs_info
	if err := check(C.rs_rail_open(&l.c, &spec, &r.c, &info), s.Device); err != nil {
		return nil, err
	}
	for i := range r.info.QPNs {
		r.info.QPNs[i] = uint32(info.qpn[i])
	}
	r.info.GID = netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&info.gid)))
	r.info.LID, r.info.AckDelay = uint16(info.lid), uint8(min(info.ack_delay, 31))
	r.info.Reads = uint8(info.reads)
	r.info.State, r.info.ActiveMTU, r.info.MaxMTU = int(info.state), int(info.active_mtu), int(info.max_mtu)
	return r, nil
}

// Op returns the direction of the rail's bytes.
func (r *Rail) Op() transfer.Op { return r.spec.Op }

// Info returns the state of the rail when it was opened, and its registered memory.
func (r *Rail) Info() Info { return r.info }

// Register registers memory, with relaxed ordering if the library supports it: a source of at least
// [transfer.SourceLen] at the sending end, and rings at the other; memory with a Stage is rings at both ends of a rail
// that writes. The peer may access only a target's memory, and only as the rail's Op says. A rail has one. Reasons:
// Memlock, NoDMABuf, NoPeermem.
func (r *Rail) Register(memory Area) error {
	if r.c == nil || memory.Size <= 0 || memory.Stage != nil && (r.spec.Op == transfer.Read || r.spec.Stamps) {
		return misuse(r.spec.Device, "closed, or memory that this rail cannot use")
	}
	area, rkey := C.struct_rs_area{addr: C.uint64_t(memory.Addr), size: C.uint64_t(memory.Size),
		dmabuf: C.int32_t(memory.DMABuf), offset: C.uint64_t(memory.Offset), device: flag(memory.Device),
		stage: (*C.struct_rs_stage)(memory.Stage)}, C.uint32_t(0)
	if err := check(C.rs_rail_register(r.c, &area, &rkey), r.spec.Device); err != nil {
		return err
	}
	r.memory = memory
	if r.spec.Target {
		r.info.Addr, r.info.RKey, r.info.Size = uint64(memory.Addr), uint32(rkey), memory.Size
	}
	return nil
}

func flag(set bool) C.uint32_t {
	if set {
		return 1
	}
	return 0
}

// Connect connects the queue pairs to the peer's, in order. The step to RTR uses the network: RTREinval,
// RTRUnreachable, RTRNoRoute. The error names the state. If the device reported a cause in the meantime, the reason is
// PortDown, DeviceFatal or QPError, as in all later calls.
func (r *Rail) Connect(to transfer.End, a Attr) error {
	if r.c == nil {
		return misuse(r.spec.Device, "closed")
	}
	if len(to.QPNs) != r.spec.QueuePairs || len(to.PSNs) != r.spec.QueuePairs {
		return misuse(r.spec.Device, "the peer has another number of queue pairs")
	}
	c := C.struct_rs_remote{
		addr: C.uint64_t(to.Addr), rkey: C.uint32_t(to.RKey), lid: C.uint32_t(to.LID),
		mtu: C.uint32_t(a.PathMTU), timeout: C.uint8_t(a.Timeout), retries: C.uint8_t(a.RetryCount),
		reads:         C.uint32_t(to.Reads),
		traffic_class: C.uint8_t(a.TrafficClass), service_level: C.uint8_t(a.ServiceLevel),
	}
	gid := to.GID.As16()
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&c.gid)), len(gid)), gid[:])
	for i := range to.QPNs {
		c.qpn[i], c.psn[i] = C.uint32_t(to.QPNs[i]), C.uint32_t(to.PSNs[i])
		c.flow_label[i] = C.uint32_t(flowLabel(r.info.GID, to.GID, r.spec.Flow+i))
	}
	r.remote = to.Size
	return r.explain(check(C.rs_rail_connect(r.c, &c), r.spec.Device))
}

// explain returns the device's event since the last call in place of err, which is its consequence. Without an event it
// returns err.
func (r *Rail) explain(err error) error {
	event := failure.As("", check(C.rs_rail_event(r.c), r.spec.Device))
	if event == nil {
		return err
	}
	r.Stop()
	if f := failure.As("", err); f != nil {
		event.Detail += "; then " + f.Detail
	}
	return event
}

// Close always closes everything of the rail, and returns the first failure. Closing again does nothing.
func (r *Rail) Close() error {
	if r.c == nil {
		return nil
	}
	c := r.c
	r.c, r.memory = nil, Area{}
	return check(C.rs_rail_close(c), r.spec.Device)
}
