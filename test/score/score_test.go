package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata anew")

// output is that of go test -json.
const output = `{"Action":"start","Package":"p"}
{"Action":"run","Test":"TestFaults"}
{"Action":"output","Test":"TestFaults/a_cable","Output":"    --- PASS: TestFaults/a_cable (0.00s)\n"}
{"Action":"pass","Test":"TestFaults/NCCL_IB_DISABLE"}
{"Action":"pass","Test":"TestFaults/a_cable"}
{"Action":"pass","Test":"TestFaults/a_healthy_HGX"}
{"Action":"pass","Test":"TestFaults"}
{"Action":"skip","Test":"TestFaults/a_healthy_bond"}
{"Action":"output","Test":"TestBlame","Output":"    blame_test.go:1: score: leaf: 2 of 3 named, 0 of 0 healthy accused\n"}
{"Action":"output","Test":"TestBlame","Output":"    x.go:1: score: healthy nodes: 0 of 0 named, 1 of 22228 healthy accused, in 1m3s\n"}
{"Action":"pass","Test":"TestBlame/a_detail"}
{"Action":"pass"}
`

// TestRead: what tests log counts, else their subtests; of the matrix by its names, in its order.
func TestRead(t *testing.T) {
	rows, err := source{matrix: true}.read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].place = 0
	}
	want := []row{{what: "leaf", named: 2, planted: 3},
		{what: "healthy nodes", accused: 1, healthy: 22228, took: "1m3s"},
		{what: "a healthy HGX", healthy: 1},
		{what: "a cable", as: "critical port_down, rail 1", named: 1, planted: 1},
		{what: "NCCL_IB_DISABLE", as: "critical nccl_ib_disable, process python3", named: 1, planted: 1}}
	if diff := cmp.Diff(want, rows, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
	for text, healthy := range map[string]bool{
		`{"Action":"fail","Test":"TestX"}`: true, "not JSON": true, "": true,
		`{"Action":"pass","Test":"TestFaults/no_such_row"}`: false,
	} {
		if _, err := (source{healthy: healthy, matrix: !healthy}).read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// labLog is a log of the lab.
const labLog = `=== RUN   TestFindings
=== RUN   TestFindings/a_cable
    findings_test.go:98: found after 12 s: ["critical port_down, rail 1"]
=== RUN   TestFindings/a_healthy_pair
    findings_test.go:98: found after 180 s: []
=== RUN   TestFindings/MTU_1500
    findings_test.go:98: found after 7 s: ["warning mtu_low, rail 1"]
--- PASS: TestFindings (60.00s)
    --- PASS: TestFindings/a_cable (30.00s)
    --- PASS: TestFindings/a_healthy_pair (200.00s)
    --- SKIP: TestFindings/five_flaps (0.00s)
    --- PASS: TestFindings/MTU_1500 (30.00s)
=== RUN   TestEventsAtOnce/bond_failover
    events_test.go:145: bond failover, events true: metrics least 1ms, median 2ms, worst 3ms, 0 of 50 after 100 ms; then
    --- PASS: TestEventsAtOnce/bond_failover (9.00s)
`

// TestLab: the log of a lab replaces the rows of its faults under its kernel.
func TestLab(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("test/score", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"log": labLog, labFile: "6.12\tTestFindings\ta cable\t99 s\n" +
		"6.12\tTestFindings\tone subnet\t3 s\n6.1\tTestFindings\ta cable\t15 s\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := run("log", "6.12"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(labFile)
	if err != nil {
		t.Fatal(err)
	}
	want := "6.1\tTestFindings\ta cable\t15 s\n6.12\tTestEventsAtOnce\tbond failover\tleast 1ms, median 2ms, worst 3ms\n" +
		"6.12\tTestFindings\tMTU 1500\t7 s\n6.12\tTestFindings\ta cable\t12 s\n" +
		"6.12\tTestFindings\ta healthy pair\tnothing\n6.12\tTestFindings\tone subnet\t3 s\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "    --- FAIL: TestFindings/a_cable (30.00s)\n" + labLog} {
		if _, err := readLab(bad, "6.12"); err == nil {
			t.Errorf("%.40q is taken over", bad)
		}
	}
}

// TestRender compares the page of some results with testdata.
func TestRender(t *testing.T) {
	rows, err := source{matrix: true}.read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	lab, err := readLab(labLog, "6.12")
	if err != nil {
		t.Fatal(err)
	}
	got := render([]section{
		{source{title: "Matrix", about: "What it is.", matrix: true, each: true}, rows[2:]},
		{source{title: "`fleet blame`", about: "Generated."}, rows[:1]},
		{source{title: "Timed", about: "Virtual.", each: true}, rows[:2]},
		{source{title: "Days", about: "Nothing planted.", healthy: true}, []row{{what: "one", healthy: 1}, {what: "two", healthy: 1}}},
	}, append(lab, labRow{"7.3", "TestFindings", "a cable", "9 s"}))
	path := filepath.Join("testdata", "page.md")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test ./test/score -update): %s", path, diff)
	}
}
