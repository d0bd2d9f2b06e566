// Package kmsg reads the kernel log for messages of drivers about rails, GPUs and their PCIe links.
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
	maxRecords = 50000 // limit of one read: a few seconds of a flooded log
	maxSeries  = 256

	saveEvery = time.Minute // interval of cursor saves; an event is saved at once
	overflow  = "other"
)

// Cursor is the position up to which the log was read.
type Cursor struct {
	Boot     string `json:"boot"`     // the kernel's boot ID, to which the sequence numbers belong
	Sequence uint64 `json:"sequence"` // sequence number of the last message that was read
}

// Options configure a [Source].
type Options struct {
	Path  string // path of the kernel log, such as /dev/kmsg
	Boot  string // boot ID, /proc/sys/kernel/random/boot_id; if empty, no cursor is saved
	Rails func() ([]rail.Rail, error)
	// Last is the saved cursor, and Save saves one; both are optional. Without a cursor of this boot, only messages
	// after the first read are counted: a restart must not count older ones again.
	Last Cursor
	Save func(Cursor)
}

// Source is the kernel log. A read processes the messages that were written since the last one.
type Source struct {
	*table
	opts     Options
	patterns []pattern
	read     func(fd int, b []byte) (int, error) // read(2)

	fd       int  // -1 if not open
	skipping bool // until the end of the messages that precede the first read
	cursor   Cursor
	saved    Cursor
	at       time.Time // time of the last save
	counts   map[series]uint64
	lost     uint64
	bad      uint64
	buf      [kernellog.MaxRecord]byte
}

type series struct{ event, subject string }

// New returns the source.
func New(opts Options) *Source {
	s := &Source{table: newTable(), opts: opts, patterns: patterns(), read: unix.Read, fd: -1,
		counts: map[series]uint64{}, cursor: Cursor{Boot: opts.Boot}}
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

// open opens the log at its oldest message.
func (s *Source) open() error {
	if s.fd >= 0 {
		return nil
	}
	fd, err := unix.Open(s.opts.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("open %s: %w: it needs CAP_SYSLOG and the device, see docs/kernel-log.md", s.opts.Path, err)
	case err != nil:
		return fmt.Errorf("open %s: %w: is it in the container or allowed by the unit? See docs/kernel-log.md",
			s.opts.Path, err)
	}
	// reading starts at the oldest message: the log cannot seek to a number
	s.fd, s.skipping = fd, s.cursor.Sequence == 0
	return nil
}

// follow processes all messages that exist now.
func (s *Source) follow() error {
	rails, _ := s.opts.Rails() // the rdma source reports devices that cannot be examined
	counted := false
	for range maxRecords {
		n, err := s.read(s.fd, s.buf[:])
		switch {
		case errors.Is(err, unix.EAGAIN), n == 0 && err == nil: // the end; also of a regular file, as in tests
			s.skipping = false
			s.save(counted)
			return nil
		// the next sequence number shows how many were lost
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EPIPE):
			continue
		case errors.Is(err, unix.EINVAL): // larger than the buffer: the kernel skips it
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
	return &collector.Fault{Reason: "behind",
		Err: fmt.Errorf("%s: more than %d messages since the last read; the rest is read next time", s.opts.Path,
			maxRecords)}
}

// take counts the event that a message reports, if any.
func (s *Source) take(b []byte, rails []rail.Rail) (counted bool) {
	r, ok := kernellog.Parse(b)
	if !ok {
		s.bad++
		return false
	}
	last := s.cursor.Sequence
	if last != 0 && r.Sequence <= last {
		return false // read before a restart
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

// save saves the cursor, at once after an event: a restart must not count it again.
func (s *Source) save(counted bool) {
	known := s.cursor.Boot != "" && s.cursor.Sequence > 0
	if s.opts.Save == nil || !known || s.cursor == s.saved || !counted && time.Since(s.at) < saveEvery {
		return
	}
	s.saved, s.at = s.cursor, time.Now()
	s.opts.Save(s.cursor)
}

// subject returns the rail, GPU or address that an event concerns.
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
