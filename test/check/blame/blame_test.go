package blame

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/fleettest"
	"github.com/railscope/railscope/test/check/fleetgen"
)

// now returns the time of the queries.
func now() time.Time { return time.Unix(1_700_000_000, 0) }

// domainName is the domain of instances, which names of peers lack.
const domainName = ".example"

// newServer returns a Prometheus that has scraped a fleet.
func newServer(t *testing.T, s fleet.State) *fleetgen.API {
	t.Helper()
	storage := teststorage.New(t)
	f := fleetgen.OfState(s, now())
	f.Domain = domainName
	if err := f.Store(t.Context(), storage); err != nil {
		t.Fatal(err)
	}
	api := fleetgen.NewAPI(storage, now())
	t.Cleanup(func() { _ = api.Close() })
	return api
}

func faulty() fleettest.Options {
	node := func(cluster string, i int) fleet.Node { return fleet.Node{Cluster: cluster, Name: fleettest.Name(i)} }
	return fleettest.Options{Seed: 5, LeafSize: 10, Clusters: []string{"a", "b"}, Nodes: 40, Rails: 4, Fanout: 4,
		Noise: 0.02, Missing: 0.05, Loopback: true,
		Faults: []fleettest.Fault{{Kind: fleet.PeerDown, Node: node("a", 1)},
			{Kind: fleet.TCPFallback, Node: node("b", 2)}, {Kind: fleet.SlowHost, Node: node("a", 3), Rail: "2"},
			{Kind: fleet.GPUPath, Node: node("b", 4), Rail: "1"}, {Kind: fleet.RailDown, Node: node("a", 5), Rail: "0"}}}
}

// TestQuestions: the queries return the state of the fleet, with clusters kept apart, or only one cluster if
// requested.
func TestQuestions(t *testing.T) {
	want := fleettest.New(faulty())
	s := newServer(t, want)
	for _, selector := range []string{"", `cluster="b"`} {
		answers, err := fleet.Ask(t.Context(), selector, now(), s.Ask)
		if err != nil || len(answers.Failed) > 0 {
			t.Fatalf("%v, %q", err, answers.Failed)
		}
		got := answers.State(nil)
		keep := func(n fleet.Node) bool { return selector == "" || n.Cluster == "b" }
		equal(t, "nodes", got.Nodes, want.Nodes, domain, keep)
		equal(t, "port_up", got.PortUp, want.PortUp, railDomain, func(r fleet.Rail) bool { return keep(r.Node) })
		equal(t, "loopback", got.Loopback, want.Loopback, railDomain, func(r fleet.Rail) bool { return keep(r.Node) })
		equal(t, "GPU", got.GPU, want.GPU, railDomain, func(r fleet.Rail) bool { return keep(r.Node) })
		equal(t, "leaves", got.Leaves, leaves(want), railDomain, func(r fleet.Rail) bool { return keep(r.Node) })
		equal(t, "pairs", got.Pairs, want.Pairs, pairDomain, func(p fleet.Pair) bool { return keep(p.From) })
		for p, r := range got.Rounds {
			short := func(n fleet.Node) fleet.Node { n.Name = strings.TrimSuffix(n.Name, domainName); return n }
			w := want.Rounds[fleet.Path{Pair: fleet.Pair{From: short(p.From), To: short(p.To)}, Rail: p.Rail}]
			if r.Up != w.Up || math.Abs(r.Goodput-w.Goodput) > 1e-9*w.Goodput || r.Expected != w.Expected ||
				math.Abs(r.Retransmits-w.Retransmits) > 0.1*w.Retransmits+0.1 {
				t.Fatalf("%v: %+v, want %+v", p, r, w)
			}
		}
		if selector == "" && len(got.Rounds) != len(want.Rounds) {
			t.Errorf("%d rounds, want %d", len(got.Rounds), len(want.Rounds))
		}
	}
}

// leaves returns the leaf switches that running nodes report.
func leaves(s fleet.State) map[fleet.Rail]string {
	out := maps.Clone(s.Leaves)
	maps.DeleteFunc(out, func(r fleet.Rail, _ string) bool { return !s.Nodes[r.Node] })
	return out
}

// The nodes are named after the host of their instance, which has a domain; the generator's state has none.

func domain(n fleet.Node) fleet.Node { n.Name += domainName; return n }

func railDomain(r fleet.Rail) fleet.Rail { return fleet.Rail{Node: domain(r.Node), Rail: r.Rail} }

// pairDomain adds the domain: both nodes are known to Prometheus.
func pairDomain(p fleet.Pair) fleet.Pair { return fleet.Pair{From: domain(p.From), To: domain(p.To)} }

func equal[K, V comparable](t *testing.T, what string, got, want map[K]V, as func(K) K, keep func(K) bool) {
	t.Helper()
	wanted := map[K]V{}
	for k, v := range want {
		if keep(k) {
			wanted[as(k)] = v
		}
	}
	if !maps.Equal(got, wanted) {
		t.Errorf("%s: %d, want %d", what, len(got), len(wanted))
		for k, v := range wanted {
			if g, ok := got[k]; !ok || g != v {
				t.Errorf("%v is %v, want %v", k, g, v)
				break
			}
		}
	}
}

// TestProgram: the program queries a server, finds the planted fault, and reports the same from saved answers.
func TestProgram(t *testing.T) {
	o := faulty()
	srv := httptest.NewServer(newServer(t, fleettest.New(o)))
	defer srv.Close()
	dir := t.TempDir()
	for _, name := range []string{"railscope", "railscope-bench"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "./cmd/"+name)
		cmd.Dir, cmd.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "railscope"), append([]string{"fleet"}, args...)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		exit := new(exec.ExitError)
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() != code {
			t.Errorf("%q: %v, want exit code %d; %s", args, err, code, &errs)
		}
		return out.String() + errs.String()
	}
	saved := filepath.Join(dir, "answers.json")
	var asked, read fleet.Report
	text := run(1, "--prometheus="+srv.URL, "--format=json", "--save="+saved)
	if err := errors.Join(json.Unmarshal([]byte(text), &asked),
		json.Unmarshal([]byte(run(1, "--file="+saved, "--format=json")), &read)); err != nil {
		t.Fatal(err)
	}
	if len(asked.Blames) != len(o.Faults) || len(read.Blames) != len(asked.Blames) {
		t.Errorf("%d faults asked, %d read, want %d", len(asked.Blames), len(read.Blames), len(o.Faults))
	}
	for i, b := range asked.Blames {
		t.Logf("%s %s: %s", b.Kind, b.Subject(), b.Evidence)
		if read.Blames[i].Subject() != b.Subject() || !strings.HasSuffix(b.Name, domainName) {
			t.Errorf("%+v, saved %+v", b, read.Blames[i])
		}
	}
	want := strconv.Itoa(len(o.Faults)) + " faults of 80 nodes"
	if table := run(1, "--prometheus="+srv.URL); !strings.HasPrefix(table, want) {
		t.Errorf("%s", table)
	}
	if drain := run(1, "--file="+saved, "--format=drain"); !strings.Contains(drain, "\nnode-0003.example\n") {
		t.Errorf("%s", drain)
	}
	for want, args := range map[string][]string{
		"want --prometheus":   nil,
		"--http.config.file":  {"--prometheus=http://u:secret@" + srv.Listener.Addr().String()},
		"--topology":          {"--file=" + saved, "--topology=/nonexistent"},
		"--timeout":           {"--file=" + saved, "--timeout=0s"},
		"answers nothing":     {"--prometheus=" + srv.URL, `--selector=cluster=`},
		"not saved answers":   {"--file=" + filepath.Join(dir, "railscope")},
		"must be table, json": {"--format=xml"},
	} {
		code := 2
		if strings.Contains(want, "answers") {
			code = 1
		}
		if out := run(code, args...); !strings.Contains(out, strings.TrimPrefix(want, "must be table, json")) ||
			strings.Contains(out, "secret") {
			t.Errorf("%q: %s, want %q", args, out, want)
		}
	}
}
