package nccl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// The rows of table.
const (
	rowNetwork = iota
	rowGDR
	rowChannels
	rowFallback
	rowReason
	rowWarnings
	rowCompletions
	rowFiles
	rowCut
	rowSkipped
)

// Where the meaning is written.
const (
	refNCCL = "NCCL 2.10 to 2.30: src/init.cc, src/graph/topo.cc, src/transport/net.cc, src/transport/net_ib; docs/nccl.md"
	refWC   = "enum ibv_wc_status in libibverbs/verbs.h; ncclIbTest in NCCL, src/transport/net_ib"
	refOwn  = "docs/nccl.md"
)

func table() []collector.Metric {
	perJob := func(more ...string) []string { return append([]string{"job"}, more...) }
	return []collector.Metric{
		rowNetwork: {Name: "nccl_network_info", Kind: collector.Gauge, Labels: perJob("network"), Ref: refNCCL, From: []collector.Origin{{Name: "Using network IB"}},
			Help: "Network that a job's NCCL says it uses, always 1: IB, Socket, or the name of a plugin; job is the name of its log file."},
		rowGDR: {Name: "nccl_gdr_enabled", Kind: collector.Gauge, Labels: perJob("device"), Ref: refNCCL, From: []collector.Origin{{Name: "GPU Direct RDMA Enabled for HCA 0 'mlx5_0'"}},
			Help: "1 where a job's NCCL says that the adapter reaches GPU memory by itself, 0 where everything is copied through host memory."},
		rowChannels: {Name: "nccl_channels", Kind: collector.Gauge, Labels: perJob("transport"), Ref: refNCCL, From: []collector.Origin{{Name: "via NET/IB/0/GDRDMA"}},
			Help: "Connections of channels that a job's NCCL has announced since its log began, by how they run; absent where part of the log was not read."},
		rowFallback: {Name: "nccl_fallback", Kind: collector.Gauge, Labels: perJob(), Ref: refOwn, From: []collector.Origin{{Name: "Using network Socket"}, {Name: "via NET/Socket/0"}},
			Help: "1 where a job of several nodes uses sockets instead of RDMA, by its own log, 0 where it does not; absent until the log says it."},
		rowReason: {Name: "nccl_fallback_reason_info", Kind: collector.Gauge, Labels: perJob("reason"), Ref: refOwn, From: []collector.Origin{{Name: "NET/IB : No device found."}, {Name: "NCCL_IB_DISABLE set by environment to 1"}},
			Help: "Why a job uses sockets, as far as its log says, always 1: net_forced, ib_disabled, no_device, ib_failed or unknown."},
		rowWarnings: {Name: "nccl_warnings_total", Kind: collector.Counter, Labels: []string{"kind"}, Ref: refNCCL, From: []collector.Origin{{Name: "NCCL WARN"}},
			Help: "Warnings of NCCL in all logs since railscope began to follow them."},
		rowCompletions: {Name: "nccl_completion_errors_total", Kind: collector.Counter, Labels: []string{"status"}, Ref: refWC, From: []collector.Origin{{Name: "Got completion from peer"}},
			Help: "Completions with an error that NCCL warned of, by status (IBV_WC_…_ERR): retry_exc is a peer or path that does not answer."},
		rowFiles: {Name: "nccl_files", Kind: collector.Gauge, Labels: []string{"state"}, Ref: refOwn, From: []collector.Origin{{Name: "--nccl.log"}},
			Help: "Files that --nccl.log means: followed, waiting (there are newer ones, as many as can be followed), idle for a week, special (no ordinary file), unreadable, same_name."},
		rowCut: {Name: "nccl_cut_lines_total", Kind: collector.Counter, Ref: refOwn, From: []collector.Origin{{Name: "--nccl.log"}},
			Help: "Lines of which only the beginning was looked at, because they were longer than 4 KiB."},
		rowSkipped: {Name: "nccl_skipped_bytes_total", Kind: collector.Counter, Ref: refOwn, From: []collector.Origin{{Name: "--nccl.log"}},
			Help: "Bytes of logs that were not read: of large ones that were there before, and of those that grow too fast."},
	}
}

// How often logs are looked at. A listing takes at most a five-hundredth of the
// time, in a directory of very many files by being made less often.
const (
	passEvery = 2 * time.Second
	listEvery = 10 * time.Second
	listShare = 500
	stuck     = time.Minute // without a pass: a file system that hangs
)

// Source follows log files of NCCL. What it reads between scrapes [Source.Read]
// only copies.
type Source struct {
	rows  []collector.Metric
	globs []string
	jobs  *jobs
	f     *follower
	next  time.Time // when files are listed again

	mu     sync.Mutex
	census census    // of the last listing; protected by mu, like all below
	faults error     // of the passes since
	began  time.Time // when the first pass began
	passed time.Time // when the last one ended; zero before
}

var _ collector.Source = (*Source)(nil)

// New returns the source for the files that globs mean (path/filepath.Match).
// It opens nothing yet. The error says which glob is wrong and what would be
// right.
func New(globs []string) (*Source, error) { return newSource(globs, defaultLimits()) }

func newSource(globs []string, l limits) (*Source, error) {
	s := &Source{rows: table(), globs: globs, jobs: newJobs()}
	var list []glob
	for _, text := range globs {
		g, err := newGlob(text)
		if err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	s.f = newFollower(list, l, s.jobs.open)
	return s, nil
}

// Name returns "nccl".
func (s *Source) Name() string { return "nccl" }

// Metrics returns the rows.
func (s *Source) Metrics() []*collector.Metric {
	list := make([]*collector.Metric, len(s.rows))
	for i := range s.rows {
		list[i] = &s.rows[i]
	}
	return list
}

// Run follows the files until ctx is done, and then lets them go.
func (s *Source) Run(ctx context.Context) {
	defer s.f.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		s.Pass()
		timer.Reset(passEvery)
	}
}

// Pass looks once at what is new, and reports whether more is there than one
// pass reads. Run calls it again and again; nobody else may, then.
func (s *Source) Pass() (more bool) {
	start := time.Now()
	s.mu.Lock()
	if s.began.IsZero() {
		s.began = start
	}
	s.mu.Unlock()
	var c *census
	if !start.Before(s.next) {
		found := s.f.list(start)
		c = &found
		s.next = start.Add(max(listEvery, listShare*time.Since(start)))
	}
	more, err := s.f.pass()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c != nil {
		s.census, s.faults = *c, nil
	}
	if err != nil {
		s.faults = err // of the last pass that had any: a bounded list
	}
	s.passed = time.Now()
	return more
}

// Read emits what the logs have said so far; see [collector.Source]. No file
// that the globs mean is ErrAbsent.
func (s *Source) Read(emit func(collector.Sample)) error {
	s.mu.Lock()
	c, err, began, passed := s.census, s.faults, s.began, s.passed
	s.mu.Unlock()
	where := strings.Join(s.globs, " or ")
	last := began
	if passed.After(began) {
		last = passed
	}
	if late := time.Since(last); !began.IsZero() && late > stuck {
		err = errors.Join(err, &collector.Fault{Reason: sysfs.ReasonTimeout, Err: fmt.Errorf("logs were last read %v ago: the file system of %s does not answer", late.Round(time.Second), where)})
	}
	if passed.IsZero() {
		return err // nothing has been looked at yet
	}
	err = errors.Join(append([]error{err}, c.faults...)...)
	if c.matched() == 0 && err == nil {
		return fmt.Errorf("no file is called %s; docs/nccl.md says how NCCL is made to write one: %w", where, collector.ErrAbsent)
	}
	for _, n := range [...]struct {
		state string
		count int
	}{{"followed", c.followed}, {"waiting", c.waiting}, {"idle", c.idle}, {"special", c.special}, {"unreadable", c.unreadable}, {"same_name", c.same}} {
		emit(collector.Sample{Metric: &s.rows[rowFiles], Labels: []string{n.state}, Value: float64(n.count)})
	}
	s.jobs.emit(s.rows, emit)
	return err
}

// emit emits what all logs have said.
func (s *jobs) emit(rows []collector.Metric, emit func(collector.Sample)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.list {
		j.emit(rows, emit)
	}
	for i, rule := range warnKinds() {
		emit(collector.Sample{Metric: &rows[rowWarnings], Labels: []string{rule.kind}, Value: float64(s.warnings[i])})
	}
	for status, name := range completionNames() {
		if status == 0 {
			name = "other"
		}
		if name != "" {
			emit(collector.Sample{Metric: &rows[rowCompletions], Labels: []string{name}, Value: float64(s.completions[status])})
		}
	}
	emit(collector.Sample{Metric: &rows[rowCut], Value: float64(s.cuts)})
	emit(collector.Sample{Metric: &rows[rowSkipped], Value: float64(s.skipped)})
}
