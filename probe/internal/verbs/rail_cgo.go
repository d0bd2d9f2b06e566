//go:build cgo && linux

package verbs

// #include "shim.h"
import "C"

// Rail is one port of one device, with queue pairs to one peer. After a write
// failed on it, it writes no more, and returns that failure: close it, and open
// another.
type Rail struct {
	c      *C.struct_rs_rail // nil: closed
	spec   Spec
	info   Info
	buffer *Buffer // registered here
}

// OpenRail opens a device and makes queue pairs, in state INIT: peers may write
// once they know a [Region] and are connected.
//
// Reasons: NoProvider, the library does not list the device; DevPerm; Memlock;
// NoGID, there is no such entry; DeviceFatal.
func (l *Library) OpenRail(s Spec) (*Rail, error) {
	if len(s.Device) >= C.RS_NAME || s.Port < 1 || s.Port > 255 || s.GIDIndex < 0 || s.GIDIndex > 255 ||
		s.QueuePairs < 1 || s.QueuePairs > MaxQueuePairs || s.Depth < 1 || s.Depth > MaxDepth {
		return nil, misuse(s.Device, "port, GID index, queue pairs or depth out of range")
	}
	spec := C.struct_rs_spec{port: C.uint32_t(s.Port), gid_index: C.uint32_t(s.GIDIndex), qps: C.uint32_t(s.QueuePairs),
		depth: C.uint32_t(s.Depth)}
	for i, b := range []byte(s.Device) {
		spec.device[i] = C.char(b)
	}
	var info C.struct_rs_info
	r := &Rail{spec: s}
	if err := failed(C.rs_rail_open(&l.c, &spec, &r.c, &info), s.Device); err != nil {
		return nil, err
	}
	r.info = Info{
		State:     int(info.state),
		ActiveMTU: int(info.active_mtu),
		MaxMTU:    int(info.max_mtu),
		Ethernet:  info.ethernet != 0,
		LID:       uint16(info.lid),
		QPNs:      make([]uint32, s.QueuePairs),
		PSNs:      make([]uint32, s.QueuePairs),
		MaxInline: int(info.max_inline),
	}
	for i := range r.info.GID {
		r.info.GID[i] = byte(info.gid[i])
	}
	for i := range s.QueuePairs {
		r.info.QPNs[i], r.info.PSNs[i] = uint32(info.qpn[i]), uint32(info.psn[i])
	}
	return r, nil
}

// Info returns what was found when the rail was opened.
func (r *Rail) Info() Info { return r.info }

// Register makes a buffer one that this rail writes from and its peer may write
// to, in any order the bus likes. A rail has one. Reason: Memlock.
func (r *Rail) Register(b *Buffer) (Region, error) {
	if r.c == nil || b.memory == nil {
		return Region{}, misuse(r.spec.Device, "closed")
	}
	var rkey C.uint32_t
	if err := failed(C.rs_rail_register(r.c, b.memory, C.uint64_t(b.size), &rkey), r.spec.Device); err != nil {
		return Region{}, err
	}
	r.buffer = b
	return Region{Addr: uint64(uintptr(b.memory)), RKey: uint32(rkey)}, nil
}

// Connect connects the queue pairs to the peer's, in order. It is RTR that asks
// the network: RTREinval, RTRUnreachable, RTRNoRoute. The error names the state.
func (r *Rail) Connect(to Remote, a Attr) error {
	if r.c == nil {
		return misuse(r.spec.Device, "closed")
	}
	if len(to.QPNs) != r.spec.QueuePairs || len(to.PSNs) != r.spec.QueuePairs {
		return misuse(r.spec.Device, "the peer has another number of queue pairs")
	}
	c := C.struct_rs_remote{
		addr: C.uint64_t(to.Addr), rkey: C.uint32_t(to.RKey), lid: C.uint32_t(to.LID),
		mtu: C.uint32_t(a.PathMTU), timeout: C.uint8_t(a.Timeout), retries: C.uint8_t(a.RetryCount),
		traffic_class: C.uint8_t(a.TrafficClass),
	}
	for i, b := range to.GID {
		c.gid[i] = C.uint8_t(b)
	}
	for i := range to.QPNs {
		c.qpn[i], c.psn[i] = C.uint32_t(to.QPNs[i]), C.uint32_t(to.PSNs[i])
	}
	if err := failed(C.rs_rail_connect(r.c, &c), r.spec.Device); err != nil {
		return err
	}
	return nil
}

// Close closes everything of the rail, whatever fails, and returns what failed
// first. Closing again does nothing.
func (r *Rail) Close() error {
	if r.c == nil {
		return nil
	}
	err := failed(C.rs_rail_close(r.c), r.spec.Device)
	r.c, r.buffer = nil, nil
	if err != nil {
		return err
	}
	return nil
}
