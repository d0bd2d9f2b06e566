package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakegpu"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/internal/verbs"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// bench runs an interactive round with extras.
func (p *pairOfNodes) bench(extras ...result.Extra) result.Result {
	p.t.Helper()
	opts := p.opts
	opts.Extras, opts.Budget = extras, options.Budget{Share: 1}
	return Bench(p.t.Context(), p.a, opts, p.peer, func(result.Progress) {})
}

// bursts returns the extras of one kind in order as "rails operations", with failures in place of goodput.
func bursts(res result.Result, kind result.Kind) (list []string) {
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
				// The burst was made and verified. On a busy machine it may have no figure; TestLineRate checks
				// when it must have one.
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

// TestKinds: a round can measure each kind, and nothing else.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range append(result.Kinds(), "none") {
		err := round.CheckExtras([]result.Extra{{Kind: kind, Values: []int{1}}})
		if (err == nil) != (kind != "none") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func equalBursts(t *testing.T, res result.Result, kind result.Kind, want ...string) {
	t.Helper()
	if got := bursts(res, kind); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", kind, got, want)
		for _, m := range res.Extras {
			if m.Failure != nil {
				t.Log(m.Kind, m.Failure)
			}
		}
	}
	if res.Outcome != result.OK {
		t.Errorf("%s: the round is %s: %s", kind, res.Outcome, res.Detail)
	}
}

// TestExtras: reads, both directions, numbers of queue pairs, loopback and contention of two rails. Each burst is
// made, measured and verified, and leaves nothing behind.
func TestExtras(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	res := p.bench(result.Extra{Kind: result.Reads}, result.Extra{Kind: result.Bidirectional},
		result.Extra{Kind: result.QueuePairs, Values: []int{1, 2, 8}},
		result.Extra{Kind: result.Contention})
	p.clean()
	equalBursts(t, res, result.Reads, "read 0", "read 1", "read 0, read 1")
	equalBursts(t, res, result.Bidirectional, "write 0, read 0", "write 1, read 1", "write 0, read 0, write 1, read 1")
	equalBursts(t, res, result.QueuePairs, "write 0, write 1", "write 0, write 1", "write 0, write 1")
	// Repeated if the rails seem to share something on a busy machine.
	pairs := slices.Compact(bursts(res, result.Contention))
	if want := []string{"write 0", "write 1", "write 0, write 1"}; !slices.Equal(pairs, want) {
		t.Errorf("contention: %q, want %q", pairs, want)
	}
	var counts []int
	for _, m := range res.Extras {
		if m.Kind == result.QueuePairs {
			counts = append(counts, m.QueuePairs)
		}
	}
	if !slices.Equal(counts, []int{1, 2, 8}) {
		t.Errorf("queue pairs %v", counts)
	}
}

// TestExtraBothDirections: reads and writes are measured separately, and neither exceeds its wire. Their rate on a
// busy machine is not checked.
func TestExtraBothDirections(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	res := p.bench(result.Extra{Kind: result.Bidirectional})
	p.clean()
	equalBursts(t, res, result.Bidirectional, "write 0, read 0")
	if len(res.Extras) == 0 {
		return
	}
	for _, op := range []result.Op{result.Write, result.Read} {
		if rate, ok := res.Extras[0].Goodput(op); !ok || rate <= 0 || rate > 210e6 {
			t.Errorf("%s: %.0f B/s (%v), want 200e6 at most", op, rate, ok)
		}
	}
}

// TestExtraLoopback: each rail is measured to itself and to the other one, independent of the wire between the
// nodes.
func TestExtraLoopback(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	res := p.bench(result.Extra{Kind: result.Loopback})
	p.clean()
	equalBursts(t, res, result.Loopback, "write 0 to 0", "write 0 to 1 no_route", "write 1 to 0 no_route", "write 1 to 1")
}

// TestExtraPaths: a flow label whose packets are dropped is found, with its UDP port. The others carry data.
func TestExtraPaths(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	ends := p.round() // the round shows the GIDs
	if ends.Outcome != result.OK {
		t.Fatal(ends.Detail)
	}
	from := device("a", 0, func(*fakeverbs.Device) {}).GIDs[3].Addr
	to := device("b", 0, func(*fakeverbs.Device) {}).GIDs[3].Addr
	dead := verbs.SourcePort(from, to, 5)
	p.fabric.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.DropPort = dead })
	res := p.bench(result.Extra{Kind: result.Paths, Values: []int{8}})
	p.clean()
	if len(res.Extras) != 8 {
		t.Fatalf("%d bursts: %q", len(res.Extras), bursts(res, result.Paths))
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

// TestExtraGPU: GPU memory of both nodes is used by dma-buf or, where the driver refuses that, by the next kind. It
// is not used where the peer lends none. No GPU memory is left behind.
func TestExtraGPU(t *testing.T) {
	if !builtWithC {
		t.Skip("built without C: there is no RDMA to be had")
	}
	ledger := fakegpu.Ledger(t)
	t.Setenv("RAILSCOPE_LIBCUDA", fakegpu.CUDA(t))
	t.Setenv("RAILSCOPE_LIBHSA", fakegpu.HSA(t))
	all := []string{"write 0", "write 1", "write 0, write 1"}
	for _, tc := range []struct {
		why     string
		refuses uint64 // error of registering a dma-buf
		keeps   bool   // the peer lends no memory
		amd     int    // rails near a GPU of AMD, the last ones
		asked   []string
		memory  string // memory of the last rail
		kinds   string
		want    []string
		env     []string
	}{
		{why: "dma-buf", memory: "cuda_dmabuf", kinds: "cuda_dmabuf", want: all},
		{why: "peermem", refuses: uint64(syscall.EOPNOTSUPP), memory: "cuda_peermem", kinds: "cuda_dmabuf cuda_peermem",
			want: slices.Concat([]string{"no_dmabuf"}, all)},
		{why: "staged", asked: []string{"cuda_staged"}, memory: "cuda_staged", kinds: "cuda_staged", want: all},
		{why: "a peer that lends none", keeps: true, kinds: "cuda_dmabuf cuda_peermem cuda_host cuda_staged",
			want: []string{"no_gpu", "no_gpu", "no_gpu", "no_gpu"}},
		{why: "unified memory", memory: "cuda_host", kinds: "cuda_dmabuf cuda_peermem cuda_host cuda_staged",
			want: slices.Concat([]string{"unified_memory", "unified_memory"}, all, all),
			env:  []string{"FAKECUDA_NO_DMABUF", "FAKECUDA_INTEGRATED"}},
		{why: "no GPUDirect", memory: "cuda_host", kinds: "cuda_dmabuf cuda_peermem cuda_host cuda_staged",
			want: slices.Concat([]string{"no_dmabuf", "no_peermem"}, all, all),
			env:  []string{"FAKECUDA_NO_DMABUF", "FAKECUDA_NO_RDMA"}},
		{why: "AMD", amd: 2, memory: "rocm_dmabuf", kinds: "rocm_dmabuf", want: all},
		{why: "AMD without dma-buf", amd: 2, refuses: uint64(syscall.EINVAL), memory: "rocm_host",
			kinds: "rocm_dmabuf rocm_host", want: slices.Concat([]string{"no_dmabuf"}, all)},
		{why: "both vendors", amd: 1, memory: "rocm_dmabuf", kinds: "cuda_dmabuf rocm_dmabuf",
			want: []string{"write 0", "write 1"}},
		{why: "the other vendor by name", asked: []string{"rocm_host"}, memory: "rocm_host", kinds: "rocm_host",
			want: all},
	} {
		t.Run(tc.why, func(t *testing.T) {
			for _, knob := range tc.env {
				t.Setenv(knob, "1")
			}
			p := preparePair(t, 2, func(_ string, _ int, d *fakeverbs.Device) { d.DMABufErrno = tc.refuses })
			p.near(2 - tc.amd)
			if !tc.keeps {
				p.opts.Extras = []result.Extra{{Kind: result.GPU}}
			}
			p.serve()
			res := p.bench(result.Extra{Kind: result.GPU, Memories: tc.asked})
			p.clean()
			equalBursts(t, res, result.GPU, tc.want...)
			if _, memory := res.GPUOf("1"); memory != tc.memory {
				t.Errorf("memory %q, want %q", memory, tc.memory)
			}
			var kinds []string
			for _, m := range res.Extras {
				kinds = append(kinds, m.Memory)
			}
			if got := strings.Join(slices.Compact(kinds), " "); got != tc.kinds {
				t.Errorf("kinds of memory %q, want %q", got, tc.kinds)
			}
			if text := ledger(); strings.ContainsAny(text, "123456789") {
				t.Errorf("left on a GPU: %s", text)
			}
		})
	}
}

// near gives all rails a GPU: the first ones of NVIDIA, the others of AMD.
func (p *pairOfNodes) near(nvidia int) {
	for name, n := range map[string]*node.Node{"a": p.a, "b": p.b} {
		amd := filepath.Join(p.fabric.Sysfs(name), "bus/pci/devices", fakegpu.GPU)
		list := n.Opts.Rails
		n.Opts.Rails = func() ([]rail.Rail, error) {
			rails, err := list()
			for i := range rails {
				rails[i].GPU = fakegpu.GPU
				if i < nvidia { // another address of the same GPU
					rails[i].GPU = strings.ToUpper(fakegpu.GPU)
				}
			}
			return rails, err
		}
		if err := errors.Join(os.MkdirAll(amd, 0o755), os.WriteFile(filepath.Join(amd, "vendor"), []byte("0x1002\n"),
			0o600)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestExtraOldPeer: a peer that opens only one flow of writes per rail is not asked for others.
func TestExtraOldPeer(t *testing.T) {
	t.Parallel()
	r := round.Round{Pairing: round.Pairing{Remote: protocol.Hello{}}}
	_, err := r.OpenFlows(t.Context(), r.Plan, "", []*round.Flow{{Op: result.Read}}, 1)
	if f := failure.As("", err); f == nil || f.Reason != failure.PeerVersion {
		t.Errorf("%v", err)
	}
}

// TestExtraTurns: each round with solo bursts makes one extra, in turn.
func TestExtraTurns(t *testing.T) {
	t.Parallel()
	opts := options.DefaultOptions()
	opts.SoloEvery, opts.Extras = 2, []result.Extra{{Kind: result.Loopback}, {Kind: result.Contention}}
	p := &schedule.Prober{Opts: opts, Peers: map[string]*schedule.Peer{"b": {}}}
	var got []string
	for n := range 6 {
		p.Peers["b"].Rounds = n
		text := "-"
		for _, e := range p.NewRound("b", false).Plan.ExtrasNow {
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
	burst := func(path int, lost uint64) result.Measured {
		return result.Measured{Kind: result.Paths, Flows: []result.MeasuredFlow{{Rail: "0", Path: path,
			Loss: &result.Loss{Retransmits: lost, Packets: 100}}}}
	}
	r := result.Result{Extras: []result.Measured{burst(0, 9), burst(1, 9), {Kind: result.Loopback}, burst(1, 2),
		burst(1, 2), burst(2, 1), burst(3, 100), burst(3, 100)}}
	r.KeepBetter("0", 1)
	r.KeepBetter("0", 3) // all is lost in each
	var got []string
	for _, f := range r.PathsOf("0") {
		got = append(got, fmt.Sprint(f.Path, " ", f.Loss.Retransmits))
	}
	if want := []string{"0 9", "1 2", "2 1", "3 100"}; !slices.Equal(got, want) || len(r.Extras) != 5 {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestLossyPaths: paths that lose packets while most paths of their rail do not. A field is "events/packets" of a path,
// the reason of its failure, or - if nothing counts its loss.
func TestLossyPaths(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ why, paths, want string }{
		{"none measured", "", ""},
		{"nothing is lost", "0/1000 0/1000 0/1000", ""},
		{"one loses", "0/1000 20/1000 0/1000", "1"},
		{"two of five", "0/1000 20/1000 0/1000 20/1000 0/1000", "1 3"},
		{"all alike", "20/1000 20/1000 20/1000", ""},
		{"one carries nothing", "0/1000 0/1000 retry_exceeded", "2"},
		{"one waits for too long", "0/1000 0/1000 timeout", "2"},
		{"all carry nothing", "retry_exceeded retry_exceeded retry_exceeded", ""},
		{"most carry nothing", "0/1000 retry_exceeded retry_exceeded", ""},
		{"half carry nothing", "0/1000 0/1000 timeout timeout", "2 3"},
		{"one fails for another reason", "0/1000 0/1000 port_down", ""},
		{"one is not counted", "0/1000 0/1000 -", ""},
		{"two events", "0/1000 2/1000 0/1000", ""},
		{"three events", "0/1000 3/1000 0/1000", "1"},
		{"less than 1 in 10,000", "0/90000 8/90000 0/90000", ""},
		{"1 in 10,000", "0/90000 9/90000 0/90000", "1"},
		{"three events more than four times the median", "2/1000 11/1000 2/1000", "1"},
		{"less than that", "2/1000 10/1000 2/1000", ""},
	} {
		r := result.Result{}
		for i, field := range strings.Fields(tc.paths) {
			f := result.MeasuredFlow{Rail: "0", Path: i, Loss: &result.Loss{}}
			if n, _ := fmt.Sscanf(field, "%d/%d", &f.Loss.Retransmits, &f.Loss.Packets); n < 2 {
				f.Loss = nil
			}
			if f.Loss == nil && field != "-" {
				f.Failure = failure.New(failure.StageExtra, failure.Reason(field), "")
			}
			r.Extras = append(r.Extras, result.Measured{Kind: result.Paths, Flows: []result.MeasuredFlow{f}})
		}
		lossy, all := r.LossyPaths("0")
		var got []string
		for _, f := range lossy {
			got = append(got, fmt.Sprint(f.Path))
		}
		if s := strings.Join(got, " "); s != tc.want || all != len(r.Extras) {
			t.Errorf("%s: paths %q of %d, want %q", tc.why, s, all, tc.want)
		}
	}
}

// TestGPUOf: what a rail carries alone from memory of its GPU is compared with its own solo burst.
func TestGPUOf(t *testing.T) {
	t.Parallel()
	solo := func(rate int64) *result.Flow { return &result.Flow{Bytes: rate, Active: time.Second} }
	r := result.Result{Rails: []result.RailResult{{Rail: "0", Solo: solo(100)}, {Rail: "1", Solo: solo(200)}, {Rail: "2"}}}
	add := func(kind result.Kind, memory string, goodput float64, rails ...string) {
		m := result.Measured{Kind: kind, Memory: memory}
		for _, rail := range rails {
			m.Flows = append(m.Flows, result.MeasuredFlow{Rail: rail, Goodput: &goodput})
		}
		r.Extras = append(r.Extras, m)
	}
	add(result.Loopback, "", 50, "0")
	add(result.GPU, "cuda_dmabuf", 50, "0", "1")
	add(result.GPU, "cuda_dmabuf", 90, "0")
	add(result.GPU, "cuda_host", 100, "1")
	add(result.GPU, "cuda_host", 100, "2")
	for rail, want := range map[string]string{"0": "0.9 cuda_dmabuf", "1": "0.5 cuda_host", "2": "0 ", "3": "0 "} {
		if ratio, memory := r.GPUOf(rail); fmt.Sprint(ratio, " ", memory) != want {
			t.Errorf("rail %s: %v from %q, want %s", rail, ratio, memory, want)
		}
	}
}

// TestContended: what two rails carry together is compared with the sum of each alone, by the better of several bursts.
func TestContended(t *testing.T) {
	t.Parallel()
	burst := func(goodput float64, rails ...string) result.Measured {
		m := result.Measured{Kind: result.Contention}
		for _, rail := range rails {
			m.Flows = append(m.Flows, result.MeasuredFlow{Rail: rail, Op: result.Write,
				Goodput: new(goodput / float64(len(rails)))})
		}
		return m
	}
	loopback := burst(500, "0")
	loopback.Kind = result.Loopback
	got := fmt.Sprint(result.Contended([]result.Measured{burst(100, "0"), burst(100, "1"), loopback,
		burst(100, "0", "1"),
		burst(180, "0", "1"), burst(150, "0", "1"), burst(100, "0", "2"), burst(100, "2"), burst(100, "1", "2")}))
	if want := "[{0 1 0.9} {1 2 0.5}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestShares: two rails share the narrowest part that both are on.
func TestShares(t *testing.T) {
	t.Parallel()
	r := result.Result{Places: []result.Shared{{Rails: []string{"0", "1"}, What: "a link"},
		{Rails: []string{"0", "1", "2"}, What: "a switch"}}}
	for pair, want := range map[string]string{"0 1": "a link", "1 2": "a switch", "0 3": "", "3 4": ""} {
		a, b, _ := strings.Cut(pair, " ")
		if got := r.Shares(a, b); got != want {
			t.Errorf("rails %s: %q, want %q", pair, got, want)
		}
	}
}

// TestNoteExtras: results of a round stay in later ones until one measures the same extra. A failure does not
// replace them.
func TestNoteExtras(t *testing.T) {
	t.Parallel()
	flow := func(rail string, v float64) result.MeasuredFlow {
		return result.MeasuredFlow{Rail: rail, Other: rail, Op: result.Write, Goodput: &v,
			Latency: &result.Latency{Samples: []time.Duration{1}}}
	}
	p := &history.PastPeer{}
	for i, tc := range []struct {
		transport result.Transport
		extras    []result.Measured
		want      float64 // goodput of rail 0 to itself; 0: unknown
		paths     int
	}{
		{result.RDMA, nil, 0, 0},
		{result.RDMA, []result.Measured{{Kind: result.Loopback, Flows: []result.MeasuredFlow{flow("0", 5)}}}, 5, 0},
		{result.RDMA, []result.Measured{{Kind: result.Paths, Flows: []result.MeasuredFlow{flow("0", 1)}}}, 5, 1},
		{result.RDMA, []result.Measured{{Kind: result.Loopback, Failure: failure.New("", failure.Budget, "")}}, 5, 1},
		{result.TCP, nil, 5, 0}, // a round over TCP has no loopback result
		{result.RDMA, []result.Measured{{Kind: result.Loopback, Flows: []result.MeasuredFlow{flow("0", 7)}}}, 7, 1},
	} {
		r := &result.Result{Transport: tc.transport, Extras: tc.extras}
		p.NoteExtras(r)
		got := 0.0
		if v := r.LoopbackOf("0"); v != nil {
			got = *v
		}
		if got != tc.want || len(r.PathsOf("0")) != tc.paths {
			t.Errorf("round %d: %v and %d paths, want %v and %d", i, got, len(r.PathsOf("0")), tc.want, tc.paths)
		}
	}
	for _, m := range p.Extras {
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
	res := p.bench(result.Extra{Kind: result.Contention}, result.Extra{Kind: result.Reads})
	plan := round.Plan{Options: p.opts, Full: true, Runs: history.SingleRuns, Rails: 2, Rate: 100e9,
		ExtrasNow: []result.Extra{{Kind: result.Contention},
			{Kind: result.Reads}}}
	if took := time.Since(begin); res.Outcome != result.OK || res.Bytes <= 0 || took > 30*time.Second {
		t.Errorf("%s, %d bytes in %v", res.Outcome, res.Bytes, took)
	}
	if plan.ExtraBytes(nil, nil, nil) != 0 {
		t.Error("without rails extras cost something")
	}
}
