package exporter

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSharedText: nobody's text changes while it is in use, whoever comes and
// goes meanwhile, and who comes while one is made gets that one.
func TestSharedText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedText
		var wg sync.WaitGroup
		made := 0
		var used atomic.Int32
		for i := range 200 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond) // ten come while one is made
				var started time.Time
				s.use(func(memory []byte) []byte {
					made++ // under -race: one at a time
					text := fmt.Appendf(memory, "%d %s", made, strings.Repeat("x", made%7*1000))
					time.Sleep(100 * time.Millisecond)
					return text
				}, func(text []byte) {
					started = time.Now()
					before := bytes.Clone(text)
					time.Sleep(time.Duration(i%5) * time.Second) // slow clients
					if !bytes.Equal(text, before) {
						t.Errorf("client %d: the text changed in its hands after %v", i, time.Since(started))
					}
				})
				used.Add(1)
			})
		}
		wg.Wait()
		if used.Load() != 200 || made < 15 || made > 25 {
			t.Errorf("%d clients got %d texts", used.Load(), made)
		}
	})
}

// TestSharedTextIsReused: a scrape after another makes no garbage of its text.
func TestSharedTextIsReused(t *testing.T) {
	var s sharedText
	const size = 1 << 20
	use := func() {
		s.use(func(memory []byte) []byte {
			if cap(memory) < size {
				memory = make([]byte, 0, size)
			}
			return append(memory, "text"...)
		}, func([]byte) {})
	}
	use()
	if r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			use()
		}
	}); r.AllocedBytesPerOp() > 1000 {
		t.Errorf("%d bytes for each text", r.AllocedBytesPerOp())
	}
}

// TestSharedTextPanics: a panic is everybody's who shares it, and nobody's after.
func TestSharedTextPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedText
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				defer func() {
					if recover() == nil {
						t.Errorf("client %d got an answer", i)
					}
				}()
				s.use(func([]byte) []byte { time.Sleep(time.Second); panic("made") }, func([]byte) {})
			})
		}
		wg.Wait()
		s.use(func([]byte) []byte { return []byte("well") }, func(text []byte) {
			if string(text) != "well" {
				t.Errorf("after a panic: %q", text)
			}
		})
	})
}
