package nixl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// standIn returns a program that replaces nixlbench and runs a script.
func standIn(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nixlbench")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return path
}

func settings(program string) Settings {
	return Settings{Program: program, Peer: "spark-02", Address: "192.0.2.1", Port: 12345, Op: "WRITE", From: 65536,
		To: 64 << 20, Batch: 1, Iterations: 1000, Timeout: 20 * time.Second, Group: "railscope"}
}

func TestArgs(t *testing.T) {
	s := settings("nixlbench")
	const sizes = " --op_type=WRITE --start_block_size=65536 --max_block_size=67108864 --start_batch_size=1 " +
		"--max_batch_size=1 --num_iter=1000"
	for _, tc := range []struct {
		etcd string
		c    Combination
		want string
	}{
		{"", Combination{"UCX", "DRAM", nil, 1}, "--runtime_type=ASIO --asio_address=192.0.2.1 --asio_port=12345 " +
			"--backend=UCX --initiator_seg_type=DRAM --target_seg_type=DRAM" + sizes + " --num_threads=1"},
		{"http://e:2379", Combination{"LIBFABRIC", "VRAM", []string{"mlx5_0"}, 8}, "--runtime_type=ETCD " +
			"--etcd_endpoints=http://e:2379 --benchmark_group=railscope --backend=LIBFABRIC --initiator_seg_type=VRAM " +
			"--target_seg_type=VRAM" + sizes + " --num_threads=8 --enable_pt --progress_threads=8 --device_list=mlx5_0"},
	} {
		s.Etcd = tc.etcd
		if diff := cmp.Diff(tc.want, strings.Join(s.Args(tc.c), " ")); diff != "" {
			t.Error(diff)
		}
	}
	if a, b, c := s.Ran(65536, 1), s.Ran(64<<20, 1), s.Ran(65536, 8); a != 1008 || b != 63 || c != 1024 {
		t.Errorf("iterations %d, %d, %d", a, b, c)
	}
}

// TestRun checks results, causes of failures, and retries while the target is missing.
func TestRun(t *testing.T) {
	const table = `cat <<'T'
Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  Avg Tx (us)    P99 Tx (us)
----------
65536               1              9.10           7.2            6.9            9.9
67108864            1              13.17          5095.5         5090.2         5301.9
T
`
	for _, tc := range []struct {
		name, script string
		env          map[string]string
		results      int
		failure      string
		causes       []string // parts of the causes
	}{
		{"it runs", table, nil, 2, "", nil},
		{"the target comes late", `f=$(dirname $0)/again; [ -f $f ] || { touch $f; echo "ASIO Connection timeout: x"; exit 1; }
` + table, nil, 2, "", nil},
		{"the etcd client", `echo "target uri is not valid" >&2; exit 1`, nil, 0, "exit status 1",
			[]string{"the etcd client refuses its endpoint"}},
		{"etcd is down", `echo "Failed to connect to ETCD: x" >&2; exit 1`, nil, 0, "exit status 1",
			[]string{"etcd does not answer"}},
		{"stale keys", `echo "Rank 2 is greater than or equal to global size 2"; exit 1`, nil, 0, "exit status 1",
			[]string{"etcdctl --endpoints= del xferbench/railscope/ --prefix"}},
		{"an old one", `echo "ERROR: unknown command line flag 'asio_port'" >&2; exit 1`, nil, 0, "exit status 1",
			[]string{"older than its flags"}},
		{"no plugin", `echo "E0421 11:56:59.77  709103 nixl_agent.cpp:322] createBackend: unsupported backend 'UCX'"; exit 1`, nil, 0, "exit status 1", []string{"libplugin_UCX.so"}},
		{"CUDA IPC", `echo "cuda_ipc_md.c: cuIpcGetMemHandle failed"; exit 1`, nil, 0, "exit status 1",
			[]string{"CUDA IPC failed"}},
		{"sockets", `echo oops; exit 1`, map[string]string{"UCX_TLS": "tcp,cuda_copy", "UCX_NET_DEVICES": "lo"}, 0,
			"exit status 1", []string{"UCX_TLS=tcp,cuda_copy leaves UCX no RDMA", "UCX_NET_DEVICES names lo"}},
		{"nothing known", `echo first; echo "it broke"; exit 3`, nil, 0, "exit status 3", []string{"its last line: it broke"}},
		{"no results", `true`, nil, 0, "it printed no results", []string{"its last line: "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var said []string
			r := Runner{Settings: settings(standIn(t, tc.script)), Environment: tc.env,
				Line: func(text string) { said = append(said, text) }}
			row := r.Run(t.Context(), Combination{"UCX", "DRAM", nil, 1})
			if len(row.Results) != tc.results || row.Failure != tc.failure || len(row.Causes) != len(tc.causes) {
				t.Fatalf("%d results, %q, %q", len(row.Results), row.Failure, row.Causes)
			}
			for i, want := range tc.causes {
				if !strings.Contains(row.Causes[i], want) {
					t.Errorf("%q, want %q", row.Causes[i], want)
				}
			}
			if !strings.Contains(said[0], "start the target on spark-02 now") ||
				!strings.Contains(said[0], "nixlbench --runtime_type=ASIO") {
				t.Errorf("it said %q", said)
			}
		})
	}
}

// TestRunTime: a run that hangs is stopped at its timeout.
func TestRunTime(t *testing.T) {
	s := settings(standIn(t, "exec sleep 60"))
	s.Timeout = 100 * time.Millisecond
	r := Runner{Settings: s, Line: func(string) {}}
	if row := r.Run(t.Context(), Combination{"UCX", "DRAM", nil, 1}); !strings.Contains(row.Failure, "did not end within 100ms") {
		t.Errorf("%+v", row)
	}
}

// TestEtcd covers a healthy etcd, an unhealthy one, one with and without keys, and another server. test/etcd uses a
// real etcd.
func TestEtcd(t *testing.T) {
	serve := func(health string, count string) string {
		mux := http.NewServeMux()
		mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"health":%q,"reason":"no leader"}`, health)
		})
		mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"etcdserver":"3.6.1","etcdcluster":"3.6.0"}`)
		})
		mux.HandleFunc("/v3/kv/range", func(w http.ResponseWriter, req *http.Request) {
			var ask struct {
				Key []byte `json:"key"`
				End []byte `json:"range_end"`
			}
			if err := json.NewDecoder(req.Body).Decode(&ask); err != nil || string(ask.Key) != "xferbench/railscope/" ||
				string(ask.End) != "xferbench/railscope0" {
				t.Errorf("asked for %q to %q, %v", ask.Key, ask.End, err)
			}
			fmt.Fprintf(w, `{"header":{}%s}`, count)
		})
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		return server.URL
	}
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	for _, tc := range []struct {
		url, fails string
		stale      int64
	}{
		{serve("true", ""), "", 0}, {serve("true", `,"count":"3"`), "", 3}, {serve("false", ""), "not healthy: no leader", 0},
		{other.URL, "is no etcd", 0}, {"http://127.0.0.1:1", "does not answer", 0}, {"spark-02:2379", "alone", 0},
		{"http://user:secret@e:2379", "alone", 0},
	} {
		s := settings("")
		s.Etcd = tc.url
		e, err := CheckEtcd(t.Context(), s)
		if e.Stale != tc.stale || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("%s: %+v, %v", tc.url, e, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Error("a password is shown")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := settings("")
	s.Etcd = other.URL
	if _, err := CheckEtcd(ctx, s); err == nil {
		t.Error("a canceled question")
	}
}

// TestTable: a row for each size, and one with the reason for each failure.
func TestTable(t *testing.T) {
	r := Runner{Settings: settings(standIn(t, `echo "Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)"
echo "65536 1 9.10 7.2"`)), Line: func(string) {}}
	rows := []Row{r.Run(t.Context(), Combination{"UCX", "DRAM", []string{"mlx5_0"}, 2}),
		{Combination: Combination{"LIBFABRIC", "VRAM", nil, 1}, Failure: "exit status 1", Causes: []string{"etcd is down"}}}
	rows[0].Rails = map[string]int64{"0": 5 << 30}
	var table, object strings.Builder
	if err := WriteTable(&table, r.Settings, rows, false); err != nil {
		t.Fatal(err)
	}
	const want = `BACKEND    MEMORY  RAILS   THREADS   BLOCK    Gb/s  MEAN µs  P99 µs  ITERATIONS
UCX        DRAM    mlx5_0        2  64 KiB   72.80     7.20       -        1024
LIBFABRIC  VRAM    all           1       -  failed        -       -           -

  - UCX, DRAM, mlx5_0, 2 threads: rail 0 5120.0 MiB; TCP 0.0 MiB
  - LIBFABRIC, VRAM, all rails, 1 thread failed: exit status 1
  - etcd is down
`
	if diff := cmp.Diff(want, table.String()); diff != "" {
		t.Error(diff)
	}
	var list []map[string]any
	if err := WriteJSON(&object, rows); err != nil || json.Unmarshal([]byte(object.String()), &list) != nil ||
		len(list) != 2 {
		t.Errorf("%v: %s", err, object.String())
	}
	if keys := slices.Sorted(func(yield func(string) bool) {
		for k := range list[0] {
			if !yield(k) {
				return
			}
		}
	}); len(keys) != 9 {
		t.Errorf("%q", keys)
	}
}

// TestOutput: of a long output the beginning with the settings and the end with the last error are kept.
func TestOutput(t *testing.T) {
	b := &bounded{}
	for _, text := range []string{"first\n", strings.Repeat("x", maxOutput/2), strings.Repeat("y\n", maxOutput), "last\n"} {
		if n, err := b.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	got := b.String()
	if !strings.HasPrefix(got, "first\nxxx") || !strings.HasSuffix(got, "y\nlast\n") || len(got) > 2*maxOutput {
		t.Errorf("%d bytes: %.20q … %q", len(got), got, got[len(got)-20:])
	}
	short := &bounded{}
	_, _ = short.Write([]byte("all\n"))
	if short.String() != "all\n" {
		t.Errorf("%q", short.String())
	}
}

// TestCausesOnce: a cause of several runs is written once, with how many these are, and rails are in their order.
func TestCausesOnce(t *testing.T) {
	rows := []Row{{Causes: []string{"etcd is down", "no GPU"}}, {Causes: []string{"etcd is down"}},
		{Rails: map[string]int64{"10": 1 << 20, "2": 1 << 21}}}
	var table strings.Builder
	if err := WriteTable(&table, Settings{}, rows, false); err != nil {
		t.Fatal(err)
	}
	got := table.String()
	if strings.Count(got, "etcd is down") != 1 || !strings.Contains(got, "2 of 3 runs: etcd is down\n  - no GPU\n") ||
		!strings.Contains(got, "rail 2 2.0 MiB, rail 10 1.0 MiB") {
		t.Error(got)
	}
}
