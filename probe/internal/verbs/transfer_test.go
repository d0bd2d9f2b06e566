//go:build cgo

package verbs

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestTransfers: a transfer takes as long as its slowest rail, and messages beyond a rail's depth are posted as others
// complete.
func TestTransfers(t *testing.T) {
	const each, chunk, depth = 4, 64 << 10, 4
	for _, queuePairs := range []int{1, 2} {
		fast, slow := fakeverbs.Knobs{Rate: 1 << 30}, fakeverbs.Knobs{Rate: 100 << 20}
		e := connected(t, 8*chunk, queuePairs, depth, fast, slow)
		shares := []transfer.Share{{Rail: "0", Chunk: chunk, Count: 1}, {Rail: "1", Chunk: chunk, Count: 32}}
		begin := time.Now()
		got, err := e.run.Transfers(e.rails, shares, each, 10*time.Second, 10*time.Second)
		took := time.Since(begin)
		// The lower bound is 20 ms, less the first burst.
		least := time.Duration(float64(32*chunk) / (100 << 20) * 0.95 * float64(time.Second))
		if err != nil || len(got) != each || slices.Min(got) < least || sum(got) > took {
			t.Errorf("%d queue pairs, in %v: %v of %v, %v", queuePairs, took, got, least, err)
		}
		got, err = e.run.Transfers(e.rails, shares, 1000, 50*time.Millisecond, 10*time.Second)
		if err != nil || len(got) < 1 || len(got) > 5 {
			t.Errorf("within 50 ms: %v, %v", got, err)
		}
		if _, err := e.burst(e.single(chunk, depth)); err != nil { // no transfer is left in flight
			t.Error(err)
		}
	}
}

// TestTransfersFail: the error names the rail, and the samples before it are returned.
func TestTransfersFail(t *testing.T) {
	for _, tc := range []struct {
		name  string
		knobs fakeverbs.Knobs
		want  failure.Reason
	}{
		{"no acknowledgement", fakeverbs.Knobs{Blocked: true}, failure.RetryExceeded},
		{"a write fails later", fakeverbs.Knobs{DropAfter: 1 << 20}, failure.RetryExceeded},
		{"too slow", fakeverbs.Knobs{Latency: 5 * time.Second}, failure.Timeout},
	} {
		e := connected(t, 1<<20, 1, 4, fakeverbs.Knobs{}, tc.knobs)
		shares := []transfer.Share{{Rail: "0", Chunk: 4096, Count: 8}, {Rail: "1", Chunk: 4096, Count: 8}}
		got, err := e.run.Transfers(e.rails, shares, 1000, 300*time.Millisecond,
			300*time.Millisecond)
		f, _ := errors.AsType[*failure.Failure](err)
		if f == nil || f.Reason != tc.want || f.Rail != "1" || len(got) >= 1000 {
			t.Errorf("%s: %d transfers, %v", tc.name, len(got), err)
		}
	}
	e := connected(t, 1<<20, 1, 4, fakeverbs.Knobs{}, fakeverbs.Knobs{})
	for _, bad := range [][]transfer.Share{nil, {{Chunk: 8, Count: 1}},
		{{Chunk: 8, Count: 1}, {Chunk: 2 << 20, Count: 1}},
		{{Chunk: 8, Count: 1}, {Chunk: 8}}, {{Chunk: 8, Count: 1}, {Chunk: 8, Count: 1 << 30}}} {
		if _, err := e.run.Transfers(e.rails, bad, 1, time.Second, time.Second); err == nil {
			t.Errorf("%+v was possible", bad)
		}
	}
	e.run.Cancel()
	good := []transfer.Share{{Chunk: 8, Count: 1}, {Chunk: 8, Count: 1}}
	if _, err := e.run.Transfers(e.rails, good, 1, time.Second, time.Second); err == nil {
		t.Error("a canceled run")
	}
}
