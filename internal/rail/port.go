package rail

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/railscope/railscope/internal/sysfs"
)

// StateActive is the state of a port that carries data (enum ib_port_state, IB_PORT_ACTIVE).
const StateActive = 4

const stateDown = 1 // IB_PORT_DOWN

// maxLanes exceeds the number of lanes of any PCIe link.
const maxLanes = 32

// ErrNoLink is returned, always wrapped, if a function has no PCIe link, as in a processor or a virtual machine.
var ErrNoLink = errors.New("no PCIe link")

// File is a small file that is kept open; [sysfs.File] is one.
type File interface {
	// Read reads the file from its start into buf and returns the part filled.
	Read(buf []byte) ([]byte, error)
	// Opens returns how many times it was opened. If the number has changed, the path may belong to another device.
	Opens() int
	Close()
}

// OpenFile returns the file at a path. The first read opens it.
type OpenFile func(path string) File

// KeepOpen is the OpenFile for real files.
func KeepOpen(path string) File { return &sysfs.File{Path: path} }

// portFile is a file that knows its path, for errors.
type portFile struct {
	File
	path string
}

func (f portFile) uint(buf []byte) (uint64, error) {
	b, err := f.Read(buf)
	if err != nil {
		return 0, err
	}
	v, err := sysfs.ParseCounter(b)
	return v, sysfs.At(f.path, err)
}

// Port reads the state, rate, PCIe link, MTU, GIDs and bytes of one port. No other code reads them, so that results
// always agree. A file is opened by its first read and kept open until Close. Errors are [*sysfs.Error]. Not safe
// for concurrent use, and a read may hang: each user has its own Port, in a lane.
type Port struct {
	rail   Rail
	sysfs  string // root of sysfs
	open   OpenFile
	netdev string // directory of the interface; empty if the port has none

	state, physState, rate, mtu portFile

	portKey func() string // reads the key once

	gids   *GIDTable
	bytes  byteCounter
	rdma   [Directions]portFile // RDMA packets of a software device
	events [2][]*sysfs.Attr     // counters of retransmits and repeats; see Traffic
	buf    [128]byte

	statistics *Statistics // nil: not used
	pace       Pace        // pace of the bytes that Traffic reads
}

// NewPort returns a reader of a rail's port in the tree at sysfsRoot. open may be nil, which means [KeepOpen].
func NewPort(sysfsRoot string, r Rail, open OpenFile) *Port {
	if open == nil {
		open = KeepOpen
	}
	p := &Port{rail: r, sysfs: sysfsRoot, open: open, gids: NewGIDTable(r.Dir, r.Port)}
	if r.Netdev != "" {
		p.netdev = filepath.Join(sysfsRoot, "class/net", r.Netdev)
		p.mtu = p.file(p.netdev, "mtu")
	}
	p.portKey = sync.OnceValue(func() string {
		if p.netdev == "" {
			return r.PortKey("", "")
		}
		id, _ := sysfs.ReadString(p.netdev, "phys_switch_id")
		name, _ := sysfs.ReadString(p.netdev, "phys_port_name")
		return r.PortKey(id, name)
	})
	p.state, p.physState, p.rate = p.file(p.dir(), "state"), p.file(p.dir(), "phys_state"), p.file(p.dir(), "rate")
	if r.Software {
		p.rdma = [Directions]portFile{Receive: p.file(p.dir(), "hw_counters/rcvd_pkts"),
			Transmit: p.file(p.dir(), "hw_counters/sent_pkts")}
	}
	return p
}

func (p *Port) dir() string { return filepath.Join(p.rail.Dir, "ports", strconv.Itoa(p.rail.Port)) }

func (p *Port) file(elem ...string) portFile {
	path := filepath.Join(elem...)
	return portFile{p.open(path), path}
}

// Close closes all files and frees all memory. A later read reopens what it needs.
func (p *Port) Close() {
	p.closeFiles()
	if p.statistics != nil {
		p.statistics.Close()
	}
}

func (p *Port) closeFiles() {
	for _, f := range []portFile{p.state, p.physState, p.rate, p.mtu, p.rdma[Receive], p.rdma[Transmit]} {
		if f.File != nil {
			f.Close()
		}
	}
	p.ForgetBytes()
}

// PortKey returns the key of the physical port; see [Rail.PortKey].
func (p *Port) PortKey() string { return p.portKey() }

// State returns the logical state (enum ib_port_state).
func (p *Port) State() (int, error) { return p.id(p.state) }

// PhysState returns the physical state (enum ib_port_phys_state).
func (p *Port) PhysState() (int, error) { return p.id(p.physState) }

// id parses "4: ACTIVE" as 4.
func (p *Port) id(f portFile) (int, error) {
	b, err := f.Read(p.buf[:])
	if err != nil {
		return 0, err
	}
	number, _, found := bytes.Cut(b, []byte(":"))
	id, err := sysfs.ParseUint(number)
	if err == nil && (!found || id > 255) {
		err = sysfs.Invalid(f.path, b, "not a number, a colon and a word")
	}
	if err != nil {
		return 0, sysfs.At(f.path, err)
	}
	return int(id), nil
}

// defaultRates are the rates that drivers report for an unknown speed (mlx5_ib, translate_eth_ext_proto_oper), and
// the kernel for an attribute that no driver sets (ib_uverbs_query_port).
func defaultRates() []float64 { return []float64{2.5 * 125e6, 10 * 125e6, 40 * 125e6} }

// Rate returns the rate in bytes per second. If the port reports its driver's default, it is the interface's speed.
// It is meaningless unless the port is active, and costs firmware commands on mlx5.
func (p *Port) Rate() (float64, error) {
	rate, err := p.reportedRate()
	if err != nil {
		return 0, err
	}
	if !slices.Contains(defaultRates(), rate) {
		return rate, nil
	}
	if speed := p.speed(); speed > 0 && p.disagree(rate, speed) {
		return speed, nil
	}
	return rate, nil
}

func (p *Port) reportedRate() (float64, error) {
	b, err := p.rate.Read(p.buf[:])
	if err != nil {
		return 0, err
	}
	rate, err := ParseRate(string(bytes.TrimSpace(b)))
	if err != nil {
		return 0, sysfs.Invalid(p.rate.path, b, "not a rate in Gb/sec")
	}
	return rate, nil
}

// RateDisagreement returns the rate that an active RoCE port reports and the speed of its interface, in bytes per
// second, if they differ. Both are 0 if they agree or one is unknown.
func (p *Port) RateDisagreement() (rate, speed float64) {
	rate, err := p.reportedRate()
	if err != nil || p.rail.Software { // the rate of a software device is arbitrary
		return 0, 0
	}
	speed = p.speed()
	if speed == 0 || !p.disagree(rate, speed) {
		return 0, 0
	}
	return rate, speed
}

// disagree reports whether a rate and a speed differ by more than rounding. A bond's speed is that of all its
// members.
func (p *Port) disagree(rate, speed float64) bool {
	return p.rail.Members == 0 && math.Abs(rate-speed) > 0.02*speed
}

// speed returns the speed of a RoCE port's own interface in bytes per second; 0: unknown, or not comparable. The
// kernel asks the driver, which may ask the adapter (net/core/net-sysfs.c, speed_show).
func (p *Port) speed() float64 {
	if p.netdev == "" || p.rail.LinkLayer != "Ethernet" && p.rail.LinkLayer != IWARP {
		return 0
	}
	text, err := sysfs.ReadString(p.netdev, "speed")
	megabits, parseErr := strconv.ParseFloat(text, 64)
	if err != nil || parseErr != nil || megabits < 1 || megabits > 1e7 { // SPEED_UNKNOWN is -1
		return 0
	}
	return megabits * 125e3
}

// Link returns the current PCIe link (current_link_speed and current_link_width). If there is none, the error wraps
// [ErrNoLink].
func (p *Port) Link() (Link, error) {
	if p.rail.PCIAddress == "" {
		return Link{}, fmt.Errorf("%s: %w", p.rail.Device, ErrNoLink)
	}
	return ReadLink(filepath.Join(p.rail.Dir, "device"), "current")
}

// ReadLink reads speed and width of the link of the PCI function at dir; kind is current or max. Errors are
// [*sysfs.Error], or wrap [ErrNoLink].
func ReadLink(dir, kind string) (Link, error) {
	path := filepath.Join(dir, kind+"_link_speed")
	text, err := sysfs.ReadString(path)
	if err != nil {
		return Link{}, err
	}
	if strings.HasPrefix(text, "Unknown") {
		return Link{}, fmt.Errorf("%s: %w", path, ErrNoLink)
	}
	transfers, err := ParseLinkSpeed(text)
	if err != nil {
		return Link{}, sysfs.Invalid(path, []byte(text), "not a PCIe link speed")
	}
	path = filepath.Join(dir, kind+"_link_width")
	lanes, err := sysfs.ReadUint(path)
	switch {
	case err != nil:
		return Link{}, err
	case lanes == 0:
		return Link{}, fmt.Errorf("%s: %w", path, ErrNoLink)
	case lanes > maxLanes:
		return Link{}, &sysfs.Error{Path: path, Reason: sysfs.ReasonRange, Err: fmt.Errorf("invalid width %d", lanes)}
	}
	return Link{GigaTransfers: transfers, Width: int(lanes)}, nil
}

// MTU returns the MTU of the network interface in bytes, and the RoCE MTU that the kernel derives from it, which is
// 0 on InfiniBand. Both are 0 for a port without an interface.
func (p *Port) MTU() (netdev, active int, err error) {
	if p.netdev == "" {
		return 0, 0, nil
	}
	mtu, err := p.mtu.uint(p.buf[:])
	if err != nil {
		return 0, 0, err
	}
	if mtu > math.MaxInt32 {
		return 0, 0, &sysfs.Error{Path: p.mtu.path, Reason: sysfs.ReasonRange, Err: fmt.Errorf("invalid MTU %d", mtu)}
	}
	if p.rail.LinkLayer != "InfiniBand" {
		active = p.rail.ActiveMTU(int(mtu))
	}
	return int(mtu), active, nil
}

// GIDs reads the GID table; see [GIDTable.Read].
func (p *Port) GIDs() ([]GID, []error) { return p.gids.Read() }

// LimitsIn returns the limits of the rail in a state that has just been read. Values that cannot be read are 0. The
// rate of an inactive port is meaningless and is not read.
func (p *Port) LimitsIn(state int) Limits {
	l := Limits{Active: state == StateActive, PortKey: p.portKey()}
	if l.Active {
		l.Rate, _ = p.Rate()
	}
	if p.rail.PCIAddress != "" {
		l.LinkKey = p.rail.LinkKey()
		if link, err := p.Link(); err == nil {
			l.Link = link.BytesPerSecond()
		}
	}
	return l
}
