package record

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

const (
	interval     = 100 * time.Millisecond // time between two readings of the rails
	slowInterval = time.Second            // time between two readings of queue pairs and memory
	maxPoints    = 600                    // points of a series: beyond that, pairs are merged
	headerRDMA   = 58                     // RoCE v2 over IPv4: Ethernet 14, IP 20, UDP 8, BTH 12, ICRC 4
	headerTCP    = 66                     // Ethernet 14, IPv4 20, TCP with timestamps 32
	longerIPv6   = 20                     // bytes by which an IPv6 header is longer than an IPv4 header
	headerIB     = 24                     // LRH 8, BTH 12, ICRC 4
)

// Options configure what a recorder reads. A nil function skips its kind of data.
type Options struct {
	Sysfs, Procfs string
	Rails         []rail.Rail
	// QueuePairs calls each for every queue pair of a device.
	QueuePairs func(device string, each func(rdmanl.QP)) error
	// GPUs returns the memory in use per GPU, by name.
	GPUs func() (map[string]int64, error)
	// Own returns the bytes that railscope's probe has carried so far, by [rail.Key]; empty if no probe runs on this
	// node.
	Own func() (map[string]Own, error)
}

// Own counts bytes on the wire of the probe's own transfers over a rail since its start. Transmit and Receive include
// TCP.
type Own struct{ Transmit, Receive, TCP uint64 }

// Recorder reads in the background until [Recorder.Stop].
type Recorder struct {
	o       Options
	rails   []*watched
	start   time.Time
	cancel  context.CancelFunc
	running sync.WaitGroup

	processes map[string]map[string]int // name → rail → queue pairs
	gpus      map[string]*Memory
	host      *Memory
	notes     []string

	own    map[string]Own // bytes at the start; nil if unknown
	ownErr error
}

// watched is the state of one rail.
type watched struct {
	rail     rail.Rail
	port     *rail.Port
	capacity float64
	group    rail.Group
	shared   bool // its byte counters are the interface's
	ipv6     bool // it has no IPv4 address

	first, now [rail.Directions]uint64
	last       [rail.Directions]uint64 // bytes at the end of the last point
	packets    [rail.Directions]uint64 // packets at the start
	counted    [rail.Directions]bool   // packets are counted
	software   uint64                  // RDMA packets of a software device at the start, both directions
	netdev     [rail.Directions]uint64 // bytes of the interface at the start
	broken     error                   // error of reading the bytes

	at     time.Time // time of last
	peak   [rail.Directions]float64
	series []Point
	each   int // readings per point
	open   int // readings in the last point so far
	pairs  int
}

// Start takes a first reading and begins to record in the background.
func Start(o Options) *Recorder {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recorder{o: o, start: time.Now(), cancel: cancel, processes: map[string]map[string]int{},
		gpus: map[string]*Memory{}}
	var limits []rail.Limits
	byName := func(a, b rail.Rail) int { return rail.NaturalCompare(a.Name, b.Name) } // devices may be in another order
	for _, one := range slices.SortedFunc(slices.Values(o.Rails), byName) {
		w := &watched{rail: one, port: rail.NewPort(o.Sysfs, one, nil), each: 1}
		r.rails = append(r.rails, w)
		r.begin(w)
		// Without a status, the capacity is unknown.
		status, _ := w.port.Status()
		limits = append(limits, status.Limits)
		w.group = rail.Group{Role: one.Role, LinkLayer: one.LinkLayer, Rate: status.Limits.Rate}
	}
	for i, capacity := range rail.Capacities(limits) {
		r.rails[i].capacity = capacity
	}
	if o.Own != nil {
		r.own, r.ownErr = o.Own()
	}
	r.readSlow()
	r.running.Go(func() { every(ctx, interval, r.readRails) })
	r.running.Go(func() { every(ctx, slowInterval, r.readSlow) }) // a GPU that hangs does not delay rails
	return r
}

// begin takes the first reading of a rail.
func (r *Recorder) begin(w *watched) {
	for d := range rail.Directions {
		v, _, err := w.port.Bytes(d)
		if err != nil {
			w.broken = err
			return
		}
		w.first[d], w.now[d], w.last[d] = v, v, v
		packets, err := w.port.Packets(d)
		w.packets[d], w.counted[d] = packets, err == nil
		w.netdev[d], _ = r.interfaceBytes(w, d)
	}
	w.shared, w.at = w.port.BytesShared(), time.Now()
	w.software, _ = w.softwarePackets()
	gids, _ := w.port.GIDs() // without a table, IPv4 is assumed
	w.ipv6 = len(gids) > 0 && !slices.ContainsFunc(gids, rail.GID.IPv4)
}

// softwarePackets returns the RDMA packets that a software device has counted, both directions; known is false if it
// does not count them.
func (w *watched) softwarePackets() (sum uint64, known bool) {
	for d := range rail.Directions {
		v, _, err := w.port.SoftwarePackets(d)
		if err != nil {
			return 0, false
		}
		sum += v
	}
	return sum, true
}

// byTCP reports whether the bytes of a software device, counted at its interface, were mostly TCP's: more than its RDMA
// packets can explain. If packets are not counted, the presence of queue pairs decides, if they were read.
func (w *watched) byTCP(pairsRead bool) bool {
	// The interface counts these bytes of a packet beyond its MTU: Ethernet header and VLAN tag.
	const frame = 18
	now, known := w.softwarePackets()
	mtu, _, err := w.port.MTU()
	if !known || err != nil || now < w.software {
		return pairsRead && w.pairs == 0
	}
	var all uint64
	for d := range rail.Directions {
		all += w.now[d] - w.first[d]
	}
	return float64(now-w.software)*float64(mtu+frame) < (1-tcpPart)*float64(all)
}

// interfaceBytes returns the bytes of a rail's interface. On an adapter these are only TCP's.
func (r *Recorder) interfaceBytes(w *watched, direction int) (uint64, error) {
	name := [rail.Directions]string{rail.Receive: "rx_bytes", rail.Transmit: "tx_bytes"}[direction]
	return sysfs.ReadUint(filepath.Join(r.o.Sysfs, "class/net", w.rail.Netdev, "statistics", name))
}

// every calls fn at each tick until ctx is done.
func every(ctx context.Context, d time.Duration, fn func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fn()
		}
	}
}

func (r *Recorder) readRails() {
	for _, w := range r.rails {
		w.read(time.Now(), r.start)
	}
}

// read takes a reading of a rail's bytes. A reading too soon after another yields no rate: counters move in steps.
func (w *watched) read(now, start time.Time) {
	if w.broken != nil {
		return
	}
	for d := range rail.Directions {
		v, _, err := w.port.Bytes(d)
		if err != nil || v < w.now[d] {
			w.broken = cmp.Or(err, errWentBack)
			return
		}
		w.now[d] = v
	}
	took := now.Sub(w.at)
	if took < interval/2 {
		return
	}
	var rate [rail.Directions]float64
	for d := range rail.Directions {
		rate[d] = float64(w.now[d]-w.last[d]) / took.Seconds()
		w.last[d], w.peak[d] = w.now[d], max(w.peak[d], rate[d])
	}
	w.at = now
	w.add(Point{now.Sub(start).Seconds(), rate[rail.Transmit], rate[rail.Receive]})
}

// add adds a reading to the series. When the series is full, pairs of points are merged, so that a job of days still
// fits.
func (w *watched) add(p Point) {
	if w.open > 0 && w.open < w.each {
		last := &w.series[len(w.series)-1]
		n := float64(w.open)
		last.At = p.At
		last.Transmit = (last.Transmit*n + p.Transmit) / (n + 1)
		last.Receive = (last.Receive*n + p.Receive) / (n + 1)
		w.open++
		return
	}
	if len(w.series) == maxPoints {
		half := w.series[:0]
		for i := 0; i < maxPoints; i += 2 {
			a, b := w.series[i], w.series[i+1]
			half = append(half, Point{b.At, (a.Transmit + b.Transmit) / 2, (a.Receive + b.Receive) / 2})
		}
		w.series, w.each = half, 2*w.each
	}
	w.series, w.open = append(w.series, p), 1
}

// readSlow reads the data that is expensive to read.
func (r *Recorder) readSlow() {
	if m, err := proc.ReadMemory(r.o.Procfs); err == nil {
		used := int64(m.Total - m.Available)
		if r.host == nil {
			r.host = &Memory{Name: "host", Before: used}
		}
		r.host.Most = max(r.host.Most, used)
	}
	if r.o.GPUs != nil {
		used, err := r.o.GPUs()
		r.note("memory of GPUs", err)
		for name, bytes := range used {
			if r.gpus[name] == nil {
				r.gpus[name] = &Memory{Name: name, Before: bytes}
			}
			r.gpus[name].Most = max(r.gpus[name].Most, bytes)
		}
	}
	if r.o.QueuePairs != nil {
		for _, w := range r.rails {
			r.readPairs(w)
		}
	}
}

// note records once what could not be read.
func (r *Recorder) note(what string, err error) {
	if err == nil {
		return
	}
	if text := what + ": " + err.Error(); !slices.Contains(r.notes, text) && len(r.notes) < maxNotes {
		r.notes = append(r.notes, text)
	}
}

const maxNotes = 32

// readPairs counts the connected queue pairs of a rail, by process name.
func (r *Recorder) readPairs(w *watched) {
	count, all := map[string]int{}, 0
	err := r.o.QueuePairs(w.rail.Device, func(q rdmanl.QP) {
		if q.Kernel || !q.Connected || int(q.Port) != w.rail.Port || q.State != rdmanl.RTS && q.State != rdmanl.RTR {
			return
		}
		all++
		name := "not visible"
		if q.PID > 0 {
			if stat, err := proc.ReadStat(r.o.Procfs, int(q.PID)); err == nil {
				name = stat.Comm
			}
		}
		count[name]++
	})
	r.note("queue pairs of rail "+w.rail.Name, err)
	w.pairs = max(w.pairs, all)
	for name, n := range count {
		if r.processes[name] == nil {
			if len(r.processes) == maxNotes {
				continue
			}
			r.processes[name] = map[string]int{}
		}
		r.processes[name][w.rail.Name] = max(r.processes[name][w.rail.Name], n)
	}
}

// Stop ends the recording and returns its result.
func (r *Recorder) Stop() Record {
	end := time.Now()
	r.cancel()
	r.running.Wait()
	r.readSlow()
	out := Record{Version: Version, Start: r.start, Seconds: end.Sub(r.start).Seconds(), Rails: []Rail{},
		Processes: []Process{}, GPUs: []Memory{}, Host: r.host, Environment: map[string]string{}}
	for _, w := range r.rails {
		w.read(time.Now(), r.start)
		out.Rails = append(out.Rails, r.result(w))
		w.port.Close()
	}
	out.Probe = r.leaveOutOwn(out.Rails)
	for _, name := range slices.Sorted(maps.Keys(r.gpus)) {
		out.GPUs = append(out.GPUs, *r.gpus[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.processes)) {
		out.Processes = append(out.Processes, Process{name, r.processes[name]})
	}
	out.Notes = append([]string{}, r.notes...)
	out.judge()
	return out
}
