package record

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dump returns a line in the format of plugins/profiler/inspector/inspector_json.cc of NCCL (v4.0).
func dump(pid, sn int, coll string, micros float64, at time.Time) string {
	return fmt.Sprintf(`{"header":{"id":"0x7f","rank":0,"n_ranks":2,"nnodes":2},"metadata":{`+
		`"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface",`+
		`"dump_timestamp_us":%d,"hostname":"spark-01","pid":%d},"coll_perf":{"coll":"%s","coll_sn":%d,`+
		`"coll_msg_size_bytes":1048576,"coll_exec_time_us":%g,"coll_algobw_gbs":1,"coll_busbw_gbs":1}}`+"\n",
		at.UnixMicro(), pid, coll, sn, micros)
}

// TestUndumped: collectives with a sequence number but no dump are not extrapolated, and a verdict that they could
// change is not given.
func TestUndumped(t *testing.T) {
	start := time.Now().Add(-time.Minute)
	for _, tc := range []struct {
		name         string
		first        int
		each, of     int // dumped collectives, and sequence numbers in total
		micros       float64
		want         float64 // seconds of 12
		exact        bool
		text, figure string
	}{
		{"all are dumped", 0, 1, 100, 6000, 0.6, true, "below 20 %", "0.600"},
		{"the count starts at 1", 1, 1, 100, 6000, 0.6, true, "below 20 %", "0.600"},
		{"small ones are not dumped", 0, 10, 1000, 6000, 0.6, false, "lower bound", "≥ 0.600"},
		{"the first ones are not dumped", 900, 1, 1000, 6000, 0.6, false, "lower bound", "≥ 0.600"},
		{"a lower bound in the middle band", 0, 10, 1000, 36000, 3.6, false, "lower bound", "≥ 30 %"},
		{"a lower bound that decides", 0, 10, 1000, 60000, 6, false, "above 40 %", "≥ 50 %"},
	} {
		dir := t.TempDir()
		var text strings.Builder
		for sn := tc.first; sn < tc.of+tc.first%2; sn += tc.each {
			text.WriteString(dump(11, sn, "AllReduce", tc.micros, time.Now()))
		}
		if err := os.WriteFile(filepath.Join(dir, "a.log"), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadInspector(dir, start, 12)
		if err != nil || got == nil || math.Abs(got.Seconds-tc.want) > 1e-9 || got.AtLeast == tc.exact ||
			got.Dumped != 100 {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
			continue
		}
		var row []string
		for _, cell := range got.row("a") {
			row = append(row, cell.Text)
		}
		if s := strings.Join(row, " "); !strings.Contains(s, tc.text) || !strings.Contains(s, tc.figure) {
			t.Errorf("%s: %q has no %q and %q", tc.name, s, tc.text, tc.figure)
		}
	}
}

// TestReadInspector reads one file per process. Of two processes, the one that waited longer counts; earlier runs do
// not.
func TestReadInspector(t *testing.T) {
	dir, start := t.TempDir(), time.Now().Add(-time.Minute)
	write := func(name string, lines ...string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	write("spark-01-pid11.log", dump(11, 1, "AllReduce", 9e9, start.Add(-time.Hour)),
		dump(11, 10, "AllReduce", 2000, now),
		dump(11, 10, "AllReduce", 2000, now), dump(11, 19, "AllReduce", 4000, now), dump(11, 5, "Broadcast", 1000, now),
		`{"header":{"id":"0x7f","ra`)
	write("spark-01-pid12.log", dump(12, 10, "AllReduce", 1000, now))
	write("spark-01.prom", "nccl_bus_bandwidth_gbs{} 1\n")
	got, err := ReadInspector(dir, start, 0.155)
	if err != nil || got == nil || math.Abs(got.Seconds-0.007) > 1e-9 || math.Abs(got.Share-0.007/0.155) > 1e-9 ||
		!got.AtLeast ||
		got.Dumped != 3 || got.Of != 11 || got.Processes != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	write("spark-01-pid11b.log", strings.ReplaceAll(dump(11, 1, "AllReduce", 5000, now), "0x7f", "0x80"))
	if got, err := ReadInspector(dir, start, 1); err != nil || math.Abs(got.Seconds-0.007) > 1e-9 || !got.AtLeast {
		t.Errorf("of two communicators, which may overlap: %+v, %v", got, err)
	}
	if got, err := ReadInspector(t.TempDir(), start, 1); got != nil || err != nil {
		t.Errorf("of an empty directory: %+v, %v", got, err)
	}
}

// TestCollectives: a comparison shows the collectives beside the bands.
func TestCollectives(t *testing.T) {
	run := func(transport string, seconds, share float64) Run {
		return Run{Transport: transport, Seconds: seconds, RDMA: 1 << 40,
			Collectives: &Collectives{Seconds: share * seconds, Share: share, Dumped: 10, Of: 10}}
	}
	c := NewComparison([]string{"x"}, []Run{run(RDMA, 10, 0.1), run(TCP, 20, 0.55), run(RDMA, 10, 0.11), run(TCP, 20,
		0.5),
		run(RDMA, 10, 0.12), run(TCP, 20, 0.6)})
	var b strings.Builder
	if err := c.WriteTable(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"median, rdma     1.10         11 %      10  10  below 20 %", "above 40 %",
		"median, tcp      11.0",
		"seconds of collectives   1.10    18 %   11.0    18 %     10.00\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for i := range c.Runs {
		c.Runs[i].Collectives.AtLeast = true // bounds have no ratio
	}
	if rows := c.Summary(); len(rows) != 2 || rows[1][0].Text != "seconds" {
		t.Errorf("of bounds: %v", rows)
	}
}
