package machines_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/rail"
)

// node is a machine that is examined every minute, like by railscope serve.
type node struct {
	t       *testing.T
	tree    *machines.Tree
	finder  *rail.Finder
	keeper  *expect.Keeper
	facts   *facts.Gatherer
	hard    *facts.Gatherer
	store   *finding.Store
	records []rail.Record
	memory  expect.Memory
	allowed map[string]int // "check subject" → number of examinations for which it may still be raised
	away    map[string]bool
}

func newNode(t *testing.T, m machines.Machine) *node {
	n := &node{t: t, tree: machines.NewTree(t), allowed: map[string]int{}, away: map[string]bool{}}
	m.Build(n.tree)
	n.Start()
	return n
}

// Start implements [machines.Watcher].
func (n *node) Start() {
	n.finder = rail.NewFinder(n.tree.Sys(), rail.Options{}, nil, budget)
	if err := n.finder.Remember(n.records, func(list []rail.Record) { n.records = list }); err != nil {
		n.t.Fatal(err)
	}
	n.keeper = expect.New(expect.Options{Sysfs: n.tree.Sys(), Find: n.finder.Snapshot, Budget: budget, Memory: n.memory,
		Save: func(m expect.Memory) { n.memory = m }})
	opts := facts.Options{Sysfs: n.tree.Sys(), Procfs: n.tree.Procfs(), Rootfs: n.tree.Root, Rails: n.finder.Snapshot,
		Expect: n.keeper, Budget: budget}
	n.facts, n.hard = facts.New(opts), facts.New(opts)
	n.store = finding.NewStore(nil)
}

// reread reads the hard facts of the node, as before each check.
func (n *node) reread() {
	f := n.hard.Gather(n.t.Context(), facts.Hard)
	found := check.Node(f, func(c check.Check) bool { return check.Hard(c.ID) })
	n.store.Reread("node", time.Now(), found, func(one finding.Finding) bool {
		return check.Hard(one.Check) && check.Judges(f, one)
	})
}

// Moment implements [machines.Watcher].
func (n *node) Moment(begin, end func()) {
	begin()
	time.Sleep(time.Second)
	n.reread()
	end()
	time.Sleep(time.Second)
	n.reread()
}

// Minutes examines the node once per minute and reads its hard facts twice per minute. It fails if a finding above
// info is raised that is not allowed and does not recover.
func (n *node) Minutes(count int, during string) {
	n.t.Helper()
	for range count {
		time.Sleep(time.Minute)
		n.keeper.Observe()
		f := n.facts.Gather(n.t.Context(), facts.WithoutJobs)
		found := check.Node(f, func(c check.Check) bool { return !c.Own() })
		n.store.Update("node", time.Now(), found)
		for range 2 {
			time.Sleep(25 * time.Millisecond)
			n.reread()
		}
		list, _ := n.store.List(time.Now())
		for _, one := range list {
			key := one.Check + " " + one.Subject
			if one.Severity != finding.Info && !one.Recovering && n.allowed[key] == 0 && !n.away[key] {
				n.t.Errorf("%s: %s %s: %s", during, one.Severity, key, one.Evidence)
			}
		}
		for key := range n.allowed {
			n.allowed[key] = max(n.allowed[key]-1, 0)
		}
	}
}

// Lost implements [machines.Watcher].
func (n *node) Lost(key string) { n.away[key] = true }

// Back implements [machines.Watcher].
func (n *node) Back(key string) {
	delete(n.away, key)
	n.allowed[key] = 3
}

// Over implements [machines.Watcher].
func (n *node) Over(key string) { delete(n.away, key) }

// Rails implements [machines.Watcher].
func (n *node) Rails() ([]rail.Rail, error) { return n.finder.Rails() }

// Maintenance implements [machines.Watcher]: findings do not depend on it.
func (n *node) Maintenance(bool) {}

// TestDay: during a normal day, no unexpected finding is raised on ten machines. test/check/rules evaluates the
// alerts of the same day.
func TestDay(t *testing.T) {
	days := machines.Days()
	if len(days) != 10 {
		t.Errorf("%d machines", len(days))
	}
	for _, m := range days {
		t.Run(m.Name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				n := newNode(t, m)
				n.tree.Day(n)
			})
		})
	}
}

// TestGPUMissing: a GPU of AMD that leaves PCI is missing, and one whose driver is unloaded is not.
func TestGPUMissing(t *testing.T) {
	all := machines.All()
	i := slices.IndexFunc(all, func(m machines.Machine) bool { return m.Name == "mi300x-cpx" })
	lanetest.Test(t, func(t *testing.T) {
		n := newNode(t, all[i])
		n.Minutes(3, "all GPUs are there")
		n.tree.Remove("bus/pci/drivers/amdgpu")
		n.Minutes(3, "amdgpu is unloaded")
		n.tree.Remove("bus/pci/devices/0000:33:00.0")
		const key = "gpu_missing node"
		n.Lost(key)
		n.Minutes(3, "a GPU fell off the bus")
		list, _ := n.store.List(time.Now())
		if !slices.ContainsFunc(list, func(f finding.Raised) bool {
			return f.Check+" "+f.Subject == key && f.Severity == finding.Critical && strings.Contains(f.Evidence, "0000:33:00.0")
		}) {
			t.Errorf("%+v", list)
		}
	})
}
