package collector

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/sysfs"
)

// bench makes devices that run the given functions, and logs the calls.
type bench struct {
	mu   sync.Mutex
	log  []string
	read map[string]func(r *Reading) // keyed by device name; changed between reads
}

func (b *bench) add(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, line)
}

func (b *bench) on(key string, read func(r *Reading)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read[key] = read
}

// taken returns the log, sorted because devices open concurrently, and clears it.
func (b *bench) taken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.log = nil }()
	return slices.Sorted(slices.Values(b.log))
}

type benchDevice struct {
	*bench
	key string
}

func (d *benchDevice) Read(r *Reading) {
	d.mu.Lock()
	read := d.read[d.key]
	d.mu.Unlock()
	if read != nil {
		read(r)
	}
	r.Add(&Metric{Name: d.key}, nil, 1)
}
func (d *benchDevice) Close() { d.add("close " + d.key) }

func (b *bench) open(key string) *benchDevice {
	b.add("open " + key)
	return &benchDevice{b, key}
}

// step reads the set and returns the result and the log of that read.
func (b *bench) step(s *Set[string, *benchDevice], keys ...string) string {
	var samples []string
	answered, faults := s.Read(keys, func(s Sample) { samples = append(samples, s.Metric.Name) })
	var text []string
	for _, f := range Faults(errors.Join(faults...)) {
		text = append(text, f.Device+" "+f.Reason)
	}
	for i, d := range answered {
		if d.key != samples[i] {
			text = append(text, "answered: "+d.key)
		}
	}
	return fmt.Sprint(samples, text, b.taken())
}

// TestSet: devices are opened once, read in the order of their keys and closed when they leave. A device that hangs
// or panics loses only its own samples.
func TestSet(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		b := &bench{read: map[string]func(*Reading){}}
		s := NewSet(time.Second, func(k string) string { return "dev " + k }, b.open)
		hang := make(chan struct{})
		for _, step := range []struct {
			name string
			do   func()
			keys string
			want string
		}{
			{"two", nil, "b a", "[b a] [] [open a open b]"},
			{"again", nil, "b a", "[b a] [] []"},
			{"another one, another order", nil, "a c b", "[a c b] [] [open c]"},
			{"two leave", nil, "a", "[a] [] [close b close c]"},
			{"one comes back", nil, "a b", "[a b] [] [open b]"},
			{"one fails", func() { b.on("a", func(r *Reading) { r.Fail(sysfs.Fail("f", errors.New("no"))) }) },
				"a b", "[a b] [dev a io] []"},
			{"one panics", func() { b.on("a", func(*Reading) { panic("oh") }) }, "a b", "[b] [dev a panic] [close a]"},
			{"it is opened anew", func() { b.on("a", nil) }, "a b", "[a b] [] [open a]"},
			{"one hangs", func() { b.on("a", func(*Reading) { <-hang }) }, "a b", "[b] [dev a timeout] []"},
			{"it still does", nil, "a b", "[b] [dev a timeout] []"},
			{"and leaves", nil, "b", "[b] [] []"},
			{"and comes back, another", func() { b.on("a", nil) }, "a b", "[a b] [] [open a]"},
			{"the old one returns", func() { close(hang); time.Sleep(time.Millisecond) }, "a b", "[a b] [] []"},
			{"all leave", nil, "", "[] [] [close a close b]"},
		} {
			if step.do != nil {
				step.do()
			}
			closed := b.taken()
			if got := b.step(s, strings.Fields(step.keys)...); got != step.want {
				t.Errorf("%s: %s, want %s", step.name, got, step.want)
			}
			if step.name == "the old one returns" && !slices.Contains(closed, "close a") {
				t.Error("a device that left while it hung is not closed when its read returns")
			}
		}
	})
}

// TestFacts: facts are read at intervals and repeated in between. Facts that could not be read are read again.
func TestFacts(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var f Facts
		reads, broken := 0, true
		m := &Metric{Name: "fact"}
		for i, want := range []string{"1 [] true", "2 [2] false", "2 [2] false", "3 [3] false", "3 [3] false"} {
			r := &Reading{Time: time.Now()}
			f.Read(r, func() {
				reads++
				if broken {
					r.Fail(errors.New("no"))
					return
				}
				r.Add(m, nil, float64(reads))
			})
			var values []float64
			for _, s := range r.samples {
				values = append(values, s.Value)
			}
			if diff := cmp.Diff(want, fmt.Sprint(reads, values, len(r.faults) > 0)); diff != "" {
				t.Errorf("read %d (-want +got):\n%s", i, diff)
			}
			broken = false
			time.Sleep(FactsEvery/2 + 1)
		}
	})
}

// TestOriginValue: a converted value equals its decimal notation.
func TestOriginValue(t *testing.T) {
	for _, tc := range []struct {
		scale float64
		raw   uint64
		want  string
	}{{0, 7, "7"}, {4, 7, "28"}, {1e-6, 3, "3e-06"}, {1e-3, 1500, "1.5"}, {125e6, 2, "2.5e+08"}, {1. / 8, 9, "1.125"}} {
		if got := fmt.Sprint(Origin{Scale: tc.scale}.Value(tc.raw)); got != tc.want {
			t.Errorf("%d times %v: %s, want %s", tc.raw, tc.scale, got, tc.want)
		}
	}
}
