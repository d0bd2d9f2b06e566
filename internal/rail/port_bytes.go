package rail

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// Directions of traffic, as indices.
const (
	Receive = iota
	Transmit
	Directions
)

// ErrUncounted is returned, always wrapped, if no counter has a port's bytes.
var ErrUncounted = errors.New("no byte counter")

type byteFiles struct {
	dir     string // directory below the port; empty: the interface's statistics
	names   [Directions][]string
	scale   uint64
	packets [Directions]string // packets of the same traffic; empty: not counted
}

// byteDrivers are the drivers' counters in the order in which they are tried. Several names are summed.
var byteDrivers = [...]byteFiles{
	{"counters", [Directions][]string{{"port_rcv_data"}, {"port_xmit_data"}}, 4, // in words of 4 bytes
		[Directions]string{"port_rcv_packets", "port_xmit_packets"}},
	{"hw_counters", [Directions][]string{{"rx_bytes"}, {"tx_bytes"}}, 1, // efa, bnxt_re, mana_ib
		[Directions]string{"rx_pkts", "tx_pkts"}},
	{"hw_counters", [Directions][]string{{"rx_rdma_ucast_bytes", "rx_rdma_mcast_bytes"}, {"tx_rdma_ucast_bytes",
		"tx_rdma_mcast_bytes"}}, 1, [Directions]string{"rx_rdma_ucast_pkts", "tx_rdma_ucast_pkts"}}, // ionic
	{"hw_counters", [Directions][]string{{"rx_rdma_ucast_bytes"}, {"tx_rdma_ucast_bytes"}}, 1,
		[Directions]string{"rx_rdma_ucast_pkts", "tx_rdma_ucast_pkts"}},
	{"hw_counters", [Directions][]string{{"rx_bytes_cnt"}, {"tx_bytes_cnt"}}, 1, // erdma
		[Directions]string{"rx_packets_cnt", "tx_packets_cnt"}},
	{"hw_counters", [Directions][]string{{"hw_rx_bytes_cnt"}, {"hw_tx_bytes_cnt"}}, 1, // erdma's driver from its vendor
		[Directions]string{"hw_rx_packets_cnt", "hw_tx_packets_cnt"}},
	{"hw_counters", [Directions][]string{{"rdma_rx_bytes"}, {"rdma_tx_bytes"}}, 1, [Directions]string{}},
	{"hw_counters", [Directions][]string{{"ip4InOctets", "ip6InOctets"}, {"ip4OutOctets", "ip6OutOctets"}}, 1,
		[Directions]string{}}, // irdma
	{"", [Directions][]string{{"rx_bytes"}, {"tx_bytes"}}, 1, [Directions]string{"rx_packets", "tx_packets"}},
	// rxe, siw
}

type byteCounter struct {
	found   bool
	packets [Directions]string // paths; empty: not counted
	files   [Directions][]portFile
	scale   uint64
	age     time.Duration // time for which the kernel caches it
	period  time.Duration // update interval of the counter; 0: current at each read
	shared  bool          // counters of the interface: they include TCP, and are late
	refused sysfs.Refusal
	// errors of files that never answered and that the driver refuses to read: they are never read again
	refuses [len(byteDrivers)]error
	answers [len(byteDrivers)]bool // all of its files were read at least once
	err     error                  // error of the last read
	lost    error                  // error of the last read of counters that had been found
}

// Bytes returns the bytes counted in one direction, [Receive] or [Transmit]. Values of different generations cannot be
// compared: the device may be another one. After the driver refused a read, nothing is read for a minute and the error
// stays; a file that never answered is not read again. Without a counter the error wraps [ErrUncounted].
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

// Packets returns the number of packets whose bytes [Port.Bytes] counts. Without a counter the error wraps
// [ErrUncounted].
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

// SoftwarePackets returns the number of RDMA packets that a software device has counted: rxe does (sent_pkts and
// rcvd_pkts of drivers/infiniband/sw/rxe/rxe_hw_counters.c), siw does not. For other devices the error wraps
// [ErrUncounted].
func (p *Port) SoftwarePackets(direction int) (value uint64, generation int, err error) {
	f := p.rdma[direction]
	if f.File == nil {
		return 0, 0, fmt.Errorf("%s: packets of RDMA: %w", Key(p.rail.Device, p.rail.Port), ErrUncounted)
	}
	value, err = f.uint(p.buf[:])
	return value, f.Opens(), err
}

// FindBytes finds the port's byte counters, unless they are known. If there are none, the error wraps
// [ErrUncounted] and the error of the usual counter. If one exists and cannot be read, it is that counter's error.
func (p *Port) FindBytes() error {
	b := &p.bytes
	switch {
	case b.err != nil && b.refused.Active(time.Now()):
		return b.err
	case b.found:
		return nil
	}
	b.err = p.findBytes()
	if b.err == nil {
		b.lost = nil
		return nil
	}
	b.refused.Note(b.err, time.Now())
	if b.lost != nil && errors.Is(b.err, ErrUncounted) {
		b.err = b.lost // it was found before: failing firmware can look like a driver without the counter
	}
	return b.err
}

// ForgetBytes closes the byte counters; the next read finds them again. A refusal is kept.
func (p *Port) ForgetBytes() { p.bytes.close() }

// BytesAge returns the maximum age of a value from the kernel's cache. It is valid once the counters are found.
func (p *Port) BytesAge() time.Duration { return p.bytes.age }

// BytesPeriod returns the interval at which the bytes are updated under load; 0 if each read queries the adapter.
// It is valid once the counters are found.
func (p *Port) BytesPeriod() time.Duration { return p.bytes.period }

// BytesShared reports whether the bytes are the interface's, which include TCP and are up to 2 s late. It is valid
// once the counters are found.
func (p *Port) BytesShared() bool { return p.bytes.shared }

func (b *byteCounter) read(direction int, buf []byte) (value uint64, generation int, err error) {
	for _, f := range b.files[direction] {
		v, err := f.uint(buf)
		if err != nil {
			return 0, 0, err
		}
		if v == math.MaxUint64 && len(b.files[direction]) > 1 { // ionic: the firmware does not report it
			return 0, 0, &sysfs.Error{Path: f.path, Reason: sysfs.ReasonUnsupported, Err: errors.New("no value")}
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
	for i, driver := range byteDrivers {
		dir := filepath.Join(p.dir(), driver.dir)
		why = cmp.Or(why, b.refuses[i])
		if b.refuses[i] != nil {
			continue
		}
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
			if err != nil && sysfs.Reason(err) == sysfs.ReasonUnsupported && !b.answers[i] {
				b.refuses[i] = err
			}
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
			b.found, b.answers[i], b.period = true, true, p.rail.bytesPeriod(b.shared)
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

// lifespan returns how long the kernel caches hw_counters (Documentation/ABI/stable/sysfs-class-infiniband).
func (p *Port) lifespan(f portFile) time.Duration {
	defer f.Close()
	const usual, most = 10, 10000 // ms: RDMA_HW_STATS_DEFAULT_LIFESPAN; the kernel's limit
	ms, err := f.uint(p.buf[:])
	if err != nil {
		return usual * time.Millisecond
	}
	return time.Duration(min(ms, most)) * time.Millisecond
}

// BytesFrom returns the kernel's name of the received bytes: "port_rcv_data", or "netdev" for those of the
// interface; "none" if nothing counts them.
func (p *Port) BytesFrom() string {
	if err := p.FindBytes(); err != nil {
		return "none"
	}
	if p.BytesShared() {
		return "netdev"
	}
	var names []string
	for _, f := range p.bytes.files[Receive] {
		names = append(names, filepath.Base(f.path))
	}
	return strings.Join(names, "+")
}
