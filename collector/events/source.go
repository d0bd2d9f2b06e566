// Package events counts the changes of rails that the kernel announces, and reports them at once: a fault is known when
// it happens, and not at the next reading.
//
//	netlink → internal/notice → source.go: Event of a rail → Changed, and Read → collector.Sample
//
// Events that only a program with an open device receives come from the probe, by [Source.Note].
package events

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/notice"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/rtnl"
)

// Event is what happened to a rail.
type Event string

// Events that the kernel announces to everybody. The probe has those that a program with an open device receives.
const (
	LinkUp         Event = "link_up"
	LinkDown       Event = "link_down"
	AddressAdded   Event = "address_added"
	AddressRemoved Event = "address_removed"
	BondFailover   Event = "bond_failover"
	DeviceAdded    Event = "device_added"
	DeviceRemoved  Event = "device_removed"
	NetdevAttached Event = "netdev_attached"
	NetdevDetached Event = "netdev_detached"
)

// Options configure a [Source].
type Options struct {
	Rails  func() rail.Snapshot
	Names  func() (map[uint32]string, error)                               // [rdmanl.Client.Indices]
	List   func() ([]rtnl.Change, error)                                   // [rtnl.List]
	Listen func(context.Context, notice.Group, func(notice.Message)) error // [notice.Listen]
}

// Source counts events. Safe for concurrent use, but [Source.Run] and [Source.Read] have one caller each.
type Source struct {
	*table
	opts    Options
	changed chan struct{}
	stale   chan struct{}     // the interfaces must be listed again
	names   map[uint32]string // RDMA devices by index; only the receiver of RDMA netlink uses it

	finding sync.Mutex // protects rails
	rails   rails

	linking sync.Mutex // protects links; held while they are listed, which waits for the kernel
	links   *links

	mu     sync.Mutex // protects all following fields
	counts map[series]uint64
	last   map[string]time.Time // time of the last event by rail
	lost   uint64
	failed []error // groups whose announcements are not received
}

type series struct {
	rail  string
	event Event
}

// New returns a source. It counts nothing before [Source.Run].
func New(opts Options) *Source {
	return &Source{table: newTable(), opts: opts, changed: make(chan struct{}, 1), stale: make(chan struct{}, 1),
		links: newLinks(), counts: map[series]uint64{}, last: map[string]time.Time{}}
}

// Changed reports that rails have changed, or that announcements of changes were lost. Changes while nobody receives
// are reported once.
func (s *Source) Changed() <-chan struct{} { return s.changed }

// Run listens until ctx is done. Where the kernel announces nothing, as to a pod with a network namespace of its own,
// it counts nothing.
func (s *Source) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for group, take := range map[notice.Group]func(notice.Message){
		notice.Routes(): s.route, notice.Devices(): s.device, notice.RDMA(): s.rdma,
	} {
		wg.Go(func() {
			err := s.opts.Listen(ctx, group, func(m notice.Message) {
				if m.Lost {
					s.noteLoss()
				} else {
					take(m)
				}
			})
			// A kernel without RDMA has no RDMA netlink.
			if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) {
				s.mu.Lock()
				s.failed = append(s.failed, collector.NewFault("", err))
				s.mu.Unlock()
			}
		})
	}
	for s.relist(); ctx.Err() == nil; s.relist() {
		select {
		case <-time.After(relistEvery):
		case <-ctx.Done():
		}
		select {
		case <-s.stale:
		case <-ctx.Done():
		}
	}
	wg.Wait()
}

// relistEvery is the minimum time between two listings, which take long where there are thousands of interfaces.
const relistEvery = time.Second

// noteLoss counts a loss. What was missed is read again.
func (s *Source) noteLoss() {
	s.mu.Lock()
	s.lost++
	s.mu.Unlock()
	report(s.stale)
	report(s.changed)
}

// report sends to a channel, unless a value already waits there.
func report(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// relist learns the interfaces and their addresses anew. What differs from before is not counted: nobody knows how
// often it changed. A listing that fails is made again; until then an interface is known from its next announcement.
func (s *Source) relist() {
	s.linking.Lock()
	defer s.linking.Unlock()
	list, err := s.opts.List()
	if err != nil {
		report(s.stale)
		return
	}
	s.links = newLinks()
	for _, c := range list {
		s.links.apply(c)
	}
	report(s.changed)
}

// route takes an announcement of an interface or an address.
func (s *Source) route(m notice.Message) {
	c, ok := rtnl.ParseChange(m.Type, m.Data)
	if !ok {
		return
	}
	s.linking.Lock()
	events, above, below := s.links.take(c)
	s.linking.Unlock()
	current := s.currentRails()
	carriers, addressed := current.of(above), current.of(below)
	for _, e := range events {
		if e == LinkUp || e == LinkDown {
			s.count(carriers, 1, e)
		} else {
			s.count(addressed, 1, e)
		}
	}
	if len(carriers)+len(addressed) > 0 {
		report(s.changed)
	}
}

// device takes an event of a device.
func (s *Source) device(m notice.Message) {
	e, ok := notice.ParseDevice(m.Data)
	switch {
	case !ok:
	case e.Subsystem == "pci":
		report(s.changed)
	case e.Subsystem == "infiniband":
		devices := s.currentRails().devices
		s.count(slices.Concat(devices[e.Name], devices[e.Old]), 1,
			map[string]Event{"add": DeviceAdded, "remove": DeviceRemoved}[e.Action])
		report(s.changed)
	}
}

// rdma takes an announcement of RDMA netlink. Those of devices repeat the events of [Source.device].
func (s *Source) rdma(m notice.Message) {
	n, ok := rdmanl.ParseNotice(m.Type, m.Data)
	what := map[rdmanl.Announcement]Event{rdmanl.NetdevAttached: NetdevAttached,
		rdmanl.NetdevDetached: NetdevDetached}[n.What]
	switch {
	case !ok:
	case what == "":
		s.names = nil // they may have changed
		report(s.changed)
	default:
		if _, known := s.names[n.Index]; !known {
			s.names, _ = s.opts.Names() // without them the event is reported, but not counted
		}
		s.count([]string{s.currentRails().ports[rail.Key(s.names[n.Index], n.Port)]}, 1, what)
		report(s.changed)
	}
}

// Note counts an event of an open device that occurred n times. port 0 means all of its ports.
func (s *Source) Note(device string, port int, event string, n uint64) {
	rails := s.currentRails()
	names := rails.devices[device]
	if port > 0 {
		names = []string{rails.ports[rail.Key(device, port)]}
	}
	s.count(names, n, Event(event))
	report(s.changed)
}

// count counts events of rails, each n times. An empty name is that of a port that is no rail.
func (s *Source) count(rails []string, n uint64, events ...Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range rails {
		for _, e := range events {
			if name != "" && e != "" {
				s.counts[series{name, e}] += n
				s.last[name] = time.Now()
			}
		}
	}
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(s.counts), func(a, b series) int {
		return cmp.Or(cmp.Compare(a.rail, b.rail), cmp.Compare(a.event, b.event))
	}) {
		emit(collector.Sample{Metric: s.events, Labels: []string{k.rail, string(k.event)}, Value: float64(s.counts[k])})
	}
	for _, name := range slices.Sorted(maps.Keys(s.last)) {
		emit(collector.Sample{Metric: s.table.last, Labels: []string{name},
			Value: float64(s.last[name].UnixMilli()) / 1e3})
	}
	emit(collector.Sample{Metric: s.table.lost, Value: float64(s.lost)})
	return errors.Join(s.failed...)
}

// rails are the rails of this node, also missing ones, at one time.
type rails struct {
	at      time.Time
	ports   map[string]string   // rail by device and port
	devices map[string][]string // rails by device
	netdevs map[string][]string // rails by interface
}

// recent is the maximum age of the rails to which events are attributed.
const recent = 200 * time.Millisecond

// currentRails returns the rails. The interface of a rail that is gone is the last known one.
func (s *Source) currentRails() rails {
	s.finding.Lock()
	defer s.finding.Unlock()
	if time.Since(s.rails.at) < recent {
		return s.rails
	}
	snap, before := s.opts.Rails(), s.rails.netdevs
	now := rails{at: time.Now(), ports: map[string]string{}, devices: map[string][]string{},
		netdevs: map[string][]string{}}
	present := map[string]bool{}
	for _, r := range snap.Rails {
		now.add(r.Name, r.Device, r.Port)
		if r.Netdev != "" {
			now.netdevs[r.Netdev] = append(now.netdevs[r.Netdev], r.Name)
			present[r.Name] = true
		}
	}
	for _, m := range snap.Missing {
		now.add(m.Name, m.Device, m.Port)
	}
	for netdev, names := range before {
		for _, name := range names {
			if !present[name] {
				now.netdevs[netdev] = append(now.netdevs[netdev], name)
			}
		}
	}
	s.rails = now
	return now
}

func (r *rails) add(name, device string, port int) {
	r.ports[rail.Key(device, port)] = name
	r.devices[device] = append(r.devices[device], name)
}

// of returns the rails of interfaces, each once.
func (r rails) of(netdevs []string) (names []string) {
	for _, netdev := range netdevs {
		names = append(names, r.netdevs[netdev]...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
