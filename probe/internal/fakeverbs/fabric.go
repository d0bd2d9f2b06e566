// Package fakeverbs is a libibverbs for tests with a simulated fabric: RDMA devices in a file that several processes
// map, RC queue pairs, access to the memory of other processes, and every fault that a probe reports. The library is C
// (testdata/*.c), compiled on demand, so that the code under test opens it like the real one.
package fakeverbs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// GID types in the kernel's format.
const (
	typeRoCEv1 = "IB/RoCE v1"
	typeRoCEv2 = "RoCE v2"
)

// GID is one entry of a port's table. The zero value is an empty entry.
type GID struct {
	Addr netip.Addr
	// Bits is the subnet's prefix length; other subnets are unreachable. 0 means 24 for IPv4, 64 for IPv6.
	Bits   int
	Type   string // "IB/RoCE v1" or "RoCE v2"; empty for RoCE v2
	Netdev string // empty for the device's netdev
}

// RoCE returns the table that mlx5 builds for one interface: link-local IPv6, then the address, each as RoCE v1 and v2.
// The address with RoCE v2 is entry 3.
func RoCE(addr string) []GID {
	a := netip.MustParseAddr(addr)
	b := a.As16()
	local := netip.AddrFrom16([16]byte{0xfe, 0x80, 8: b[12], 9: b[13], 11: 0xff, 12: 0xfe, 13: b[13], 14: b[14],
		15: b[15]})
	return []GID{{Addr: local, Type: typeRoCEv1}, {Addr: local, Type: typeRoCEv2}, {Addr: a, Type: typeRoCEv1},
		{Addr: a, Type: typeRoCEv2}}
}

// Device is one RDMA device of a node.
type Device struct {
	Name       string   // such as "mlx5_0"
	Port       int      // number of its only port; 0 means 1
	Netdev     string   // empty for "eth-" and the name
	GIDs       []GID    // entries by index
	ActiveMTU  int      // bytes; 0 means 4096
	MaxMTU     int      // bytes; 0 means 4096
	NetdevMTU  int      // bytes; 0 means 9000
	InfiniBand bool     // link layer InfiniBand instead of Ethernet
	PKeys      []uint16 // at most 8; nil for 0xffff
	PCIAddress string   // such as "0000:01:00.0"; empty for a slot of its own
	PortRate   string   // content of ports/N/rate; empty for 400 Gb/sec (4X NDR)
	Firmware   string   // empty for 28.39.1002

	Knobs // initial knobs
}

// Fabric connects the devices of several nodes. Its methods are safe for concurrent use.
type Fabric struct {
	tb  testing.TB
	dir string

	mu      sync.Mutex // protects the following fields
	shared  *sharedFabric
	devices []*Device // by number
}

// New returns an empty fabric, which exists until the end of the test.
func New(tb testing.TB) *Fabric {
	tb.Helper()
	f := &Fabric{tb: tb, dir: tb.TempDir()}
	file, err := os.OpenFile(filepath.Join(f.dir, "fabric"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(int64(fabricSize)); err != nil {
		tb.Fatal(err)
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, fabricSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		tb.Fatal(err)
	}
	f.shared = (*sharedFabric)(unsafe.Pointer(&mem[0]))
	tb.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.shared = nil
		_ = unix.Munmap(mem)
	})
	f.shared.size.Store(uint64(fabricSize))
	f.shared.objectSize.Store(uint64(unsafe.Sizeof(sharedObject{})))
	f.shared.deviceSize.Store(uint64(unsafe.Sizeof(sharedDevice{})))
	copyString(tb, f.shared.dir[:], f.dir)
	f.shared.magic.Store(magic)
	return f
}

// copyString copies a string into a buffer of C.
func copyString(tb testing.TB, to []byte, s string) {
	tb.Helper()
	if len(s) >= len(to) {
		tb.Fatalf("%q is too long", s)
	}
	copy(to, s)
}

// Add adds a device to a node's list and sysfs.
func (f *Fabric) Add(node string, d Device) {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.devices)
	if n == maxDevices {
		f.tb.Fatal("too many devices")
	}
	d.fill(n)
	s := &f.shared.devices[n]
	copyString(f.tb, s.node[:], node)
	copyString(f.tb, s.name[:], d.Name)
	copyString(f.tb, s.counters[:], d.portDir(f.sysfs(node))+"/counters")
	s.port.Store(uint64(d.Port))
	s.linkLayer.Store(2 - bit(d.InfiniBand))
	s.activeMTU.Store(enumMTU(f.tb, d.ActiveMTU))
	s.maxMTU.Store(enumMTU(f.tb, d.MaxMTU))
	s.guid.Store(d.guid(n))
	s.store(d.GIDs)
	for i, pkey := range d.PKeys {
		s.pkeys[i].Store(uint64(pkey))
	}
	for i, v := range d.words() {
		s.knobs[i].Store(v)
	}
	f.devices = append(f.devices, &d)
	f.must(d.write(f.sysfs(node), n))
	s.used.Store(1)
}

// fill sets defaults.
func (d *Device) fill(n int) {
	setDefault(&d.Port, 1)
	setDefault(&d.Netdev, "eth-"+d.Name)
	setDefault(&d.ActiveMTU, 4096)
	setDefault(&d.MaxMTU, 4096)
	setDefault(&d.NetdevMTU, 9000)
	setDefault(&d.PCIAddress, fmt.Sprintf("0000:%02x:00.0", n+1))
	setDefault(&d.PortRate, "400 Gb/sec (4X NDR)")
	setDefault(&d.Firmware, "28.39.1002")
	if d.PKeys == nil {
		d.PKeys = []uint16{0xffff}
	}
	d.GIDs = d.filled(d.GIDs)
}

func setDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// filled returns a copy of the table with defaults.
func (d *Device) filled(gids []GID) []GID {
	gids = slices.Clone(gids)
	for i := range gids {
		g := &gids[i]
		if !g.Addr.IsValid() {
			continue
		}
		g.Addr = g.Addr.Unmap()
		setDefault(&g.Type, typeRoCEv2)
		setDefault(&g.Netdev, d.Netdev)
		if g.Addr.Is4() {
			setDefault(&g.Bits, 24)
		} else {
			setDefault(&g.Bits, 64)
		}
	}
	return gids
}

// enumMTU returns the value of enum ibv_mtu.
func enumMTU(tb testing.TB, mtu int) uint64 {
	tb.Helper()
	i := slices.Index([]int{256, 512, 1024, 2048, 4096}, mtu)
	if i < 0 {
		tb.Fatalf("%d is not an MTU of RDMA", mtu)
	}
	return uint64(i + 1)
}

// Set changes a device's knobs and restarts all counts. Open contexts get an event when the port goes up or down.
func (f *Fabric) Set(node, device string, change func(*Knobs)) {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(node, device)
	d, s := f.devices[n], &f.shared.devices[n]
	down := d.Down
	change(&d.Knobs)
	s.posts.Store(0)
	s.writes.Store(0)
	s.bytes.Store(0)
	for i, v := range d.words() {
		s.knobs[i].Store(v)
	}
	if d.Down != down {
		f.must(d.writeState(f.sysfs(node)))
		event := EventPortActive
		if d.Down {
			event = EventPortErr
		}
		f.event(n, event)
	}
}

// Foreign adds bytes of other traffic to a device's counters. They appear with the next write of a queue pair.
func (f *Fabric) Foreign(node, device string, bytes uint64) {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shared.devices[f.find(node, device)].xmit.Add(bytes)
}

// Writes returns how many writes a device has posted since its knobs were last set.
func (f *Fabric) Writes(node, device string) uint64 {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shared.devices[f.find(node, device)].writes.Load()
}

// SetGIDs changes a device's GID table, which raises an event.
func (f *Fabric) SetGIDs(node, device string, gids []GID) {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(node, device)
	d := f.devices[n]
	d.GIDs = d.filled(gids)
	f.shared.devices[n].store(d.GIDs)
	f.must(d.writeGIDs(f.sysfs(node)))
	f.event(n, EventGIDChange)
}

// Event is an asynchronous event of a port or device, with the values of enum ibv_event_type.
type Event uint32

// Events that tests can raise.
const (
	EventQPAccess    Event = 3
	EventDeviceFatal Event = 8
	EventPortActive  Event = 9
	EventPortErr     Event = 10
	EventGIDChange   Event = 18
)

// Raise sends an event to all contexts of a device.
func (f *Fabric) Raise(node, device string, event Event) {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.event(f.find(node, device), event)
}

func (f *Fabric) event(n int, event Event) {
	f.tb.Helper()
	var record [8]byte
	binary.NativeEndian.PutUint32(record[:], uint32(event))
	binary.NativeEndian.PutUint32(record[4:], uint32(f.devices[n].Port))
	for i := range f.shared.objects {
		o := &f.shared.objects[i]
		if kind := o.kind.Load(); kind >= uint64(len(kinds)) || kinds[kind] != "context" || o.device.Load() !=
			uint64(n) {
			continue
		}
		// Opening must not block: possibly no process has the device open.
		file, err := os.OpenFile(filepath.Join(f.dir, "events."+strconv.Itoa(i)), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		_, _ = file.Write(record[:])
		_ = file.Close()
	}
}

func (f *Fabric) find(node, device string) int {
	f.tb.Helper()
	if f.shared == nil {
		f.tb.Fatal("the fabric is used after its test")
	}
	for n, d := range f.devices {
		if s := &f.shared.devices[n]; d.Name == device && goString(s.node[:]) == node {
			return n
		}
	}
	f.tb.Fatalf("node %s has no device %s", node, device)
	return 0
}

// QueuePair describes how a queue pair was connected.
type QueuePair struct {
	Global                           bool // packets have a GRH
	DLID, ServiceLevel, TrafficClass int
	FlowLabel                        uint32
	Timeout                          int // timeout for an acknowledgement: 4.096 µs × 2^Timeout
	PKey                             uint16
}

// QueuePairs returns the open queue pairs of a device, in the order of creation.
func (f *Fabric) QueuePairs(node, device string) (list []QueuePair) {
	f.tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(node, device)
	for i := range f.shared.objects {
		o := &f.shared.objects[i]
		if kind := o.kind.Load(); kind < uint64(len(kinds)) && kinds[kind] == "QP" && o.device.Load() == uint64(n) {
			list = append(list, QueuePair{Global: o.global.Load() != 0, DLID: int(o.dlid.Load()),
				ServiceLevel: int(o.sl.Load()), TrafficClass: int(o.trafficClass.Load()),
				FlowLabel: uint32(o.flowLabel.Load()), PKey: uint16(o.pkey.Load()),
				Timeout: int(o.timeout.Load())})
		}
	}
	return list
}

func goString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

func (f *Fabric) must(err error) {
	f.tb.Helper()
	if err != nil {
		f.tb.Fatal(err)
	}
}

// env returns the library's variables, and the variable of the probe with its path.
func (f *Fabric) env(node string) [][2]string {
	return [][2]string{{"RAILSCOPE_LIBIBVERBS", Library(f.tb)}, {"FAKEVERBS_DIR", f.dir}, {"FAKEVERBS_NODE", node}}
}

// Env returns the additional environment of a process on a node.
func (f *Fabric) Env(node string) []string {
	f.tb.Helper()
	var env []string
	for _, v := range f.env(node) {
		env = append(env, v[0]+"="+v[1])
	}
	return env
}

// Use moves this process to a node. It takes effect when the library lists devices.
func (f *Fabric) Use(tb testing.TB, node string) {
	tb.Helper()
	for _, v := range f.env(node) {
		tb.Setenv(v[0], v[1])
	}
}

// Left returns the names of all open objects on the fabric, except those of ended processes, which a kernel would have
// freed.
func (f *Fabric) Left() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []string
	for i := range f.shared.objects {
		o := &f.shared.objects[i]
		kind, pid, dev := o.kind.Load(), o.pid.Load(), o.device.Load()
		if kind == 0 || kind >= uint64(len(kinds)) || dev >= maxDevices || !alive(pid) {
			continue
		}
		d := &f.shared.devices[dev]
		left = append(left, fmt.Sprintf("%s/%s: %s %#x of process %d", goString(d.node[:]), goString(d.name[:]),
			kinds[kind], o.gen.Load()*maxObjects+uint64(i), pid))
	}
	slices.Sort(left)
	return left
}

// alive reports whether a process exists and is not a zombie.
func alive(pid uint64) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
