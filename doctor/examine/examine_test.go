package examine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
)

// series are the exporter's, by row.
type series map[string]float64

func (s series) Each(row string, labels []string, each func([]string, float64)) bool {
	v, ok := s[row]
	if ok {
		each(slices.Repeat([]string{"0"}, len(labels)), v)
	}
	return ok
}

func checks(s *finding.Store) (names []string) {
	list, _ := s.List(time.Now())
	for _, f := range list {
		names = append(names, f.Check+" "+f.Subject)
	}
	return names
}

// TestExaminer: the node is examined at once and every minute; what two examinations find stands, with what the running
// exporter saw.
func TestExaminer(t *testing.T) {
	sick := doctortest.Machine(t, "rxe", doctortest.File("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	sick.Memlock = facts.Memlock{Known: true, Soft: 1 << 16, Hard: 1 << 16}
	sick.Unread = []string{"read /sys/x: permission denied"}
	healthy := doctortest.Machine(t, "rxe", "")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store := finding.NewStore(nil)
		var now atomic.Pointer[facts.Facts]
		var uses atomic.Bool
		flaps := 0.0
		w := New(Options{Store: store, Uses: uses.Load,
			Gather: func(context.Context) *facts.Facts { time.Sleep(30 * time.Millisecond); f := *now.Load(); return &f },
			Series: func(view func(facts.Series, map[string]string)) {
				flaps += 10
				view(series{"netdev_carrier_changes_total": flaps}, map[string]string{"gpu": "died"})
			}})
		done := make(chan struct{})
		now.Store(sick)
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(time.Second)
		if got := checks(store); got != nil || w.Last().Took != 30*time.Millisecond || len(w.Last().Unread) != 1 {
			t.Errorf("after the first examination: %q, %+v", got, w.Last())
		}
		time.Sleep(10 * time.Second)
		if got := strings.Join(checks(store), ", "); got != "port_down rail 1, source_failed source gpu" {
			t.Errorf("after the second: %s", got)
		}
		uses.Store(true)
		time.Sleep(2 * time.Minute)
		if got := strings.Join(checks(store), ", "); got != "memlock node, port_down rail 1, link_flapping rail 0, "+
			"source_failed source gpu" {
			t.Errorf("with a probe, and with a history: %s", got)
		}
		now.Store(healthy)
		time.Sleep(3 * time.Minute)
		if got := strings.Join(checks(store), ", "); strings.Contains(got, "port_down") || strings.Contains(got, "memlock") {
			t.Errorf("three examinations after it was fixed: %s", got)
		}
		stop()
		<-done
	})
}

// TestExaminerFails: an examination that did not end changes nothing, and says why.
func TestExaminerFails(t *testing.T) {
	sick := doctortest.Machine(t, "rxe", doctortest.File("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store := finding.NewStore(nil)
		var gather atomic.Pointer[func(context.Context) *facts.Facts]
		gather.Store(new(func(context.Context) *facts.Facts { return sick }))
		w := New(Options{Store: store, Uses: func() bool { return true },
			Gather: func(ctx context.Context) *facts.Facts { return (*gather.Load())(ctx) }})
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(90 * time.Second)
		gather.Store(new(func(ctx context.Context) *facts.Facts { <-ctx.Done(); return &facts.Facts{} }))
		time.Sleep(4 * time.Minute)
		stands := func() bool { return slices.Contains(checks(store), "port_down rail 1") }
		if got := w.Last(); got.Err != context.DeadlineExceeded.Error() || !stands() {
			t.Errorf("one that hangs: %+v, %q", got, checks(store))
		}
		gather.Store(new(func(context.Context) *facts.Facts { panic(errors.New("a bug")) }))
		time.Sleep(2 * time.Minute)
		if got := w.Last(); got.Err != "panic: a bug" || !stands() {
			t.Errorf("one that panics: %+v, %q", got, checks(store))
		}
		stop()
		<-done
	})
}
