package probe

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/schedule"
)

var anyDay = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func fleet(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.%d.%d.%d:10092", i>>16, i>>8&255, i&255))
	}
	return all
}

// pairs returns all pairs of a fleet: asker → asked.
func pairs(all []string, fanout int, now time.Time) map[[2]string]bool {
	p, r := map[[2]string]bool{}, schedule.NewRing(all, now)
	for _, self := range all {
		for _, peer := range r.After(self, now, fanout) {
			p[[2]string{self, peer}] = true
		}
	}
	return p
}

// TestRing: every node asks exactly n others, and is asked by exactly n.
func TestRing(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6, 12, 100, 10000} {
		for _, fanout := range []int{1, 4, 16} {
			all := fleet(n)
			asks, asked := map[string]int{}, map[string]int{}
			for p := range pairs(all, fanout, anyDay) {
				if p[0] == p[1] {
					t.Errorf("%d nodes: %s asks itself", n, p[0])
				}
				asks[p[0]]++
				asked[p[1]]++
			}
			for _, node := range all {
				if want := min(fanout, n-1); asks[node] != want || asked[node] != want {
					t.Errorf("%d nodes, fanout %d: %s asks %d and is asked by %d", n, fanout, node, asks[node], asked[node])
				}
			}
		}
	}
}

// TestRingChanges: a node that joins or leaves makes few new pairs, and a new day makes all pairs new.
func TestRingChanges(t *testing.T) {
	const n, fanout = 300, 4
	all := fleet(n)
	before := pairs(all, fanout, anyDay)
	added := func(before, after map[[2]string]bool) (k int) {
		for p := range after {
			if !before[p] {
				k++
			}
		}
		return k
	}
	for i := range all {
		without := slices.Delete(slices.Clone(all), i, i+1)
		after := pairs(without, fanout, anyDay)
		if left, joined := added(before, after), added(after, before); left > 2*fanout || joined > 2*fanout {
			t.Fatalf("%s: %d new pairs when it leaves, %d when it joins", all[i], left, joined)
		}
	}
	tomorrow := pairs(all, fanout, anyDay.Add(24*time.Hour))
	if k := added(before, tomorrow); k < n*fanout*9/10 {
		t.Errorf("of %d pairs only %d are new the next day", n*fanout, k)
	}
	if k := added(before, pairs(all, fanout, anyDay.Add(11*time.Hour))); k != 0 {
		t.Errorf("%d new pairs within a day", k)
	}
}

// TestRingOrder: neither the order of the list matters, nor whether it contains the node itself.
func TestRingOrder(t *testing.T) {
	all := fleet(50)
	self := all[7]
	want := schedule.NewRing(all, anyDay).After(self, anyDay, 4)
	slices.Reverse(all)
	if got := schedule.NewRing(all, anyDay).After(self, anyDay, 4); !slices.Equal(got, want) {
		t.Errorf("in another order %v, want %v", got, want)
	}
	without := slices.DeleteFunc(all, func(a string) bool { return a == self })
	if got := schedule.NewRing(without, anyDay).After(self, anyDay, 4); !slices.Equal(got, want) {
		t.Errorf("without itself %v, want %v", got, want)
	}
}
