package examine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/fingerprint"
	"github.com/railscope/railscope/internal/rail"
)

// series holds values of the exporter's series, by row.
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

// TestExaminer: the node is examined at once and every minute. Findings of two examinations are raised, with those from
// the running exporter's series.
func TestExaminer(t *testing.T) {
	sick := doctortest.Machine(t, "rxe", doctortest.File("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	sick.Memlock = facts.Memlock{Known: true, Soft: 1 << 16, Hard: 1 << 16}
	sick.Unread = []string{"read /sys/x: permission denied"}
	sick.QoS = []facts.QoS{{Device: sick.Rails[0].Device, Port: 1,
		Settings: []facts.Setting{{Name: "dscp", Value: "3=26"}}}}
	sick.Jobs.Envs = []facts.Env{{Vars: map[string]string{"NCCL_IB_TC": "0"}, Count: 1, Processes: make([]facts.Process, 1)}}
	healthy := doctortest.Machine(t, "rxe", "")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store := finding.NewStore(nil)
		var now atomic.Pointer[facts.Facts]
		var uses atomic.Bool
		flaps := 0.0
		w := New(Options{Store: store, Uses: uses.Load, Class: func() *uint8 { return new(uint8(106)) },
			Own: func() (version, configuration string) { return "1.2.3", "cafe" },
			Gather: func(context.Context) *facts.Facts {
				time.Sleep(30 * time.Millisecond)
				f := *now.Load()
				return &f
			},
			Series: func(view func(facts.Series, map[string]string)) {
				flaps += 10
				view(series{"netdev_carrier_changes_total": flaps}, map[string]string{"gpu": "died"})
			},
			Faults: func(rail string) []fingerprint.Fault {
				return map[string][]fingerprint.Fault{"0": {{Rose: fingerprint.Counts{fingerprint.Access: 1}}}}[rail]
			}})
		done := make(chan struct{})
		now.Store(sick)
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(time.Second)
		if got := checks(store); got != nil || w.Last().Took != 30*time.Millisecond || len(w.Last().Unread) != 1 {
			t.Errorf("after the first examination: %q, %+v", got, w.Last())
		}
		classes := w.Last().Classes
		if len(classes) != 2 || classes[0].Jobs[0] != "1 process" || !classes[1].Probe || classes[0].Probe {
			t.Errorf("priorities: %+v", classes)
		}
		inCommon := map[string]string{}
		for _, fact := range w.Last().Facts {
			inCommon[fact.Subject] = fact.Value
		}
		if inCommon["railscope"] != "1.2.3" || inCommon["configuration"] != "cafe" || inCommon["qos"] != "dscp=3=26" {
			t.Errorf("what equal nodes have in common: %q", inCommon)
		}
		time.Sleep(10 * time.Second)
		if got := strings.Join(checks(store), ", "); got != "port_down rail 1, source_failed source gpu, "+
			"queue_pairs_failed rail 0" {
			t.Errorf("after the second: %s", got)
		}
		uses.Store(true)
		time.Sleep(2 * time.Minute)
		if got := strings.Join(checks(store), ", "); got != "memlock node, port_down rail 1, link_flapping rail 0, "+
			"source_failed source gpu, queue_pairs_failed rail 0" {
			t.Errorf("with a probe, and with a history: %s", got)
		}
		now.Store(healthy)
		time.Sleep(3 * time.Minute)
		if got := strings.Join(checks(store), ", "+
			""); strings.Contains(got, "port_down") || strings.Contains(got, "memlock") {
			t.Errorf("three examinations after it was fixed: %s", got)
		}
		stop()
		<-done
	})
}

// TestExaminerFails: an examination that did not finish changes nothing and reports its reason.
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

// hardly is an examiner of a node whose facts a test changes, with its store.
type hardly struct {
	*Examiner
	store *finding.Store
	now   atomic.Pointer[facts.Facts]
	read  atomic.Int32 // number of readings of hard facts
	took  atomic.Int64 // what a reading of hard facts takes, in nanoseconds
}

func newHardly() *hardly {
	h := &hardly{store: finding.NewStore(nil)}
	h.took.Store(int64(5 * time.Millisecond))
	h.Examiner = New(Options{Store: h.store, Uses: func() bool { return true },
		Gather: func(context.Context) *facts.Facts { f := *h.now.Load(); time.Sleep(3 * time.Second); return &f },
		Hard: func(context.Context) *facts.Facts {
			h.read.Add(1)
			time.Sleep(time.Duration(h.took.Load()))
			f := *h.now.Load()
			return &f
		}})
	return h
}

// standing returns the raised findings, with + in front of those that recover.
func (h *hardly) standing() string {
	list, _ := h.store.List(time.Now())
	var names []string
	for _, f := range list {
		names = append(names, map[bool]string{true: "+"}[f.Recovering]+f.Check+" "+f.Subject)
	}
	return strings.Join(names, ", ")
}

// TestExaminerNow: a caller gets the current hard facts within 50 ms, even during a long examination. A device that is
// absent for a moment raises nothing, and an older examination does not undo newer readings.
func TestExaminerNow(t *testing.T) {
	down := doctortest.Machine(t, "rxe", doctortest.File("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	down.Unread, down.Memlock = nil, facts.Memlock{}
	healthy := doctortest.Machine(t, "rxe", "")
	gone := *healthy
	gone.Rails = healthy.Rails[:1]
	gone.Missing = []rail.Missing{{Name: "1", Device: "rxe1", Port: 1}}
	synctest.Test(t, func(t *testing.T) {
		h := newHardly()
		ask := func() []Port {
			t.Helper()
			time.Sleep(recent)
			start := time.Now()
			ports, read := h.Now(t.Context())
			if took := time.Since(start); took > 50*time.Millisecond || !read {
				t.Errorf("asked for %v, read: %v", took, read)
			}
			return ports
		}
		h.now.Store(healthy)
		h.Examine(t.Context())
		if ports := ask(); h.standing() != "" || ports[1] != (Port{Rail: "1", Device: "rxe1", Netdev: "eth1", Number: 1, State: 4}) {
			t.Errorf("healthy: %s, %v", h.standing(), ports)
		}
		h.now.Store(down)
		if ports := ask(); h.standing() != "port_down rail 1" || ports[1].State != 1 {
			t.Errorf("down: %s, %v", h.standing(), ports)
		}
		h.now.Store(healthy)
		ask()
		if h.standing() != "+port_down rail 1" {
			t.Errorf("up again: %s", h.standing())
		}
		go func() { time.Sleep(10 * time.Millisecond); h.now.Store(healthy) }()
		h.now.Store(&gone)
		ask()
		if h.standing() != "+port_down rail 1" {
			t.Errorf("after a moment without a device: %s", h.standing())
		}
		h.now.Store(&gone)
		if ports := ask(); h.standing() != "rail_missing rail 1, +port_down rail 1" || len(ports) != 1 {
			t.Errorf("gone: %s, %v", h.standing(), ports)
		}
		done := make(chan struct{})
		h.now.Store(healthy)
		go func() { defer close(done); h.Examine(t.Context()) }()
		time.Sleep(time.Second)
		h.now.Store(down) // the port was up when the examination read it
		ask()
		if h.standing() != "port_down rail 1, +rail_missing rail 1" {
			t.Errorf("down while the node is examined: %s", h.standing())
		}
		<-done
		if h.standing() != "port_down rail 1, +rail_missing rail 1" {
			t.Errorf("after the examination: %s", h.standing())
		}
		h.took.Store(int64(time.Hour))
		time.Sleep(recent)
		start := time.Now()
		if _, read := h.Now(t.Context()); read || time.Since(start) > 2*time.Second {
			t.Errorf("a device that hangs: asked for %v, read: %v", time.Since(start), read)
		}
		time.Sleep(3 * time.Hour) // the examination's reading ends
	})
}

// TestExaminerAtOnce: the first examination raises hard facts, and so does an event within 100 ms, even one that
// precedes its change, or that follows another reading. Thousands of events cost one reading per second.
func TestExaminerAtOnce(t *testing.T) {
	down := doctortest.Machine(t, "rxe", doctortest.File("sys/class/infiniband/rxe1/ports/1/state", "1: DOWN"))
	healthy := doctortest.Machine(t, "rxe", "")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h, events := newHardly(), make(chan struct{}, 1)
		done := make(chan struct{})
		go func() { defer close(done); h.Follow(ctx, events) }()
		h.now.Store(down)
		h.Examine(t.Context())
		if h.standing() != "port_down rail 1" {
			t.Errorf("after the first examination: %s", h.standing())
		}
		for _, late := range []time.Duration{0, 20 * time.Millisecond, 45 * time.Millisecond, 900 * time.Millisecond,
			5500 * time.Millisecond} {
			for _, next := range []struct {
				facts *facts.Facts
				want  string
			}{{healthy, "+port_down rail 1"}, {down, "port_down rail 1"}} {
				time.Sleep(time.Minute)
				h.Now(ctx) // a reading just before the event says nothing about it
				events <- struct{}{}
				time.Sleep(late)
				h.now.Store(next.facts)
				took := 100*time.Millisecond - late
				if late > 50*time.Millisecond {
					took = 250 * time.Millisecond // by the reading a second after the event
				}
				if late > time.Second {
					took = 650 * time.Millisecond // by the last one, 5 s later
				}
				time.Sleep(took)
				if h.standing() != next.want {
					t.Errorf("a change %v after its event: %q, want %q", late, h.standing(), next.want)
				}
			}
		}
		before := h.read.Load()
		for range 60_000 {
			select {
			case events <- struct{}{}:
			default:
			}
			time.Sleep(time.Millisecond)
		}
		n, most := h.read.Load()-before, 60+atOnce+settles+int32(share*float64(time.Minute)/float64(h.took.Load()))
		if n < 60 || n > most {
			t.Errorf("%d readings in a minute of events", n)
		}
		h.took.Store(int64(200 * time.Millisecond)) // a slow machine: readings cannot keep to their share of the time
		for range 600 {
			select {
			case events <- struct{}{}:
			default:
			}
			time.Sleep(time.Second)
		}
		h.took.Store(int64(5 * time.Millisecond))
		for _, next := range []*facts.Facts{healthy, down} { // by the second one, readings are known to be fast again
			time.Sleep(time.Minute)
			h.now.Store(next)
			events <- struct{}{}
			time.Sleep(100 * time.Millisecond)
		}
		if h.standing() != "port_down rail 1" {
			t.Errorf("100 ms after an event that follows a long storm: %s", h.standing())
		}
		stop()
		<-done
	})
}

// TestExaminerHangs: while a device does not answer in time, the examination, which waits longer, is made soon after an
// event and repeated until its finding stands, at most twice a minute beside the regular ones. What could not be read
// clears nothing.
func TestExaminerHangs(t *testing.T) {
	machine := func(change string) *facts.Facts { return doctortest.Machine(t, "lag", change) }
	healthy := machine("")
	down := machine(doctortest.File("sys/class/net/ens1f1np1/bonding_slave/mii_status", "down"))
	silent := machine("")
	silent.Bonds, silent.Silent = nil, []string{facts.ReaderBonds}
	silent.Unread = []string{"bonds: no answer within 250ms"}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h, events := newHardly(), make(chan struct{}, 1)
		var examined atomic.Int32
		var node atomic.Pointer[facts.Facts] // facts that an examination reads
		h.o.Gather = func(context.Context) *facts.Facts { examined.Add(1); f := *node.Load(); return &f }
		node.Store(healthy)
		h.now.Store(healthy)
		var wg sync.WaitGroup
		wg.Go(func() { h.Run(ctx) })
		wg.Go(func() { h.Follow(ctx, events) })
		time.Sleep(71 * time.Second) // three examinations
		h.now.Store(silent)
		node.Store(down)
		events <- struct{}{}
		before := examined.Load()
		time.Sleep(20 * time.Second)
		const want = "bond_member_down interface ens1f1np1"
		if h.standing() != want || examined.Load() != before+2 {
			t.Errorf("20 s after its event: %q, %d examinations", h.standing(), examined.Load()-before)
		}
		for range 30 { // a link that goes on, and a device that goes on hanging
			events <- struct{}{}
			time.Sleep(7 * time.Second)
		}
		if n := examined.Load() - before; n > 3*5 { // three a minute
			t.Errorf("%d examinations in 210 s", n)
		}
		node.Store(silent)
		time.Sleep(10 * time.Minute)
		if h.standing() != want {
			t.Errorf("after ten minutes without an answer: %q", h.standing())
		}
		node.Store(healthy)
		h.now.Store(healthy)
		time.Sleep(4 * time.Minute)
		if h.standing() != "" {
			t.Errorf("after the repair: %q", h.standing())
		}
		stop()
		wg.Wait()
	})
}
