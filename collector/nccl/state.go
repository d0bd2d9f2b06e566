package nccl

import (
	"slices"
	"strings"
	"sync"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ncclnet"
)

// Limits of label values per log. Others are dropped; channels are summed as other.
const (
	maxNetworks   = 8
	maxDevices    = 64
	maxTransports = 16
)

type jobs struct {
	table *table

	mu          sync.Mutex
	list        map[string]*job   // protected by mu, like all below
	warnings    map[string]uint64 // keyed by kind
	completions map[string]uint64 // keyed by status
	cuts        uint64            // lines
	skipped     uint64            // bytes
}

func newJobs(t *table) *jobs {
	return &jobs{table: t, list: map[string]*job{}, warnings: map[string]uint64{}, completions: map[string]uint64{}}
}

type job struct {
	all  *jobs
	name string
	buf  []byte // buffer for the name of a transport
	logState
}

type logState struct {
	ended                       bool               // the log was rotated or truncated: the next run resets the state
	networks, devices, channels []collector.Sample // labels: job, name
	provider                    string             // provider of libfabric; empty if not in the log
	nodes                       int64              // most nodes of one communicator of the job; 0 if unknown
	cause                       eventKind          // reason why it may have no RDMA; 0 if unknown
	gaps                        bool               // a part of the log was not read
}

// open adds a job's log. A log with the same name keeps its state: logs are rotated while their job runs.
func (s *jobs) open(name string) *job {
	j := &job{all: s, name: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.list[name]; last != nil {
		j.logState = last.logState
		j.networks, j.devices, j.channels = slices.Clone(j.networks), slices.Clone(j.devices), slices.Clone(j.channels)
		j.ended = true
	}
	s.list[name] = j
	return j
}

func (j *job) line(text []byte, isNew bool) {
	parse(text, func(e event) { j.apply(e, isNew) })
}

func (j *job) apply(e event, isNew bool) {
	j.all.mu.Lock()
	defer j.all.mu.Unlock()
	if j.ended && (e.kind == began || e.kind == network) {
		j.logState = logState{} // another run writes to the same file
	}
	t := j.all.table
	switch e.kind {
	case restarted:
		j.ended = true
	case skipped:
		j.gaps = true
		j.all.skipped += uint64(e.count)
	case cut:
		j.all.cuts++
	case closed:
		if j.all.list[j.name] == j {
			delete(j.all.list, j.name)
		}
	case network:
		if string(e.name) == "InfiniBand" { // name in the tutorials
			e.name = []byte("IB")
		}
		if s := j.series(&j.networks, maxNetworks, t.network, e.name); s != nil {
			s.Value = 1
		}
	case gdrState:
		if s := j.series(&j.devices, maxDevices, t.gdr, e.name); s != nil {
			s.Value = collector.Bool(e.on)
		}
	case channel:
		j.buf = append(append(j.buf[:0], e.transport...), e.name...)
		if e.on {
			j.buf = append(j.buf, gdrSuffix...)
		}
		s := j.series(&j.channels, maxTransports, t.channels, j.buf)
		if s == nil {
			s = j.series(&j.channels, maxTransports+1, t.channels, []byte(otherTransport))
		}
		s.Value++
	case commSize:
		j.nodes = max(j.nodes, e.count)
	case provider:
		j.provider = string(e.name)
		if ncclnet.Of(libfabric, j.provider) == ncclnet.Sockets {
			j.cause = max(j.cause, noLibfabric)
		}
	case noPlugin, noDevice, noVerbs, noLibfabric, disabled, forced:
		j.cause = max(j.cause, e.kind)
	case warned:
		// A warning that was in the log when it was opened is not counted: a restart of the exporter must not count
		// it again.
		if isNew {
			j.all.warnings[e.warning]++
			if e.status != "" {
				j.all.completions[e.status]++
			}
		}
	}
}

// series returns the series of a name, or nil if the log has reached its limit of series.
func (j *job) series(list *[]collector.Sample, most int, row *collector.Metric, name []byte) *collector.Sample {
	for i := range *list {
		if s := &(*list)[i]; s.Labels[1] == string(name) {
			return s
		}
	}
	if len(*list) >= most {
		return nil
	}
	*list = append(*list, collector.Sample{Metric: row, Labels: []string{j.name, string(name)}})
	return &(*list)[len(*list)-1]
}

// libfabric is a network whose provider decides what carries the data.
const libfabric = "Libfabric"

// fallback reports whether the job uses sockets, according to its log. known is false until the log shows what
// carries its data.
func (j *job) fallback() (fell, known bool) {
	var carriers [ncclnet.RDMA + 1]bool
	for _, n := range j.networks {
		carriers[ncclnet.Of(n.Labels[1], j.provider)] = true
	}
	for _, c := range j.channels {
		plugin, found := strings.CutPrefix(c.Labels[1], netTransport)
		if !found {
			continue
		}
		plugin, direct := strings.CutSuffix(plugin, gdrSuffix)
		carrier := ncclnet.Of(plugin, j.provider)
		switch {
		case carrier == ncclnet.Sockets:
			return true, true
		case direct && ncclnet.Of(plugin, "efa") == ncclnet.RDMA: // libfabric whose provider is not in the log
			return false, true
		}
		carriers[carrier] = true
	}
	switch oneNode := j.nodes == 1; {
	case carriers[ncclnet.Sockets]: // the channels within one node do not use the chosen network
		return !oneNode, true
	case carriers[ncclnet.Unknown]:
		return false, oneNode
	}
	return false, carriers[ncclnet.RDMA]
}

func (s *jobs) emit(emit func(collector.Sample)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.list {
		j.emit(emit)
	}
	t := s.table
	for _, rule := range warnRules() {
		if rule.kind == settings && s.warnings[settings] == 0 {
			continue // only RCCL prints them
		}
		emit(collector.Sample{Metric: t.warnings, Labels: []string{rule.kind}, Value: float64(s.warnings[rule.kind])})
	}
	for _, status := range statusNames() {
		if status != "" {
			emit(collector.Sample{Metric: t.completions, Labels: []string{status},
				Value: float64(s.completions[status])})
		}
	}
	emit(collector.Sample{Metric: t.cut, Value: float64(s.cuts)})
	emit(collector.Sample{Metric: t.skipped, Value: float64(s.skipped)})
}

func (j *job) emit(emit func(collector.Sample)) {
	list := slices.Concat(j.networks, j.devices)
	if !j.gaps { // otherwise some channels are missing
		list = append(list, j.channels...)
	}
	t := j.all.table
	if fell, known := j.fallback(); known {
		list = append(list, collector.Sample{Metric: t.fallback, Labels: []string{j.name}, Value: collector.Bool(fell)})
		if fell {
			reason := [...]string{0: "unknown", noPlugin: "ib_failed", noDevice: "no_device", noVerbs: "no_libibverbs",
				noLibfabric: "libfabric", disabled: "ib_disabled", forced: "net_forced"}[j.cause]
			list = append(list, collector.Sample{Metric: t.reason, Labels: []string{j.name, reason}, Value: 1})
		}
	}
	for _, sample := range list {
		emit(sample)
	}
}
