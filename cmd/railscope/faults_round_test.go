package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/probetest"
	"github.com/railscope/railscope/probe/result"
	"github.com/railscope/railscope/test/faults"
)

// prober is a node that asks a peer on the fake fabric.
type prober struct {
	*serve.Node
	common
	pair   *probetest.Pair
	rounds *atomic.Int64 // finished rounds
	paused *atomic.Bool  // no further round starts
}

// roundCounter is a log handler that counts rounds which were not skipped.
type roundCounter struct {
	slog.Handler
	rounds  *atomic.Int64
	skipped bool
}

func (c roundCounter) Enabled(context.Context, slog.Level) bool { return true }

func (c roundCounter) WithAttrs(attrs []slog.Attr) slog.Handler {
	c.skipped = c.skipped || slices.ContainsFunc(attrs, func(a slog.Attr) bool {
		return a.Key == "result" && a.Value.String() == string(result.Skipped)
	})
	return c
}

func (c roundCounter) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "Probe finished" && !c.skipped {
		c.rounds.Add(1)
	}
	return nil
}

// fabricOptions returns the options of quick rounds over the fake fabric.
func fabricOptions() options.Options {
	opts := options.DefaultOptions()
	opts.Security.Insecure = true
	opts.Interval, opts.Timeout, opts.Burst, opts.SoloEvery = 100*time.Millisecond, 20*time.Second, 50*time.Millisecond,
		2
	opts.LatencySamples, opts.Depth = 20, 128
	opts.Budget, opts.MinOfExpected = options.Budget{Share: 1}, 0.25
	return opts
}

func serveProber(t *testing.T) *prober {
	t.Helper()
	opts := fabricOptions()
	p := &prober{pair: probetest.New(t, opts), rounds: &atomic.Int64{}, paused: &atomic.Bool{}}
	p.Machine = serve.Machine{Name: "a", Sysfs: p.pair.Sysfs("a"), Procfs: t.TempDir(), Rootfs: t.TempDir(),
		ProbeOptions: func(o *probe.NodeOptions) {
			p.pair.Options("a", o)
			o.Maintenance = p.paused.Load
		}}
	p.Node = assembleOnFabric(t, p.Machine, slog.New(roundCounter{slog.DiscardHandler, p.rounds, false}))
	answerIn(t, filepath.Dir(p.Sysfs), p.Local.ServeHTTP)
	return p
}

// start starts the rounds.
func (p *prober) start(t *testing.T) {
	t.Helper()
	opts := fabricOptions()
	opts.Name, opts.Peers = "a", []string{p.pair.Address}
	if err := p.Start(t.Context(), &opts); err != nil {
		t.Fatal(err)
	}
}

// await waits for this number of rounds, each at most one minute.
func (p *prober) await(t *testing.T, rounds int64) {
	t.Helper()
	for range rounds {
		for last, deadline := p.rounds.Load(), time.Now().Add(time.Minute); p.rounds.Load() == last; {
			if time.Now().After(deadline) {
				t.Fatal("no round ends")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TestFaultsOfRounds plants each fault of the matrix that rounds find between two nodes. Three rounds and two
// examinations find it by its name, without another critical finding, and all surfaces agree. A busy machine may
// need more rounds, because bursts on a healthy rail can be slow.
func TestFaultsOfRounds(t *testing.T) {
	t.Parallel()
	const atOnce = 6 // they mostly wait, on any number of processors
	var pairs sync.WaitGroup
	defer pairs.Wait()
	running := make(chan bool, atOnce)
	for _, f := range faults.List() {
		if f.Fabric == "" {
			continue
		}
		running <- true
		pairs.Go(func() {
			defer func() { <-running }()
			t.Run(f.Name, func(t *testing.T) { findByRounds(t, f) })
		})
	}
}

func findByRounds(t *testing.T, f faults.Fault) {
	p := serveProber(t)
	f.Want = strings.ReplaceAll(f.Want, faults.Peer, p.pair.Address)
	if f.Later {
		p.start(t)
		p.await(t, int64(max(f.Rounds, 1)))
		p.pair.Plant(f.Fabric)
		p.await(t, 1) // this round may have begun before the fault
	} else {
		p.pair.Plant(f.Fabric)
		p.start(t)
	}
	for try := 1; ; try++ {
		p.paused.Store(false)
		p.await(t, 3)
		p.paused.Store(true)
		time.Sleep(100 * time.Millisecond) // lets the last round end
		p.Examiner.Examine(t.Context())
		p.Examiner.Examine(t.Context())
		all := surfaces(t, p.Node, p.common)
		diff := unnamed(f, all["status"]) + disagreement(all) + incomplete(p.Node)
		if diff == "" {
			return
		}
		if try == 4 {
			t.Fatal(diff, explained(p.Node))
		}
	}
}
