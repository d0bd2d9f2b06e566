//go:build cgo

package verbs

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/pattern"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// Rates that a fake fabric holds to on any machine.
const (
	mib  = 1 << 20
	seed = 7
)

// ends are rails from node A to node B, connected, with a buffer at each end.
type ends struct {
	t        testing.TB
	fabric   *fakeverbs.Fabric
	lib      *Library
	from, to *Buffer
	rails    []*Rail // at A
	peers    []*Rail
	run      *Run
}

// connected makes a rail for each of the knobs.
func connected(t testing.TB, size, queuePairs, depth int, knobs ...fakeverbs.Knobs) *ends {
	t.Helper()
	e := &ends{t: t, fabric: fakeverbs.New(t), lib: fake(t)}
	for i, k := range knobs {
		e.fabric.Add("A", fakeverbs.Device{Name: fmt.Sprintf("mlx5_%d", i),
			GIDs: fakeverbs.RoCE(fmt.Sprintf("192.0.2.%d", 10+i)), Knobs: k})
		e.fabric.Add("B", fakeverbs.Device{Name: fmt.Sprintf("mlx5_%d", i),
			GIDs: fakeverbs.RoCE(fmt.Sprintf("192.0.2.%d", 20+i))})
	}
	t.Cleanup(e.close)
	e.from, e.to = buffer(t, size), buffer(t, size)
	pattern.Fill(e.from.Bytes(), seed, 0)
	for i := range knobs {
		spec := Spec{Device: fmt.Sprintf("mlx5_%d", i), Port: 1, GIDIndex: 3, QueuePairs: queuePairs, Depth: depth}
		e.fabric.Use(t, "A")
		e.rails = append(e.rails, must(e.lib.OpenRail(spec)))
		e.fabric.Use(t, "B")
		e.peers = append(e.peers, must(e.lib.OpenRail(spec)))
		if err := errors.Join(e.rails[i].Register(e.from), e.peers[i].Register(e.to)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range knobs {
		connect(t, e.peers[i], e.rails[i])
		connect(t, e.rails[i], e.peers[i])
	}
	e.run = NewRun(len(knobs))
	return e
}

// must is for the setup of a test; testing.T is not available in arguments.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func fake(t testing.TB) *Library {
	t.Helper()
	l, err := Open(fakeverbs.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func buffer(t testing.TB, size int) *Buffer {
	t.Helper()
	b, err := NewBuffer(size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func attr() Attr { return Attr{PathMTU: 4096, Timeout: 14, RetryCount: 7} }

func connect(t testing.TB, r, peer *Rail) {
	t.Helper()
	if err := r.Connect(peer.Info().End, attr()); err != nil {
		t.Fatal(err)
	}
}

// close closes everything twice, and checks that nothing is left open.
func (e *ends) close() {
	for range 2 {
		for _, r := range append(e.rails, e.peers...) {
			if err := r.Close(); err != nil {
				e.t.Error(err)
			}
		}
		for _, b := range []*Buffer{e.from, e.to} {
			if err := b.Close(); err != nil {
				e.t.Error(err)
			}
		}
	}
	for _, left := range e.fabric.Left() {
		e.t.Errorf("left open: %s", left)
	}
}

// burst runs one, with a deadline if it has none.
func (e *ends) burst(o transfer.BurstArgs) (transfer.BurstDone, error) {
	e.t.Helper()
	if o.Deadline == 0 {
		o.Deadline = 10 * time.Second
	}
	clear(e.to.Bytes())
	got, err := e.run.Burst(e.rails, e.from, o)
	e.consistent(got)
	return got, err
}

// consistent checks a result against itself and against what arrived.
func (e *ends) consistent(got transfer.BurstDone) {
	e.t.Helper()
	bytes, end := int64(0), time.Duration(0)
	for i, r := range got.Rails {
		bytes += r.Bytes
		end = max(end, r.Last)
		if r.Writes > 0 && (r.First < 0 || r.First > r.Last) || (r.Writes == 0) != (r.Bytes == 0) {
			e.t.Errorf("rail %d: %+v", i, r)
		}
	}
	if bytes != got.Bytes || got.Elapsed > end {
		e.t.Errorf("%d bytes in %v; rails say %d in %v", got.Bytes, got.Elapsed, bytes, end)
	}
	last := int64(-1)
	for _, d := range got.Done {
		if d.Offset <= last || d.Length <= 0 {
			e.t.Errorf("ranges overlap, touch or are out of order: %v", got.Done)
		}
		last = d.Offset + d.Length
		e.arrived(d)
	}
}

// arrived checks the pattern in a range of the target.
func (e *ends) arrived(d transfer.Range) {
	e.t.Helper()
	at := d.Offset &^ (pattern.Word - 1) // a range may begin within a word
	if d.Offset != at {
		e.t.Errorf("range at %d is not on a word", d.Offset)
	}
	if wrong := pattern.Check(e.to.Bytes()[d.Offset:d.Offset+d.Length], seed, at); wrong >= 0 {
		e.t.Errorf("what arrived at %d is not what was written", wrong)
	}
}

// reason returns the reason of an error of this package.
func reason(err error) failure.Reason {
	if e, ok := errors.AsType[*failure.Failure](err); ok {
		return e.Reason
	}
	if err != nil {
		return failure.Reason("not ours: " + err.Error())
	}
	return ""
}
