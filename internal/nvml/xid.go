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

// XIDs holds the number of occurrences of each XID; those beyond the first 16 of a GPU are summed under [OtherXID].
type XIDs map[uint64]uint64

// OtherXID is not a real XID.
const OtherXID = 0

const (
	maxXIDs   = 16  // limit per GPU: NVIDIA defines about 100, and a GPU that fails has a few of them
	maxEvents = 256 // limit of one read; the driver keeps the rest
)

// recorder records the XIDs of one GPU. It has its own turn: other calls hang when a GPU fails, and then its XIDs
// matter most. The driver queues XIDs, so no call has to wait for one; DCGM polls them, too.
type recorder struct {
	events Events // nil: there are none because of err
	err    error
	opened int64     // number of the initialization to which events and err belong
	tried  time.Time // time of the last attempt to get events
	uuid   string
	counts XIDs
}

// Watcher counts the XIDs of all GPUs since its first read, in its own lanes. Safe for concurrent use.
type Watcher struct {
	session *Session
	gpus    lane.Group[Result[XIDs]]
}

// NewWatcher returns a watcher of a session. All watchers of a session have the same counts.
func NewWatcher(s *Session) *Watcher { return &Watcher{session: s} }

// Read counts the XIDs since the last read. roster is the result of a [Reader.Read] just before. XIDs are also
// valid beside an error.
func (w *Watcher) Read(roster Roster, budget time.Duration) []Result[XIDs] {
	return visit(&w.gpus, roster, budget, func(index int) (res Result[XIDs]) {
		r, turn := &w.session.recorders[index], w.session.turns[MaxGPUs+index]
		turn <- struct{}{}
		defer func() { <-turn }()
		res.Index = index
		res.Err = w.session.current(roster)
		if res.Err == nil {
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

// record starts to record. The index of a GPU changes after another was lost; counts belong to a GPU, not to an
// index.
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

// free ends the recording before the library is closed. XIDs up to then are counted.
func (r *recorder) free() {
	if r.events != nil {
		_ = r.count() // an error is ignored: the GPU may be lost
		r.events.Free()
		r.events = nil
	}
}

func unsupported(err error) bool {
	_, reason := CodeOf(err).meaning()
	return reason == sysfs.ReasonUnsupported
}
