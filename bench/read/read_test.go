package read

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// all reads the files of testdata. They follow the printing code of the tools that the parsers refer to.
func all(t *testing.T) (results []Result, errs []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.DeleteFunc(files, func(p string) bool { return strings.Contains(p, ".golden") }) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		found, err := File(filepath.Base(path), f)
		results = append(results, found...)
		if err != nil {
			errs = append(errs, err.Error())
		}
		_ = f.Close() // the file was only read
	}
	return results, errs
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
		t.Errorf("%s (go test ./bench/read -update): %s", path, diff)
	}
}

// TestFiles compares every row of every tool, in base units, and the errors of files that are cut or unknown.
func TestFiles(t *testing.T) {
	results, errs := all(t)
	beside := Beside{Rails: []Rail{{"rocep1s0f0", 25e9}, {"mlx5_0", 40e9}}, LastRound: 24e9}
	Mark(results, 0, beside.Rails)
	var table, object bytes.Buffer
	if err := WriteTable(&table, results, beside, 140, false); err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(&object, results); err != nil {
		t.Fatal(err)
	}
	golden(t, "all.golden.table", table.Bytes())
	golden(t, "all.golden.json", object.Bytes())
	golden(t, "all.golden.errors", []byte(strings.Join(errs, "\n")+"\n"))
	for line := range strings.Lines(table.String()) {
		if n := utf8.RuneCountInString(line); n > 141 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// TestUnits checks figures whose units tutorials often misread.
func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		text string
		want float64 // Gb/s
	}{
		{" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n" +
			" 65536 5000 11682.40 11678.83 0.186861\n", 97.97},
		{" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n" +
			" 65536 5000 98.00 97.97 0.186861\n", 97.97},
		{" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n" +
			" 65536 5000 21300.00 21234.00 0.186861\n", 178.1},
	} {
		got, err := File("f", strings.NewReader(tc.text))
		if err != nil || len(got) != 1 || got[0].Rate == nil {
			t.Fatal(got, err)
		}
		if g := *got[0].Rate * 8 / 1e9; g < tc.want-0.05 || g > tc.want+0.05 {
			t.Errorf("%q: %.2f Gb/s, want %v", tc.text, g, tc.want)
		}
	}
}

// TestMark: impossible figures are marked and kept.
func TestMark(t *testing.T) {
	row := func(bytes int64, rate, seconds float64) Result {
		r := Result{Rail: "mlx5_0", Bytes: &bytes}
		if rate > 0 {
			r.Rate = &rate
		}
		if seconds > 0 {
			r.Latency = &Latency{Avg: &seconds}
		}
		return r
	}
	for _, tc := range []struct {
		name     string
		r        Result
		lineRate float64
		marks    int
	}{
		{"possible", row(64<<20, 12e9, 5.6e-3), 12.5e9, 0},
		{"above the line rate", row(65536, 13e9, 0), 12.5e9, 1},
		{"above the rail's", row(65536, 51e9, 0), 0, 1},
		{"too fast to arrive", row(64<<20, 0, 3.12e-6), 12.5e9, 1},
		{"not the rate of the row", row(64<<20, 22e9, 3.12e-6), 0, 1},
		{"small messages wait for more than the wire", row(8, 1e6, 2e-6), 12.5e9, 0},
		{"no limit is known", Result{Rail: "other", Rate: new(1e12)}, 0, 0},
	} {
		list := []Result{tc.r}
		Mark(list, tc.lineRate, []Rail{{"mlx5_0", 50e9}})
		if len(list[0].Marks) != tc.marks {
			t.Errorf("%s: %q", tc.name, list[0].Marks)
		}
	}
}

// TestStream: rows of nixlbench arrive as they are printed.
func TestStream(t *testing.T) {
	text, err := os.ReadFile("testdata/nixlbench.txt")
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	if err := Nixlbench("nixlbench", bytes.NewReader(text), func(r Result) { sizes = append(sizes, *r.Bytes) }); err != nil ||
		!slices.Equal(sizes, []int64{32 << 20, 64 << 20}) {
		t.Errorf("%v, %v", sizes, err)
	}
}

// FuzzFile: any file can be read, and its results written.
func FuzzFile(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.[tjlp]*")
	for _, path := range files {
		if text, err := os.ReadFile(path); err == nil && len(text) < 1<<16 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		results, err := File("f", bytes.NewReader(text))
		if len(results) == 0 && err == nil {
			t.Error("neither a result nor a reason")
		}
		Mark(results, 1e9, []Rail{{"mlx5_0", 1e9}})
		var table, object bytes.Buffer
		if err := WriteTable(&table, results, Beside{}, 0, false); err != nil {
			t.Fatal(err)
		}
		if err := WriteJSON(&object, results); err != nil || !json.Valid(object.Bytes()) {
			t.Fatal(err)
		}
		if strings.ContainsAny(table.String(), "\x1b\x00") {
			t.Errorf("%q", table.String())
		}
	})
}

// TestForms reads formats of other versions.
func TestForms(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string // test and rail of each row
	}{
		{"NCCL until 2.27", "h:1:1 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 0 / HCA 1 (distance 9 > 5)\n",
			[]string{"GPUDirect RDMA disabled, GPU 0 / HCA 1 (distance 9 > 5) "}},
		{"merged NICs", "NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [RO]; OOB eth0:10.0.0.1<0>\n",
			[]string{"network IB mlx5_0:1/RoCE mlx5_0", "network IB mlx5_1:1/RoCE mlx5_1"}},
		{"CollNet", "NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA\n",
			[]string{"channels via COLLNET/SHARP/0/GDRDMA "}},
		{"-nan", " #bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n 65536 0 0.00 -nan -nan\n",
			[]string{"bandwidth "}},
		{"two scrapes", strings.Repeat("nccl_bus_bandwidth_gbs{collective=\"A\"} 21.5\n"+
			"nccl_collective_exec_time_microseconds{collective=\"A\"} 97.4\n", 2), []string{"A ", "A "}},
	} {
		got, err := File("f", strings.NewReader(tc.text))
		var rows []string
		for _, r := range got {
			rows = append(rows, r.Test+" "+r.Rail)
		}
		if err != nil || !slices.Equal(rows, tc.want) {
			t.Errorf("%s: %q, %v", tc.name, rows, err)
		}
	}
}

// TestLogs: text that launchers, containers and NCCL put between and before a tool's lines is not part of its output.
func TestLogs(t *testing.T) {
	const head = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n" +
		"#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n" +
		"#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
	const average = "# Avg bus bandwidth    : 40.5\n"
	for name, tc := range map[string]struct {
		text string
		want []string // test, size and rate of each row
		errs string
	}{
		"NCCL logs into a row": {head + "     1048576        262144     float     sum      -1node01:1234:1250 [0] NCCL INFO " +
			"Channel 00/0 : 0[0] -> 1[0] via P2P\nnode01:1234:1251 [0] NCCL INFO Connected all rings\n" +
			"    29.41   35.65   66.85      0    28.10   37.31   69.96      0\n" + average, []string{"float sum 1048576 3.565e+10"}, ""},
		"and the rest is missing": {head + "     1048576        262144     float     sum      -1node01:1:2 [0] NCCL INFO x\n" +
			average, nil, "f:4: nccl-tests: the row is cut: NCCL has logged into it"},
		"udp of iperf 3.1": {"Connecting to host b, port 5201\n[  4] local 10.0.0.1 port 5 connected to 10.0.0.2 port 5201\n" +
			"[ ID] Interval           Transfer     Bandwidth       Total Datagrams\n" +
			"[  4]   0.00-1.00   sec   116 KBytes   950 Kbits/sec  15\n- - - - - - - - - - - - - - - - - - - - - - - - -\n" +
			"[ ID] Interval           Transfer     Bandwidth       Jitter    Lost/Total Datagrams\n" +
			"[  4]   0.00-1.00   sec   116 KBytes   960 Kbits/sec  0.018 ms  0/15 (0%)\n[  4] Sent 15 datagrams\n\niperf Done.\n",
			[]string{"UDP - 1.2e+05"}, ""},
		"kubectl's times and srun's ranks": {"2026-07-01T10:00:00.123456789Z  0: {\n2026-07-01T10:00:00.2Z  0:  \"start\": " +
			"{\"test_start\": {\"protocol\": \"TCP\", \"num_streams\": 2, \"blksize\": 131072}},\n2026-07-01T10:00:01Z 0:  \"end\": " +
			"{\"sum_received\": {\"bits_per_second\": 8e9}}\n[2026-07-01 10:00:02] }\n", []string{"TCP, 2 streams 131072 1e+09"}, ""},
		"a cut document, then another tool": {"{\n  \"start\": {\"test_start\": {\"protocol\": \"TCP\n" + head +
			"     1048576        262144     float     sum      -1    29.41   35.65   66.85      0    28.10   37.31   69.96      0\n" +
			average, []string{"float sum 1048576 3.565e+10"}, "f:2: invalid JSON, or it was cut"},
		"two streams, the first cut": {`{"event":"start","data":{"test_start":{"protocol":"TCP","num_streams":1}}}` + "\n" +
			`{"event":"start","data":{"test_start":{"protocol":"TCP","num_streams":1}}}` + "\n" +
			`{"event":"end","data":{"sum_received":{"bits_per_second":8e9}}}` + "\n", []string{"TCP - 1e+09"}, "f:1: iperf3: the output is cut"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := File("f", strings.NewReader(tc.text))
			var got []string
			for _, r := range rows {
				size := "-"
				if r.Bytes != nil {
					size = strconv.FormatInt(*r.Bytes, 10)
				}
				got = append(got, fmt.Sprintf("%s %s %.4g", r.Test, size, *r.Rate))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if (err == nil) != (tc.errs == "") || err != nil && !strings.HasPrefix(err.Error(), tc.errs) {
				t.Errorf("%v, want %q", err, tc.errs)
			}
		})
	}
}

// TestOrder: times that contradict each other are marked.
func TestOrder(t *testing.T) {
	results := []Result{{Latency: &Latency{Avg: new(3e-6), Min: new(5e-6), P50: new(5e-6), P99: new(4e-6)}},
		{Latency: &Latency{Avg: new(3e-6), Min: new(3e-6), P50: new(3e-6), P99: new(3e-6), Max: new(3e-6)}}}
	Mark(results, 0, nil)
	want := []string{"min of 5.00 µs is above avg of 3.00 µs", "P50 of 5.00 µs is above P99 of 4.00 µs"}
	if diff := cmp.Diff(want, results[0].Marks); diff != "" || len(results[1].Marks) > 0 {
		t.Errorf("%s; %q", diff, results[1].Marks)
	}
}
