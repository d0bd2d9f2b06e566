package fakeverbs

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"
)

// Layout of the file that all processes of a fabric map. testdata/fabric.h has the same structs, and refuses a file
// with other sizes.
const (
	maxDevices = 32
	maxGIDs    = 16
	maxGroups  = 16
	maxPKeys   = 8
	maxObjects = 2048
	magic      = 0x66616b6576657262
)

type word = atomic.Uint64

type sharedGID struct{ hi, lo, typ, bits word }

type sharedDevice struct {
	used                                         word
	node, name                                   [64]byte
	counters                                     [512]byte
	port, linkLayer, activeMTU, maxMTU, guid     word
	gids                                         [maxGIDs]sharedGID
	pkeys                                        [maxPKeys]word
	knobs                                        [numKnobs]word
	busy, posts, writes, bytes                   word
	xmit, received, xmitPackets, receivedPackets word
}

type sharedObject struct {
	kind, pid, device, gen, pd word
	_                          [4 + 30]word
	global, dlid, sl           word
	trafficClass, flowLabel    word
	pkey, timeout, reads       word
}

type sharedFabric struct {
	magic, size, objectSize, deviceSize word
	owner                               word
	dir                                 [512]byte
	groups                              [maxGroups]word
	devices                             [maxDevices]sharedDevice
	objects                             [maxObjects]sharedObject
}

const fabricSize = int(unsafe.Sizeof(sharedFabric{}))

// kinds are the kinds of objects, in the order of fabric.h.
var kinds = []string{"free", "context", "PD", "CQ", "MR", "QP", "AH"}

// numKnobs is the number of knobs in fabric.h.
const numKnobs = 39

// Knobs are limits and faults of a device, which a test can change during transfers. The zero value has none. Setting
// them restarts all counts: "the n-th" counts from the last [Fabric.Set].
type Knobs struct {
	Rate    uint64        // payload bytes per second that the device sends; 0 for no limit
	Latency time.Duration // round trip of the device's writes and reads
	Group   int           // 1 to 15: devices of a group, on any node, share one wire

	Down       bool   // the port is down: RTR fails, writes time out
	Blocked    bool   // the port is up, but writes in both directions time out
	DropAfter  uint64 // number of bytes after which writes time out
	DropLarger uint64 // size in bytes above which writes time out: an MTU black hole
	// DropPort is a UDP source port, which the kernel derives from flow labels: writes with it time out.
	DropPort     uint16
	RetryTimeout time.Duration // time until status 12; 0 means 50 ms

	FailEvery  uint64 // every n-th write completes with FailStatus
	FailStatus uint32 // work completion status; 0 means 12, retry exceeded
	FailVendor uint32 // vendor error of FailStatus
	Corrupt    uint64 // the n-th write or read, and every 16th after it, succeeds with one wrong byte
	Lose       uint64 // the n-th write or read succeeds without its bytes
	Late       uint64 // the n-th write succeeds, and its bytes arrive with the next write with immediate
	// Park lets the bytes of a write that timed out arrive with a later post, if the peer's queue pair still accepts
	// them.
	Park bool

	// These are the errors of calls. ListErrno of any device applies to its node.
	ListErrno, OpenErrno, RegMRErrno, CreateCQErrno, CreateQPErrno uint64
	InitErrno, RTRErrno, RTSErrno                                  uint64 // error of ibv_modify_qp to this state

	GRHRequired bool          // the InfiniBand port accepts no packet without a GRH
	IWARP       bool          // the device is an RNIC
	InlineErrno uint64        // error of ibv_create_qp with inline data
	AckDelay    uint64        // value of local_ca_ack_delay
	RTRDelay    time.Duration // duration of ibv_modify_qp to RTR, less than 1 s
	OddMTU      uint64        // any value of active_mtu, in place of the device's

	Reads       uint64 // reads that a queue pair may have open, and that it serves; 0 means 16, the maximum
	DMABufErrno uint64 // error of ibv_reg_dmabuf_mr
	Stamps      bool   // the device stamps completions; takes effect when it is opened
	OtherClock  bool   // stamps use another clock than the readable one

	Hidden   bool   // the device is not listed
	CrashAt  uint64 // the n-th post causes a segmentation fault
	HangOpen bool   // ibv_open_device hangs while this is set
	HangPost bool   // ibv_post_send hangs while this is set
	HangPoll bool   // nothing completes while this is set
}

// words returns the knobs in the order of fabric.h.
func (k Knobs) words() [numKnobs]uint64 {
	if k.RetryTimeout == 0 {
		k.RetryTimeout = 50 * time.Millisecond
	}
	if k.FailStatus == 0 {
		k.FailStatus = 12
	}
	return [numKnobs]uint64{
		k.Rate, uint64(k.Latency), uint64(k.Group), bit(k.Down), k.DropAfter, k.DropLarger,
		k.FailEvery, uint64(k.FailStatus), uint64(k.FailVendor), uint64(k.RetryTimeout),
		k.ListErrno, k.OpenErrno, k.RegMRErrno, k.CreateCQErrno, k.CreateQPErrno, k.InitErrno, k.RTRErrno, k.RTSErrno,
		bit(k.Hidden), k.CrashAt, bit(k.HangOpen), bit(k.HangPost), bit(k.HangPoll), k.Corrupt, bit(k.Blocked),
		k.Lose, k.Late, bit(k.Park),
		bit(k.GRHRequired), bit(k.IWARP), k.InlineErrno, k.AckDelay, k.OddMTU, uint64(k.RTRDelay),
		k.Reads, k.DMABufErrno, bit(k.Stamps), bit(k.OtherClock), uint64(k.DropPort),
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// store writes a GID table. It writes an entry's type last, because the type marks the entry as used.
func (d *sharedDevice) store(gids []GID) {
	for i := range d.gids {
		e := &d.gids[i]
		e.typ.Store(0)
		if i >= len(gids) || !gids[i].Addr.IsValid() {
			continue
		}
		addr := gids[i].Addr.As16()
		e.hi.Store(binary.BigEndian.Uint64(addr[:8]))
		e.lo.Store(binary.BigEndian.Uint64(addr[8:]))
		bits := gids[i].Bits
		if gids[i].Addr.Is4() {
			bits += 96
		}
		e.bits.Store(uint64(bits))
		if gids[i].Type == typeRoCEv2 {
			e.typ.Store(2)
		} else {
			e.typ.Store(1)
		}
	}
}
