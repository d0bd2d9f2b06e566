package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/test/faults"
)

// TestCheckNow: the running railscope reads hard facts for each check. The first check after a fault has exit code
// 1, as have the metrics; after the repair the finding is recovering. A fault that fluctuates needs two
// examinations.
func TestCheckNow(t *testing.T) {
	const port = "sys/class/infiniband/rxe1/ports/1/"
	for _, tc := range []struct {
		name, change, repair, want string
	}{
		{"port down", doctortest.File(port+"state", "1: DOWN"), doctortest.File(port+"state", "4: ACTIVE"),
			"critical: rail 1: port down"},
		{"interface down", doctortest.File("sys/class/net/eth1/flags", "0x1002") + doctortest.File(port+"state", "1: DOWN"),
			doctortest.File("sys/class/net/eth1/flags", "0x1003") + doctortest.File(port+"state", "4: ACTIVE"),
			"critical: rail 1: netdev down"},
		{"device removed", "gone sys/class/infiniband/rxe1\n", "", "critical: rail 1: rail missing"},
		{"GID removed", doctortest.File(port+"gids/1", "0000:0000:0000:0000:0000:0000:0000:0000"),
			doctortest.File(port+"gids/1", "0000:0000:0000:0000:0000:ffff:c0a8:6501"), "critical: rail 1: gid link local"},
		{"MTU, which is examined twice", doctortest.File("sys/class/net/eth1/mtu", "1500"),
			doctortest.File("sys/class/net/eth1/mtu", "4200"), "ok: 2 rails up"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := serveCaptured(t, faults.Fault{Machine: "rxe"})
			n.Keeper.Observe()
			n.Keeper.Observe()
			n.examine(t)
			n.examine(t)
			c := n.common
			c.stateDir = answerIn(t, n.root.Dir, n.Local.ServeHTTP)
			says := func(when, want string) {
				t.Helper()
				time.Sleep(60 * time.Millisecond) // longer than the maximum age of a reading
				got, exit := checkSettings{common: &c, minSeverity: "critical", format: "text",
					timeout: time.Minute}.outcome(t)
				if bad := strings.HasPrefix(want, "critical"); got != "railscope: "+want || bad != (exit == 1) {
					t.Errorf("%s: %q, exit code %d, want %q", when, got, exit, want)
				}
			}
			says("healthy", "ok: 2 rails up")
			away := filepath.Join(n.root.Dir, "away")
			if removed, found := strings.CutPrefix(tc.change, "gone "); found { // removes the directory as well
				from := filepath.Join(n.root.Dir, strings.TrimSpace(removed))
				if err := os.Rename(from, away); err != nil {
					t.Fatal(err)
				}
				says("at once", tc.want)
				if err := os.Rename(away, from); err != nil {
					t.Fatal(err)
				}
			} else {
				doctortest.Apply(t, n.root, tc.change)
				says("at once", tc.want)
				doctortest.Apply(t, n.root, tc.repair)
			}
			if strings.HasPrefix(tc.want, "ok") {
				says("repaired", "ok: 2 rails up")
				return
			}
			if got := len(surfaces(t, n.Node, c)["metrics"]); got != 1 {
				t.Errorf("%d findings in metrics", got)
			}
			says("repaired", "ok: 2 rails up, 1 recovering")
			for range 3 {
				n.examine(t)
			}
			says("after three examinations", "ok: 2 rails up")
		})
	}
}

// TestCheckMachines: check fails exactly on the machines of the zoo with a critical finding. On a healthy machine
// its line mentions no rail that is not up.
func TestCheckMachines(t *testing.T) {
	for _, m := range machines.All() {
		tree := machines.NewTree(t)
		m.Build(tree)
		c := common{Machine: serve.Machine{Sysfs: tree.Sys(), Procfs: tree.Procfs(), Rootfs: tree.Root},
			stateDir: t.TempDir()}
		got, exit := checkSettings{common: &c, minSeverity: "critical", format: "text", timeout: time.Minute}.outcome(t)
		critical := false
		for _, f := range m.Truth.Findings {
			critical = critical || strings.HasPrefix(f, string(finding.Critical))
		}
		if bad := exit == 1; bad != critical || exit == 2 {
			t.Errorf("%s: %q, exit code %d; its findings are %q", m.Name, got, exit, m.Truth.Findings)
		}
		if strings.HasPrefix(got, "railscope: ok") && strings.Contains(got, " of ") {
			t.Errorf("%s: %q", m.Name, got)
		}
	}
}
