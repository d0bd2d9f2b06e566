// Package process reads which processes hold queue pairs and GPU memory, and which jobs use GPUs without RDMA.
package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

// Options configure the source.
type Options struct {
	Sysfs, Procfs string
	Rootfs        string // mount point of the host's root, which has the kubelet's socket and logs
	Rails         func() ([]rail.Rail, error)
	// Kernel makes a client of the RDMA core. If nil, the running kernel is asked, provided that Sysfs is its
	// sysfs.
	Kernel func() Kernel
	NVML   *nvml.Session
	AMD    *amdgpu.Finder // finds AMD's GPUs, and gives them their indexes; nil: one of its own
	// Budget is the time that a Read waits for the list of devices, and then for devices and GPUs; 0 means 1 s.
	Budget time.Duration
	Limit  int // maximum number of series of one row; at least 2, 0 means 256
}

// Source reports who holds queue pairs and GPU memory, and which jobs hold GPU memory without a queue pair.
type Source struct {
	opts Options
	*table
	clock func() uint64 // [proc.Now]

	pairs   qpReader
	gpus    *gpuReader
	lookups lane.Group[ownersFound]
	owners  ownerCache
	names   podNames
	spans   spanCache

	queuePairs, memory, without *seriesKeeper
	shared, imbalance           *seriesKeeper
	traffic                     jobTraffic

	jobs atomic.Pointer[dated[[]Job]]
	used atomic.Pointer[dated[map[string][]string]]
}

// New returns the process source. It needs the host's PID namespace. In another one, the kernel does not report the
// owners of queue pairs, and a Read fails with [collector.ReasonNamespace] and emits nothing.
func New(opts Options) *Source {
	opts.Budget = cmp.Or(opts.Budget, time.Second)
	opts.Limit = max(cmp.Or(opts.Limit, 256), 2)
	opts.AMD = cmp.Or(opts.AMD, amdgpu.NewFinder(opts.Sysfs))
	if opts.Kernel == nil && sysfs.Live(opts.Sysfs) {
		opts.Kernel = func() Kernel { return rdmanl.NewForDumps(opts.Budget) }
	}
	t := newTable()
	p := &Source{opts: opts, table: t, clock: proc.Now, names: podNames{rootfs: opts.Rootfs},
		gpus:       &gpuReader{nvml: nvml.NewReader(opts.NVML, readHoldings), amd: opts.AMD},
		owners:     ownerCache{procfs: opts.Procfs, kept: map[int]*keptTask{}},
		spans:      spanCache{procfs: opts.Procfs, known: map[proc.Instance]spanKnown{}},
		queuePairs: newSeriesKeeper(t.queuePairs), memory: newSeriesKeeper(t.memory),
		without: newSeriesKeeper(t.without), shared: newSeriesKeeper(t.shared), imbalance: newSeriesKeeper(t.imbalance),
		traffic: newJobTraffic(opts.Limit)}
	p.imbalance.overflow = nil // ratios cannot be summed
	p.pairs = qpReader{kernel: opts.Kernel, clock: func() uint64 { return p.clock() }}
	return p
}

type processReading struct {
	qpFound
	begun    uint64 // start of the read, on the clock of proc.Now
	rails    []rail.Rail
	allRails bool // no rail is missing
	complete bool // it has every queue pair of every device and rail
	gpus     bool // GPUs were found
	holdings []*gpuHolding
	holders  map[uint32]*holder // see ownersFound; nil if unknown
}

// ended reports whether a thread that the kernel named has ended, and its queue pairs with it.
func (r *processReading) ended(thread uint32) bool {
	_, exists := r.holders[thread]
	return thread != 0 && !exists
}

// Read implements [collector.Source].
func (p *Source) Read(emit func(collector.Sample)) error {
	r, faults := p.gather()
	if len(r.devices) == 0 && !r.gpus && len(faults) == 0 {
		return fmt.Errorf("no RDMA device and no GPU: %w", collector.ErrAbsent)
	}
	if err := sysfs.Exists(filepath.Join(p.opts.Procfs, "self")); err != nil {
		return &collector.Fault{Reason: sysfs.Reason(err), Err: fmt.Errorf("processes cannot be identified without "+
			"procfs (--path.procfs): %w", err)}
	}
	if !proc.SeesHost(p.opts.Procfs) {
		return &collector.Fault{Reason: collector.ReasonNamespace, Err: errors.New("processes are identified only in " +
			"the host's PID namespace: start railscope on the host, or its container with hostPID: true (docker: " +
			"--pid=host), and --path.procfs on a procfs of that namespace")}
	}
	faults = append(faults, p.identify(r))
	if r.holders != nil {
		p.addQueuePairs(r)
		p.noteRails(r)
		for _, h := range r.holdings {
			if o := r.holders[h.pid]; o != nil {
				p.memory.add(h.memory, h.gpu, o.pod, o.container, o.Comm)
			}
		}
		p.judge(r)
		p.attribute(r, emit)
		for _, q := range r.tallies {
			device := []string{q.device}
			emit(collector.Sample{Metric: p.age, Labels: device, Value: time.Since(q.ended).Seconds()})
			emit(collector.Sample{Metric: p.seconds, Labels: device, Value: q.took.Seconds()})
		}
	}
	for _, k := range []*seriesKeeper{p.queuePairs, p.memory, p.without, p.shared, p.imbalance} {
		k.flush(p.opts.Limit, emit)
	}
	return errors.Join(faults...)
}

func (p *Source) gather() (*processReading, []error) {
	r := &processReading{begun: p.clock()}
	var faults, qpFaults, gpuFaults []error
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		r.rails, err = p.opts.Rails()
		r.allRails = err == nil
		if len(r.rails) == 0 && err != nil { // the rdma source reports a device that could not be examined
			faults = []error{err}
		}
	})
	wg.Go(func() { r.holdings, r.gpus, gpuFaults = p.gpus.read(p.opts.Budget) })
	r.qpFound, qpFaults = p.pairs.read(p.opts.Budget)
	wg.Wait()
	r.complete = len(qpFaults) == 0 && !slices.ContainsFunc(r.rails, func(one rail.Rail) bool {
		return !slices.Contains(r.devices, one.Device)
	})
	return r, slices.Concat(faults, qpFaults, gpuFaults)
}

func (p *Source) identify(r *processReading) error {
	wanted := map[uint32]uint64{} // thread or process → latest start; see find
	for _, h := range r.holdings {
		wanted[h.pid] = r.begun
	}
	for _, q := range r.tallies {
		for key := range q.owners {
			if before, known := wanted[key.thread]; key.thread != 0 && (!known || q.begun < before) {
				wanted[key.thread] = q.begun // the older of two lists: better no owner than a wrong one
			}
		}
	}
	budget := p.opts.Budget / 2
	res := p.lookups.Run(budget, []string{"processes"},
		func(string) ownersFound { return p.owners.find(wanted, time.Now().Add(budget*9/10)) })[0]
	if res.State != lane.Done {
		return collector.LaneFault("", res.State, res.Err)
	}
	r.holders = res.Value.holders
	names, err := p.names.known(p.opts.Budget/4, r.holders)
	names.label(r.holders)
	return errors.Join(res.Value.err, err)
}

// addQueuePairs sums the queue pairs. Those of an ended thread have no owner; those of an ended process no longer
// exist.
func (p *Source) addQueuePairs(r *processReading) {
	for _, q := range r.tallies {
		rails, _ := p.railsOf(q.device, r.rails)
		for key, n := range q.owners {
			if r.ended(key.thread) {
				continue
			}
			o := cmp.Or(r.holders[key.thread], &holder{})
			p.queuePairs.add(float64(n), railName(rails, key.port), o.pod, o.container, o.Comm, key.state.String())
		}
		if q.rest > 0 {
			p.queuePairs.add(float64(q.rest), p.queuePairs.overflow...)
		}
	}
}

// seriesKeeper limits the series of one row: the largest are named, the rest is summed in one series. A named
// series is kept until another is twice as large, so that series near the limit do not flap.
type seriesKeeper struct {
	row      *collector.Metric
	overflow []string // labels of the summed rest; nil: the rest is dropped
	sums     map[string]*keptSeries
	named    map[string]bool // series that the last flush named
}

type keptSeries struct {
	key    string
	labels []string
	value  float64 // NaN if unknown
}

func newSeriesKeeper(row *collector.Metric) *seriesKeeper {
	return &seriesKeeper{row: row, overflow: slices.Repeat([]string{"other"}, len(row.Labels)),
		sums: map[string]*keptSeries{}}
}

// add adds to a series. NaN makes its value unknown: it is not emitted.
func (k *seriesKeeper) add(value float64, labels ...string) { k.series(labels).value += value }

func (k *seriesKeeper) series(labels []string) *keptSeries {
	key := strings.Join(labels, "\x00")
	s := k.sums[key]
	if s == nil {
		s = &keptSeries{key: key, labels: labels}
		k.sums[key] = s
	}
	return s
}

func (k *seriesKeeper) flush(limit int, emit func(collector.Sample)) {
	weight := func(s *keptSeries) float64 {
		if k.named[s.key] {
			return 2 * s.value
		}
		return s.value
	}
	_, summed := k.sums[strings.Join(k.overflow, "\x00")] // already summed by a dump
	rest := k.series(k.overflow)
	delete(k.sums, rest.key)
	maps.DeleteFunc(k.sums, func(_ string, s *keptSeries) bool { return math.IsNaN(s.value) })
	list := slices.SortedFunc(maps.Values(k.sums), func(a, b *keptSeries) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.key, b.key))
	})
	switch {
	case k.overflow == nil:
		list = list[:min(len(list), limit)]
	case summed || len(list) > limit:
		n := min(len(list), limit-1)
		for _, s := range list[n:] {
			rest.value += s.value
		}
		list = append(list[:n], rest)
	}
	k.named = make(map[string]bool, len(list))
	for _, s := range list {
		k.named[s.key] = true
		emit(collector.Sample{Metric: k.row, Labels: s.labels, Value: s.value})
	}
	clear(k.sums)
}
