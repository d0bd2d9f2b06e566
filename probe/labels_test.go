package probe

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// labelled is the last list of peers that was published.
func (f *foundPeers) labelled(list ...target) []string {
	f.set(list)
	f.publish()
	return strings.Fields(strings.Trim(f.told[len(f.told)-1], "[]"))
}

// TestPeerLabelText: labels are plain, short and unique, whatever peers report.
func TestPeerLabelText(t *testing.T) {
	f := newFound(t, "spark-02:10092", "[fe80::1%eth0]:10092", strings.Repeat("a.", 120)+"1:10092",
		strings.Repeat("a.", 120)+"2:10092")
	var list []target
	for i, name := range []string{"", "gpu-01", "gpu 01", "gpu_01", "a\nb\x00", "\u202eneerg\u2066", "\xff\xfe",
		strings.Repeat("é", 500), strings.Repeat("x", 500),
		strings.Repeat("x", 501), "spark-02:10092", "10.0.0.1", "10.0.0.1:7", `"} 1`, "self", " ", "10.0.0.17"} {
		list = append(list, at(fmt.Sprintf("10.0.0.%d:7", i+1), name), at(fmt.Sprintf("[fd00::%x]:7", i+1), name))
	}
	got := f.labelled(list...)
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

// TestPeerLabelStays: an address keeps its label for the life of the process, also if it reports other names, leaves
// the DNS and returns, or the configuration is reloaded.
func TestPeerLabelStays(t *testing.T) {
	f := newFound(t)
	a, b := at("10.0.0.2:7", "a"), at("10.0.0.3:7", "")
	want := []string{"a", "10.0.0.3"}
	check := func(when string, got []string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	check("at first", f.labelled(a, b))
	for i := range 100 {
		f.report("10.0.0.2:7", Result{Outcome: OK, PeerNode: fmt.Sprint("name-", i)})
		f.report("10.0.0.3:7", Result{Outcome: OK, PeerNode: fmt.Sprint("b-", i)})
	}
	if results := slices.Compact(slices.Sorted(slices.Values(f.results))); !slices.Equal(results,
		[]string{"10.0.0.3 ok", "a ok"}) {
		t.Errorf("results of %q", results)
	}
	check("after it said other names", f.labelled(a, b))
	f.labelled()
	check("back in the DNS under other names", f.labelled(at("10.0.0.2:7", "z"), at("10.0.0.3:7", "b")))
	again := newFound(t)
	again.node.labels = f.node.labels
	check("after a reload", again.labelled(at("10.0.0.2:7", "y"), at("10.0.0.3:7", "b")))
	// Another took its name while it was away. Nobody is renamed.
	again.labelled(at("10.0.0.9:7", "a"))
	want = []string{"10.0.0.2:7", "10.0.0.3", "a"}
	check("another has its name", again.labelled(at("10.0.0.2:7", "a"), b, at("10.0.0.9:7", "a")))
	want = []string{"10.0.0.2:7", "10.0.0.3"}
	check("the other has gone", again.labelled(a, b))
}

// TestPeerLabelsBounded: the least recently used labels are dropped.
func TestPeerLabelsBounded(t *testing.T) {
	l := &labelCache{known: map[string]labelEntry{}}
	for i := range maxLabels + 100 {
		l.set(fmt.Sprint("address-", i), fmt.Sprint("label-", i))
		if l.get("address-0") != "label-0" {
			t.Fatalf("what is a peer was forgotten after %d", i)
		}
	}
	if len(l.known) != maxLabels {
		t.Errorf("%d are kept, want %d", len(l.known), maxLabels)
	}
	if l.get("address-1") != "" || l.get(fmt.Sprint("address-", maxLabels+99)) == "" {
		t.Error("the wrong ones were forgotten")
	}
}

// TestPeerLabelWaitsForTheName: a node that answers within three lookups, or that there was no time to ask, is labelled
// by its name, not by its address.
func TestPeerLabelWaitsForTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{nodes: map[string]string{"10.0.0.2": "b"}}
		d, n := z.directory(t)
		defer n.Close()
		f := newFound(t)
		z.set(nil, "10.0.0.2", "10.0.0.3", "10.0.0.4")
		look := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, f.labelled(d.refresh(t.Context())...)); diff != "" {
				t.Error(diff)
			}
		}
		look("b")
		z.nodes["10.0.0.3"] = "c"
		look("b", "c")
		look("b", "c", "10.0.0.4")
		z.nodes["10.0.0.4"] = "d"
		look("b", "c", "10.0.0.4")

		d.askIdentity = func(ctx context.Context, _ target) (string, string, error) { <-ctx.Done(); return "", "", ctx.Err() }
		var addrs []string
		for i := range 4 * identifyParallel {
			addrs = append(addrs, fmt.Sprint("10.0.1.", i))
		}
		z.set(nil, addrs...)
		f.labelled(d.refresh(t.Context())...)
		waiting := 0
		for _, m := range d.members {
			if m.tries == 0 && m.instance == "" {
				waiting++
			}
		}
		if waiting == 0 {
			t.Errorf("all %d were asked in time: this tests nothing", len(addrs))
		}
		f.labelled(d.refresh(t.Context())...)
		for address, m := range d.members {
			if m.tries == 0 && m.instance == "" {
				t.Errorf("%s was not asked before those that did not answer", address)
			}
		}
	})
}
