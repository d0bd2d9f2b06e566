package nvml

import (
	"cmp"
	"maps"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// Events are the XIDs of one GPU that occurred since [Device.XIDs]. Errors are [*Error].
type Events interface {
	// Next returns the next XID without waiting; ok is false if there is none.
	Next() (xid uint64, ok bool, err error)
	// Free ends the recording.
	Free()
}

// XIDs is how often each XID occurred; those beyond the first 16 of a GPU are under [OtherXID].
type XIDs map[uint64]uint64

// OtherXID is no XID.
const OtherXID = 0

const (
	maxXIDs   = 16  // of a GPU: NVIDIA has about 100, and a GPU that fails has few of them
	maxEvents = 256 // of one read; the driver keeps the rest
)

// recorder is the XIDs of one GPU. It has a turn of its own: other calls hang when a GPU fails, and then its XIDs
// matter most. The driver queues them, so that nothing has to wait for one; DCGM polls them as well.
type recorder struct {
	events Events // nil: there are none, for the reason err
	err    error
	opened int64     // the initialisation that events and err are of
	tried  time.Time // when events were asked for
	uuid   string
	counts XIDs
}

// Watcher counts the XIDs of all GPUs since its first read, in lanes of its own. Safe for concurrent use.
type Watcher struct {
	session *Session
	gpus    lane.Group[Result[XIDs]]
}

// NewWatcher returns the watcher of a session. All watchers of a session have the same counts.
func NewWatcher(s *Session) *Watcher { return &Watcher{session: s} }

// Read counts what occurred since the last read. roster is that of a [Reader.Read] just now. XIDs are also valid beside
// an error.
func (w *Watcher) Read(roster Roster, budget time.Duration) []Result[XIDs] {
	return visit(&w.gpus, roster, budget, func(index int) (res Result[XIDs]) {
		r, turn := &w.session.recorders[index], w.session.turns[MaxGPUs+index]
		turn <- struct{}{}
		defer func() { <-turn }()
		res.Index = index
		if res.Err = w.session.current(roster); res.Err == nil {
			res.Err = r.read(w.session.lib, index, roster.opened)
		}
		res.Value = maps.Clone(r.counts)
		return res
	})
}

func (r *recorder) read(lib Library, index int, opened int64) error {
	if r.events == nil && (r.opened != opened || time.Since(r.tried) >= RetryInterval && !unsupported(r.err)) {
		r.opened, r.tried = opened, time.Now()
		r.events, r.err = r.record(lib, index)
	}
	return cmp.Or(r.err, r.count())
}

// record starts to record. A GPU has another index after one before it was lost: counts are of one GPU.
func (r *recorder) record(lib Library, index int) (Events, error) {
	gpu, err := lib.GPU(index)
	if err != nil {
		return nil, err
	}
	if id, _ := gpu.Identity(); id.UUID != "" && id.UUID != r.uuid {
		r.uuid, r.counts = id.UUID, XIDs{}
	}
	return gpu.XIDs()
}

func (r *recorder) count() error {
	for range maxEvents {
		if r.events == nil {
			break
		}
		xid, ok, err := r.events.Next()
		if err != nil || !ok {
			return err
		}
		if _, known := r.counts[xid]; !known && len(r.counts) >= maxXIDs {
			xid = OtherXID
		}
		if r.counts == nil {
			r.counts = XIDs{}
		}
		r.counts[xid]++
	}
	return nil
}

// free ends the recording, before the library is closed. What occurred until then is counted.
func (r *recorder) free() {
	if r.events != nil {
		_ = r.count() // the GPU may be lost
		r.events.Free()
		r.events = nil
	}
}

func unsupported(err error) bool {
	_, reason := CodeOf(err).meaning()
	return reason == sysfs.ReasonUnsupported
}
