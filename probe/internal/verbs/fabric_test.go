//go:build cgo

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/pattern"
	"github.com/railscope/railscope/probe/internal/transfer"
)

const (
	mib  = 1 << 20
	seed = 7
)

// bySurprise is less than the deadline that would otherwise end a test's burst, and more than a busy machine needs to
// react.
const bySurprise = 8 * time.Second

// ends are connected rails from node A, the asker, to node B, the target.
type ends struct {
	t      testing.TB
	fabric *fakeverbs.Fabric
	lib    *Library
	source *Buffer
	memory []*Buffer // rings by rail: at B, or at A for rails that read
	want   [][]byte  // expected content of the rings
	rails  []*Rail   // rails at A
	peers  []*Rail
	run    *Run
	pass   int // pass of the last burst
}

// connected returns one rail that writes for each of the knobs. Each of its queue pairs owns ring bytes.
func connected(t testing.TB, ring, queuePairs, depth int, knobs ...fakeverbs.Knobs) *ends {
	t.Helper()
	return connectedBy(t, Spec{Op: transfer.Write, QueuePairs: queuePairs, Depth: depth}, ring, knobs...)
}

// connectedBy returns one rail with this spec for each of the knobs, which apply to node A.
func connectedBy(t testing.TB, spec Spec, ring int, knobs ...fakeverbs.Knobs) *ends {
	t.Helper()
	return connectedFrom(t, nil, spec, ring, knobs...)
}

// connectedFrom is connectedBy with other memory at the sources of rails; nil uses the same host memory for all.
func connectedFrom(t testing.TB, memory []Area, spec Spec, ring int, knobs ...fakeverbs.Knobs) *ends {
	t.Helper()
	e := &ends{t: t, fabric: fakeverbs.New(t), lib: fake(t)}
	for i, k := range knobs {
		e.fabric.Add("A", fakeverbs.Device{Name: fmt.Sprintf("mlx5_%d", i),
			GIDs: fakeverbs.RoCE(fmt.Sprintf("192.0.2.%d", 10+i)), Knobs: k})
		e.fabric.Add("B", fakeverbs.Device{Name: fmt.Sprintf("mlx5_%d", i),
			GIDs: fakeverbs.RoCE(fmt.Sprintf("192.0.2.%d", 100+i))})
	}
	t.Cleanup(e.close)
	e.source = buffer(t, transfer.SourceLen)
	pattern.Fill(e.source.Bytes(), seed, 0)
	for i := range knobs {
		spec.Device, spec.Port, spec.GIDIndex = fmt.Sprintf("mlx5_%d", i), 1, 3
		e.memory = append(e.memory, buffer(t, ring*spec.QueuePairs))
		e.want = append(e.want, make([]byte, ring*spec.QueuePairs))
		e.fabric.Use(t, "A")
		e.rails = append(e.rails, must(e.lib.OpenRail(spec)))
		e.fabric.Use(t, "B")
		target := spec
		target.Target, target.Stamps = true, false
		e.peers = append(e.peers, must(e.lib.OpenRail(target)))
		source, rings := e.rails[i], e.peers[i]
		if spec.Op == transfer.Read {
			source, rings = rings, source
		}
		from := AreaOf(e.source.Bytes())
		if memory != nil {
			from = memory[i]
		}
		if err := errors.Join(source.Register(from), rings.Register(AreaOf(e.memory[i].Bytes())),
			e.peers[i].Expect()); err != nil {
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

// loads returns equal loads for all rails.
func (e *ends) loads(chunk int64, depth int) (loads []transfer.Load) {
	for _, r := range e.rails {
		loads = append(loads, transfer.Load{Rail: r.spec.Device, Chunk: chunk, Cap: 1 << 50, Depth: depth})
	}
	return loads
}

// single returns the arguments of a burst of single writes.
func (e *ends) single(chunk int64, depth int) transfer.BurstArgs {
	return transfer.BurstArgs{Loads: e.loads(chunk, depth)}
}

// must panics on an error, for setup code in which testing.T is not available.
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

// close closes everything twice, and checks that nothing stays open.
func (e *ends) close() {
	for range 2 {
		for _, r := range append(slices.Clone(e.rails), e.peers...) {
			if err := r.Close(); err != nil {
				e.t.Error(err)
			}
		}
		for _, b := range append(slices.Clone(e.memory), e.source) {
			if err := b.Close(); err != nil {
				e.t.Error(err)
			}
		}
	}
	for _, left := range e.fabric.Left() {
		e.t.Errorf("left open: %s", left)
	}
}

// write makes a burst with the next pass, and checks that its result is consistent.
func (e *ends) write(o transfer.BurstArgs) (transfer.BurstDone, error) {
	e.t.Helper()
	if o.Slow == 0 {
		o.Slow = 3 * time.Second
	}
	if o.Deadline == 0 {
		o.Deadline = 10 * time.Second
	}
	e.pass += 67
	o.Pass = e.pass
	got, err := e.run.Burst(e.rails, o)
	progress := e.run.Progress()
	for i, r := range got.Rails {
		writes, chunk := int64(0), o.Loads[i].Chunk
		for _, n := range r.Writes {
			writes += n
		}
		switch {
		case len(r.Writes) != e.rails[i].spec.QueuePairs, r.Bytes != progress[i], r.Bytes > writes*chunk,
			r.Failure == nil && r.Bytes != writes*chunk:
			e.t.Errorf("rail %d: %+v, progress %d", i, r, progress[i])
		case r.Measured > r.Bytes, r.Measured > 0 && (r.First < 0 || r.Last <= r.First),
			r.Measured == 0 && o.Window > 0 && !r.Disturbed:
			e.t.Errorf("rail %d: figures %+v", i, r)
		}
	}
	return got, err
}

// burst is write, and checks every byte that arrived over the rails that work. It stops the others at the target.
func (e *ends) burst(o transfer.BurstArgs) (transfer.BurstDone, error) {
	e.t.Helper()
	got, err := e.write(o)
	for i, r := range got.Rails {
		switch {
		case r.Failure != nil:
			e.peers[i].Stop()
			copy(e.want[i], e.memory[i].Bytes())
		case reason(err) != failure.Canceled:
			if e.rails[i].spec.Op != transfer.Read {
				if err := NewRun(1).Arrived(e.peers[i], e.pass, 5*time.Second); err != nil {
					e.t.Errorf("the end of the burst over rail %d: %v", i, err)
				}
			}
			e.expect(i, o.Loads[i].Chunk, r.Writes)
			if at := e.wrong(i); at >= 0 {
				e.t.Errorf("byte %d of rail %d is not what was written", at, i)
			}
		}
	}
	return got, err
}

// expect records the writes of the last burst over a rail.
func (e *ends) expect(rail int, chunk int64, writes []int64) {
	ring := int64(len(e.want[rail]) / len(writes))
	for q, n := range writes {
		for i := max(n-ring/chunk, 0); i < n; i++ {
			at, from := transfer.Place(i, ring, chunk, e.pass)
			copy(e.want[rail][int64(q)*ring:][at:at+chunk], e.source.Bytes()[from:])
		}
	}
}

// wrong returns the offset of the first wrong byte in a rail's memory; -1 if there is none.
func (e *ends) wrong(rail int) int {
	got := e.memory[rail].Bytes()
	if bytes.Equal(got, e.want[rail]) {
		return -1
	}
	for i := range got {
		if got[i] != e.want[rail][i] {
			return i
		}
	}
	return -1
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
