package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/bench/record"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/finding"
)

// measured is a benchmark with every kind of row, as package bench writes it.
func measured(t testing.TB) suite.Suite {
	t.Helper()
	return saved(t, "suite.json")
}

func saved(t testing.TB, name string) suite.Suite {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s, err := suite.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func page(t testing.TB, r Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// elements returns the names of a document's XML elements, and the values of their attributes.
func elements(t testing.TB, text string) (names, values []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return names, values
		} else if err != nil {
			t.Fatalf("%v in %.2000s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok {
			names = append(names, e.Name.Local)
			for _, a := range e.Attr {
				values = append(values, a.Value)
			}
		}
	}
}

// TestBench: every table and plot is there, in two themes, and the page loads nothing external.
func TestBench(t *testing.T) {
	s := measured(t)
	s.Node = "spark-01"
	s.Findings = []finding.Finding{{Check: "mtu", Severity: finding.Warning, Subject: "rail 1", Evidence: "1024 of 4096",
		Fix: []string{"ip link set eth1 mtu 9000"}}}
	s.Rows = append(s.Rows, suite.Row{Name: "all rails, WRITE, cuda_dmabuf", Transport: "rdma", Op: "write",
		Memory: "cuda_dmabuf", Rails: []string{"0", "1"}, Goodput: new(2.2e10)},
		suite.Row{Name: "broken", Failure: "no route to rail 7"})
	text := page(t, Bench(s))
	for _, want := range []string{"<title>railscope bench: spark-01 to spark-02:10092</title>", "rail 1: mtu",
		"ip link set eth1 mtu 9000", "<td class=\" figure\">185.50</td>", "NCCL_IB_HCA", "By memory",
		"Goodput by size of messages", "Share of each rail", "Latency", "broken: no route to rail 7", "Llama 3 8B",
		`class="verdict good"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if light, dark := strings.Count(text, `<div class="light"><svg`), strings.Count(text, `<div class="dark"><svg`); light != 5 ||
		dark != 5 {
		t.Errorf("%d light and %d dark plots, want 5 of each", light, dark)
	}
	for _, never := range []string{"<script", "<link", "<img", "<image", "url(", "@import", "src="} {
		if strings.Contains(text, never) {
			t.Errorf("the page has %q", never)
		}
	}
}

// TestRing: the report of a ring has its figures, its nodes and a plot of what they carried, and nothing of a peer.
func TestRing(t *testing.T) {
	f, err := os.Open("../testdata/ring-step.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := suite.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	text := page(t, Bench(s))
	for _, want := range []string{"<title>railscope bench: all-reduce over 3 nodes</title>", "bus bandwidth", "18.75 GB/s",
		"spark-02:10092", "2 GiB", "Goodput", "1 rail had no part"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(text, "OF LINE") {
		t.Error("it has the comparison of a peer")
	}
}

// TestHostile: names from outside end up as text, in HTML and in SVG.
func TestHostile(t *testing.T) {
	s := measured(t)
	const name = `<script>alert(1)</script>"'&`
	s.Node, s.Peer, s.Verdict, s.Notes = name, name, name, []string{name}
	s.Rows[4].Name, s.Rows[5].PerRail[0].Rail = name, name
	s.Settings[0] = suite.Setting{Name: name, Here: name, There: name}
	text := page(t, Bench(s))
	if strings.Contains(text, "<script>alert") {
		t.Error("a name became an element")
	}
	var b bytes.Buffer
	if err := Bench(s).WritePicture(&b, SVG); err != nil {
		t.Fatal(err)
	}
	names, _ := elements(t, b.String())
	if slices.Contains(names, "script") {
		t.Error("a name became an element of SVG")
	}
	for part := range strings.SplitSeq(text, "<svg") {
		if element, _, ok := strings.Cut(part, "</svg>"); ok {
			elements(t, "<svg"+element+"</svg>")
		}
	}
}

// TestPicture: all plots are below each other, with 2 pixels per point.
func TestPicture(t *testing.T) {
	s := measured(t)
	var b bytes.Buffer
	if err := Bench(s).WritePicture(&b, PNG); err != nil {
		t.Fatal(err)
	}
	cfg, err := png.DecodeConfig(bytes.NewReader(b.Bytes()))
	if err != nil || cfg.Width < 1500 || cfg.Width > 1800 || cfg.Height < 2000 {
		t.Errorf("%d × %d pixels, %v", cfg.Width, cfg.Height, err)
	}
	if err := Bench(s).WritePicture(io.Discard, "gif"); err == nil {
		t.Error("a gif was written")
	}
	if err := Bench(suite.Suite{}).WritePicture(io.Discard, PNG); !errors.Is(err, ErrNoPlot) {
		t.Errorf("a picture of nothing: %v", err)
	}
}

// TestFew: data that was not measured is absent, and the rest of the report works.
func TestFew(t *testing.T) {
	one := suite.Row{Name: "all rails, WRITE", Transport: "rdma", Memory: "host", Rails: []string{"0"}}
	zero := one
	zero.Goodput, zero.Latency = new(0.0), []suite.Latency{{Bytes: 8, Samples: 1000}}
	zero.PerRail = []suite.Part{{Rail: "0", CounterBytes: new(int64(0))}, {Rail: "1", CounterBytes: new(int64(0))}}
	same := one
	same.Goodput, same.Size = new(1e9), 4096
	for name, s := range map[string]suite.Suite{
		"empty": {}, "no figure": {Rows: []suite.Row{one}}, "zero": {Rows: []suite.Row{zero}},
		"one size": {Sweep: []suite.Row{same, same}},
	} {
		if text := page(t, Bench(s)); name != "zero" && strings.Contains(text, "<svg") {
			t.Errorf("%s: a plot of nothing", name)
		}
	}
	many := suite.Suite{}
	for range 5000 {
		many.Rows = append(many.Rows, same)
	}
	if err := Bench(many).WritePicture(io.Discard, PNG); err != nil {
		t.Errorf("5,000 rows: %v", err)
	}
}

// TestAdvice: what to do comes after the findings, once, with its lines as they are pasted.
func TestAdvice(t *testing.T) {
	text := page(t, Bench(saved(t, "steps.json")))
	title, code := strings.Index(text, "<h2>What to do</h2>"), strings.Index(text, "<pre># NCCL\nexport "+
		"NCCL_IB_HCA=&#39;=rocep1s0f0:1,rocep1s0f1:1&#39;\n#")
	if rails := strings.Index(text, "<h2>Rails</h2>"); title < 0 || code < title || rails < code ||
		strings.Count(text, "<h2>What to do</h2>") != 1 || strings.Count(text, "<pre>") != 1 ||
		strings.Contains(text, "<h2></h2>") || !strings.Contains(text, "<li>A KV cache of 4GB takes") {
		t.Errorf("title at %d, lines at %d, rails at %d", title, code, rails)
	}
}

// TestSimulated: the page of the demo says so before anything else.
func TestSimulated(t *testing.T) {
	s := measured(t)
	if strings.Contains(page(t, Bench(s)), "imulated") {
		t.Error("a measured page is marked")
	}
	s.Carrier = "simulated"
	if want := "good\">Simulated by railscope demo: the figures say nothing about RDMA. RDMA to"; !strings.Contains(
		page(t, Bench(s)), want) {
		t.Errorf("no %q", want)
	}
}

// TestGaps: a size, a row and a rail's part that were not measured are named in their plots, and no line leads over
// what was not measured.
func TestGaps(t *testing.T) {
	s := measured(t)
	whole := lines(t, *sweep(s))
	s.Sweep[2].Goodput, s.Sweep[2].Reason = nil, "disturbed"
	s.Rows[5].Goodput, s.Rows[5].Reason = nil, "budget"
	for i := range s.Rows[6].PerRail {
		s.Rows[6].PerRail[i].CounterBytes, s.Rows[6].PerRail[i].Goodput = nil, nil
	}
	s.Rows[7].Latency[0].Samples = 7
	if got := lines(t, *sweep(s)); got != whole+1 {
		t.Errorf("%d lines through the sizes, %d where all are measured", got, whole)
	}
	var b bytes.Buffer
	if err := Bench(s).WritePicture(&b, SVG); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"size of a message; not measured: 1 MiB (disturbed)", "rail 1, WRITE (budget)",
		"all rails, WRITE (not known)", "rail 0, READ, 8 B (P50 of 7)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in the plots", want)
		}
	}
	for i := range s.Sweep[1:] {
		s.Sweep[i+1].Goodput, s.Sweep[i+1].Reason = nil, "budget"
	}
	if got := unit([]string{"a", "b", "c", "d", "e", "f"}); !strings.HasSuffix(got, "not measured: a, b, c, d and 2 more") {
		t.Errorf("%q", got)
	}
	if sweep(s) != nil {
		t.Error("a line through one size")
	}
}

// lines counts the lines of goodput in a plot of sizes.
func lines(t *testing.T, f figure) (n int) {
	t.Helper()
	var b bytes.Buffer
	if err := picture(&b, SVG, []figure{f}); err != nil {
		t.Fatal(err)
	}
	colour := light().rail(0)
	r, g, blue, _ := colour.RGBA()
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, "<path") && strings.Contains(line, "fill:none") &&
			strings.Contains(strings.ToUpper(line), fmt.Sprintf("STROKE:#%02X%02X%02X", r>>8, g>>8, blue>>8)) {
			n++
		}
	}
	return n
}

// TestReportOfRound: the report has what each rail did, and what the figures depend on.
func TestReportOfRound(t *testing.T) {
	s := measured(t)
	s.Rails[1].Solo, s.Rails[1].WhySolo = nil, &suite.Why{Reason: "disturbed"}
	text := page(t, Bench(s))
	for _, want := range []string{"<h2>Rails</h2>", ">rocep1s0f1<", ">STRIPED Gb/s<", "disturbed</td>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestRun(t *testing.T) {
	series := func(gigabits float64) (list []record.Point) {
		for i := range 50 {
			list = append(list, record.Point{At: float64(i) / 10, Transmit: gigabits * 125e6, Receive: 1e6})
		}
		return list
	}
	direction := func(bytes int64) record.Direction {
		return record.Direction{Wire: &bytes, Payload: &bytes, Peak: 1e9}
	}
	r := record.Record{Version: 1, Command: []string{"torchrun", "train.py"}, Start: time.Unix(1e9, 0), Seconds: 5,
		Verdict: "one of 2 rails carried everything", Rails: []record.Rail{
			{Rail: "0", Device: "mlx5_0", Transmit: direction(1 << 30), Receive: direction(1 << 30), Series: series(100)},
			{Rail: "1", Device: "mlx5_1", Transmit: direction(0), Receive: direction(0), Series: series(0)}},
		Environment: map[string]string{"NCCL_DEBUG": "INFO"}, Notes: []string{"no GPU"}}
	text := page(t, Run(r))
	for _, want := range []string{"railscope run: torchrun train.py", "one of 2 rails carried everything", "mlx5_1",
		"Rate of each rail", "Share of each rail", "NCCL_DEBUG", "no GPU", "5.0 s, exit code 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	c := record.NewComparison(r.Command, []record.Run{{Transport: record.RDMA, Seconds: 2},
		{Transport: record.TCP, Seconds: 4}})
	if text := page(t, Compared(c)); !strings.Contains(text, "<td>seconds</td>") {
		t.Errorf("no medians in %s", text)
	}
	c.Runs[1].Figure = new(9.5)
	c.Runs = append(c.Runs, record.Run{Transport: record.TCP, Seconds: 1, ExitCode: 3})
	var b bytes.Buffer
	if err := Compared(c).WritePicture(&b, SVG); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Time of each run", "Figure of each run", "run 1, rdma", "run 1, rdma (none)",
		"run 3, tcp (exit code 3)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in the plots of a comparison", want)
		}
	}
}

// FuzzBench: any JSON file yields a report or an error.
func FuzzBench(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "suite.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":1,"rows":[{"goodput_bytes_per_second":1e308,"latency_seconds":[{"samples":100,"p50":1e-300}]}]}`))
	f.Add([]byte(`{"version":1,"sweep":[{"size":-1,"goodput_bytes_per_second":-1},{"size":9,"goodput_bytes_per_second":1}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		s, err := suite.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		_ = Bench(s).WriteHTML(io.Discard)
		_ = Bench(s).WritePicture(io.Discard, SVG)
	})
}
