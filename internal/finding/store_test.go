package finding

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func at(minute int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(minute) * time.Minute) }

func named(list []Raised) (names []string) {
	for _, r := range list {
		names = append(names, fmt.Sprintf("%s %s, %s, since %v", r.Check, r.Subject, r.Severity, r.Since.Sub(at(0))))
	}
	return names
}

// TestStore: a fault becomes a finding after two examinations, and is cleared after three without it; each change
// is reported once.
func TestStore(t *testing.T) {
	var log []string
	s := NewStore(func(raised, cleared []Raised) {
		for _, r := range raised {
			log = append(log, "+"+r.Check)
		}
		for _, r := range cleared {
			log = append(log, "-"+r.Check)
		}
	})
	down := Finding{Check: "port_down", Severity: Critical, Subject: "rail 1"}
	for minute, step := range []struct {
		found bool
		log   string
		want  int
	}{
		{true, "", 0}, {false, "", 0}, {false, "", 0}, {false, "", 0}, // once is noise
		{true, "", 0}, {true, "+port_down", 1}, // twice is a fault
		{false, "", 1}, {false, "", 1}, {true, "", 1}, // it comes and goes, and stays raised
		{false, "", 1}, {false, "", 1}, {false, "-port_down", 0},
		{true, "", 0}, {false, "", 0}, {true, "+port_down", 1}, // found by every second examination
	} {
		log = nil
		var found []Finding
		if step.found {
			found = []Finding{down, down}
		}
		s.Update("node", at(minute), found)
		s.Update("node", at(minute), found) // a repeated examination counts once
		list, more := s.List(at(minute))
		if got := strings.Join(log, ","); got != step.log || len(list) != step.want || more != 0 {
			t.Errorf("minute %d: %q and %d findings, want %q and %d", minute, got, len(list), step.log, step.want)
		}
	}
	if got := named(first(s.List(at(20)))); !slices.Equal(got, []string{"port_down rail 1, critical, since 12m0s"}) {
		t.Errorf("%q", got)
	}
}

func first(list []Raised, _ int) []Raised { return list }

// TestStoreSources: each source has its own examinations; a fault found by several sources is one finding.
func TestStoreSources(t *testing.T) {
	s := NewStore(nil)
	slow := Finding{Check: "goodput_below_expected", Severity: Warning, Subject: "rail 3", Evidence: "by a"}
	worse := Finding{Check: "goodput_below_expected", Severity: Critical, Subject: "rail 3", Evidence: "by b"}
	s.Update("peer a", at(1), []Finding{slow})
	s.Update("peer b", at(2), []Finding{worse})
	if list, _ := s.List(at(2)); len(list) != 0 {
		t.Errorf("two sources that found it once each: %q", named(list))
	}
	s.Update("peer a", at(3), []Finding{slow})
	s.Update("peer b", at(4), []Finding{worse, {Check: "imbalance", Severity: Info, Subject: "rail 0"}})
	s.Update("peer b", at(5), []Finding{worse, {Check: "imbalance", Severity: Info, Subject: "rail 0"}})
	list, _ := s.List(at(5))
	want := []string{"goodput_below_expected rail 3, critical, since 1m0s", "imbalance rail 0, info, since 4m0s"}
	if diff := cmp.Diff(want, named(list)); diff != "" || list[0].Evidence != "by b" {
		t.Errorf("%s\n%+v", diff, list)
	}
	s.Keep(func(source string, last time.Time) bool {
		if want := map[string]time.Time{"peer a": at(3), "peer b": at(5)}[source]; last != want {
			t.Errorf("%s: its last examination began %v, want %v", source, last, want)
		}
		return source == "peer a"
	})
	want = []string{"goodput_below_expected rail 3, warning, since 1m0s"}
	if diff := cmp.Diff(want, named(first(s.List(at(5))))); diff != "" {
		t.Error(diff)
	}
}

// TestStoreSilence: a silenced finding is listed last, with the reason, and not reported until the silence ends.
func TestStoreSilence(t *testing.T) {
	var log []string
	s := NewStore(func(raised, cleared []Raised) { log = append(log, fmt.Sprint(len(raised), len(cleared))) })
	s.SetSilences([]Silence{{Check: "same_subnet", Reason: "as planned", Until: at(10)},
		{Check: "mtu_low", Subject: "rail 7", Reason: "storage", Until: at(10)}})
	found := []Finding{{Check: "same_subnet", Severity: Critical, Subject: "rails 0 and 1"},
		{Check: "mtu_low", Severity: Warning, Subject: "rail 6"}, {Check: "mtu_low", Severity: Warning, Subject: "rail 7"}}
	s.Update("node", at(1), found)
	s.Update("node", at(2), found)
	list, _ := s.List(at(2))
	var got []string
	for _, r := range list {
		got = append(got, r.Check+" "+r.Subject+" "+r.Silenced)
	}
	want := []string{"mtu_low rail 6 ", "same_subnet rails 0 and 1 as planned", "mtu_low rail 7 storage"}
	if diff := cmp.Diff(want, got); diff != "" || !slices.Equal(log, []string{"1 0"}) {
		t.Errorf("%s\nreported: %q", diff, log)
	}
	s.Update("node", at(11), found)
	if list, _ := s.List(at(11)); list[0].Check != "same_subnet" || !slices.Equal(log, []string{"1 0", "2 0"}) {
		t.Errorf("after its time: %q, reported: %q", named(list), log)
	}
}

// TestStoreBound: findings beyond the limit are counted; the worst are kept.
func TestStoreBound(t *testing.T) {
	s := NewStore(nil)
	var found []Finding
	for i := range 1000 {
		found = append(found, Finding{Check: "peer_rate", Severity: Warning, Subject: fmt.Sprintf("rail %d", i)})
	}
	found = append(found, Finding{Check: "port_down", Severity: Critical, Subject: "rail 9"})
	s.Update("node", at(1), found)
	s.Update("node", at(2), found)
	list, more := s.List(at(2))
	if len(list) != MaxRaised || more != 1001-MaxRaised || list[0].Check != "port_down" {
		t.Errorf("%d listed, %d more, the first %+v", len(list), more, list[0])
	}
}

// TestRail: a finding's rail is taken from its subject.
func TestRail(t *testing.T) {
	for subject, want := range map[string]string{"rail 3": "3", "rails 0 and 1": "", "node": "", "peer rail 3": "",
		"rail east side": "east side"} {
		if got := (Finding{Subject: subject}).Rail(); got != want {
			t.Errorf("%s: %q, want %q", subject, got, want)
		}
	}
}

// stands returns the findings of a list, with + before recovering ones.
func stands(s *Store) (names []string) {
	list, _ := s.List(at(0))
	for _, r := range list {
		names = append(names, map[bool]string{true: "+"}[r.Recovering]+r.Check)
	}
	return names
}

// TestStoreRecovering: a finding that the last examination contradicts recovers, and returns with the next one that
// finds it. With several sources, it does not recover while one still finds it.
func TestStoreRecovering(t *testing.T) {
	s := NewStore(nil)
	slow := Finding{Check: "imbalance", Severity: Warning, Subject: "rail 3"}
	late := Finding{Check: "latency_uneven", Severity: Critical, Subject: "rail 3"}
	want := func(when string, names ...string) {
		t.Helper()
		if got := stands(s); !slices.Equal(got, names) {
			t.Errorf("%s: %q, want %q", when, got, names)
		}
	}
	s.Update("peer a", at(1), []Finding{slow, late})
	s.Update("peer a", at(2), []Finding{slow, late})
	s.Update("peer b", at(2), []Finding{slow})
	s.Update("peer b", at(3), []Finding{slow})
	want("both find it", "latency_uneven", "imbalance")
	s.Update("peer a", at(4), nil)
	want("one finds it", "imbalance", "+latency_uneven")
	s.Update("peer b", at(5), nil)
	want("none finds it", "+latency_uneven", "+imbalance")
	list, _ := s.List(at(5))
	if r := list[1]; !r.Since.Equal(at(1)) || !r.Seen.Equal(at(3)) {
		t.Errorf("since %v, last seen %v", r.Since.Sub(at(0)), r.Seen.Sub(at(0)))
	}
	s.Update("peer a", at(6), []Finding{slow})
	want("one finds it again", "imbalance", "+latency_uneven")
	s.UpdateJudged("peer a", at(7), []Finding{slow}, func(f Finding) bool { return f.Check != "latency_uneven" })
	s.Update("peer a", at(8), []Finding{slow})
	want("three have not found it, the second of which did not measure it", "imbalance")
}

// TestStoreReread: a stable fact is raised after one more reading, and recovers with the first reading that
// contradicts it; three examinations clear it. A single reading raises nothing, even if another follows later.
func TestStoreReread(t *testing.T) {
	s := NewStore(nil)
	down := Finding{Check: "port_down", Severity: Critical, Subject: "rail 1"}
	slow := Finding{Check: "imbalance", Severity: Warning, Subject: "rail 3"}
	hard := func(f Finding) bool { return f.Check == "port_down" }
	second := func(n int) time.Time { return at(10).Add(time.Duration(n) * time.Second) }
	s.Update("node", at(8), []Finding{slow})
	s.Update("node", at(9), []Finding{slow})
	for i, step := range []struct {
		found []Finding
		want  string
	}{
		// a momentary fault raises nothing
		{[]Finding{down}, "imbalance"}, {nil, "imbalance"}, {[]Finding{down}, "imbalance"},
		{[]Finding{down}, "port_down imbalance"}, {nil, "imbalance +port_down"}, {nil, "imbalance +port_down"},
		{[]Finding{down}, "port_down imbalance"}, {nil, "imbalance +port_down"},
	} {
		s.Reread("node", second(i), step.found, hard)
		if got := strings.Join(stands(s), " "); got != step.want {
			t.Errorf("reading %d: %q, want %q", i, got, step.want)
		}
	}
	s.Update("node", at(11), []Finding{slow})
	s.Update("node", at(12), []Finding{slow})
	s.Reread("node", at(12).Add(time.Second), nil, hard)
	if got := strings.Join(stands(s), " "); got != "imbalance +port_down" {
		t.Errorf("after two examinations: %q", got)
	}
	s.Update("node", at(13), []Finding{slow})
	if got := strings.Join(stands(s), " "); got != "imbalance" {
		t.Errorf("after three: %q", got)
	}
}

// TestStands: only what a source itself has raised stands.
func TestStands(t *testing.T) {
	s := NewStore(func(_, _ []Raised) {})
	down := Finding{Check: "port_down", Severity: Critical, Subject: "rail 1"}
	stands := func(step string, want bool) {
		t.Helper()
		if got := s.Stands("node", down); got != want {
			t.Errorf("%s: it stands: %v, want %v", step, got, want)
		}
	}
	stands("no source", false)
	s.Update("node", at(0), []Finding{down})
	stands("found once", false)
	s.Update("node", at(1), []Finding{down})
	stands("found twice", true)
	other := down
	other.Subject = "rail 2"
	if s.Stands("node", other) || s.Stands("peer", down) {
		t.Error("a finding of another subject or source stands")
	}
}

// TestKeepReports: what a dropped source had raised is reported as cleared.
func TestKeepReports(t *testing.T) {
	var gone int
	s := NewStore(func(_, cleared []Raised) { gone += len(cleared) })
	down := Finding{Check: "port_down", Severity: Critical, Subject: "rail 1"}
	for minute := range 2 {
		s.Update("peer b", at(minute), []Finding{down})
	}
	s.Keep(func(string, time.Time) bool { return true })
	if gone != 0 {
		t.Errorf("%d findings cleared, and every source was kept", gone)
	}
	s.Keep(func(source string, _ time.Time) bool { return source != "peer b" })
	if gone != 1 {
		t.Errorf("%d findings cleared, want 1", gone)
	}
}

// TestStoreUnjudged: a finding that no examination can confirm or clear stays for a day, with the time when it was
// seen.
func TestStoreUnjudged(t *testing.T) {
	s := NewStore(nil)
	start := time.Unix(1e9, 0)
	seen := start
	for i := range 2 {
		seen = start.Add(time.Duration(i) * time.Minute)
		s.Update("peer a", seen, []Finding{{Check: "imbalance", Subject: "rail 1"}})
	}
	nothing := func(Finding) bool { return false }
	for at := start.Add(2 * time.Minute); at.Before(start.Add(25 * time.Hour)); at = at.Add(time.Minute) {
		s.UpdateJudged("peer a", at, nil, nothing)
		list, _ := s.List(at)
		if want := at.Sub(seen) < KeepUnjudged; (len(list) == 1) != want || want && (!list[0].Seen.Equal(seen) ||
			list[0].Recovering) {
			t.Fatalf("after %v: %+v", at.Sub(seen), list)
		}
	}
}
