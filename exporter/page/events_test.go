package page

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// decode returns the message of an event.
func decode(t *testing.T, event []byte) (m message) {
	t.Helper()
	_, data, ok := bytes.Cut(event, []byte("\ndata: "))
	if !ok || !bytes.HasPrefix(event, []byte("id: ")) || !bytes.HasSuffix(event, []byte("\n\n")) || bytes.Count(data,
		[]byte("\n")) != 2 {
		t.Fatalf("not an event: %.200q", event)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// drain returns the events that have arrived on a stream.
func drain(t *testing.T, s *stream) (list []message) {
	t.Helper()
	for {
		select {
		case event, ok := <-s.events:
			if !ok {
				return list
			}
			list = append(list, decode(t, event))
		default:
			return list
		}
	}
}

// follow reads a stream as a page does, and counts its events.
func follow(s *stream) (events *int) {
	events = new(int)
	go func() {
		for range s.events {
			*events++
		}
	}()
	return events
}

// TestCost: ten pages cost as many reads and drawings as one; without a page there are none.
func TestCost(t *testing.T) {
	for _, tc := range []struct {
		pages       int
		reads, slow int64 // number in ten seconds
	}{{0, 0, 0}, {1, 11, 3}, {10, 11, 3}, {MaxStreams, 11, 3}} {
		synctest.Test(t, func(t *testing.T) {
			page, source := open(t, options("n"), captured(t, "hgx"))
			var taken []*int
			page.work.Lock() // the first drawing must include all streams
			for range tc.pages {
				taken = append(taken, follow(page.join()))
			}
			page.work.Unlock()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if reads, slow := source.reads.Load(), source.slow.Load(); reads != tc.reads || slow != tc.slow {
				t.Errorf("%d pages: %d readings, %d of everything; want %d and %d", tc.pages, reads, slow, tc.reads,
					tc.slow)
			}
			page.Close()
			synctest.Wait()
			for i, n := range taken {
				if *n != 11 {
					t.Errorf("page %d of %d got %d events in 10 s, want 11", i, tc.pages, *n)
				}
			}
			before := source.reads.Load()
			time.Sleep(time.Minute)
			if after := source.reads.Load(); after != before {
				t.Errorf("%d readings after the end", after-before)
			}
		})
	}
}

// TestNoPages: reads end when the last page closes, and resume with the next.
func TestNoPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page, source := open(t, options("n"), captured(t, "hgx"))
		for want := range int64(2) {
			s := page.join()
			follow(s)
			time.Sleep(2500 * time.Millisecond)
			page.leave(s)
			time.Sleep(time.Minute)
			if got := source.reads.Load(); got != 3*(want+1) {
				t.Errorf("%d readings, want %d", got, 3*(want+1))
			}
		}
	})
}

// TestEvents: the first event of a stream is complete; later ones have the changed parts.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := captured(t, "one-rail-dead")
		page, source := open(t, options("n"), e)
		s := page.join()
		synctest.Wait()
		first := drain(t, s)
		if len(first) != 1 || first[0].Main == "" || len(first[0].Parts) != 0 {
			t.Fatalf("it begins with %+v", first)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		// Only the clock changes.
		if got := drain(t, s); len(got) != 1 || got[0].Main != "" || !cmp.Equal(slices.Sorted(maps.Keys(got[0].Parts)),
			[]string{"head"}) {
			t.Errorf("then comes %v", slices.Sorted(maps.Keys(got[0].Parts)))
		}
		repaired := maps.Clone(e)
		repaired["port_up"] = []line{{map[string]string{"rail": "0"}, 1}, {map[string]string{"rail": "1"}, 1}}
		source.reading.Store(&repaired)
		time.Sleep(time.Second)
		synctest.Wait()
		got := drain(t, s)
		if len(got) != 1 || got[0].Parts["lane-1"] == "" || got[0].Title !=
			"n: 2 rails up · railscope" {
			t.Errorf("when rail 1 is up again comes %q and %v", got[0].Title, slices.Sorted(maps.Keys(got[0].Parts)))
		}
		gone := maps.Clone(repaired)
		gone["rail_info"] = repaired["rail_info"][:1]
		source.reading.Store(&gone)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := drain(t, s); len(got) != 1 || got[0].Main == "" {
			t.Errorf("when a rail goes comes %v, want all", got)
		}
	})
}

// TestSlowClient: a client that does not read its events is dropped and delays no other.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page, _ := open(t, options("n"), captured(t, "hgx"))
		slow, quick := page.join(), page.join()
		n := follow(quick)
		time.Sleep(20500 * time.Millisecond)
		synctest.Wait()
		if *n != 21 {
			t.Errorf("the quick one got %d events in 20.5 s, want 21", *n)
		}
		if got := drain(t, slow); len(got) != backlog {
			t.Errorf("the slow one has %d events, want %d", len(got), backlog)
		}
		if _, open := <-slow.events; open {
			t.Error("the slow one was not dropped")
		}
	})
}

// TestBound: the number of streams is limited; a stream that ends makes room.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page, _ := open(t, options("n"), captured(t, "hgx"))
		var last *stream
		for range MaxStreams {
			last = page.join()
			if last == nil {
				t.Fatal("refused too early")
			}
		}
		if page.join() != nil {
			t.Errorf("%d streams are open", MaxStreams+1)
		}
		page.leave(last)
		page.leave(last) // leaving twice has no effect
		if page.join() == nil {
			t.Error("one went, and there is no room")
		}
		page.Close()
		if page.join() != nil {
			t.Error("joined after the end")
		}
	})
}
