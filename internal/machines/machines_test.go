package machines_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/testenv"
)

var update = flag.Bool("update", false, "write docs/machines.md anew")

const budget = 20 * time.Second // never exceeded

func TestMain(m *testing.M) { testenv.Main(m) }

// seen returns what railscope reports about a machine, in the format of its truth.
func seen(t *testing.T, m machines.Machine) machines.Truth {
	t.Helper()
	tree := machines.NewTree(t)
	m.Build(tree)
	var kernel rail.Kernel
	if k := tree.Kernel(); k != nil {
		kernel = k
	}
	finder := rail.NewFinder(tree.Sys(), rail.Options{}, kernel, budget)
	keeper := expect.New(expect.Options{Sysfs: tree.Sys(), Find: finder.Snapshot, Budget: budget})
	list := inventory.Read(tree.Sys(), finder, rdmadev.Finder{}, keeper, budget)
	var out machines.Truth
	for _, p := range list.Problems {
		t.Errorf("problem: %s", p)
	}
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, r := range list.Rails {
		capacity := "-"
		switch {
		case r.Unused:
			capacity = "unused"
		case r.Capacity > 0:
			capacity = fmt.Sprintf("%.4g", r.Capacity*8/1e9)
		}
		out.Rails = append(out.Rails, strings.Join([]string{r.Key(), dash(r.Netdev), r.Role, capacity, r.BytesFrom,
			dash(string(r.GPUDistance))}, " "))
	}
	for _, l := range list.LeftOut {
		out.LeftOut = append(out.LeftOut, fmt.Sprintf("%s %s", rail.Key(l.Device, l.Port), l.Reason))
	}
	f := facts.New(facts.Options{Sysfs: tree.Sys(), Procfs: tree.Procfs(), Rootfs: tree.Root, Rails: finder.Snapshot,
		Expect: keeper, Budget: budget}).Gather(t.Context(), facts.WithoutJobs)
	for _, one := range check.Node(f, func(c check.Check) bool { return !c.Own() }) {
		if one.Severity != finding.Info {
			out.Findings = append(out.Findings, fmt.Sprintf("%s %s %s", one.Severity, one.Check, one.Subject))
		}
	}
	return out
}

// TestZoo: railscope reports each machine's truth. -v prints the table.
func TestZoo(t *testing.T) {
	names := map[string]bool{}
	for _, m := range machines.All() {
		t.Run(m.Name, func(t *testing.T) {
			if names[m.Name] || m.Source == "" || m.About == "" {
				t.Error("a name twice, or no source, or not what it is")
			}
			names[m.Name] = true
			got, verdict := seen(t, m), "as it is"
			for _, list := range []*[]string{&got.LeftOut, &got.Findings, &m.Truth.LeftOut, &m.Truth.Findings} {
				slices.Sort(*list)
			}
			if diff := cmp.Diff(m.Truth, got); diff != "" {
				t.Errorf("-true +seen: %s", diff)
				verdict = "WRONG"
			}
			t.Logf("%-28s %2d rails, %2d ports that are none, findings %v: %s", m.Name, len(got.Rails),
				len(got.LeftOut),
				got.Findings, verdict)
		})
	}
	if all := len(machines.All()); all < 60 {
		t.Errorf("%d machines, at least 60 are wanted", all)
	}
}

// TestDocs: docs/machines.md lists the zoo.
func TestDocs(t *testing.T) {
	const path = "../../docs/machines.md"
	var b strings.Builder
	b.WriteString("# Machines\n\n")
	fmt.Fprintf(&b, "%d", len(machines.All()))
	b.WriteString(` machines that others have described in public. A test builds the sysfs files that the kernel shows
on each, and compares the output of railscope with the truth about the machine, which was written from the source
before railscope ran on it. A healthy machine has no finding above info. Print the result:
` + "`go test ./internal/machines -run TestZoo -v`" + `.

Verified: which ports are rails and why the others are not, interface, role, capacity, the counter of the bytes, GPU
distance, unused ports and findings. None of these machines was available: addresses and counter values are invented,
and attributes that a source does not describe have healthy values. Not covered: drivers, netlink beyond the interface
of a port, RDMA itself, and changes over time.

`)
	b.WriteString("| machine | what it is | rails | other ports | findings above info | source " +
		"|\n|---|---|---|---|---|---|\n")
	for _, m := range machines.All() {
		findings := "none"
		if !m.Healthy() {
			findings = strings.Join(m.Truth.Findings, "; ")
		}
		unused := 0
		for _, r := range m.Truth.Rails {
			if strings.Fields(r)[3] == "unused" {
				unused++
			}
		}
		rails := fmt.Sprint(len(m.Truth.Rails) - unused)
		if unused > 0 {
			rails += fmt.Sprintf(", %d unused", unused)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", m.Name, m.About, rails, reasons(m.Truth.LeftOut), findings,
			m.Source)
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got; go test ./internal/machines -update writes it anew): %s", path, diff)
	}
}

// reasons counts the reasons for ports that are not rails.
func reasons(leftOut []string) string {
	count := map[string]int{}
	for _, l := range leftOut {
		_, reason, _ := strings.Cut(l, " ")
		count[reason]++
	}
	var parts []string
	for _, r := range rail.Reasons() {
		if n := count[string(r)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, r))
		}
	}
	return strings.Join(parts, ", ")
}
