package record

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
)

var update = flag.Bool("update", false, "write the golden files anew")

// machine is a sysfs of rails whose counters a test changes: mlx5 devices, or Soft-RoCE.
type machine struct {
	t     *testing.T
	dir   string
	rails []rail.Rail
}

func newMachine(t *testing.T, rails int, software bool) *machine {
	m := &machine{t: t, dir: t.TempDir()}
	for i := range rails {
		r := rail.Rail{Name: fmt.Sprint(i), Device: fmt.Sprintf("mlx5_%d", i), Port: 1, Netdev: fmt.Sprintf("eth%d", i),
			Dir: filepath.Join(m.dir, "class/infiniband", fmt.Sprintf("mlx5_%d", i)), LinkLayer: "Ethernet", Role: "compute",
			Software: software}
		m.rails = append(m.rails, r)
		m.write(i, "state", "4: ACTIVE")
		m.write(i, "rate", "100 Gb/sec (4X EDR)")
		for _, name := range []string{"rx_bytes", "tx_bytes", "rx_packets", "tx_packets"} {
			m.write(i, "net "+name, "1000000")
		}
		if software {
			m.write(i, "hw_counters/sent_pkts", "1000000")
			m.write(i, "hw_counters/rcvd_pkts", "1000000")
			m.write(i, "net ../mtu", "1500")
			continue
		}
		for _, name := range []string{"port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets"} {
			m.write(i, "counters/"+name, "1000000")
		}
	}
	return m
}

// write writes a file of a port, or of its interface's statistics.
func (m *machine) write(i int, name, value string) {
	m.t.Helper()
	path := filepath.Join(m.rails[i].Dir, "ports/1", name)
	if net, ok := strings.CutPrefix(name, "net "); ok {
		path = filepath.Join(m.dir, "class/net", m.rails[i].Netdev, "statistics", net)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) remove(i int, name string) {
	if err := os.RemoveAll(filepath.Join(m.rails[i].Dir, "ports/1", name)); err != nil {
		m.t.Fatal(err)
	}
}

// send advances the counters of an adapter as messages of this many bytes do: packets of 4096 bytes with headers, and
// an acknowledgement per message.
func (m *machine) send(i int, bytes int64) {
	packets, acks := bytes/4096, bytes>>20
	m.write(i, "counters/port_xmit_data", fmt.Sprint(1000000+(bytes+packets*headerRDMA)/4))
	m.write(i, "counters/port_xmit_packets", fmt.Sprint(1000000+packets))
	m.write(i, "counters/port_rcv_data", fmt.Sprint(1000000+acks*(headerRDMA+4)/4))
	m.write(i, "counters/port_rcv_packets", fmt.Sprint(1000000+acks))
}

// bySocket advances the counters of an interface as TCP does.
func (m *machine) bySocket(i int, bytes int64) {
	packets := bytes / 1448
	m.write(i, "net tx_bytes", fmt.Sprint(1000000+bytes+packets*headerTCP))
	m.write(i, "net tx_packets", fmt.Sprint(1000000+packets))
}

// bySoftware advances the counters of an interface as rxe does: packets of 1024 bytes.
func (m *machine) bySoftware(i int, bytes int64) {
	packets := bytes / 1024
	m.write(i, "net tx_bytes", fmt.Sprint(1000000+bytes+packets*headerRDMA))
	m.write(i, "net tx_packets", fmt.Sprint(1000000+packets))
	m.write(i, "hw_counters/sent_pkts", fmt.Sprint(1000000+packets))
}

const gib = 1 << 30

// TestRecord checks the bytes that the rails' counters moved while the command ran, and the verdict.
func TestRecord(t *testing.T) {
	pairs := func(names ...string) func(string, func(rdmanl.QP)) error {
		return func(device string, each func(rdmanl.QP)) error {
			for _, name := range names {
				if name == device {
					each(rdmanl.QP{Port: 1, State: rdmanl.RTS, Connected: true})
				}
			}
			return nil
		}
	}
	for _, tc := range []struct {
		name     string
		rails    int
		software bool
		pairs    func(string, func(rdmanl.QP)) error
		during   func(m *machine)
		want     string
		good     bool
	}{
		{"evenly", 2, false, pairs("mlx5_0", "mlx5_1"), func(m *machine) { m.send(0, 4*gib); m.send(1, 4*gib) },
			"2 rails carried", true},
		{"one alone", 2, false, nil, func(m *machine) { m.send(1, 4*gib) },
			"one of 2 rails carried everything: rail 1, ", false},
		{"two of four", 4, false, nil, func(m *machine) { m.send(0, gib); m.send(2, gib) },
			"2 of 4 rails carried", false},
		{"unevenly", 2, false, nil, func(m *machine) { m.send(0, 4*gib); m.send(1, gib) },
			"2 rails carried .*, unevenly: the slowest had 25 % of its share", false},
		{"TCP", 2, false, nil, func(m *machine) { m.bySocket(0, gib) }, "nothing went by RDMA: TCP carried", false},
		{"TCP over a software device", 1, true, pairs(), func(m *machine) { m.bySocket(0, gib) },
			"nothing went by RDMA: TCP carried 1024.0 MiB", false},
		{"a software device whose queue pairs nobody saw", 2, true, pairs(), func(m *machine) { m.bySoftware(1, gib) },
			"one of 2 rails carried everything: rail 1, ", false},
		{"TCP over siw, which counts no packets", 1, true, pairs(), func(m *machine) {
			m.bySocket(0, gib)
			m.remove(0, "hw_counters")
		}, "nothing went by RDMA: TCP carried 1024.0 MiB", false},
		{"RDMA over siw", 1, true, pairs("mlx5_0"), func(m *machine) {
			m.bySoftware(0, gib)
			m.remove(0, "hw_counters")
		}, "rail 0 carried", true},
		{"most by TCP", 1, false, nil, func(m *machine) { m.bySocket(0, 2*gib); m.send(0, gib) }, "most went by TCP", false},
		{"nothing", 2, false, nil, func(*machine) {}, "the rails carried nothing", false},
		{"TCP that nothing counts", 2, false, nil, func(m *machine) {
			if err := os.RemoveAll(filepath.Join(m.dir, "class/net", m.rails[1].Netdev, "statistics")); err != nil {
				m.t.Fatal(err)
			}
		}, "nothing went by RDMA, and what TCP carried over rail 1 cannot be counted: the command used TCP", false},
		{"nothing over software devices", 2, true, nil, func(*machine) {}, "the rails carried nothing", false},
		{"no rail", 0, false, nil, func(*machine) {}, "this node has no rail", false},
		{"a counter goes back", 2, false, nil, func(m *machine) {
			m.send(0, 4*gib)
			m.write(1, "counters/port_xmit_data", "1")
		}, "rail 1 could not be read; of the others, rail 0 carried", false},
		{"another role is idle", 3, false, nil, func(m *machine) { m.send(0, gib); m.send(1, gib) },
			"2 rails carried .*, evenly", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t, tc.rails, tc.software)
			if tc.name == "another role is idle" {
				m.rails[2].Role = "storage"
			}
			r := Start(Options{Sysfs: m.dir, Procfs: t.TempDir(), Rails: m.rails, QueuePairs: tc.pairs})
			tc.during(m)
			rec := r.Stop()
			if ok := cmp.Equal(true, matches(t, tc.want, rec.Verdict)); !ok || rec.Good != tc.good {
				t.Errorf("%q, good %v; want %q", rec.Verdict, rec.Good, tc.want)
			}
			for _, one := range rec.Rails {
				if p := one.Transmit.Payload; p != nil && *p > 0 &&
					(*p < gib*98/100 || *p%gib > gib/50 && *p%gib < gib*98/100) {
					t.Errorf("rail %s sent %d bytes of payload", one.Rail, *p)
				}
			}
			if (tc.name == "a counter goes back") != (len(rec.Notes) > 0) {
				t.Errorf("notes %q", rec.Notes)
			}
		})
	}
}

func matches(t *testing.T, want, got string) bool {
	t.Helper()
	for part := range strings.SplitSeq(want, ".*") {
		_, rest, ok := strings.Cut(got, part)
		if !ok {
			return false
		}
		got = rest
	}
	return true
}

// TestRailOrder: rails are in the order of their names, whatever that of the devices is.
func TestRailOrder(t *testing.T) {
	m := newMachine(t, 3, false)
	for i, name := range []string{"10", "9", "0"} {
		m.rails[i].Name = name
	}
	rec := Start(Options{Sysfs: m.dir, Procfs: t.TempDir(), Rails: m.rails}).Stop()
	for i, want := range []string{"0", "9", "10"} {
		if got := rec.Rails[i].Rail; got != want {
			t.Errorf("rail %d is %s, want %s", i, got, want)
		}
	}
}

// TestHeaderIPv6: a rail without an IPv4 address has longer headers.
func TestHeaderIPv6(t *testing.T) {
	const packets = gib / 4096
	for gid, want := range map[string]int64{
		"0000:0000:0000:0000:0000:ffff:0a00:0001": gib, "fd00:0000:0000:0000:0000:0000:0000:0001": gib - packets*longerIPv6,
	} {
		m := newMachine(t, 1, false)
		m.write(0, "gids/0", gid)
		m.write(0, "gid_attrs/types/0", "RoCE v2")
		m.write(0, "gid_attrs/ndevs/0", "eth0")
		r := Start(Options{Sysfs: m.dir, Procfs: t.TempDir(), Rails: m.rails})
		m.send(0, gib)
		if got := r.Stop().Rails[0].Transmit.Payload; got == nil || *got < want-4 || *got > want+4 {
			t.Errorf("%s: %v bytes of payload, want %d", gid, got, want)
		}
	}
}

// TestSeries: a series of any length has at most 600 points, which preserve the mean.
func TestSeries(t *testing.T) {
	w := watched{each: 1}
	const n = 10_000
	for i := range n {
		w.add(Point{At: float64(i + 1), Transmit: float64(i % 2)})
	}
	sum, last := 0.0, 0.0
	for _, p := range w.series {
		sum += p.Transmit * (p.At - last)
		last = p.At
	}
	if len(w.series) > maxPoints || len(w.series) < maxPoints/2 || sum < n/2-20 || sum > n/2+20 || last != n {
		t.Errorf("%d points, sum %v, until %v", len(w.series), sum, last)
	}
}

// example is a record with every field.
func example() Record {
	dir := func(payload int64, peak float64) Direction {
		return Direction{Wire: new(payload + payload/70), Packets: new(payload / 4096), Payload: &payload, Peak: peak}
	}
	r := Record{Version: Version, Command: []string{"python", "train.py"}, Start: time.Unix(1e9, 0).UTC(), Seconds: 12.3,
		Rails: []Rail{{Rail: "0", Device: "mlx5_0", Netdev: "eth0", Role: "compute", LineRate: new(12.5e9), Pairs: 8,
			Transmit: dir(100*gib, 12e9), Receive: dir(99*gib, 11.9e9), TCP: new(int64(4 << 20)),
			Series: []Point{{0.1, 1e9, 2e9}}},
			{Rail: "1", Device: "mlx5_1", Netdev: "eth1", Role: "compute", LineRate: new(12.5e9)}},
		Processes: []Process{{"python", map[string]int{"0": 8}}}, GPUs: []Memory{{"GPU 0", 1 * gib, 70 * gib}},
		Host: &Memory{"host", 40 * gib, 44 * gib}, Environment: map[string]string{"NCCL_IB_HCA": "mlx5_0"},
		Notes: []string{"queue pairs of rail 1: permission denied"}}
	r.judge()
	return r
}

// TestOutput checks the table, which fits a terminal, and the JSON object.
func TestOutput(t *testing.T) {
	var table, object bytes.Buffer
	r := example()
	if err := r.WriteTable(&table, false); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&object); err != nil || !json.Valid(object.Bytes()) {
		t.Fatal(err)
	}
	figure := new(12.5)
	run := func(transport string, seconds float64, rdma int64) Run {
		return Run{Transport: transport, Seconds: seconds, Figure: figure, RDMA: rdma, TCP: new(int64(gib))}
	}
	var compared bytes.Buffer
	c := NewComparison([]string{"job"}, []Run{run(RDMA, 10, gib), run(TCP, 25, 0), run(RDMA, 10.5, gib), run(TCP, 24, 0)})
	if err := c.WriteTable(&compared, false); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"record.table": table.Bytes(), "record.json": object.Bytes(),
		"compare.table": compared.Bytes()} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (go test ./bench/record -update): %s", path, diff)
		}
		for line := range strings.Lines(string(got)) {
			if n := utf8.RuneCountInString(line); strings.HasSuffix(name, ".table") && n > 101 {
				t.Errorf("%d columns: %q", n, line)
			}
		}
	}
}

// figures returns runs of equal length over alternating transports, with these figures; NaN for none.
func figures(list ...float64) (runs []Run) {
	for i, v := range list {
		r := Run{Transport: RDMA, Seconds: 10, RDMA: gib}
		if i%2 == 1 {
			r = Run{Transport: TCP, Seconds: 10}
		}
		if !math.IsNaN(v) {
			r.Figure = &v
		}
		runs = append(runs, r)
	}
	return runs
}

// TestParseFigure: texts that are not finite numbers are no figures.
func TestParseFigure(t *testing.T) {
	for text, want := range map[string]string{"500": "500", " 1.5e3 ": "1500",
		"nan": "", "inf": "", "": "", "1,5": "", "1e999": ""} {
		if got := fourDigits(ParseFigure(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestComparison checks the times over both transports, and whether their difference is clear.
func TestComparison(t *testing.T) {
	run := func(transport string, seconds float64, rdma int64) Run {
		return Run{Transport: transport, Seconds: seconds, RDMA: rdma}
	}
	for _, tc := range []struct {
		name string
		runs []Run
		want string
		good bool
	}{
		{"faster", []Run{run(RDMA, 10, gib), run(TCP, 20, 0)}, "over RDMA the job is 2.00 × as fast", true},
		{"a little", []Run{run(RDMA, 10, gib), run(TCP, 12, 0)}, "1.20 × as fast, below 1.5", true},
		{"slower", []Run{run(RDMA, 20, gib), run(TCP, 12, 0)}, "the job is slower", false},
		{"overlap", []Run{run(RDMA, 10, gib), run(TCP, 11, 0), run(RDMA, 12, gib), run(TCP, 13, 0)},
			"no difference beyond the runs' own spread", true},
		{"no RDMA", []Run{run(RDMA, 10, 0), run(TCP, 20, 0)}, "a run over RDMA moved nothing", false},
		{"TCP was RDMA", []Run{run(RDMA, 10, gib), run(TCP, 20, gib)}, "runs over TCP moved bytes by RDMA", false},
		{"failed", []Run{run(RDMA, 10, gib), {Transport: TCP, ExitCode: 1}}, "runs failed", false},
		{"one without RDMA", []Run{run(RDMA, 10, gib), run(TCP, 20, 0), run(RDMA, 10, 0), run(TCP, 20, 0)},
			"a run over RDMA moved nothing", false},
		{"one", []Run{run(RDMA, 10, gib)}, "not enough runs", false},
		{"a fixed time", figures(500, 100, 500, 100),
			"over RDMA the figure is higher (5.00 × that over TCP, 500 against 100); seconds, TCP ÷ RDMA: 1.00 ×", true},
		{"one run each", figures(500, 100), "the spread of one run is not known", true},
		{"lower", figures(100, 500, 101, 499), "the figure is lower (0.20 × that over TCP, 100.5 against 499.5)", false},
		{"figures overlap", figures(500, 490, 480, 495), "the figure does not differ beyond the runs' own spread", true},
		{"a little higher", figures(120, 100, 121, 101), "(1.20 × that over TCP, 120.5 against 100.5), below 1.5", true},
		{"of nothing", figures(5, 0, 5, 0), "the figure differs (5 against 0)", false},
		{"below 0", figures(-5, -10, -5, -10), "the figure differs (-5 against -10)", false},
		{"one did not print it", figures(500, 100, 500, math.NaN()), "not every run printed a figure", true},
		{"the time differs, the figure does not", []Run{{Transport: RDMA, Seconds: 10, RDMA: gib, Figure: new(1.0)},
			{Transport: TCP, Seconds: 20, Figure: new(1.0)}}, "2.00 × as fast; the figure does not differ", true},
	} {
		if c := NewComparison(nil, tc.runs); !strings.Contains(c.Verdict, tc.want) || c.Good != tc.good {
			t.Errorf("%s: %q, good %v", tc.name, c.Verdict, c.Good)
		}
	}
}
