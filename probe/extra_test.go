package probe

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakecuda"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/verbs"
)

// bench makes a round by hand with extras.
func (p *pairOfNodes) bench(extras ...Extra) Result {
	p.t.Helper()
	opts := p.opts
	opts.Extras, opts.Budget = extras, Budget{Share: 1}
	return Bench(p.t.Context(), p.a, opts, p.peer, func(Progress) {})
}

// bursts are the extras of one kind as "rails of operations", in their order; failures in place of goodput.
func bursts(res Result, kind Kind) (list []string) {
	for _, m := range res.Extras {
		if m.Kind != kind {
			continue
		}
		if m.Failure != nil {
			list = append(list, string(m.Failure.Reason))
			continue
		}
		var flows []string
		for _, f := range m.Flows {
			text := fmt.Sprintf("%s %s", f.Op, f.Rail)
			if f.Other != "" {
				text += " to " + f.Other
			}
			if f.Failure != nil && f.Failure.Reason == failure.Disturbed {
				// It was made and verified. On a busy machine it has no figure; TestLineRate holds when it has.
			} else if f.Failure != nil {
				text += " " + string(f.Failure.Reason)
			} else if f.Goodput == nil || *f.Goodput <= 0 || f.Latency == nil {
				text += " not measured"
			}
			flows = append(flows, text)
		}
		list = append(list, strings.Join(flows, ", "))
	}
	return list
}

func equalBursts(t *testing.T, res Result, kind Kind, want ...string) {
	t.Helper()
	if got := bursts(res, kind); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", kind, got, want)
	}
	if res.Outcome != OK {
		t.Errorf("%s: the round is %s: %s", kind, res.Outcome, res.Detail)
	}
}

// TestExtras: reads, both directions, numbers of queue pairs, loopback and contention of two rails: each burst is
// made, measured and verified, and nothing is left.
func TestExtras(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	res := p.bench(Extra{Kind: Reads}, Extra{Kind: Both}, Extra{Kind: QueuePairs, Counts: []int{1, 2, 8}},
		Extra{Kind: Contention})
	p.clean()
	equalBursts(t, res, Reads, "read 0", "read 1", "read 0, read 1")
	equalBursts(t, res, Both, "write 0, read 0", "write 1, read 1", "write 0, read 0, write 1, read 1")
	equalBursts(t, res, QueuePairs, "write 0, write 1", "write 0, write 1", "write 0, write 1")
	pairs := slices.Compact(bursts(res, Contention)) // made twice if a busy machine makes them seem to share something
	if want := []string{"write 0", "write 1", "write 0, write 1"}; !slices.Equal(pairs, want) {
		t.Errorf("contention: %q, want %q", pairs, want)
	}
	var counts []int
	for _, m := range res.Extras {
		if m.Kind == QueuePairs {
			counts = append(counts, m.QueuePairs)
		}
	}
	if !slices.Equal(counts, []int{1, 2, 8}) {
		t.Errorf("queue pairs %v", counts)
	}
}

// TestExtraBothDirections: what is read and what is written are measured apart, and neither exceeds its wire. How much
// a busy machine moves says nothing.
func TestExtraBothDirections(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	res := p.bench(Extra{Kind: Both})
	p.clean()
	equalBursts(t, res, Both, "write 0, read 0")
	if len(res.Extras) == 0 {
		return
	}
	for _, op := range []Op{Write, Read} {
		if rate, ok := res.Extras[0].Goodput(op); !ok || rate <= 0 || rate > 210e6 {
			t.Errorf("%s: %.0f B/s (%v), want 200e6 at most", op, rate, ok)
		}
	}
}

// TestExtraLoopback: each rail to itself and to the other. The wire between the nodes plays no part.
func TestExtraLoopback(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	res := p.bench(Extra{Kind: Loopback})
	p.clean()
	equalBursts(t, res, Loopback, "write 0 to 0", "write 0 to 1 no_route", "write 1 to 0 no_route", "write 1 to 1")
}

// TestExtraPaths: a flow label whose packets are dropped is found, with its UDP port; the others carry.
func TestExtraPaths(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	ends := p.round() // for the GIDs
	if ends.Outcome != OK {
		t.Fatal(ends.Detail)
	}
	from, to := device("a", 0, func(*fakeverbs.Device) {}).GIDs[3].Addr, device("b", 0, func(*fakeverbs.Device) {}).GIDs[3].Addr
	dead := verbs.SourcePort(from, to, 5)
	p.fabric.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.DropPort = dead })
	res := p.bench(Extra{Kind: Paths, Counts: []int{8}})
	p.clean()
	if len(res.Extras) != 8 {
		t.Fatalf("%d bursts: %q", len(res.Extras), bursts(res, Paths))
	}
	for _, m := range res.Extras {
		f := m.Flows[0]
		if want := verbs.SourcePort(from, to, f.Path); f.UDPPort != want {
			t.Errorf("path %d: UDP port %d, want %d", f.Path, f.UDPPort, want)
		}
		if gone := f.Failure != nil; gone != (f.UDPPort == dead) || gone && f.Failure.Reason != failure.RetryExceeded {
			t.Errorf("path %d with port %d: %v", f.Path, f.UDPPort, f.Failure)
		}
	}
}

// TestExtraGPU: between memory of GPUs of both nodes, by dma-buf; where the driver refuses these, by the next kind; and
// not at all where the peer lends none. Nothing is left on a GPU.
func TestExtraGPU(t *testing.T) {
	if !builtWithC {
		t.Skip("built without C: there is no RDMA to be had")
	}
	ledger := fakecuda.Ledger(t)
	t.Setenv("RAILSCOPE_LIBCUDA", fakecuda.Library(t))
	for _, tc := range []struct {
		why     string
		refuses uint64 // error of registering a dma-buf
		lends   bool
		asked   []string
		memory  string
		want    []string
	}{
		{"dma-buf", 0, true, nil, "cuda_dmabuf", []string{"write 0", "write 1", "write 0, write 1"}},
		{"peermem", uint64(syscall.EOPNOTSUPP), true, nil, "cuda_peermem", []string{"no_dmabuf", "write 0", "write 1",
			"write 0, write 1"}},
		{"staged", 0, true, []string{"cuda_staged"}, "cuda_staged", []string{"write 0", "write 1", "write 0, write 1"}},
		{"a peer that lends none", 0, false, nil, "", []string{"no_gpu", "no_gpu", "no_gpu", "no_gpu"}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			p := preparePair(t, 2, func(_ string, _ int, d *fakeverbs.Device) { d.DMABufErrno = tc.refuses })
			for _, n := range []*Node{p.a, p.b} {
				list := n.opts.Rails
				n.opts.Rails = func() ([]rail.Rail, error) {
					rails, err := list()
					for i := range rails {
						rails[i].GPU = fakecuda.GPU
					}
					return rails, err
				}
			}
			if tc.lends {
				p.opts.Extras = []Extra{{Kind: GPU}}
			}
			p.serve()
			res := p.bench(Extra{Kind: GPU, Memories: tc.asked})
			p.clean()
			equalBursts(t, res, GPU, tc.want...)
			if _, memory := res.GPUOf("0"); memory != tc.memory {
				t.Errorf("memory %q, want %q", memory, tc.memory)
			}
			if text := ledger(); tc.lends && !strings.HasPrefix(text, "contexts=0 memories=0 hosts=0") {
				t.Errorf("left on a GPU: %s", text)
			}
		})
	}
}

// TestExtraOldPeer: a peer that opens one flow of writes per rail is not asked for others.
func TestExtraOldPeer(t *testing.T) {
	t.Parallel()
	r := round{remote: hello{}}
	_, err := r.with(t.Context(), []*path{{op: Read}}, 1, 1)
	if f := failure.As("", err); f == nil || f.Reason != failure.PeerVersion {
		t.Errorf("%v", err)
	}
}

// TestExtraTurns: rounds make one extra each time they make solo bursts, in turn.
func TestExtraTurns(t *testing.T) {
	t.Parallel()
	opts := DefaultOptions()
	opts.SoloEvery, opts.Extras = 2, []Extra{{Kind: Loopback}, {Kind: Contention}}
	p := &Prober{opts: opts, peers: map[string]*peer{"b": {}}}
	var got []string
	for n := range 6 {
		p.peers["b"].rounds = n
		text := "-"
		for _, e := range p.newRound("b", false).plan.extras {
			text = string(e.Kind)
		}
		got = append(got, text)
	}
	if want := "loopback - contention - loopback -"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}

// TestKeepBetter: of several bursts over a path the best one counts, and other paths stay.
func TestKeepBetter(t *testing.T) {
	t.Parallel()
	burst := func(path int, lost uint64) Measured {
		return Measured{Kind: Paths, Flows: []MeasuredFlow{{Rail: "0", Path: path, Loss: &Loss{Retransmits: lost, Packets: 100}}}}
	}
	r := Result{Extras: []Measured{burst(0, 9), burst(1, 9), {Kind: Loopback}, burst(1, 2), burst(1, 2), burst(2, 1)}}
	r.keepBetter("0", 1)
	var got []string
	for _, f := range r.PathsOf("0") {
		got = append(got, fmt.Sprint(f.Path, " ", f.Loss.Retransmits))
	}
	if want := []string{"0 9", "1 2", "2 1"}; !slices.Equal(got, want) || len(r.Extras) != 4 {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNoteExtras: what a round measured stands in later ones, until one measures the same; a failure does not end it.
func TestNoteExtras(t *testing.T) {
	t.Parallel()
	flow := func(rail string, v float64) MeasuredFlow {
		return MeasuredFlow{Rail: rail, Other: rail, Op: Write, Goodput: &v, Latency: &Latency{Samples: []time.Duration{1}}}
	}
	p := &pastPeer{}
	for i, tc := range []struct {
		transport Transport
		extras    []Measured
		want      float64 // of rail 0 to itself; 0: not known
		paths     int
	}{
		{RDMA, nil, 0, 0},
		{RDMA, []Measured{{Kind: Loopback, Flows: []MeasuredFlow{flow("0", 5)}}}, 5, 0},
		{RDMA, []Measured{{Kind: Paths, Flows: []MeasuredFlow{flow("0", 1)}}}, 5, 1},
		{RDMA, []Measured{{Kind: Loopback, Failure: failure.New("", failure.Budget, "")}}, 5, 1},
		{TCP, nil, 5, 0}, // of the wire nothing is known
		{RDMA, []Measured{{Kind: Loopback, Flows: []MeasuredFlow{flow("0", 7)}}}, 7, 1},
	} {
		r := &Result{Transport: tc.transport, Extras: tc.extras}
		p.noteExtras(r)
		got := 0.0
		if v := r.LoopbackOf("0"); v != nil {
			got = *v
		}
		if got != tc.want || len(r.PathsOf("0")) != tc.paths {
			t.Errorf("round %d: %v and %d paths, want %v and %d", i, got, len(r.PathsOf("0")), tc.want, tc.paths)
		}
	}
	for _, m := range p.extras {
		if m.Flows[0].Latency != nil {
			t.Error("samples are kept")
		}
	}
}

// TestExtraBudget: extras move no more than the round has reserved.
func TestExtraBudget(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	begin := time.Now()
	res := p.bench(Extra{Kind: Contention}, Extra{Kind: Reads})
	plan := plan{Options: p.opts, full: true, runs: singleRuns, rails: 2, rate: 100e9, extras: []Extra{{Kind: Contention},
		{Kind: Reads}}}
	if took := time.Since(begin); res.Outcome != OK || res.Bytes <= 0 || took > 30*time.Second {
		t.Errorf("%s, %d bytes in %v", res.Outcome, res.Bytes, took)
	}
	if plan.extraBytes(nil, nil, nil) != 0 {
		t.Error("without rails extras cost something")
	}
}
