package collector

import (
	"path/filepath"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

// rdmaDevice is one device while it lives: its open files and the state of its
// counters. Only the goroutine in the device's lane touches what mu protects.
type rdmaDevice struct {
	name   string
	rails  []rail.Rail
	labels map[int][]string // by port: the labels of its series

	mu    sync.Mutex // protects all following fields
	ports []*rdmaPort
	set   *counterSet // of the device as a whole
	dir   counterDir
	out   reading // of the last read; its memory is used again
}

func newRDMADevice(s *RDMA, rails []rail.Rail) *rdmaDevice {
	first := rails[0]
	d := &rdmaDevice{name: first.Device, rails: rails, labels: map[int][]string{},
		set: newCounterSet([]string{first.Device}),
		dir: counterDir{dir: sysfs.Dir{Path: filepath.Join(first.Dir, "hw_counters")}, book: s.deviceWide, live: sysfs.Live(first.Dir)}}
	var nl *rdmanl.Client
	if d.dir.live {
		nl = rdmanl.New(s.budget)
	}
	for _, r := range rails {
		p := newRDMAPort(s, r, nl)
		d.ports = append(d.ports, p)
		d.labels[r.Port] = p.set.labels
	}
	return d
}

// same reports whether the device's rails are still what they were.
func (d *rdmaDevice) same(rails []rail.Rail) bool {
	if len(rails) != len(d.rails) {
		return false
	}
	for i := range rails {
		if rails[i] != d.rails[i] {
			return false
		}
	}
	return true
}

// gone closes the device's files: at once, or when the read that is stuck in
// them returns.
func (d *rdmaDevice) gone() { closeUnlocked(&d.mu, d.closeLocked) }

func (d *rdmaDevice) closeLocked() {
	d.dir.close(d.set)
	for _, p := range d.ports {
		p.close()
	}
}

// read reads the whole device. What it returns is valid until the next read.
func (d *rdmaDevice) read(s *RDMA) *reading {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &d.out
	out.reset()
	out.ports = out.ports[:0]
	now := time.Now()
	fail := func(err error) { out.fail(d.name, err) }
	d.dir.read(d.set, now, func(c *counter, raw uint64) { out.add(c.metric, c.labels, c.value(raw)) }, fail)
	for _, p := range d.ports {
		p.read(s, now, out, fail)
	}
	return out
}
