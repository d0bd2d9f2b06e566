package bench

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/probe/result"
)

// TestBar: at most ten lines per second, and one at the end of each burst. The step is not truncated, the rate is
// the measured one, and the line is empty after Clear.
func TestBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := NewBar(&out)
		drew := func(p result.Progress, want string) {
			t.Helper()
			out.Reset()
			b.Update(p)
			if want != "" {
				want = "\r\x1b[K" + want
			}
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Error(diff)
			}
			if n := utf8.RuneCountInString(strings.TrimPrefix(out.String(), "\r\x1b[K")); n > 79 {
				t.Errorf("%d columns", n)
			}
		}
		b.Clear()
		if out.Len() > 0 {
			t.Errorf("cleared what was not there: %q", out.String())
		}
		b.Round(1, 1)
		drew(result.Progress{Stage: "hello"}, "hello")
		drew(result.Progress{Stage: "latency", Rail: "0"}, "") // too soon
		time.Sleep(redrawEvery)
		drew(result.Progress{Stage: "latency", Rail: "0"}, "latency, rail 0")
		time.Sleep(redrawEvery)
		drew(result.Progress{Stage: "striped", Total: 64 << 20}, "striped [------------------------]    0 %")
		half := result.Progress{Stage: "striped", Done: 32 << 20, Total: 64 << 20, Rate: 335e6}
		time.Sleep(time.Minute) // the rate is not bytes ÷ time
		drew(half, "striped [############------------]   50 %  2.68 Gb/s")
		drew(half, "")
		half.Done, half.Ended, half.Rate = 64<<20, true, 606.25e6
		drew(half, "striped [########################]  100 %  4.85 Gb/s")
		time.Sleep(redrawEvery)
		extra := result.Progress{Stage: "extra", Rail: "0", Kind: result.Reads, Step: 3, Steps: 12, Done: 99 << 20,
			Total: 64 << 20, Rate: 606.25e6, Left: 12 * time.Second}
		drew(extra, "extra 3 of 12: rail 0 read [###############]  100 %  4.85 Gb/s  about 12 s left")
		time.Sleep(redrawEvery)
		extra.Rail, extra.Kind, extra.Stage, extra.Total, extra.Rate = "", result.QueuePairs, "connect", 0, 0
		drew(extra, "extra 3 of 12: queue pairs, connect  about 12 s left")
		time.Sleep(redrawEvery)
		extra.Rail, extra.Stage, extra.Total, extra.Rate = strings.Repeat("long", 30)+"\x1b[2J", "extra", 64<<20,
			606.25e6
		drew(extra, "extra 3 of 12: rail …nglonglonglong [2J queue pairs  4.85 Gb/s  about 12 s left")
		b.Round(2, 5) // three rounds follow
		time.Sleep(10 * time.Second)
		extra.Rail, extra.Left = "0", 90*time.Second
		drew(extra, "round 2 of 5, extra 3 of 12: rail 0 queue pairs  4.85 Gb/s  about 7 min left")
		b.Step("gpu", 11*time.Minute) // other steps follow these rounds
		time.Sleep(redrawEvery)
		drew(extra, "gpu 2/5, extra 3 of 12: rail 0 queue pairs  100 %  4.85 Gb/s  about 18 min left")
		out.Reset()
		b.Clear()
		if out.String() != "\r\x1b[K" {
			t.Errorf("Clear wrote %q", out.String())
		}
	})
}
