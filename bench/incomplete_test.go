package bench

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

var (
	disturbed = &result.Failure{Stage: "extra", Reason: "disturbed", Detail: "the thread did not run for up to 9ms"}
	usedUp    = &result.Failure{Stage: "extra", Reason: "budget", Detail: "all bytes that were granted are used up"}
	noCUDA    = &result.Failure{Stage: "open", Reason: "no_libcuda", Detail: "libcuda.so.1 is missing"}
)

// TestIncomplete: each requested figure that was not measured has its reason in its cell and in a note, and is
// counted in the last line. Figures that were not requested are not.
func TestIncomplete(t *testing.T) {
	flows := func(f *result.Failure, rails ...string) (list []result.MeasuredFlow) {
		for _, rail := range rails {
			list = append(list, result.MeasuredFlow{Rail: rail, Op: result.Write, Failure: f})
		}
		return list
	}
	extra := func(list ...result.Measured) func(*result.Result, *Options) {
		return func(r *result.Result, _ *Options) { r.Extras = list }
	}
	gpu := func(memory string, f *result.Failure) result.Measured {
		return result.Measured{Kind: result.GPU, Memory: memory, Failure: f}
	}
	carried := func(memory string) result.Measured {
		one := flows(nil, "0")
		one[0].Goodput = new(9 * gb)
		return result.Measured{Kind: result.GPU, Memory: memory, Flows: one}
	}
	peer := noCUDA.OnPeer()
	for _, tc := range []struct {
		why    string
		change func(*result.Result, *Options)
		lacks  int
		cells  []string // fields of lines of the output
	}{
		{"everything", func(*result.Result, *Options) {}, 0, nil},
		{"a rail alone", func(r *result.Result, _ *Options) { r.Rails[1].Solo, r.Rails[1].SoloFailure = nil, disturbed }, 1,
			[]string{"1 rocep1s0f1 rocep1s0f1 3.09 4.07 1012 disturbed 92.90"}},
		{"TCP", func(r *result.Result, _ *Options) {
			r.TCP, r.TCPFailed = r.TCP[1:], []result.TCPResult{{Streams: 1, Failure: usedUp}}
			r.Extras = []result.Measured{{Kind: result.Reads, Failure: usedUp, Flows: flows(nil, "0")}}
		}, 2, []string{"TCP, 1 stream budget", "rail 0, READ budget"}},
		{"sweep", extra(result.Measured{Kind: result.Sweep, Size: 65536, Failure: usedUp, Flows: flows(nil, "0", "1")},
			result.Measured{Kind: result.Sweep, Size: 131072, Flows: flows(disturbed, "0", "1")}), 2,
			[]string{"64 KiB budget", "128 KiB disturbed"}},
		{"KV cache", func(r *result.Result, o *Options) {
			o.Caches = []Cache{{Model: "1GB", Bytes: 1e9, Page: 4096}}
			r.Extras = []result.Measured{{Kind: result.KVCache, Size: 4096, Flows: flows(disturbed, "0")},
				{Kind: result.KVCache, Size: 4096, Failure: usedUp, Flows: flows(nil, "0", "1")},
				{Kind: result.KVCache, Size: 4096, Failure: usedUp, TCP: &result.TCPResult{Streams: 4}}}
		}, 3, []string{"1GB - 953.67 MiB 4 KiB disturbed budget budget"}},
		{"times", extra(result.Measured{Kind: result.Messages, Size: 4096, Flows: flows(disturbed, "0", "1")},
			result.Measured{Kind: result.TCPTime, Size: 8, Failure: usedUp}), 3,
			[]string{"time of 4096 B, rail 0; time of"}},
		{"pairs", extra(result.Measured{Kind: result.Contention, Flows: flows(disturbed, "0", "1")}), 1, []string{"disturbed"}},
		{"a rail that another does not reach", extra(result.Measured{Kind: result.Loopback, Flows: []result.MeasuredFlow{{
			Rail: "0", Other: "1", Op: result.Write, Failure: &result.Failure{Stage: "connect", Reason: "no_route"}}}}), 0, nil},
		{"memory by name", extra(gpu("cuda_dmabuf", noCUDA), gpu("cuda_peermem", noCUDA), gpu("cuda_host", noCUDA)), 1,
			[]string{"cuda_dmabuf memory; cuda_peermem memory; cuda_host memory: not measured: open: no_libcuda"}},
		{"memory where there is a GPU", func(r *result.Result, o *Options) {
			o.GPUsIfAny, r.Extras = true, []result.Measured{gpu("cuda_dmabuf", noCUDA)}
		}, 0, []string{"cuda_dmabuf memory: not measured"}},
		{"memory that the peer lacks", func(r *result.Result, o *Options) {
			o.GPUsIfAny, r.Extras = true, []result.Measured{gpu("cuda_dmabuf", peer)}
		}, 1, []string{"cuda_dmabuf memory: not measured"}},
		{"memory that gave way", extra(gpu("cuda_dmabuf", noCUDA), carried("cuda_peermem")), 0, nil},
		{"copies", extra(gpu("cuda_dmabuf", noCUDA), carried("cuda_host"), gpu("cuda_staged", noCUDA)), 1, nil},
		{"memory that was not measured to the end", extra(carried("cuda_dmabuf"), gpu("", usedUp)), 1,
			[]string{"gpu memory: not measured: extra: budget"}},
		{"a bond of another network", extra(result.Measured{Kind: result.Bond, Failure: &result.Failure{Stage: "extra",
			Reason: "no_address"}}), 0, []string{"bond: not measured"}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			r, o := round(92.6, 92.9), Options{}
			tc.change(&r, &o)
			s := Suite(r, o)
			var b bytes.Buffer
			if err := WriteTable(&b, r, o); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(b.String()), "\n")
			last := lines[len(lines)-1]
			want := fmt.Sprintf("Incomplete: %d of %s that were asked for were not measured: ", tc.lacks,
				terminal.Count(s.Incomplete.Figures, "figure"))
			if n := len(s.Incomplete.Unmeasured); n != tc.lacks ||
				strings.HasPrefix(last, "Incomplete:") != (tc.lacks > 0) ||
				tc.lacks > 0 && !strings.HasPrefix(last, want) {
				t.Errorf("%d figures lack, want %d; the last line is %q", n, tc.lacks, last)
			}
			text := strings.Join(strings.Fields(b.String()), " ")
			for _, cell := range tc.cells {
				if !strings.Contains(text, cell) {
					t.Errorf("no %q in\n%s", cell, b.String())
				}
			}
		})
	}
}

// TestDisturbedRound: a round whose striped burst has no figure reports that, and keeps its other figures.
func TestDisturbedRound(t *testing.T) {
	r := round(92.6, 92.9)
	r.Outcome, r.Reason, r.Detail = result.Reached, disturbed.Reason, disturbed.Detail
	r.BurstSkipped = disturbed
	r.Striped, r.Static, r.Scaling, r.Imbalance, r.FinishSkew, r.Speedup = nil, nil, nil, nil, nil, nil
	r.Rails[0].Striped, r.Rails[1].Striped, r.StripedFailure = nil, nil, disturbed
	r.Extras = extras()[:3]
	var b bytes.Buffer
	if err := WriteTable(&b, r, Options{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "disturbed.table", b.Bytes())
	if s := Suite(r, Options{}); strings.Contains(b.String(), "Nothing is wrong") || !s.HasFigures() ||
		len(s.Incomplete.Unmeasured) != 1 {
		t.Errorf("%+v\n%s", s.Incomplete, b.String())
	}
}

// TestMeasured: a skipped round has measured nothing. After other rounds, their figures stay.
func TestMeasured(t *testing.T) {
	skipped := results()["skipped"]
	if Suite(skipped, Options{}).HasFigures() {
		t.Error("a skipped round has measured something")
	}
	s := Suite(skipped, Options{Earlier: []result.Result{round(92, 93)}})
	if !s.HasFigures() || len(s.Rows) != 5 || *s.Rows[4].Goodput != 185*gb {
		t.Errorf("%+v", s.Rows)
	}
	was := suite.Suite{Rows: []suite.Row{{Name: "a", Runs: []float64{2}}}}
	is := suite.Suite{Rows: []suite.Row{{Name: "a", Reason: "disturbed", Skipped: true}}}
	if c := suite.Compare(was, is); c[0].Worse() || c[0].Missing != "not measured now: disturbed" {
		t.Errorf("a row that was disturbed: %+v", c)
	}
}
