// Package suite has what a benchmark of a peer measured, as `bench --format=json` and `--save` write it and the report
// and `--compare` read it. It has values only.
package suite

import (
	"slices"
	"time"

	"github.com/railscope/railscope/internal/finding"
)

// Version is the version of the file. A file of another version is refused.
const Version = 1

// SimulatedNotice stands before what was measured in the demo.
const SimulatedNotice = "Simulated by railscope demo: the figures say nothing about RDMA."

// Suite is what was measured, and between whom. Rates are bytes per second, times seconds, sizes bytes; nil is not
// measured.
type Suite struct {
	Version  int               `json:"version"`
	Start    time.Time         `json:"start"`
	Node     string            `json:"node"`
	Peer     string            `json:"peer"`      // host:port of the command line
	Verdict  string            `json:"verdict"`   // one sentence
	Carrier  string            `json:"transport"` // transport of the round: rdma, tcp, none
	Good     bool              `json:"good"`      // every rail carried what is expected
	Settings []Setting         `json:"settings"`
	Rows     []Row             `json:"rows"` // the comparison, in the order in which they are shown
	Ratios   []Ratio           `json:"ratios"`
	Sweep    []Row             `json:"sweep"` // a row per size, ascending; Rails and Op are those of all of them
	KVCache  []KVCache         `json:"kv_cache"`
	Rails    []Rail            `json:"rails"`
	Findings []finding.Finding `json:"findings"`
	Notes    []string          `json:"notes"` // what was not measured, and why
	Further

	Incomplete Incomplete `json:"incomplete"`

	*Ring // in place of the figures of one peer; nil: of one peer
}

// HasFigures reports whether anything was measured.
func (s Suite) HasFigures() bool {
	for _, row := range slices.Concat(s.Rows, s.Sweep) {
		if row.Goodput != nil || len(row.Runs) > 0 || len(row.Latency) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(s.KVCache, func(c KVCache) bool { return c.Goodput != nil })
}

// Further is what a suite has beside the rows of the rails.
type Further struct {
	Storage  []Checkpoint `json:"storage"`  // checkpoints to directories and buckets
	Compared []Change     `json:"compared"` // with a saved suite; empty: not asked for
	Advice   []Advice     `json:"advice"`   // advice of a whole suite; else empty
}

// Advice is one thing to do, with figures of the suite.
type Advice struct {
	Text  string   `json:"text"`
	Lines []string `json:"lines"` // shell, to paste; a line that begins with # is a comment
}

// Incomplete is how much of what was asked for was not measured.
type Incomplete struct {
	Figures    int          `json:"figures"` // figures that were asked for
	Unmeasured []Unmeasured `json:"unmeasured"`
}

// Unmeasured is a figure that was asked for and not measured.
type Unmeasured struct {
	Name   string `json:"name"`
	Reason string `json:"reason"` // one word: disturbed, budget
	Why    string `json:"why"`
}

// Rail is what the round measured of one rail.
type Rail struct {
	Rail     string   `json:"rail"`
	Device   string   `json:"device"`
	Peer     string   `json:"peer_device"`
	Latency  *Latency `json:"latency_seconds"`
	Solo     *float64 `json:"solo_bytes_per_second"`
	Striped  *float64 `json:"stealing_bytes_per_second"`
	Expected *float64 `json:"expected_bytes_per_second"`

	WhySolo    *Why `json:"solo_failure"` // there is no figure
	WhyStriped *Why `json:"striped_failure"`
}

// Why is why there is no figure, in one word.
type Why struct {
	Reason string `json:"reason"`
}

// Setting is something that the figures depend on: a version, a firmware, a variable of NCCL or UCX, the kernel.
type Setting struct {
	Name  string `json:"name"`
	Here  string `json:"here"`
	There string `json:"there"` // empty: not known, or of this node only
}

// Row is one measurement.
type Row struct {
	Name       string   `json:"name"`      // "TCP, 4 streams", "all rails, WRITE", unique among the rows
	Transport  string   `json:"transport"` // rdma or tcp
	Op         string   `json:"op"`        // write, read, both; of TCP empty
	Memory     string   `json:"memory"`    // host, or the kind of GPU memory
	Rails      []string `json:"rails"`
	Streams    int      `json:"streams"`     // TCP streams per rail; else 0
	QueuePairs int      `json:"queue_pairs"` // per rail; of TCP 0
	Size       int64    `json:"size"`        // bytes of one message of the bursts; 0: as the engine chose it

	Goodput  *float64  `json:"goodput_bytes_per_second"` // goodput of the best run
	Runs     []float64 `json:"runs_bytes_per_second"`    // goodput of each run, in order
	LineRate *float64  `json:"line_rate_bytes_per_second"`
	Speedup  *float64  `json:"speedup_ratio"` // Goodput ÷ that of the best TCP row
	Latency  []Latency `json:"latency_seconds"`
	PerRail  []Part    `json:"per_rail"`
	Failure  string    `json:"failure"` // why there is no figure, or not all; empty: none
	Reason   string    `json:"reason"`  // reason of the failure, one word: disturbed, budget
	Skipped  bool      `json:"skipped"` // the reason says nothing of the rails
}

// Ratio is what one row carries, relative to another: the tutorials' own comparisons.
type Ratio struct {
	Name  string  `json:"name"`
	Row   string  `json:"row"`
	Of    string  `json:"of"` // the row that it is compared with
	Ratio float64 `json:"ratio"`
}

// Latency is the time of messages of one size, one outstanding: post to completion, of TCP there and back.
type Latency struct {
	Bytes   int64   `json:"bytes"`
	Samples int     `json:"samples"`
	Mean    float64 `json:"mean"`
	Min     float64 `json:"min"`
	P50     float64 `json:"p50"`
	P95     float64 `json:"p95"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

// Part is what one rail, or one member of a bond, did in a measurement.
type Part struct {
	Rail         string   `json:"rail"` // or the interface, of a member of a bond
	Device       string   `json:"device"`
	Goodput      *float64 `json:"goodput_bytes_per_second"`
	CounterBytes *int64   `json:"counter_bytes"` // sent by its port meanwhile, headers and all others' traffic included
}

// KVCache is the time to move the KV cache of one context, from bursts of messages of the cache's pages.
type KVCache struct {
	Model    string   `json:"model"`  // or the size, where one was asked for
	Tokens   int64    `json:"tokens"` // length of the context; 0: a size was asked for
	Bytes    int64    `json:"bytes"`  // size of the cache, on one node
	Page     int64    `json:"page"`   // bytes of a message
	Row      string   `json:"row"`    // "one rail", "all rails", "TCP"
	Goodput  *float64 `json:"goodput_bytes_per_second"`
	Seconds  *float64 `json:"seconds"`        // Bytes ÷ Goodput
	Headline *float64 `json:"headline_ratio"` // Goodput ÷ that of large messages
	Failure  string   `json:"failure"`
	Reason   string   `json:"reason"`
}
