package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/kubelet"
)

// listen serves the pod-resources socket of a machine: gRPC at the level of HTTP/2, one pod's container and its devices
// per line.
func (m *processMachine) listen(t *testing.T, lines ...string) {
	t.Helper()
	path := filepath.Join(m.dir, kubelet.Socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	field := func(n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	var answer []byte
	for _, line := range lines {
		f := strings.Fields(line) // namespace, pod, container, devices
		devices := field(1, []byte("nvidia.com/gpu"))
		for _, id := range f[3:] {
			devices = append(devices, field(2, []byte(id))...)
		}
		container := append(field(1, []byte(f[2])), field(2, devices)...)
		answer = append(answer,
			field(1, slices.Concat(field(1, []byte(f[1])), field(2, []byte(f[0])), field(3, container)))...)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(answer))), answer...))
		w.Header().Set("Grpc-Status", "0")
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
}

// pods are the label values of pod and container that a source gives GPU memory.
func pods(p *Source) []string {
	var list []string
	_ = p.Read(func(s collector.Sample) {
		if s.Metric.Name == "process_gpu_memory_bytes" {
			list = append(list, fmt.Sprintf("%s %s %s", s.Labels[0], s.Labels[1], s.Labels[2]))
		}
	})
	slices.Sort(list)
	return list
}

// TestProcessPodResources: where the kubelet's logs cannot be seen, its socket names the pods that have a GPU of their
// own, and no others: not those that share one, nor one that holds a GPU that was given to another.
func TestProcessPodResources(t *testing.T) {
	uid := func(n int) string { return fmt.Sprintf("%08d-0000-1111-2222-333344445555", n) }
	id := func(n int) string { return strings.Repeat(fmt.Sprintf("%08d", n), 8) }
	var tasks strings.Builder
	for n := range 6 {
		fmt.Fprintf(&tasks, "%d %d 1 1 0 5 /kubepods/pod%s/%s p%d\n", 10+n, 10+n, uid(n), id(n), n)
	}
	m := newProcessMachine(t, []byte(`
-- proc/self/ns/pid --
-> pid:[4026531836]
-- tasks --
`+tasks.String()+`-- gpus --
0 GPU-0 10 1 c
1 GPU-1 10 1 c
2 GPU-2 11 1 c
3 GPU-3 12 1 c 1/0
3 GPU-3 13 1 c 2/0
4 GPU-4 14 1 c
4 GPU-4 15 1 c
5 GPU-5 15 1 c
`))
	m.listen(t,
		"train a-0 main GPU-0 GPU-1",
		"shared b-0 main GPU-2::0", "shared b-1 main GPU-2::1",
		"mig c-0 one MIG-1/0", "mig c-1 two MIG-2/0",
		"train d-0 main GPU-4", "train e-0 main GPU-5")
	want := []string{
		"0 train/a-0 main", "1 train/a-0 main",
		"2 " + uid(1) + " " + id(1)[:12],
		"3 mig/c-0 one", "3 mig/c-1 two",
		"4 " + uid(4) + " " + id(4)[:12], "4 train/e-0 main", "5 train/e-0 main",
	}
	same(t, want, pods(m.source(0)))

	// The logs are exact, so they are believed first.
	for path := range map[string]bool{"var/log/containers/z-9_logs_named-" + id(0) + ".log": true,
		"var/log/pods/logs_y-8_" + uid(1) + "/x": true} {
		path = filepath.Join(m.dir, path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want[0], want[1], want[2] = "0 logs/z-9 named", "1 logs/z-9 named", "2 logs/y-8 "+id(1)[:12]
	same(t, want, pods(m.source(0)))
}

// TestProcessKubeletSlow: a kubelet that does not answer delays neither a read nor the names from its logs, and is not
// called again meanwhile.
func TestProcessKubeletSlow(t *testing.T) {
	m := capture(t, "kubernetes")
	path := filepath.Join(m.dir, kubelet.Socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // ends the call
	p := m.source(0)
	for range 3 {
		start := time.Now()
		got := processLines(p)
		if took := time.Since(start); took > 3*time.Second { // 250 ms are waited for the kubelet
			t.Errorf("a read took %v", took)
		}
		if !slices.Contains(got,
			`process_gpu_memory_bytes{gpu="2",pod="serving/vllm-7d9f",container="deadbeefdead",comm="vllm"} 9e+10`) {
			t.Errorf("%q", got)
		}
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l.(*net.UnixListener).SetDeadline(time.Now().Add(10 * time.Millisecond))
	if second, err := l.Accept(); err == nil {
		second.Close()
		t.Error("it was called twice at once")
	}
}

// TestProcessKubeletFails: without the kubelet names are missing, and a fault is reported.
func TestProcessKubeletFails(t *testing.T) {
	m := capture(t, "kubernetes")
	path := filepath.Join(m.dir, kubelet.Socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	got := processLines(m.source(0))
	fault := slices.IndexFunc(got, func(line string) bool {
		return strings.HasPrefix(line, "fault io false: kubelet: pod-resources List: ")
	})
	if fault < 0 || !slices.Contains(got,
		`process_gpu_memory_bytes{gpu="0",pod="default/train-0",container="trainer",comm="python3"} 1e+10`) {
		t.Errorf("%q", got)
	}
}

// TestProcessKubeletStill: the fault of the last call is reported until the kubelet has answered.
func TestProcessKubeletStill(t *testing.T) {
	m := capture(t, "kubernetes")
	path := filepath.Join(m.dir, kubelet.Socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path) // and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := m.source(0)
	p.names.answer.Store(&podsKnown{socket: unexpected("kubelet", errors.New("it did not answer"))})
	if got := processLines(p); !slices.Contains(got, "fault io false: kubelet: it did not answer") {
		t.Errorf("%q", got)
	}
}

// TestProcessKubeletNotNeeded: if the kubelet's logs name every container, its socket is not called, which only root
// may.
func TestProcessKubeletNotNeeded(t *testing.T) {
	m := capture(t, "kubernetes")
	path := filepath.Join(m.dir, kubelet.Socket)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0)); err != nil {
		t.Fatal(err)
	}
	p := m.source(0)
	broken := func() bool {
		return slices.ContainsFunc(processLines(p), func(line string) bool { return strings.HasPrefix(line, "fault") })
	}
	if !broken() {
		t.Error("no fault while a container has no name")
	}
	pairs, gpus := m.kernel.qps, m.nvml.gpus
	m.kernel.qps, m.nvml.gpus = nil, nil
	if broken() {
		t.Error("a fault of names that are not needed any more")
	}
	m.kernel.qps, m.nvml.gpus = pairs, gpus
	for _, log := range []string{"vllm-7d9f_serving_server-" + strings.Repeat("deadbeef", 8),
		"cuda-0_batch_main-" + strings.Repeat("0123456789abcdef", 4)} {
		if err := os.WriteFile(filepath.Join(m.dir, "var/log/containers", log+".log"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.names.answer.Store(&podsKnown{}) // as if the last read were long ago
	if broken() {
		t.Error("a fault of names that are not needed")
	}
	if got := pods(p); !slices.Contains(got, "2 serving/vllm-7d9f server") {
		t.Errorf("%q", got)
	}
}

// TestProcessLimit: the greatest series are named, the rest is other, and what lies at the limit does not come and go.
func TestProcessLimit(t *testing.T) {
	row := &collector.Metric{Name: "r", Labels: []string{"a", "b"}}
	k := newSeriesKeeper(row)
	flush := func(limit int, values map[string]float64) []string {
		for name, v := range values {
			k.add(v/2, name, "x")
			k.add(v/2, name, "x")
		}
		k.add(math.NaN(), "unknown", "x")
		var got []string
		k.flush(limit, func(s collector.Sample) { got = append(got, fmt.Sprintf("%v%v", s.Labels, s.Value)) })
		return got
	}
	same(t, []string{"[c x]5", "[d x]9", "[other other]3"},
		flush(3, map[string]float64{"a": 1, "b": 2, "c": 5, "d": 9}))
	same(t, []string{"[c x]5", "[d x]9", "[other other]9"},
		flush(3, map[string]float64{"a": 1, "b": 8, "c": 5, "d": 9}))
	same(t, []string{"[b x]11", "[d x]9", "[other other]6"},
		flush(3, map[string]float64{"a": 1, "b": 11, "c": 5, "d": 9}))
	same(t, []string{"[a x]1", "[b x]1", "[c x]1"}, flush(3, map[string]float64{"a": 1, "b": 1, "c": 1}))
	same(t, []string{"[a x]1", "[other other]3"}, flush(2, map[string]float64{"a": 1, "b": 1, "c": 1, "d": 1}))
	same(t, []string{"[other other]2"}, flush(1, map[string]float64{"a": 1, "b": 1}))
	same(t, nil, flush(1, nil))
	// What a dump has summed already is part of the one series other.
	summed := func(limit int, values map[string]float64) []string {
		k.add(100, k.overflow...)
		return flush(limit, values)
	}
	same(t, []string{"[c x]5", "[d x]9", "[other other]103"},
		summed(3, map[string]float64{"a": 1, "b": 2, "c": 5, "d": 9}))
	same(t, []string{"[c x]5", "[d x]9", "[other other]100"}, summed(3, map[string]float64{"c": 5, "d": 9}))
	same(t, []string{"[d x]9", "[other other]105"}, summed(2, map[string]float64{"c": 5, "d": 9}))
	same(t, []string{"[other other]100"}, summed(2, nil))
}
