package rail

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/railscope/railscope/internal/sysfs"
)

// StateActive is the state of a port that carries data (enum ib_port_state, IB_PORT_ACTIVE).
const StateActive = 4

// maxLanes is more than any PCIe link has.
const maxLanes = 32

// ErrNoLink means that a function has no PCIe link, as in a processor or a virtual machine. It is always wrapped.
var ErrNoLink = errors.New("no PCIe link")

// File is a small file that is kept open; [sysfs.File] is one.
type File interface {
	// Read reads the file from its start into buf and returns the part filled.
	Read(buf []byte) ([]byte, error)
	// Opens returns how often it was opened. If it has changed, the path may belong to another device.
	Opens() int
	Close()
}

// OpenFile returns the file at a path; it is opened by the first read.
type OpenFile func(path string) File

// KeepOpen is the OpenFile of real files.
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

// Port reads the state, rate, PCIe link, MTU, GIDs and bytes of one port. Nothing else reads them, so that no two
// places can disagree. A file is opened by its first read and kept open until Close. Errors are [*sysfs.Error]. Not
// safe for concurrent use, and a read may hang: each user has its own Port, in a lane.
type Port struct {
	rail   Rail
	sysfs  string // root
	open   OpenFile
	netdev string // directory of the interface; empty if there is none

	state, physState, rate, mtu portFile

	portKey func() string // read once

	gids   *GIDTable
	bytes  byteCounter
	rdma   [Directions]portFile // packets of a software device
	events [2][]*sysfs.Attr     // retransmits and repeats; see Traffic
	buf    [128]byte

	statistics *Statistics // nil: not used
	pace       pace        // of the bytes that Traffic reads
}

// NewPort returns the reader of a rail's port in the tree at sysfsRoot. open may be nil, for [KeepOpen].
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

// Close closes all files and frees all memory. A later read opens what it needs.
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

// id reads "4: ACTIVE" as 4.
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

// Rate returns the rate in bytes per second. It is meaningless unless the port is active, and costs firmware commands
// on mlx5.
func (p *Port) Rate() (float64, error) {
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

// Link returns the PCIe link as it is now (current_link_speed and current_link_width). Without one the error wraps
// [ErrNoLink].
func (p *Port) Link() (Link, error) {
	if p.rail.PCIAddress == "" {
		return Link{}, fmt.Errorf("%s: %w", p.rail.Device, ErrNoLink)
	}
	return ReadLink(filepath.Join(p.rail.Dir, "device"), "current")
}

// ReadLink reads speed and width of the link of the PCI function at dir, kind being current or max. Errors are
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
		return Link{}, &sysfs.Error{Path: path, Reason: sysfs.ReasonRange, Err: fmt.Errorf("a link of %d lanes", lanes)}
	}
	return Link{GigaTransfers: transfers, Width: int(lanes)}, nil
}

// MTU returns the MTU of the network interface in bytes, and the RoCE MTU that the kernel derives from it, 0 on
// InfiniBand. Both are 0 for a port without an interface.
func (p *Port) MTU() (netdev, active int, err error) {
	if p.netdev == "" {
		return 0, 0, nil
	}
	mtu, err := p.mtu.uint(p.buf[:])
	if err != nil {
		return 0, 0, err
	}
	if mtu > math.MaxInt32 {
		return 0, 0, &sysfs.Error{Path: p.mtu.path, Reason: sysfs.ReasonRange, Err: fmt.Errorf("an MTU of %d", mtu)}
	}
	if p.rail.LinkLayer != "InfiniBand" {
		active = p.rail.ActiveMTU(int(mtu))
	}
	return int(mtu), active, nil
}

// GIDs reads the GID table; see [GIDTable.Read].
func (p *Port) GIDs() ([]GID, []error) { return p.gids.Read() }

// LimitsIn returns what bounds the rail in a state that has just been read. Figures that cannot be read are 0. The rate
// of a port that is not active is meaningless and is not read.
func (p *Port) LimitsIn(state int) Limits {
	l := Limits{Active: state == StateActive, PortKey: p.portKey()}
	if l.Active {
		l.Rate, _ = p.Rate()
	}
	if p.rail.PCIAddress != "" {
		l.LinkKey = LinkKey(p.rail.PCIAddress)
		if link, err := p.Link(); err == nil {
			l.Link = link.BytesPerSecond()
		}
	}
	return l
}
