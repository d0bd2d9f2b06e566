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
	interval     = 100 * time.Millisecond // between two readings of the rails
	slowInterval = time.Second            // of queue pairs and memory
	maxPoints    = 600                    // of a series: then two become one
	headerRDMA   = 58                     // RoCE v2 over IPv4: Ethernet 14, IP 20, UDP 8, BTH 12, ICRC 4
	headerTCP    = 66                     // Ethernet 14, IPv4 20, TCP with timestamps 32
	longerIPv6   = 20                     // that its header is longer than that of IPv4
	headerIB     = 24                     // LRH 8, BTH 12, ICRC 4
)

// Options are what a recorder reads. Functions may be nil: nothing of that kind is seen.
type Options struct {
	Sysfs, Procfs string
	Rails         []rail.Rail
	// QueuePairs calls each for the queue pairs of a device.
	QueuePairs func(device string, each func(rdmanl.QP)) error
	// GPUs returns the memory in use of each GPU, by name.
	GPUs func() (map[string]int64, error)
}

// Recorder reads in the background until it is stopped.
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
}

// watched is one rail.
type watched struct {
	rail     rail.Rail
	port     *rail.Port
	capacity float64
	group    rail.Group
	shared   bool // its bytes are the interface's
	ipv6     bool // it has no address of IPv4

	first, now [rail.Directions]uint64
	last       [rail.Directions]uint64 // at the end of the last point
	packets    [rail.Directions]uint64 // at the start
	counted    [rail.Directions]bool   // packets are
	software   uint64                  // packets of RDMA of a software device, at the start, of both directions
	netdev     [rail.Directions]uint64 // of the interface, at the start
	broken     error                   // of the bytes

	at     time.Time // of last
	peak   [rail.Directions]float64
	series []Point
	each   int // readings in one point
	open   int // readings in the last point
	pairs  int
}

// Start reads everything once, and begins.
func Start(o Options) *Recorder {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recorder{o: o, start: time.Now(), cancel: cancel, processes: map[string]map[string]int{},
		gpus: map[string]*Memory{}}
	var limits []rail.Limits
	for _, one := range o.Rails {
		w := &watched{rail: one, port: rail.NewPort(o.Sysfs, one, nil), each: 1}
		r.rails = append(r.rails, w)
		r.begin(w)
		status, _ := w.port.Status() // without one, the capacity is not known
		limits = append(limits, status.Limits)
		w.group = rail.Group{Role: one.Role, LinkLayer: one.LinkLayer, Rate: status.Limits.Rate}
	}
	for i, capacity := range rail.Capacities(limits) {
		r.rails[i].capacity = capacity
	}
	r.readSlow()
	r.running.Go(func() { every(ctx, interval, r.readRails) })
	r.running.Go(func() { every(ctx, slowInterval, r.readSlow) }) // a GPU that hangs delays no rail
	return r
}

// begin reads a rail for the first time.
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

// softwarePackets are the packets of RDMA that a software device has counted, of both directions; false: it does not.
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

// byTCP reports whether the bytes of a software device, which are those of its interface, were mostly TCP's: more than
// its packets of RDMA can have had. Where they are not counted, queue pairs tell, if these are read.
func (w *watched) byTCP(pairsRead bool) bool {
	const frame = 18 // that the interface counts of a packet above its MTU: Ethernet header and VLAN tag
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

// interfaceBytes are the bytes of a rail's interface: where an adapter does the work, those of TCP alone.
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

// read takes a reading of the bytes of a rail. One that follows another too soon has no rate: counters move in steps.
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

// add adds a reading to the series. When that is full, two points become one, and so on: a job of days has as many.
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

// readSlow reads what costs more.
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

// note adds what is not seen, once.
func (r *Recorder) note(what string, err error) {
	if err == nil {
		return
	}
	if text := what + ": " + err.Error(); !slices.Contains(r.notes, text) && len(r.notes) < maxNotes {
		r.notes = append(r.notes, text)
	}
}

const maxNotes = 32

// readPairs counts the connected queue pairs of a rail, by name of their process.
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

// Stop ends the recording, and returns what was seen.
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
