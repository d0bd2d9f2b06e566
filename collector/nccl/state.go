package nccl

import (
	"slices"
	"sync"

	"github.com/railscope/railscope/collector"
)

// How many of each a log can add to labels. Others are dropped, channels summed as
// other.
const (
	maxNetworks   = 8
	maxDevices    = 64
	maxTransports = 16
)

// jobs is the state of all logs.
type jobs struct {
	mu          sync.Mutex
	list        map[string]*job // protected by mu, like all below
	warnings    []uint64        // by warnKind
	completions []uint64        // by completed; 0 is statusOther
	cuts        uint64          // lines
	skipped     uint64          // bytes
}

func newJobs() *jobs {
	return &jobs{list: map[string]*job{}, warnings: make([]uint64, len(warnKinds())),
		completions: make([]uint64, len(completionNames()))}
}

// job is one log.
type job struct {
	all   *jobs
	name  string
	isNew bool        // of the line that is being read
	each  func(event) // apply, made once
	logState
}

// logState is what a log has reported since its beginning.
type logState struct {
	ended    bool // the log was rotated or truncated: the next run resets the state
	networks []networkState
	devices  []deviceState
	channels []channelState
	nodes    int // the most that a communicator of the job spans; 0 unknown
	noDevice, disabled, forced, noPlugin,
	gaps bool // part of the log was not read
}

type networkState struct {
	name   string
	labels []string
}

type deviceState struct {
	name   string
	on     bool
	labels []string
}

type channelState struct {
	class  class
	plugin string
	gdr    bool
	count  uint64
	labels []string
}

var _ reader = (*job)(nil)

// open adds a job's log. If the job has one, the state is kept: logs are rotated
// while their job runs, and it does not report again how it runs.
func (s *jobs) open(name string) reader {
	j := &job{all: s, name: name}
	j.each = j.apply
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

func (j *job) end() {
	j.all.mu.Lock()
	defer j.all.mu.Unlock()
	if j.all.list[j.name] == j {
		delete(j.all.list, j.name)
	}
}

func (j *job) restart() {
	j.all.mu.Lock()
	defer j.all.mu.Unlock()
	j.ended = true
}

func (j *job) gap(skipped int64) {
	j.all.mu.Lock()
	defer j.all.mu.Unlock()
	j.gaps = true
	j.all.skipped += uint64(skipped)
}

func (j *job) cut() {
	j.all.mu.Lock()
	defer j.all.mu.Unlock()
	j.all.cuts++
}

func (j *job) line(text []byte, isNew bool) {
	j.isNew = isNew
	parse(text, j.each)
}

// apply is what an event changes.
func (j *job) apply(e event) {
	j.all.mu.Lock()
	defer j.all.mu.Unlock()
	if j.ended && (e.kind == began || e.kind == network) {
		j.logState = logState{} // another run writes the same file
	}
	switch e.kind {
	case network:
		j.addNetwork(e.name)
	case gdrState:
		j.addDevice(e.name, e.on)
	case channel:
		j.addChannel(e.class, e.name, e.on)
	case commSize:
		j.nodes = max(j.nodes, e.nodes)
	case noDevice:
		j.noDevice = true
	case disabled:
		j.disabled = true
	case forced:
		j.forced = true
	case noPlugin:
		j.noPlugin = true
	case warned:
		j.all.warn(e, j.isNew)
	}
}

// warn counts a warning. One that was in the log when it was opened is not
// counted: a restart of the exporter must not count it again.
func (s *jobs) warn(e event, isNew bool) {
	if !isNew {
		return
	}
	s.warnings[e.warn]++
	if e.status != 0 {
		s.completions[max(e.status, 0)]++
	}
}

func (j *job) addNetwork(name []byte) {
	if string(name) == "InfiniBand" { // as tutorials call it
		name = []byte(ibNetwork)
	}
	for _, n := range j.networks {
		if n.name == string(name) {
			return
		}
	}
	if len(j.networks) < maxNetworks {
		text := string(name)
		j.networks = append(j.networks, networkState{text, []string{j.name, text}})
	}
}

func (j *job) addDevice(name []byte, on bool) {
	for i := range j.devices {
		if j.devices[i].name == string(name) {
			j.devices[i].on = on
			return
		}
	}
	if len(j.devices) < maxDevices {
		text := string(name)
		j.devices = append(j.devices, deviceState{text, on, []string{j.name, text}})
	}
}

func (j *job) addChannel(c class, plugin []byte, gdr bool) {
	for i := range j.channels {
		if seen := &j.channels[i]; seen.class == c && seen.gdr == gdr && seen.plugin == string(plugin) {
			seen.count++
			return
		}
	}
	if len(j.channels) >= maxTransports && c != classOther {
		j.addChannel(classOther, nil, false)
		return
	}
	text := string(plugin)
	j.channels = append(j.channels, channelState{c, text, gdr, 1, []string{j.name, transportName(c, text, gdr)}})
}

// transportName is how a channel runs, as NCCL calls it, without the number of
// its device.
func transportName(c class, plugin string, gdr bool) string {
	name := [...]string{classNet: "NET/", classCollNet: "COLLNET/", classP2P: "P2P", classSHM: "SHM",
		classOther: "other"}[c] + plugin
	if gdr {
		name += "/GDRDMA"
	}
	return name
}

// fallback reports whether the job uses sockets, by its log; known is false until
// the log says which network it uses.
func (j *job) fallback() (fell, known bool) {
	sockets, chosen := false, len(j.networks) > 0
	for _, n := range j.networks {
		sockets = sockets || n.name == socketNetwork
	}
	for _, c := range j.channels {
		if c.class != classNet {
			continue
		}
		if c.plugin == socketNetwork {
			return true, true
		}
		chosen = true
	}
	// Inside one node nothing goes over the network that was chosen.
	return sockets && j.nodes != 1, chosen
}

// fallbackReason is why, as far as the log shows.
func (j *job) fallbackReason() string {
	switch {
	case j.forced:
		return "net_forced"
	case j.disabled:
		return "ib_disabled"
	case j.noDevice:
		return "no_device"
	case j.noPlugin:
		return "ib_failed"
	}
	return "unknown"
}

// emit emits a job's series.
func (j *job) emit(t *table, emit func(collector.Sample)) {
	for _, n := range j.networks {
		emit(collector.Sample{Metric: t.network, Labels: n.labels, Value: 1})
	}
	for _, d := range j.devices {
		emit(collector.Sample{Metric: t.gdr, Labels: d.labels, Value: collector.Bool(d.on)})
	}
	if !j.gaps { // else some are missing
		for _, c := range j.channels {
			emit(collector.Sample{Metric: t.channels, Labels: c.labels, Value: float64(c.count)})
		}
	}
	fell, known := j.fallback()
	if !known {
		return
	}
	emit(collector.Sample{Metric: t.fallback, Labels: []string{j.name}, Value: collector.Bool(fell)})
	if fell {
		emit(collector.Sample{Metric: t.reason, Labels: []string{j.name, j.fallbackReason()}, Value: 1})
	}
}
