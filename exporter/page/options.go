package page

import (
	"context"
	"log/slog"
	"time"
)

// Reading has the series of the last scrape.
type Reading interface {
	// Each calls each with the series of a row, given by its name without the namespace: the values of these labels,
	// which may not be kept, and the value. It reports whether the row and the labels exist.
	Each(row string, labels []string, each func(values []string, v float64)) bool
}

// Options have the data of the page. What is nil is not shown.
type Options struct {
	Node    string // name of the node; empty is the host's name
	Notice  string // shown above everything; empty: none
	Metrics string // path of the metrics, from /
	Version string
	Started time.Time
	Logger  *slog.Logger

	// Read reads the sources of these names in bounded time, and lets view see the series and why sources failed.
	Read func(sources []string, view func(series Reading, failed map[string]string))
	// Recent appends a rail's rate in each of the last seconds, in bytes per second, and returns the current rate; NaN
	// is unknown. ok is false when the rail is not sampled.
	Recent func(rail string, direction int, to []float64) (recent []float64, now float64, ok bool)
	// Peers returns the peers as configured, with their last rounds; probing is false without a probe.
	Peers func() (peers []Peer, probing bool)
	// Refused is called with the address of a client that gets no stream because all are taken.
	Refused func(address string)
	// Doctor examines the node in bounded time.
	Doctor func(ctx context.Context) ([]Finding, error)
}

// Bounds on the cost of the page.
const (
	every      = time.Second      // between two events
	slowEvery  = 5 * time.Second  // between two reads of the slow sources
	examEvery  = time.Minute      // between two runs of doctor
	examBudget = 20 * time.Second // for one
	MaxStreams = 50               // open at once; the next one gets 503
	maxPeers   = 100              // that are drawn
	// KeepRounds is how many rounds are kept of a peer.
	KeepRounds = 20
)

// fastSources are read for every event. slowSources wait for firmware, or have many series.
func fastSources() []string { return []string{"rdma", "bond", "sampler", "probe"} }

func slowSources() []string { return []string{"netdev", "pcie", "gpu", "gpudirect", "nccl"} }
