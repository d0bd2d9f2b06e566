package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/probetest"
	"github.com/railscope/railscope/probe/result"
)

// withToken is a serving node a with a token, a peer b, and a schedule of one hour.
type withToken struct {
	*serve.Node
	common
	pair  *probetest.Pair
	token string
}

func serveWithToken(t *testing.T) *withToken {
	t.Helper()
	opts := fabricOptions()
	opts.Security.Insecure, opts.Security.TokenFile = false, filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(opts.Security.TokenFile, []byte("a token of more than 16 bytes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := &withToken{pair: probetest.New(t, opts), token: opts.Security.TokenFile}
	n.Machine = serve.Machine{Name: "a", Sysfs: n.pair.Sysfs("a"), Procfs: t.TempDir(), Rootfs: t.TempDir(),
		ProbeOptions: func(o *probe.NodeOptions) { n.pair.Options("a", o) }}
	n.log.Writer = io.Discard
	n.Node = assembleOnFabric(t, n.Machine, slog.New(slog.DiscardHandler))
	answerIn(t, filepath.Dir(n.Sysfs), n.Local.ServeHTTP)
	opts.Name, opts.Peers, opts.Interval = "gpu-7", []string{n.pair.Address, "127.0.0.1:9"}, time.Hour
	if err := n.Start(t.Context(), &opts); err != nil {
		t.Fatal(err)
	}
	return n
}

// assembleOnFabric returns a node on a machine of the fake fabric.
func assembleOnFabric(t *testing.T, m serve.Machine, logger *slog.Logger) *serve.Node {
	t.Helper()
	m.NVML = nvml.NewSession(nvml.NewLibrary(filepath.Join(m.Rootfs, "none")))
	sources := serve.DefaultSources()
	*sources.On["sampler"], *sources.On["pcie"] = false, false // the fabric lacks their files
	return assembled(t, serve.Options{Machine: m, Sources: sources}, &config.Config{}, logger)
}

// assembled returns a node, whose probe is closed at the end of the test.
func assembled(t *testing.T, o serve.Options, cfg *config.Config, logger *slog.Logger) *serve.Node {
	t.Helper()
	o.TelemetryPath = "/metrics"
	n, err := serve.New(o, cfg, logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Probe.Close)
	return n
}

// carried returns the bytes that the node counts as its own, over all rails.
func (n *withToken) carried() (sum uint64) {
	for _, bytes := range n.Probe.Node.AllOwnTraffic() {
		sum += bytes.All[rail.Transmit] + bytes.All[rail.Receive]
	}
	return sum
}

// round runs a round as bench does: its options are those of the command line.
func (n *withToken) round(ctx context.Context, peer, token string, progress func(result.Progress)) (result.Result,
	error) {
	opts := fabricOptions()
	opts.Security = options.Security{TokenFile: token}
	h := byHand{common: &n.common, cfg: &config.Config{}, opts: opts,
		ask: serve.BenchAsk{Peer: peer, Set: map[string]string{"burst": "50ms", "depth": "128"}}, logger: slog.New(slog.DiscardHandler)}
	defer h.close()
	res, _, err := h.round(ctx, progress)
	return res, err
}

// TestRoundByRunning: a command without the token lets the running railscope make the round with one of its peers,
// and asks it for the peer's facts.
func TestRoundByRunning(t *testing.T) {
	t.Parallel()
	n := serveWithToken(t)
	var steps atomic.Int32
	res, err := n.round(t.Context(), n.pair.Address, "", func(result.Progress) { steps.Add(1) })
	measured := res.Striped != nil || res.Reason == "disturbed" // A busy machine disturbs the bursts.
	if err != nil || res.Transport != result.RDMA || res.Peer != n.pair.Address || len(res.Rails) != probetest.Rails ||
		!measured || steps.Load() < 5 {
		t.Fatalf("%v, %d steps: %+v", err, steps.Load(), res)
	}
	if n.carried() == 0 {
		t.Error("the running railscope does not know the bytes as its own")
	}
	c := n.common
	if s, err := c.runningStatus(t.Context(), time.Minute); err != nil || s.Node != "gpu-7" || res.Node != "gpu-7" {
		t.Errorf("the name is not probe.name: %v, %+v, round of %s", err, s, res.Node)
	}
	f, err := c.factsOf(t.Context(), n.pair.Address, options.Security{})
	// Node b of the fabric has no facts.
	if f != nil || err == nil || !strings.Contains(err.Error(), "does not support this") {
		t.Errorf("%v, %v", f, err)
	}
	out, err := (&doctorSettings{common: &c, format: "text", peer: n.pair.Address}).text(t)
	if err != nil && !errors.Is(err, errReported) || strings.Contains(out, "unauthorized") ||
		!strings.Contains(out, "gpu-7") {
		t.Errorf("doctor: %v, %s", err, out)
	}
	line, _ := (&checkSettings{common: &c, minSeverity: "critical", format: "text", peer: n.pair.Address,
		timeout: time.Minute}).outcome(t)
	disturbed := strings.Contains(line, "RDMA to peer "+n.pair.Address+" works") // A busy machine disturbs the bursts.
	if strings.Contains(line, "unauthorized") || strings.Contains(line, "unknown") && !disturbed {
		t.Errorf("check: %s", line)
	}
}

func (s *doctorSettings) text(t *testing.T) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := s.run(t.Context(), newShutdownTracker(), &out)
	return out.String(), err
}

// TestRoundWithoutToken: if the running railscope cannot ask a peer, the error names what is missing.
func TestRoundWithoutToken(t *testing.T) {
	t.Parallel()
	n := serveWithToken(t)
	stranger := probetest.New(t, func() options.Options {
		o := fabricOptions()
		o.Security.Insecure, o.Security.TokenFile = false, n.token
		return o
	}())
	for _, tc := range []struct{ why, dir, want string }{
		{"not a peer", "", "give --token-file=FILE, the probe.token_file of both nodes ("},
		{"none runs", t.TempDir(), "give --token-file=FILE, the probe.token_file of both nodes, or --config.file=FILE"},
	} {
		why, want := tc.why, tc.want
		n.stateDir = tc.dir
		res, err := n.round(t.Context(), stranger.Address, "", func(result.Progress) {})
		if err != nil || res.Reason != "unauthorized" || !strings.Contains(res.Detail, want) {
			t.Errorf("%s: %v, %s, %s", why, err, res.Reason, res.Detail)
		}
		_, err = n.factsOf(t.Context(), stranger.Address, options.Security{})
		if err == nil || !strings.Contains(err.Error(), "--token-file") {
			t.Errorf("%s: %v", why, err)
		}
	}
	if got := withoutToken(os.ErrPermission); !strings.Contains(got, "as root or as the user") {
		t.Error(got)
	}
}

// TestRoundHolds: a command with its own token asks the peer itself. The running railscope keeps its slot free for
// it, and counts the bytes afterwards.
func TestRoundHolds(t *testing.T) {
	t.Parallel()
	n := serveWithToken(t)
	held := false
	res, err := n.round(t.Context(), n.pair.Address, n.token, func(result.Progress) {
		if held {
			return
		}
		_, settled := n.Probe.Node.OwnTraffic(rail.Rail{})
		held = !settled
		if _, err := n.Probe.Service.Bench(t.Context(), n.pair.Address, func(*options.Options) {},
			func(result.Progress) {}); !errors.Is(err, probe.ErrInUse) {
			t.Errorf("a second benchmark: %v", err)
		}
	})
	if err != nil || res.Transport != result.RDMA || !held || res.Node != "gpu-7" {
		t.Fatalf("%v, held: %t, %+v", err, held, res)
	}
	if n.carried() == 0 {
		t.Error("the running railscope does not know the bytes as its own")
	}
	if res, err := n.round(t.Context(), n.pair.Address, "", func(result.Progress) {}); err != nil || res.Transport != result.RDMA {
		t.Errorf("the slot was not given back: %v, %+v", err, res)
	}
}

// TestRoundEndsWithClient: a client that goes away ends its round, and the next round finds the node free.
func TestRoundEndsWithClient(t *testing.T) {
	t.Parallel()
	n := serveWithToken(t)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := n.round(ctx, n.pair.Address, "", func(p result.Progress) {
		if p.Stage == "latency" || p.Stage == "connect" || p.Stage == "solo" {
			cancel()
		}
	})
	if err != nil || res.Reason != "canceled" {
		t.Fatalf("%v, %+v", err, res)
	}
	res, err = n.round(t.Context(), n.pair.Address, "", func(result.Progress) {})
	if err != nil || res.Transport != result.RDMA {
		t.Errorf("%v, %+v", err, res)
	}
}

// TestAsksBounded: requests that no command sends are refused.
func TestAsksBounded(t *testing.T) {
	t.Parallel()
	n := serveWithToken(t)
	for body, want := range map[string]string{
		`{"peer": "` + n.pair.Address + `", "set": {"token_file": "/etc/shadow"}}`: "cannot be set",
		`{"set": {"burst": "1h"}}`:                                                    "burst must be",
		`{"set": {"depth": "x"}}`:                                                     "depth must be",
		`{"extras": [{"Kind": "paths"}]}`:                                             "values",
		`{"extras": [{"Kind": "x"}]}`:                                                 "unknown measurement",
		`{"extras": [{"Kind": "gpu", "Memories": ["x"]}]}`:                            "unknown memory",
		`{"extras": [{"Kind": "sweep", "Values": [-1]}]}`:                             "values",
		`{"extras": [` + strings.Repeat(`{"Kind":"read"},`, 40) + `{"Kind":"read"}]}`: "the limit is",
		`{"peer": "` + strings.Repeat("x", serve.MaxAsk) + `"}`:                       "too large",
		`{"peer": "127.0.0.1:1"}`:                                                     "not a peer",
		`x`:                                                                           "invalid character",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, statussock.URL+serve.PathBench,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := statussock.Client(n.socketDir(), time.Minute).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode < 400 || !strings.Contains(string(text), want) {
			t.Errorf("%.80s: %d, %s, want %q", body, answer.StatusCode, text, want)
		}
	}
}
