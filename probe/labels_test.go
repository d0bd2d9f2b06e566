package probe

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// labels returns the labels published last.
func (f *foundPeers) labels() []string {
	return strings.Fields(strings.Trim(f.told[len(f.told)-1], "[]"))
}

// TestPeerLabelText: labels are plain, short and unique, whatever peers report.
func TestPeerLabelText(t *testing.T) {
	f := newFound(t, "spark-02:10092", "[fe80::1%eth0]:10092", strings.Repeat("a.", 120)+"1:10092",
		strings.Repeat("a.", 120)+"2:10092")
	reported := map[string]string{}
	var list []string
	for i, name := range []string{"", "gpu-01", "gpu 01", "gpu_01", "a\nb\x00", "\u202eneerg\u2066", "\xff\xfe",
		strings.Repeat("é", 500), strings.Repeat("x", 500),
		strings.Repeat("x", 501), "spark-02:10092", "10.0.0.1", "10.0.0.1:7", `"} 1`, "self", " ", "10.0.0.17"} {
		for _, address := range []string{fmt.Sprintf("10.0.0.%d:7", i+1), fmt.Sprintf("[fd00::%x]:7", i+1)} {
			list, reported[address] = append(list, address), name
		}
	}
	f.published(list...)
	for _, address := range list {
		f.ends(address, reported[address])
	}
	got := f.labels()
	if len(got) != len(list)+4 {
		t.Fatalf("%d labels of %d peers: %q", len(got), len(list)+4, got)
	}
	plain := regexp.MustCompile(`^[A-Za-z0-9._:\[\]-]{1,128}$`)
	seen := map[string]bool{"self": true}
	for _, label := range got {
		if !plain.MatchString(label) || seen[label] {
			t.Errorf("%q: plain? %v; taken? %v", label, plain.MatchString(label), seen[label])
		}
		seen[label] = true
	}
	for _, want := range []string{"spark-02:10092", "10.0.0.1", "gpu-01", "gpu_01", "10.0.0.17"} {
		if !seen[want] {
			t.Errorf("nobody is called %s: %q", want, got)
		}
	}
}

// TestPeerLabelStays: a peer keeps the name that it reported first, whatever it reports later and over a reload.
// Nothing is kept of peers that are no longer asked.
func TestPeerLabelStays(t *testing.T) {
	f := newFound(t)
	f.published("10.0.0.2:7", "10.0.0.3:7", "10.0.0.4:7")
	f.ends("10.0.0.2:7", "a")
	f.ends("10.0.0.3:7", "")
	f.ends("10.0.0.4:7", "a")
	for i := range 100 {
		f.ends("10.0.0.2:7", fmt.Sprint("name-", i))
	}
	want := []string{"a", "10.0.0.3", "10.0.0.4:7"}
	if diff := cmp.Diff(want, f.labels()); diff != "" {
		t.Error(diff)
	}
	again := newFound(t)
	again.Node.Labels = f.Node.Labels
	again.published("10.0.0.4:7", "10.0.0.2:7", "10.0.0.3:7")
	want = []string{"10.0.0.4:7", "a"} // the third never reported a name
	if diff := cmp.Diff(want, again.labels()); diff != "" {
		t.Errorf("after a reload: %s", diff)
	}
	again.published("10.0.0.4:7")
	if diff := cmp.Diff(map[string]string{"10.0.0.4:7": "10.0.0.4:7"}, again.Node.Labels); diff != "" {
		t.Errorf("what is kept the next day: %s", diff)
	}
}
