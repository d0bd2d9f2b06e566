package probe

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestFairness: a peer that held the slot while others were denied waits as long as it held it, or until one of them
// has had it; nobody else waits.
func TestFairness(t *testing.T) {
	a, b, self := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.Addr{}
	type step struct {
		do   func(*slot)
		wait map[netip.Addr]time.Duration
	}
	begin := func(who netip.Addr) func(*slot) { return func(s *slot) { s.start(who) } }
	refused := func(who netip.Addr) func(*slot) { return func(s *slot) { s.deny(who) } }
	sleep := func(d time.Duration) func(*slot) { return func(*slot) { time.Sleep(d) } }
	end := func(s *slot) {
		s.place <- struct{}{} // which release frees
		s.release()
	}
	for why, steps := range map[string][]step{
		"alone": {{do: begin(a)}, {do: sleep(time.Minute)},
			{do: end, wait: map[netip.Addr]time.Duration{a: 0, b: 0, self: 0}}},
		"its own second request": {{do: begin(a)}, {do: refused(a)}, {do: sleep(time.Minute)},
			{do: end, wait: map[netip.Addr]time.Duration{a: 0}}},
		"others turned away": {{do: begin(a)}, {do: sleep(time.Minute)}, {do: refused(b)},
			{do: end, wait: map[netip.Addr]time.Duration{a: time.Minute, b: 0, self: 0}},
			{do: sleep(40 * time.Second), wait: map[netip.Addr]time.Duration{a: 20 * time.Second}},
			{do: sleep(20 * time.Second), wait: map[netip.Addr]time.Duration{a: 0}}},
		"this node turned away": {{do: begin(a)}, {do: sleep(time.Second)}, {do: refused(self)},
			{do: end, wait: map[netip.Addr]time.Duration{a: time.Second, b: 0}}},
		"another had its turn": {{do: begin(a)}, {do: sleep(time.Minute)}, {do: refused(b)}, {do: end}, {do: begin(b)},
			{do: end, wait: map[netip.Addr]time.Duration{a: 0, b: 0}}},
		"this node's own round": {
			{do: begin(a)}, {do: sleep(time.Minute)}, {do: refused(b)}, {do: end},
			{do: begin(self)}, {do: sleep(time.Second)}, {do: refused(b)},
			{do: end, wait: map[netip.Addr]time.Duration{a: 59 * time.Second, b: 0, self: 0}},
		},
		"this node had its turn": {
			{do: begin(a)}, {do: sleep(time.Minute)}, {do: refused(self)}, {do: end},
			{do: begin(self)}, {do: end, wait: map[netip.Addr]time.Duration{a: 0}},
		},
		"refused between two": {{do: begin(a)}, {do: end}, {do: refused(b), wait: map[netip.Addr]time.Duration{a: 0}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			slot := newSlot()
			for i, s := range steps {
				s.do(slot)
				for who, want := range s.wait {
					if got := slot.cooldown(who); got != want {
						t.Errorf("%s, step %d: %v waits %v, want %v", why, i, who, got, want)
					}
				}
			}
		})
	}
}
