package rail

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// The directions of traffic, as indices.
const (
	Receive = iota
	Transmit
	Directions
)

// ErrUncounted means that no counter has a port's bytes. It is always wrapped.
var ErrUncounted = errors.New("no byte counter")

type byteFiles struct {
	dir     string // below the port, or empty for the interface's statistics
	names   [Directions][]string
	scale   uint64
	packets [Directions]string // of the same traffic; empty: not counted
}

// byteDrivers are the drivers' counters in the order in which they are tried. Several names are added.
var byteDrivers = []byteFiles{
	{"counters", [Directions][]string{{"port_rcv_data"}, {"port_xmit_data"}}, 4, // in words of 4 bytes
		[Directions]string{"port_rcv_packets", "port_xmit_packets"}},
	{"hw_counters", [Directions][]string{{"rx_bytes"}, {"tx_bytes"}}, 1, // efa, bnxt_re
		[Directions]string{"rx_pkts", "tx_pkts"}},
	{"hw_counters", [Directions][]string{{"rdma_rx_bytes"}, {"rdma_tx_bytes"}}, 1, [Directions]string{}},
	{"hw_counters", [Directions][]string{{"ip4InOctets", "ip6InOctets"}, {"ip4OutOctets", "ip6OutOctets"}}, 1,
		[Directions]string{}}, // irdma
	{"", [Directions][]string{{"rx_bytes"}, {"tx_bytes"}}, 1, [Directions]string{"rx_packets", "tx_packets"}}, // rxe, siw
}

type byteCounter struct {
	found   bool
	packets [Directions]string // paths; empty: not counted
	files   [Directions][]portFile
	scale   uint64
	age     time.Duration // how long the kernel caches it
	shared  bool          // the interface's: with TCP, and updated late
	refused sysfs.Refusal
	err     error // of the last read
	lost    error // of the last read of counters that had been found
}

// Bytes returns the bytes counted in one direction, [Receive] or [Transmit]. If the generation has changed since the
// last read, the device may be another and the values cannot be compared. After the driver refused a read, nothing is
// read for a minute and the error is the same. Without a counter it wraps [ErrUncounted].
func (p *Port) Bytes(direction int) (value uint64, generation int, err error) {
	if err := p.FindBytes(); err != nil {
		return 0, 0, err
	}
	value, generation, err = p.bytes.read(direction, p.buf[:])
	if err != nil {
		p.bytes.refused.Note(err, time.Now())
		p.bytes.err, p.bytes.lost = err, err
	}
	return value, generation, err
}

// Packets returns the packets of which [Port.Bytes] counts the bytes. Without a counter it wraps [ErrUncounted].
func (p *Port) Packets(direction int) (uint64, error) {
	if err := p.FindBytes(); err != nil {
		return 0, err
	}
	path := p.bytes.packets[direction]
	if path == "" {
		return 0, fmt.Errorf("%s: packets: %w", Key(p.rail.Device, p.rail.Port), ErrUncounted)
	}
	f := p.file(path)
	defer f.Close()
	return f.uint(p.buf[:])
}

// SoftwarePackets returns the packets of RDMA alone that a software device has counted: rxe does (sent_pkts and
// rcvd_pkts of drivers/infiniband/sw/rxe/rxe_hw_counters.c), siw does not. Elsewhere it wraps [ErrUncounted].
func (p *Port) SoftwarePackets(direction int) (value uint64, generation int, err error) {
	f := p.rdma[direction]
	if f.File == nil {
		return 0, 0, fmt.Errorf("%s: packets of RDMA: %w", Key(p.rail.Device, p.rail.Port), ErrUncounted)
	}
	value, err = f.uint(p.buf[:])
	return value, f.Opens(), err
}

// FindBytes finds the port's byte counters, unless they are known. If there are none, the error wraps [ErrUncounted]
// and that of the usual counter; if one exists and cannot be read, it is that counter's.
func (p *Port) FindBytes() error {
	b := &p.bytes
	switch {
	case b.err != nil && b.refused.Active(time.Now()):
		return b.err
	case b.found:
		return nil
	}
	if b.err = p.findBytes(); b.err == nil {
		b.lost = nil
		return nil
	}
	b.refused.Note(b.err, time.Now())
	if b.lost != nil && errors.Is(b.err, ErrUncounted) {
		b.err = b.lost // it was found before: failing firmware can look like a driver without the counter
	}
	return b.err
}

// ForgetBytes closes the byte counters; the next read finds them again. A refusal stays.
func (p *Port) ForgetBytes() { p.bytes.close() }

// BytesAge returns how old a value from the kernel's cache may be. It is valid once the counters are found.
func (p *Port) BytesAge() time.Duration { return p.bytes.age }

// BytesShared reports whether the bytes are those of the interface, including TCP and up to 2 s late. It is valid once
// the counters are found.
func (p *Port) BytesShared() bool { return p.bytes.shared }

func (b *byteCounter) read(direction int, buf []byte) (value uint64, generation int, err error) {
	for _, f := range b.files[direction] {
		v, err := f.uint(buf)
		if err != nil {
			return 0, 0, err
		}
		value += v * b.scale
		generation += f.Opens()
	}
	return value, generation, nil
}

func (b *byteCounter) close() {
	for _, files := range b.files {
		for _, f := range files {
			f.Close()
		}
	}
	b.files, b.found = [Directions][]portFile{}, false
}

func (p *Port) findBytes() error {
	b := &p.bytes
	var why, broken error
	for _, driver := range byteDrivers {
		dir := filepath.Join(p.dir(), driver.dir)
		if driver.dir == "" {
			if !p.rail.Software || p.netdev == "" { // hardware bypasses its interface's counters
				continue
			}
			dir = filepath.Join(p.netdev, "statistics")
		}
		b.scale, b.age, b.shared = driver.scale, 0, driver.dir == ""
		b.packets = [Directions]string{}
		for d, name := range driver.packets {
			if name != "" {
				b.packets[d] = filepath.Join(dir, name)
			}
		}
		ok := true
		for d, names := range driver.names {
			for _, name := range names {
				b.files[d] = append(b.files[d], p.file(dir, name))
			}
			_, _, err := b.read(d, p.buf[:])
			ok = ok && err == nil
			if err != nil && why == nil {
				why = err
			}
			if err != nil && broken == nil && !absent(err) {
				broken = err
			}
		}
		if ok {
			if driver.dir == "hw_counters" {
				b.age = p.lifespan(p.file(dir, "lifespan"))
			}
			b.found = true
			return nil
		}
		b.close()
	}
	if broken != nil {
		return fmt.Errorf("%s: %w", Key(p.rail.Device, p.rail.Port), broken)
	}
	return fmt.Errorf("%s: %w: %w", Key(p.rail.Device, p.rail.Port), ErrUncounted, why)
}

// absent reports whether an error means that a counter does not exist: no file, refused by the driver, or "N/A (no
// PMA)".
func absent(err error) bool {
	switch sysfs.Reason(err) {
	case sysfs.ReasonVanished, sysfs.ReasonUnsupported, sysfs.ReasonInvalid:
		return true
	}
	return false
}

// lifespan is how long the kernel caches hw_counters (Documentation/ABI/stable/sysfs-class-infiniband).
func (p *Port) lifespan(f portFile) time.Duration {
	defer f.Close()
	const usual, most = 10, 10000 // ms: RDMA_HW_STATS_DEFAULT_LIFESPAN; the kernel's limit
	ms, err := f.uint(p.buf[:])
	if err != nil {
		return usual * time.Millisecond
	}
	return time.Duration(min(ms, most)) * time.Millisecond
}
