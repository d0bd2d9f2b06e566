package sampler

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// ErrUncounted says that a rail has no counter of its bytes: it cannot be
// sampled. It is always wrapped.
var ErrUncounted = errors.New("nothing counts its bytes")

// file is a small file that is kept open; [sysfs.File] is one.
type file interface {
	// Read reads the file from its start into buf and returns the part filled.
	Read(buf []byte) ([]byte, error)
	// Opens returns how often it was opened.
	Opens() int
	Close()
}

// counter is one number that a device counts: a file, or the sum of two.
type counter struct {
	paths []string
	scale uint64
	files []file
	age   time.Duration // that a value may have: the kernel answers from a cache so long
}

func newCounter(open func(string) file, scale uint64, paths ...string) *counter {
	c := &counter{paths: paths, scale: scale}
	for _, p := range paths {
		c.files = append(c.files, open(p))
	}
	return c
}

// read returns the counter in its base unit, and how often its files were
// opened. Errors are [*sysfs.Error].
func (c *counter) read(buf []byte) (value uint64, opens int, err error) {
	for i, f := range c.files {
		b, err := f.Read(buf)
		if err != nil {
			return 0, 0, err
		}
		v, err := sysfs.ParseUint(b)
		if err != nil {
			return 0, 0, sysfs.At(c.paths[i], err)
		}
		value += v * c.scale
		opens += f.Opens()
	}
	return value, opens, nil
}

func (c *counter) close() {
	for _, f := range c.files {
		f.Close()
	}
}

// byteCounters are the counters of a rail's bytes, in each direction.
type byteCounters [directions]*counter

func (b *byteCounters) close() {
	for _, c := range b {
		c.close()
	}
}

// openBytes finds what counts a rail's bytes: what [rail.Rail.Traffic] reads,
// with irdma's counters by IP version beside. Where nothing does, the error says
// so and is that of the usual counter; where one that is there cannot be read, it
// is that one's.
func openBytes(open func(string) file, sysfsRoot string, r rail.Rail, buf []byte) (*byteCounters, error) {
	port := filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port))
	in := func(scale uint64, dir string, receive, transmit []string) *byteCounters {
		path := func(names []string) (paths []string) {
			for _, n := range names {
				paths = append(paths, filepath.Join(dir, n))
			}
			return paths
		}
		return &byteCounters{newCounter(open, scale, path(receive)...), newCounter(open, scale, path(transmit)...)}
	}
	one := func(name string) []string { return []string{name} }
	hw := filepath.Join(port, "hw_counters")
	candidates := []*byteCounters{
		in(4, filepath.Join(port, "counters"), one("port_rcv_data"), one("port_xmit_data")), // in words of 4 bytes
		in(1, hw, one("rx_bytes"), one("tx_bytes")),                                         // efa, bnxt_re
		in(1, hw, []string{"ip4InOctets", "ip6InOctets"}, []string{"ip4OutOctets", "ip6OutOctets"}),
	}
	if r.Software && r.Netdev != "" { // what the interface carries is all that there is
		candidates = append(candidates, in(1, filepath.Join(sysfsRoot, "class/net", r.Netdev, "statistics"), one("rx_bytes"), one("tx_bytes")))
	}
	var why, broken error
	for _, c := range candidates {
		_, _, errReceive := c[Receive].read(buf)
		_, _, errTransmit := c[Transmit].read(buf)
		if errReceive == nil && errTransmit == nil {
			if filepath.Dir(c[Receive].paths[0]) == hw {
				c[Receive].age = lifespan(open(filepath.Join(hw, "lifespan")), buf)
			}
			return c, nil
		}
		c.close()
		for _, err := range []error{errReceive, errTransmit} {
			if err != nil && why == nil {
				why = err
			}
			if err != nil && broken == nil && !none(err) {
				broken = err
			}
		}
	}
	if broken != nil {
		return nil, fmt.Errorf("%s: %w", rail.Key(r.Device, r.Port), broken)
	}
	return nil, fmt.Errorf("%s: %w: %w", rail.Key(r.Device, r.Port), ErrUncounted, why)
}

// none reports whether an error of a counter says that there is none: no file,
// a driver that does not know it, or "N/A (no PMA)".
func none(err error) bool {
	switch sysfs.Reason(err) {
	case sysfs.ReasonVanished, sysfs.ReasonUnsupported, sysfs.ReasonInvalid:
		return true
	}
	return false
}

// lifespan is how long the kernel answers a port's hw_counters from its cache
// (Documentation/ABI/stable/sysfs-class-infiniband).
func lifespan(f file, buf []byte) time.Duration {
	defer f.Close()
	const usual, most = 10, 10000 // ms: RDMA_HW_STATS_DEFAULT_LIFESPAN; what the kernel takes at most
	b, err := f.Read(buf)
	if err != nil {
		return usual * time.Millisecond
	}
	ms, err := sysfs.ParseUint(b)
	if err != nil {
		return usual * time.Millisecond
	}
	return time.Duration(min(ms, most)) * time.Millisecond
}
