// Package verbs writes to the memory of other hosts by RDMA. It is the probe's only package with C: libibverbs is
// opened at run time, never linked, and the hot path runs in C from the first post to the last completion.
//
// Only one goroutine may use a [Rail] at a time. It must be closed before the [Buffer] registered on it, because until
// then the device may access the memory. Times are from CLOCK_MONOTONIC. Errors are [*failure.Failure] without a stage.
package verbs

import (
	"errors"
	"hash/fnv"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/transfer"
)

// Spec describes the rail to open.
type Spec struct {
	Device     string // name in libibverbs and sysfs, such as mlx5_0
	Port       int    // from 1
	GIDIndex   int    // entry of the port's GID table, from 0
	QueuePairs int    // number of queue pairs to the peer, 1 to [rail.MaxQueuePairs]
	Depth      int    // writes in flight over all queue pairs, 1 to 1024
	// PKey is the InfiniBand partition key; without bit 15 it also matches a limited membership. 0 selects the port's
	// first.
	PKey uint16

	Op     transfer.Op // direction of its bytes
	Target bool        // the peer writes to, or reads from, this end's memory
	Flow   int         // index of the first queue pair's flow label, from 0: see [flowLabel]
	Stamps bool        // the adapter's clock stamps completions, for [Run.Latency]; such a rail makes no bursts
}

// PortActive is a port state, from enum ibv_port_state of rdma-core's libibverbs/verbs.h.
const PortActive = 4

// Event is an asynchronous event, enum ibv_event_type of rdma-core's libibverbs/verbs.h.
type Event int

// EventDeviceFatal is the event of a device that failed or is being removed.
const EventDeviceFatal Event = 8

// String returns the name of an event of a device or port; empty for any other.
func (e Event) String() string {
	return map[Event]string{EventDeviceFatal: "device_fatal", 9: "port_active", 10: "port_error", 11: "lid_changed",
		12: "pkey_changed", 13: "sm_changed", 17: "client_reregister", 18: "gid_changed"}[e]
}

// Info describes an open rail.
type Info struct {
	transfer.End     // Addr and RKey are set after memory is registered
	State        int // only a port in PortActive carries data
}

// Attr holds the attributes of a connection, on which both ends agreed.
type Attr struct {
	PathMTU      int   // 256, 512, 1024, 2048 or 4096 bytes
	Timeout      uint8 // timeout for an acknowledgement: 4.096 µs × 2^Timeout; 1 to 31 (IBTA 9.7.6.1.3)
	RetryCount   uint8 // 0 to 7
	TrafficClass uint8 // DSCP<<2 and ECN
	ServiceLevel uint8 // 0 to 15; for RoCE, the priority in a VLAN
}

// flowLabel returns the 20-bit flow label of the queue pair with this index between two GIDs, which switches hash: on
// RoCE v2 the kernel derives the UDP source port from it (rdma_flow_label_to_udp_sport in ib_verbs.h). It is the same
// in every round, so that figures of one path are comparable. 0 would leave the choice to the driver.
func flowLabel(from, to netip.Addr, index int) uint32 {
	h := fnv.New32a()
	a, b := from.As16(), to.As16()
	_, _ = h.Write(slices.Concat(a[:], b[:], []byte{byte(index)}))
	sum := h.Sum32()
	return max((sum^sum>>20)&0xfffff, 1)
}

// SourcePort returns the UDP source port that the kernel derives from a queue pair's flow label on RoCE v2
// (rdma_flow_label_to_udp_sport in ib_verbs.h), which switches hash together with the GIDs.
func SourcePort(from, to netip.Addr, index int) uint16 {
	label := flowLabel(from, to, index)
	return uint16(label&0x3fff ^ label>>14 | 0xc000)
}

// TimeoutExponent returns the smallest [Attr] timeout between min and max that is at least inFlight.
func TimeoutExponent(inFlight time.Duration, min, max uint8) uint8 {
	n := min
	for n < max && 4096*time.Nanosecond<<n < inFlight {
		n++
	}
	return n
}

// Buffer is zeroed memory outside the Go heap that devices read and write.
type Buffer struct{ data []byte }

// NewBuffer maps size bytes and touches all of them. It requests huge pages by madvise: with MAP_HUGETLB, if a cgroup
// allows none, mmap succeeds and the first touch raises SIGBUS.
func NewBuffer(size int) (*Buffer, error) {
	if size <= 0 {
		return nil, fault{op: "map memory", errno: syscall.EINVAL}.failure()
	}
	data, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, mapFailed(err)
	}
	_ = unix.Madvise(data, unix.MADV_HUGEPAGE)
	clear(data)
	return &Buffer{data}, nil
}

// Bytes returns the memory, which must not be accessed after Close; nil after Close.
func (b *Buffer) Bytes() []byte { return b.data }

// Close unmaps the memory. Closing again does nothing.
func (b *Buffer) Close() error {
	data := b.data
	b.data = nil
	if data == nil {
		return nil
	}
	if err := unix.Munmap(data); err != nil {
		return mapFailed(err)
	}
	return nil
}

func mapFailed(err error) error {
	errno, _ := errors.AsType[syscall.Errno](err)
	return fault{op: "map memory", errno: errno}.failure()
}
