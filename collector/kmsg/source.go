// Package kmsg reads the kernel log: what drivers report about rails, GPUs and their PCIe links.
//
//	/dev/kmsg → internal/kernellog: message → events.go: event → source.go Read → collector.Sample
package kmsg

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/kernellog"
	"github.com/railscope/railscope/internal/rail"
)

// Bounds of one read and of all series.
const (
	maxRecords = 50000 // of one read: some seconds' worth of a log that is flooded
	maxSeries  = 256

	saveEvery = time.Minute // the cursor, unless an event was counted
	overflow  = "other"
)

// Cursor is up to where the log was read.
type Cursor struct {
	Boot     string `json:"boot"`     // the kernel's boot ID, whose sequence numbers these are
	Sequence uint64 `json:"sequence"` // of the last message that was read
}

// Options are what a [Source] depends on.
type Options struct {
	Path  string // of the kernel log, such as /dev/kmsg
	Boot  string // boot ID, /proc/sys/kernel/random/boot_id; empty: unknown, nothing is saved
	Rails func() ([]rail.Rail, error)
	// Last is the saved cursor, and Save saves one; optional. Without one of this boot, only messages that follow the
	// first read are counted: a restart must not count those before it again.
	Last Cursor
	Save func(Cursor)
}

// Source is the kernel log. A read takes what was written since the last one.
type Source struct {
	*table
	opts     Options
	patterns []pattern
	read     func(fd int, b []byte) (int, error) // read(2)

	fd       int  // -1: not open
	skipping bool // until the end of what was written before the first read
	cursor   Cursor
	saved    Cursor
	at       time.Time // when it was saved
	counts   map[series]uint64
	lost     uint64
	bad      uint64
	buf      [kernellog.MaxRecord]byte
}

type series struct{ event, subject string }

// New returns the source.
func New(opts Options) *Source {
	s := &Source{table: newTable(), opts: opts, patterns: patterns(), read: unix.Read, fd: -1, counts: map[series]uint64{},
		cursor: Cursor{Boot: opts.Boot}}
	if opts.Boot != "" && opts.Last.Boot == opts.Boot {
		s.cursor = opts.Last
	}
	return s
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	err := s.open()
	if err == nil {
		err = s.follow()
	}
	keys := slices.SortedFunc(maps.Keys(s.counts), func(a, b series) int {
		return cmp.Or(cmp.Compare(a.event, b.event), cmp.Compare(a.subject, b.subject))
	})
	for _, k := range keys {
		emit(collector.Sample{Metric: s.events, Labels: []string{k.event, k.subject}, Value: float64(s.counts[k])})
	}
	emit(collector.Sample{Metric: s.table.lost, Value: float64(s.lost)})
	emit(collector.Sample{Metric: s.unread, Value: float64(s.bad)})
	return err
}

// open opens the log where reading goes on.
func (s *Source) open() error {
	if s.fd >= 0 {
		return nil
	}
	fd, err := unix.Open(s.opts.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("open %s: %w: it needs CAP_SYSLOG and the device, see docs/kernel-log.md", s.opts.Path, err)
	case err != nil:
		return fmt.Errorf("open %s: %w: is it in the container or allowed by the unit? See docs/kernel-log.md", s.opts.Path,
			err)
	}
	s.fd, s.skipping = fd, s.cursor.Sequence == 0 // reading begins with the oldest message: nothing seeks to a number
	return nil
}

// follow reads all messages up to now.
func (s *Source) follow() error {
	rails, _ := s.opts.Rails() // the rdma source reports what cannot be examined
	counted := false
	for range maxRecords {
		n, err := s.read(s.fd, s.buf[:])
		switch {
		case errors.Is(err, unix.EAGAIN), n == 0 && err == nil: // the end, also of a file in place of the log
			s.skipping = false
			s.save(counted)
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EPIPE): // the next number shows how many are lost
			continue
		case errors.Is(err, unix.EINVAL): // larger than the buffer, and skipped
			s.bad++
			continue
		case err != nil:
			unix.Close(s.fd)
			s.fd = -1
			return fmt.Errorf("read %s: %w", s.opts.Path, err)
		}
		counted = s.take(s.buf[:n], rails) || counted
	}
	s.save(counted)
	return &collector.Fault{Reason: "behind", Err: fmt.Errorf("%s: more than %d messages since the last read; the rest "+
		"is read next time", s.opts.Path, maxRecords)}
}

// take counts the event of a message, if it is about one.
func (s *Source) take(b []byte, rails []rail.Rail) (counted bool) {
	r, ok := kernellog.Parse(b)
	if !ok {
		s.bad++
		return false
	}
	last := s.cursor.Sequence
	if last != 0 && r.Sequence <= last {
		return false // it was read before a restart
	}
	if last != 0 {
		s.lost += r.Sequence - last - 1
	}
	s.cursor.Sequence = r.Sequence
	if r.Facility != kernellog.Kernel || s.skipping {
		return false
	}
	e, ok := classify(s.patterns, r)
	if !ok {
		return false
	}
	k := series{e.name, subject(e, rails)}
	if _, known := s.counts[k]; !known && len(s.counts) >= maxSeries {
		k.subject = overflow
	}
	s.counts[k]++
	return true
}

// save keeps the cursor, at once after an event: a restart must not count it again.
func (s *Source) save(counted bool) {
	known := s.cursor.Boot != "" && s.cursor.Sequence > 0
	if s.opts.Save == nil || !known || s.cursor == s.saved || !counted && time.Since(s.at) < saveEvery {
		return
	}
	s.saved, s.at = s.cursor, time.Now()
	s.opts.Save(s.cursor)
}

// subject is what an event is about.
func subject(e event, rails []rail.Rail) string {
	for _, r := range rails {
		if e.netdev != "" && r.Netdev == e.netdev {
			return "rail " + r.Name
		}
	}
	for _, r := range rails {
		if e.pci != "" && r.PCIAddress == e.pci {
			return "rail " + r.Name
		}
	}
	switch {
	case e.pci != "" && strings.HasPrefix(e.name, "xid_"):
		return "gpu " + e.pci
	case e.netdev != "":
		return "interface " + e.netdev
	case e.pci != "":
		return "pci " + e.pci
	}
	return "host"
}
