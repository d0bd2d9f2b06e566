package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	gb = 1e9 / 8 // 1 Gb/s in bytes per second
	mb = 1 << 20
)

// burst returns a rail's flow at a rate in Gb/s.
func burst(mib int64, gigabits float64) *result.Flow {
	return &result.Flow{Bytes: mib * mb, Active: time.Duration(float64(mib*mb) / (gigabits * gb) * 1e9),
		Moved: mib * mb}
}

// round returns a round over rails of 100 Gb/s with these rates of the striped burst.
func round(gigabits ...float64) result.Result {
	r := result.Result{
		Peer: "spark-02:10092", PeerNode: "spark-02", Start: time.Unix(1e9, 0), Duration: 1432 * time.Millisecond,
		Outcome: result.OK, Transport: result.RDMA, Verified: true, Bytes: 320 * mb, MinOfExpected: 0.7,
		Class: result.Class{TrafficClass: 106, ServiceLevel: 3, Source: "NCCL_IB_TC of python (PID 4711)"},
		TCP: []result.TCPResult{{Streams: 1, BytesPerSecond: 9.4 * gb},
			{Streams: 4, BytesPerSecond: 12.4 * gb, Retransmits: 7, PathMTU: 9000, RTT: 87 * time.Microsecond}},
	}
	var sum, solos float64
	var loads []rail.Load
	for i, g := range gigabits {
		var samples []time.Duration
		for n := range 200 {
			samples = append(samples, 2100+time.Duration(n)*10)
		}
		samples[199] = time.Duration(12+i*1000) * time.Microsecond
		one := result.RailResult{
			Rail: fmt.Sprint(i), Device: fmt.Sprintf("rocep1s0f%d", i), Port: 1,
			Netdev:   fmt.Sprintf("enp1s0f%dnp%[1]d", i),
			PeerRail: fmt.Sprint(i), PeerDevice: fmt.Sprintf("rocep1s0f%d", i), GIDIndex: 3,
			GID: "::ffff:192.168.101.1", PathMTU: 4096,
			Latency: &result.Latency{Samples: samples}, Capacity: new(100.0 * gb), Expected: new(100.0 * gb),
			Solo: burst(64, g+1), Striped: burst(int64(g), g),
			CounterBytes: new(int64(33 * mb)), CounterMismatch: new(0.001),
		}
		sum, solos = sum+g, solos+g+1
		loads = append(loads, rail.Load{Rate: g, Capacity: 100})
		r.Rails = append(r.Rails, one)
	}
	slowest, fastest := slices.Min(gigabits), slices.Max(gigabits)
	r.Striped, r.Static, r.Speedup = new(sum*gb), new(float64(len(gigabits))*slowest*gb), new(sum/12.4)
	r.Scaling, r.FinishSkew = new(sum/solos), new(1-slowest/fastest)
	if imbalance, known := rail.Imbalance(loads); known {
		r.Imbalance = &imbalance
		for i, share := range rail.Shares(loads) {
			r.Rails[i].Share = &share
		}
	}
	return judged(r)
}

// judged returns r with the outcome that its figures imply.
func judged(r result.Result) result.Result {
	r.Outcome = result.OK
	if r.Degraded() {
		r.Outcome = result.Degraded
	}
	return r
}

func changed(r result.Result, change func(*result.Result)) result.Result {
	change(&r)
	return r
}

// withFailure adds a failure of one rail.
func withFailure(r result.Result, index int, f result.Failure) result.Result {
	f.Rail = r.Rails[index].Rail
	r.Failures = append(r.Failures, f)
	one := &r.Rails[index]
	*one = result.RailResult{Rail: one.Rail, Device: one.Device, Port: one.Port, Netdev: one.Netdev,
		PeerDevice: one.PeerDevice, Share: new(0.0), Failure: &f}
	return judged(r)
}

func results() map[string]result.Result {
	noDevice := result.Failure{Stage: "open", Reason: "no_device", Detail: "on the peer: no rail"}
	return map[string]result.Result{
		"healthy":  round(92.6, 92.9),
		"third":    round(93, 31),
		"thirteen": round(13, 13.1), // slow, but even
		"less":     round(92, 78),
		"software": changed(round(2.2, 2.3), func(r *result.Result) {
			for i := range r.Rails {
				r.Rails[i].Expected = nil
			}
			r.Rails[1].Striped.Slow = true
			r.Scaling, r.Speedup = new(0.95), nil
			*r = judged(*r)
		}),
		"bottleneck": changed(round(72, 72), func(r *result.Result) {
			r.Rails[0].Solo, r.Rails[1].Solo = burst(64, 93), burst(64, 94)
			r.Bottleneck, r.EvenAlone = true, true
			r.Scaling, r.Shared = new(0.77), []result.Shared{{Rails: []string{"0", "1"}, What: "PCIe link 0000:01:00"}}
			*r = judged(*r)
		}),
		"rail-down": changed(withFailure(round(92, 92), 1, result.Failure{Stage: "open", Reason: "port_down",
			Detail: "rocep1s0f1 port 1 is DOWN: is the cable in?"}), func(r *result.Result) {
			r.Striped, r.Static, r.Imbalance, r.Scaling, r.FinishSkew = new(92.0*gb), nil, new(1.0), nil, nil
		}),
		"single": changed(round(97), func(r *result.Result) { r.TCP, r.Speedup, r.Scaling = nil, nil, nil }),
		"many-faults": changed(round(90, 90, 90), func(r *result.Result) {
			r.FinishSkew, r.Scaling, r.Speedup = new(0.5), new(0.7), new(0.9)
			r.Bottleneck, r.SlowerThanTCP = true, true
			r.Rails[0].PathMTU, r.Rails[2].PathMTU, r.Rails[1].CounterMismatch = 1024, 256, new(0.31)
			r.Mismatches = []result.Mismatch{{Component: "rdma-core", Here: "44.0", There: "50.0\x1b[2J"}}
			r.Shared = []result.Shared{{Rails: []string{"0", "1"}, What: "PCIe link 0000:01:00"},
				{Rails: []string{"1", "2"}, What: "switch"}}
		}),
		"fallback": {Peer: "spark-02:10092", Duration: 2 * time.Second, Outcome: result.Fallback, Transport: result.TCP,
			Reason: noDevice.Reason, Detail: noDevice.Detail, Verified: true, Bytes: 64 * mb,
			Failures: []result.Failure{noDevice}, TCP: []result.TCPResult{{Streams: 4, BytesPerSecond: 9.41 * gb}},
			Rails: []result.RailResult{{Rail: "0", Netdev: "enp1s0f0np0", Striped: burst(32, 4.7)},
				{Rail: "1", Netdev: "enp1s0f1np1", Striped: burst(32, 4.71)}}},
		"all-rails-failed": {Peer: "spark-02:10092", Duration: 2 * time.Second, Outcome: result.Fallback,
			Transport: result.TCP, Reason: "retry_exceeded", Detail: "rail 0: no answer", Verified: true,
			Failures: []result.Failure{{Rail: "0", Stage: "reach", Reason: "retry_exceeded", Detail: "no answer"},
				{Rail: "1", Stage: "reach", Reason: "retry_exceeded", Detail: "nor here"}},
			Rails: []result.RailResult{{Rail: "0", Failure: &result.Failure{}},
				{Rail: "1", Failure: &result.Failure{}}}},
		"lossy": changed(round(92, 58), func(r *result.Result) {
			one := &r.Rails[1]
			one.Lossy, one.LossEvents, one.LossPackets = true, 214, 122_000
			one.Loss = &result.Loss{Retransmits: 118, PeerEvents: new(uint64(111)), Packets: 61_000, Bursts: 2}
			*r = judged(*r)
		}),
		"extras": changed(round(92.6, 92.9), func(r *result.Result) { r.Extras = extras(); *r = judged(*r) }),
		"stamps": changed(round(92.6, 92.9), func(r *result.Result) {
			r.Rails[0].Latency.Adapter = []time.Duration{2010, 2040, 2110}
			r.Rails[0].Latency.Host = []time.Duration{90, 100, 8050}
		}),
		"missing": changed(round(92), func(r *result.Result) {
			r.Missing = []result.MissingRail{{Rail: "1", Device: "rocep1s0f1", Known: true, Detail: "this node had it before"}}
			r.Imbalance, r.Scaling = new(1.0), nil
			*r = judged(*r)
		}),
		"unpaired": changed(round(92.6, 92.9), func(r *result.Result) {
			for i := 2; i < 4; i++ {
				r.Rails = append(r.Rails,
					result.RailResult{Rail: fmt.Sprint(i), Device: fmt.Sprintf("rocep2s0f%d", i-2),
						Port: 1, GIDIndex: -1, Unpaired: true})
			}
			r.PeerRails = 2
			*r = judged(*r)
		}),
		"failed": {Peer: "spark-02:10092", Duration: time.Second, Outcome: result.Failed, Transport: result.NoTransport,
			Reason: "peer_unreachable",
			Detail: "dial tcp 192.168.101.2:10092: connect: no route to host; is railscope running there, with " +
				"probe.listen, and does a firewall let port 10092 through?",
			Failures: []result.Failure{{Stage: "hello", Reason: "peer_unreachable", Detail: "dial tcp"}}},
		"skipped": {Peer: "spark-02:10092", Duration: time.Millisecond, Outcome: result.Skipped,
			Transport: result.NoTransport, Reason: "busy", Detail: "the peer's rail 1 carries 43 Gb/s of other traffic"},
		"long-names": changed(round(92, 30), func(r *result.Result) {
			for i := range r.Rails {
				one := &r.Rails[i]
				one.Rail = fmt.Sprintf("a_rail_with_a_very_long_name_that_says_everything_about_it_%d", i)
				one.Device, one.PeerDevice, one.Port = one.Rail, "peer_device_with_a_long_name_"+one.Device, 2
			}
		}),
	}
}

// extras returns bursts of each kind.
func extras() (list []result.Measured) {
	flow := func(rail string, op result.Op, gigabits float64) result.MeasuredFlow {
		f := result.MeasuredFlow{Rail: rail, Op: op,
			Latency: &result.Latency{Samples: []time.Duration{2110, 2240, 9870}}}
		if gigabits > 0 {
			f.Goodput = new(gigabits * gb)
			return f
		}
		f.Failure = &result.Failure{Rail: rail, Stage: "reach", Reason: "retry_exceeded", Detail: "12: no acknowledgement"}
		return f
	}
	add := func(kind result.Kind, queuePairs int, flows ...result.MeasuredFlow) {
		list = append(list, result.Measured{Kind: kind, QueuePairs: queuePairs, Flows: flows})
	}
	add(result.Reads, 1, flow("0", result.Read, 91.2))
	add(result.Reads, 1, flow("1", result.Read, 91.4))
	add(result.Reads, 1, flow("0", result.Read, 90.9), flow("1", result.Read, 91.1))
	add(result.Bidirectional, 1, flow("0", result.Write, 90.1), flow("0", result.Read, 89.5), flow("1", result.Write, 0),
		flow("1", result.Read, 92.5))
	for _, n := range []int{1, 2, 4, 8} {
		add(result.QueuePairs, n, flow("0", result.Write, 90+float64(n)/10), flow("1", result.Write, 90.5))
	}
	for _, to := range []string{"0", "1"} {
		f := flow("0", result.Write, 98.5)
		f.Other = to
		if to == "1" {
			f = flow("0", result.Write, 0)
			f.Other, f.Latency, f.Failure.Reason = to, nil, "no_route"
		}
		add(result.Loopback, 1, f)
	}
	for i := range 3 {
		f := flow("0", result.Write, 92-float64(i)*40)
		f.Path, f.UDPPort, f.Loss = i, uint16(50123+i), &result.Loss{Packets: 15000, PeerEvents: new(uint64(0))}
		if i == 1 {
			f.Loss = &result.Loss{Retransmits: 120, Packets: 15000, PeerEvents: new(uint64(115))}
		}
		add(result.Paths, 1, f)
	}
	list = append(list, result.Measured{Kind: result.GPU, Memory: "cuda_dmabuf", Failure: &result.Failure{Stage: "open",
		Reason: "no_dmabuf", Detail: "GPU 0000:0f:00.0: the driver exports no dma-buf"}},
		result.Measured{Kind: result.GPU, Memory: "cuda_peermem", Failure: &result.Failure{Stage: "open",
			Reason: "no_peermem", Detail: "GPU 0000:0f:00.0: it does not support GPUDirect RDMA"}},
		result.Measured{Kind: result.GPU, Memory: "cuda_host", QueuePairs: 1,
			Flows: []result.MeasuredFlow{flow("0", result.Write, 92)}},
		result.Measured{Kind: result.GPU, Memory: "cuda_staged", QueuePairs: 1,
			Flows: []result.MeasuredFlow{flow("0", result.Write, 8)}})
	add(result.Contention, 1, flow("0", result.Write, 92))
	add(result.Contention, 1, flow("1", result.Write, 92.4))
	add(result.Contention, 1, flow("0", result.Write, 55), flow("1", result.Write, 54))
	return append(list, result.Measured{Kind: result.Bidirectional,
		Failure: &result.Failure{Stage: "extra", Reason: "peer_version",
			Detail: "the railscope of the peer opens one flow of writes per rail: install this version there"}})
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (go test ./probe/report -update): %s", path, diff)
	}
}

// TestTable: the whole table fits a terminal.
func TestTable(t *testing.T) {
	for name, r := range results() {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := WriteTable(&b, r, Options{}); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".table", b.Bytes())
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
					t.Errorf("%d columns: %q", n, line)
				}
			}
			if strings.Contains(b.String(), "\x1b") {
				t.Error("an escape sequence")
			}
		})
	}
}

// TestColor: colours do not change the text.
func TestColor(t *testing.T) {
	for name, r := range results() {
		var with, without bytes.Buffer
		if err := WriteTable(&with, r, Options{Color: true}); err != nil {
			t.Fatal(err)
		}
		if err := WriteTable(&without, r, Options{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.NewReplacer(terminal.Red, "", terminal.Green, "", terminal.Yellow, "", terminal.Reset, "").
			Replace(with.String()); got != without.String() {
			t.Errorf("%s: %s", name, cmp.Diff(without.String(), got))
		}
		want := map[string]string{"healthy": terminal.Green, "single": terminal.Green, "software": terminal.Green,
			"stamps": terminal.Green, "fallback": terminal.Red, "all-rails-failed": terminal.Red, "failed": terminal.Red, "skipped": ""}
		if colour, ok := want[name]; !ok && !strings.HasPrefix(with.String(),
			terminal.Yellow) || !strings.HasPrefix(with.String(), colour) {
			t.Errorf("%s begins %q", name, with.String()[:8])
		}
		if name == "third" {
			golden(t, "third.color", with.Bytes())
		}
	}
}

// TestJSON: the whole object; every key is always present.
func TestJSON(t *testing.T) {
	keys := func(r result.Result) (all []string) {
		var b bytes.Buffer
		if err := WriteJSON(&b, r, Options{}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if before, _, ok := strings.Cut(line, `": `); ok && strings.HasPrefix(before, `  "`) {
				all = append(all, before)
			}
		}
		return all
	}
	top := keys(result.Result{})
	for name, r := range results() {
		if diff := cmp.Diff(top, keys(r)); diff != "" {
			t.Errorf("%s: other keys: %s", name, diff)
		}
	}
	for _, name := range []string{"healthy", "software", "bottleneck", "many-faults", "rail-down", "thirteen",
		"fallback", "failed", "skipped", "lossy", "missing", "stamps", "unpaired"} {
		var b bytes.Buffer
		if err := WriteJSON(&b, results()[name], Options{}); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", b.Bytes())
	}
	r := round(92)
	r.Imbalance, r.Speedup, r.Rails[0].Expected = new(math.NaN()), new(math.Inf(1)), new(math.Inf(-1))
	var b bytes.Buffer
	if err := WriteJSON(&b, r, Options{}); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("figures that JSON cannot say: %v", err)
	}
}

// TestFindings: a degraded or failed round has a finding that says why, a good one has none above info, and each
// finding can be understood alone.
func TestFindings(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for name, r := range results() {
		worst := finding.Info
		for _, f := range check.Round(r) {
			if f.Severity.Compare(worst) < 0 {
				worst = f.Severity
			}
			if lacks := doctortest.Incomplete(f); !snake.MatchString(f.Check) || f.Subject == "" || lacks != "" {
				t.Errorf("%s: %+v %s", name, f, lacks)
			}
		}
		good := r.Outcome == result.OK || r.Outcome == result.Skipped
		if good != (worst == finding.Info) {
			t.Errorf("%s is %s, its worst finding %s: %+v", name, r.Outcome, worst, check.Round(r))
		}
		var table bytes.Buffer
		if err := WriteTable(&table, r, Options{}); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(table.String(), "evenly"); said && len(check.Round(r)) > 0 {
			t.Errorf("%s: evenly, although %+v", name, check.Round(r))
		}
	}
}

// full fails every write.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestWriteError(t *testing.T) {
	if WriteTable(full{}, round(92), Options{}) == nil || WriteJSON(full{}, round(92), Options{}) == nil {
		t.Error("an error of the writer was lost")
	}
}

func TestPercent(t *testing.T) {
	for v, want := range map[float64]string{1: "100 %", 0.33: "33 %", 0.0949: "9.5 %", 0.003: "0.3 %", 0: "0 %"} {
		if got := terminal.Percent(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

// TestNodeFindings: findings about this node are listed once, after those of the round.
func TestNodeFindings(t *testing.T) {
	r := results()["rail-down"]
	own := check.Round(r)[0]
	down := finding.Finding{Check: "port_down", Severity: finding.Critical, Subject: "rail 7",
		Evidence: "the port is DOWN"}
	o := Options{Node: []finding.Finding{own, down}, Simulated: true}
	var table, object strings.Builder
	if err := errors.Join(WriteTable(&table, r, o), WriteJSON(&object, r, o)); err != nil {
		t.Fatal(err)
	}
	const want = "This node has other findings (railscope doctor prints the fixes):\n" +
		"  - critical: rail 7: port down: the port is DOWN\n"
	if !strings.HasPrefix(table.String(), "Simulated by railscope demo: ") || !strings.Contains(table.String(), want) ||
		!strings.Contains(object.String(), `"transport": "simulated"`) || strings.Count(table.String(), own.Evidence) != 1 {
		t.Errorf("%s", &table)
	}
	var got struct {
		Node []finding.Finding `json:"node_findings"`
	}
	err := json.Unmarshal([]byte(object.String()), &got)
	if err != nil || len(got.Node) != 1 || got.Node[0].Check != "port_down" {
		t.Errorf("%v, %s", err, &object)
	}
}

// TestMeasurements: each kind of extra has one row, and each flag one kind.
func TestMeasurements(t *testing.T) {
	var kinds []result.Kind
	flags := map[string]bool{}
	for _, m := range Measurements() {
		kinds = append(kinds, m.Kind)
		if flags[m.Flag] || (m.Flag == "") != (m.Help == "") {
			t.Errorf("%s: flag %q, help %q", m.Kind, m.Flag, m.Help)
		}
		flags[m.Flag] = m.Flag != ""
	}
	want := result.Kinds()
	slices.Sort(kinds)
	slices.Sort(want)
	if !slices.Equal(kinds, want) {
		t.Errorf("rows %v, kinds %v", kinds, want)
	}
}
