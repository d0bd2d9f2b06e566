package page

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/priority"
	"github.com/railscope/railscope/internal/proof"
)

// exposition is a Reading of a text exposition.
type exposition map[string][]line

type line struct {
	labels map[string]string
	value  float64
}

func (e exposition) Each(row string, labels []string, each func([]string, float64)) bool {
	for _, l := range e[row] {
		values := make([]string, len(labels))
		for i, name := range labels {
			values[i] = l.labels[name]
		}
		each(values, l.value)
	}
	return true
}

// read parses an exposition.
func read(t testing.TB, text string) exposition {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	e := exposition{}
	for name, f := range families {
		row := strings.TrimPrefix(name, "railscope_")
		for _, m := range f.GetMetric() {
			l := line{map[string]string{},
				m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()}
			for _, p := range m.GetLabel() {
				l.labels[p.GetName()] = p.GetValue()
			}
			e[row] = append(e[row], l)
		}
	}
	return e
}

// captured returns a captured machine's exposition with additional lines.
func captured(t testing.TB, name string, more ...string) exposition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../testdata", name+".prom"))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, string(text)+strings.Join(more, "\n")+"\n")
}

// then is the time at which the fixtures were read.
func then() time.Time { return time.Date(2026, 5, 1, 20, 14, 3, 0, time.UTC) }

// wave returns the traffic of a rail, as parts of its capacity.
func wave(capacity, mean, swing, phase float64, n int) []float64 {
	var list []float64
	for i := range n {
		x := float64(i)
		list = append(list, capacity*math.Max(0, mean+swing*math.Sin(x/9+phase)+swing/4*math.Sin(x*1.7+phase*3)))
	}
	return list
}

// trained is an HGX during a training job: eight rails with much traffic, GPUs with much memory in use, twenty
// peers.
func trained(t testing.TB) (Options, exposition) {
	var more []string
	add := func(format string, args ...any) { more = append(more, fmt.Sprintf(format, args...)) }
	gpu := []string{"0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0", "0000:5d:00.0"}
	for i, address := range gpu {
		add(`railscope_gpu_info{gpu="%d",uuid="GPU-%d",name="NVIDIA H100 80GB `+
			`HBM3",pci_address="%s",driver="570.86.15"} 1`, i, i, address)
		add(`railscope_gpu_memory_total_bytes{gpu="%d"} 8.5520809984e+10`, i)
		add(`railscope_gpu_memory_used_bytes{gpu="%d"} %v`, i, 7.1e10+float64(i)*1.3e9)
		add(`railscope_gpu_memory_used_peak_bytes{gpu="%d",window="1m"} %v`, i, 7.4e10+float64(i)*1.3e9)
		add(`railscope_gpu_memory_used_peak_bytes{gpu="%d",window="start"} 8.1e+10`, i)
		add(`railscope_gpu_utilization_ratio{gpu="%d"} 0.9%d`, i, i)
		add(`railscope_gpu_memory_source_info{gpu="%d",source="nvml"} 1`, i)
	}
	for _, d := range []string{"receive", "transmit"} {
		add(`railscope_rails_active{direction="%s"} 8`, d)
		add(`railscope_rails_imbalance_ratio{direction="%s",role="compute"} 0.004`, d)
	}
	// The job's peaks prove rails 0 to 5; rail 6 carried too little, and a burst over rail 5 was later than its peak.
	for i := range 7 {
		rate, at := 4.64e10, then().Add(-time.Duration(i)*5*time.Minute)
		if i == 6 {
			rate = 3.4e10
		}
		add(`railscope_rail_peak_bytes_per_second{rail="%d",direction="transmit",window="1s"} %v`, i, rate)
		add(`railscope_rail_peak_bytes_per_second{rail="%d",direction="transmit",window="100ms"} 4.9e+10`, i)
		add(`railscope_rail_peak_timestamp_seconds{rail="%d",direction="transmit",window="1s"} %d`, i, at.Unix())
	}
	var peers []Peer
	for i := range 20 {
		peer := Peer{Name: fmt.Sprintf("hgx-%02d:10092", i+2)}
		for j := range 20 {
			r := Round{Start: then().Add(-time.Duration(i*3+60*j) * time.Second), Duration: 412 * time.Millisecond,
				Outcome: "ok", Transport: "rdma",
				Goodput: new(3.83e11 - float64(i)*2e8 - float64(j%3)*4e8), Expected: new(4e11),
				Imbalance: new(0.01 + float64(j%4)/200), P50: new(2.31e-6), P99: new(3.4e-6 + float64(i)*1e-7)}
			if i == 3 && j%7 == 2 {
				r = Round{Start: r.Start, Duration: time.Millisecond, Outcome: "skipped", Transport: "none",
					Reason: "busy", Detail: "rail 2 is at 63 % of its capacity"}
			}
			if i == 7 && j < 2 {
				r = Round{Start: r.Start, Duration: 3 * time.Second, Outcome: "fallback", Transport: "tcp",
					Goodput: new(2.1e9), Expected: new(4e11), Reason: "no_gid",
					Detail:   "no RoCE v2 GID in the peer's subnet",
					Failures: []string{"rail 4: resolve, no_gid: no RoCE v2 GID in 10.4.0.0/24"}}
			}
			peer.Rounds = append(peer.Rounds, r)
		}
		peers = append(peers, peer)
	}
	o := Options{Node: "hgx-01", Metrics: "/metrics", Version: "0.1.0",
		Started: then().Add(-76*time.Hour - 12*time.Minute),
		Recent: func(rail string, d int, to []float64) ([]float64, float64, bool) {
			n, _ := strconv.Atoi(rail)
			recent := wave(5e10, 0.74, 0.13, float64(n)/5+float64(d), 120)
			return append(to, recent...), recent[119], true
		},
		Peers: func() ([]Peer, bool) { return peers, true },
		Proof: func(rail string) (*proof.Proof, float64) {
			if rail == "5" || rail == "7" {
				return &proof.Proof{By: proof.ByBurst, Rate: 4.5e10, At: then().Add(-20 * time.Minute)}, 0.7
			}
			return nil, 0.7
		},
		Exam: func() Exam {
			e := examined(finding.Finding{Check: "fallback", Severity: finding.Critical, Subject: "peer hgx-09",
				Evidence: "RDMA to hgx-09 failed: no_gid: rail 4 has no RoCE v2 GID in the peer's subnet",
				Why:      "Rounds with this peer go by TCP.", Fix: []string{"ip address add 10.4.0.1/24 dev enp156s0np0"}})
			for i := range 8 {
				name := strconv.Itoa(i)
				e.Classes = append(e.Classes,
					priority.Use{Rail: name, Priority: "0", DSCP: "0-7", Lossless: new(false), Sent: new(15e3)},
					priority.Use{Rail: name, Priority: "3", DSCP: "24-31", Lossless: new(true), Sent: new(3.6e10),
						Jobs: []string{"8 processes"}, Probe: true})
			}
			return e
		},
	}
	e := captured(t, "hgx", more...)
	delete(e, "nccl_fallback")
	delete(e, "source_success") // this machine has NVML
	return o, e
}

// wounded is a node with two rails, one of which is down and has been found by doctor.
func wounded(t testing.TB) (Options, exposition) {
	o := options("node-07")
	o.Recent = func(rail string, d int, to []float64) ([]float64, float64, bool) {
		recent := slices.Repeat([]float64{0}, 120)
		if rail == "0" {
			recent = wave(1.25e10, 0.8, 0.12, float64(d), 120)
		} else {
			copy(recent, wave(1.25e10, 0.8, 0.12, float64(d)+1, 84))
		}
		return append(to, recent...), recent[119], true
	}
	ok := Round{Start: then().Add(-47 * time.Second), Duration: 300 * time.Millisecond, Outcome: "ok",
		Transport: "rdma", Goodput: new(2.43e10), Expected: new(2.5e10), Imbalance: new(0.01), P50: new(2.1e-6),
		P99: new(2.9e-6)}
	half := ok
	half.Outcome = "degraded"
	half.Goodput, half.Imbalance, half.Failures = new(1.22e10), new(1.0),
		[]string{"rail 1: connect, port_down: mlx5_1 port 1 is DOWN"}
	o.Peers = func() ([]Peer, bool) {
		return []Peer{{"node-08:10092", append([]Round{half, half}, slices.Repeat([]Round{ok}, 18)...)},
			{"node-09:10092", slices.Repeat([]Round{ok}, 20)}}, true
	}
	o.Exam = func() Exam {
		return examined(finding.Finding{Check: "port_down", Severity: finding.Critical, Subject: "rail 1",
			Where: "mlx5_1, ens2f0np0", Evidence: `the port is "1: DOWN", physically "2: Polling"; ens2f0np0 has no carrier`,
			Why: "Nothing is carried by a port that is not ACTIVE: the other rails do its work, or the job does " +
				"not start.",
			Fix: []string{"# plug in the cable at both ends, or change it or its transceiver; see that the " +
				"switch's port is on: ethtool ens2f0np0; ethtool -m ens2f0np0"}})
	}
	e := captured(t, "one-rail-dead", `railscope_rails_active{direction="receive"} 1`,
		`railscope_rails_active{direction="transmit"} 1`,
		`railscope_rails_imbalance_ratio{direction="receive",role="compute"} 1`,
		`railscope_rails_imbalance_ratio{direction="transmit",role="compute"} 1`)
	delete(e, "source_success")
	return o, e
}

// whole is the node of wounded with a notice, GPUs, a bond, a peer without rounds, and fewer rounds of the others.
func whole(t testing.TB) (Options, exposition) {
	o, e := wounded(t)
	peers, _ := o.Peers()
	for i := range peers {
		peers[i].Rounds = peers[i].Rounds[:3]
	}
	o.Peers = func() ([]Peer, bool) { return append(peers, Peer{Name: "new:10092"}), true }
	o.Notice = "A demonstration: nothing here is real."
	maps.Copy(e, read(t, `railscope_gpu_info{gpu="0",uuid="GPU-0",name="NVIDIA H100",pci_address="0000:18:00.0"} 1
railscope_gpu_memory_source_info{gpu="0",source="nvml"} 1
railscope_gpu_memory_total_bytes{gpu="0"} 8.5520809984e+10
railscope_gpu_memory_used_bytes{gpu="0"} 7.1e+10
railscope_gpu_memory_used_peak_bytes{gpu="0",window="1m"} 7.4e+10
railscope_gpu_memory_used_peak_bytes{gpu="0",window="start"} 8.1e+10
railscope_gpu_utilization_ratio{gpu="0"} 0.93
railscope_gpudirect_info{mode="dmabuf",reason="dma-buf"} 1
railscope_bond_info{bond="bond0",mode="802.3ad",xmit_hash_policy="layer3+4",miimon="100",lacp_rate="fast"} 1
railscope_bond_rdma_info{bond="bond0",rail="0",device="mlx5_0",port="1",member=""} 1
railscope_bond_member_up{bond="bond0",member="ens3f0np0"} 1
railscope_bond_member_up{bond="bond0",member="ens3f1np1"} 0
railscope_bond_member_active{bond="bond0",member="ens3f0np0"} 1
railscope_bond_member_active{bond="bond0",member="ens3f1np1"} 0
railscope_bond_member_link_failures_total{bond="bond0",member="ens3f0np0"} 0
railscope_bond_member_link_failures_total{bond="bond0",member="ens3f1np1"} 3
`))
	return o, e
}

// few keeps these peers of a node, and adds a new one.
func few(o Options, which ...int) Options {
	all, _ := o.Peers()
	var peers []Peer
	for _, i := range which {
		peers = append(peers, all[i])
	}
	o.Peers = func() ([]Peer, bool) { return append(peers, Peer{Name: "new:10092"}), true }
	return o
}

// today moves the times of the fixtures to now.
func today(o Options) Options {
	late := time.Since(then())
	o.Started = o.Started.Add(late)
	if o.Peers == nil {
		return o
	}
	peers, probing := o.Peers()
	for _, peer := range peers {
		for i := range peer.Rounds {
			peer.Rounds[i].Start = peer.Rounds[i].Start.Add(late)
		}
	}
	o.Peers = func() ([]Peer, bool) { return peers, probing }
	return o
}

// options returns the options of a node about which nothing else is known.
func options(node string) Options {
	return Options{Node: node, Metrics: "/metrics", Version: "0.1.0", Started: then().Add(-3 * time.Minute)}
}

// source returns readings and counts the reads.
type source struct {
	reading atomic.Pointer[exposition]
	failed  map[string]string
	reads   atomic.Int64 // all reads
	slow    atomic.Int64 // reads of all sources
}

func (s *source) read(names []string, view func(Reading, map[string]string)) {
	s.reads.Add(1)
	if slices.Contains(names, "gpu") {
		s.slow.Add(1)
	}
	view(*s.reading.Load(), s.failed)
}

// open returns a page of a reading.
func open(t testing.TB, o Options, e exposition) (*Page, *source) {
	t.Helper()
	s := &source{}
	s.reading.Store(&e)
	o.Read = s.read
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	page := New(o)
	t.Cleanup(page.Close)
	return page, s
}

var preview = flag.String("preview", "", "address on which TestPreview serves the drawings, such as localhost:8080")

// TestPreview serves the drawings of the fixtures: go test ./exporter/page -run TestPreview -preview localhost:8080
// -timeout 0
func TestPreview(t *testing.T) {
	if *preview == "" {
		t.Skip("serves nothing without -preview ADDRESS")
	}
	mux := http.NewServeMux()
	serve := func(name string, o Options, e exposition) {
		page, _ := open(t, today(o), e)
		own := http.NewServeMux()
		page.Register(own)
		mux.Handle("/"+name+"/", http.StripPrefix("/"+name, own))
		t.Logf("http://%s/%s/", *preview, name)
	}
	o, e := trained(t)
	serve("trained", o, e)
	o, e = trained(t)
	o.Exam = func() Exam { return examined() }
	serve("few", few(o, 0, 3, 5), e)
	o, e = wounded(t)
	serve("wounded", o, e)
	for _, name := range []string{"bonded", "no-rdma", "one-rail-dead", "spark", "efa"} {
		serve(name, options(name), captured(t, name))
	}
	listener, err := net.Listen("tcp", *preview)
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(http.Serve(listener, mux))
}

// examined returns an examination nine seconds ago, with findings raised an hour ago.
func examined(found ...finding.Finding) Exam {
	e := Exam{On: true, At: then().Add(-9 * time.Second), Took: 31 * time.Millisecond}
	for _, f := range found {
		f.Since = then().Add(-time.Hour)
		e.Findings = append(e.Findings, finding.Raised{Finding: f})
	}
	return e
}
