package check

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/testenv"
)

var update = flag.Bool("update", false, "write the generated files anew")

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test ./doctor/... -update writes it anew):\n%s", path, diff)
	}
}

// The table is split because fixtures of rails describe little of the system, and fixtures of systems little of the
// rails.
func railChecks() []Check           { return Checks()[:indexOf("memlock")] }
func systemChecks() []Check         { return Checks()[indexOf("memlock"):indexOf("link_flapping")] }
func railPeerChecks() []PeerCheck   { return PeerChecks()[:6] }
func systemPeerChecks() []PeerCheck { return PeerChecks()[6:] }
func indexOf(id string) int {
	return slices.IndexFunc(Checks(), func(c Check) bool { return c.ID == id })
}

func indexOfPeer(id string) int {
	return slices.IndexFunc(PeerChecks(), func(c PeerCheck) bool { return c.ID == id })
}

// judge runs the checks of rails, or with a peer those of pairs.
func judge(here, there *facts.Facts) (list []finding.Finding) {
	if there != nil {
		for _, c := range railPeerChecks() {
			list = append(list, c.Find(here, there)...)
		}
		return list
	}
	for _, c := range railChecks() {
		list = append(list, c.Find(here)...)
	}
	return list
}

func runSystem(f *facts.Facts) (list []finding.Finding) {
	for _, c := range systemChecks() {
		list = append(list, c.Find(f)...)
	}
	return list
}

func runSystemPeer(here, there *facts.Facts) (list []finding.Finding) {
	for _, c := range systemPeerChecks() {
		list = append(list, c.Find(here, there)...)
	}
	return list
}

// systemFacts gathers the facts and fails on unexpected unread files. With a peer, the checks get what travels to it.
func systemFacts(t *testing.T, o facts.Options) *facts.Facts {
	t.Helper()
	var f *facts.Facts
	lanetest.Test(t, func(t *testing.T) { f = facts.New(o).Gather(t.Context(), facts.ByHand) }) // reads have a deadline
	if len(f.Unread) > 0 {
		t.Errorf("not read: %q", f.Unread)
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var again facts.Facts
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f.System, again.System, cmp.AllowUnexported(facts.System{})); diff != "" {
		t.Errorf("JSON changes the facts (-want +got):\n%s", diff)
	}
	return &again
}

// Names of the fixtures.
const (
	hgx, spark  = doctortest.HGX, doctortest.Spark
	rxe, laptop = doctortest.RXE, doctortest.Laptop
	pcieSwitch  = doctortest.Switch
	amdNode     = doctortest.AMD
	findings    = "../testdata/system-findings.txtar"
)

func TestMain(m *testing.M) {
	hungfs.Main()
	testenv.Setup()
	os.Exit(m.Run())
}
