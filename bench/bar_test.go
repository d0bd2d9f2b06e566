package bench

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/probe"
)

// TestBar: at most ten lines a second, the rate of the current stage, and nothing left after Clear.
func TestBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := NewBar(&out)
		drew := func(p probe.Progress, want string) {
			t.Helper()
			out.Reset()
			b.Update(p)
			if want != "" {
				want = "\r\x1b[K" + want
			}
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Error(diff)
			}
		}
		b.Clear()
		if out.Len() > 0 {
			t.Errorf("cleared what was not there: %q", out.String())
		}
		drew(probe.Progress{Stage: "hello"}, "hello")
		drew(probe.Progress{Stage: "latency", Rail: "0"}, "") // too soon
		time.Sleep(redrawEvery)
		drew(probe.Progress{Stage: "latency", Rail: "0"}, "latency, rail 0")
		time.Sleep(redrawEvery)
		drew(probe.Progress{Stage: "stealing", Done: 0, Total: 64 << 20},
			"stealing         [------------------------]   0 %  0.0 MiB")
		time.Sleep(redrawEvery)
		drew(probe.Progress{Stage: "stealing", Done: 32 << 20, Total: 64 << 20},
			"stealing         [############------------]  50 %  32.0 MiB  2.68 Gb/s")
		time.Sleep(redrawEvery)
		drew(probe.Progress{Stage: "stealing", Done: 99 << 20, Total: 64 << 20},
			"stealing         [########################] 100 %  99.0 MiB  4.15 Gb/s")
		time.Sleep(redrawEvery)
		drew(probe.Progress{Stage: "solo", Rail: "long name\x1b[2J", Done: 1 << 40, Total: 1 << 41},
			"…l long name [2J [############------------]  50 %  1048576.0 MiB")
		out.Reset()
		b.Clear()
		if out.String() != "\r\x1b[K" {
			t.Errorf("Clear wrote %q", out.String())
		}
	})
}
