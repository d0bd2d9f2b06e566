package trafficclass

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rdmanl"
)

// kernel has a number of queue pairs for each process, on one device.
type kernel struct {
	pairs map[uint32]int
	err   error
}

func (k *kernel) Devices() ([]string, error) { return []string{"mlx5_0"}, k.err }
func (k *kernel) Close()                     {}

func (k *kernel) QueuePairs(_ string, _ rdmanl.QPLimits, each func(rdmanl.QP)) error {
	for pid, n := range k.pairs {
		for range n {
			each(rdmanl.QP{PID: pid})
		}
	}
	each(rdmanl.QP{Kernel: true})
	return nil
}

const (
	ucx  = "7f1c2a400000-7f1c2a500000 r-xp 00000000 08:01 1835 /opt/hpcx/ucx/lib/ucx/libuct_ib.so.0\n"
	nccl = "7f1c2b400000-7f1c2b500000 r-xp 00000000 08:01 1836 /usr/lib/x86_64-linux-gnu/libnccl.so.2\n"
)

// process writes the files of a process that are read: environ, maps, stat and status in the format of proc(5).
func process(t *testing.T, procfs string, pid int, environ, maps string) {
	t.Helper()
	dir := filepath.Join(procfs, fmt.Sprint(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"environ": strings.ReplaceAll(environ, " ", "\x00") + "\x00", "maps": maps,
		"stat": fmt.Sprintf("%d (python) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 1000 10 18446744073709551615 "+
			"1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", pid),
		"status": fmt.Sprintf("Name:\tpython\nTgid:\t%d\nPid:\t%d\n", pid, pid),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestChoose(t *testing.T) {
	type proc struct {
		pairs         int
		environ, maps string
	}
	for _, c := range []struct {
		name   string
		procs  []proc
		tc, sl uint8
		source string
	}{
		{"nobody", nil, 0, 0, "default: no process has queue pairs"},
		{"NCCL without variables", []proc{{8, "HOME=/", nccl}}, 0, 0, "default of python (PID 100)"},
		{"NCCL_IB_TC", []proc{{8, "NCCL_IB_TC=106 NCCL_IB_SL=3", nccl}}, 106, 3, "NCCL_IB_TC of python (PID 100)"},
		{"hexadecimal", []proc{{8, "NCCL_IB_TC=0x68", nccl}}, 104, 0, "NCCL_IB_TC of python (PID 100)"},
		{"only a service level", []proc{{8, "NCCL_IB_SL=3", nccl}}, 0, 3, "NCCL_IB_SL of python (PID 100)"},
		{"out of range", []proc{{8, "NCCL_IB_TC=300", nccl}}, 0, 0, "default of python (PID 100)"},
		{"UCX without variables", []proc{{8, "HOME=/", ucx}}, 106, 0, "UCX's default of python (PID 100)"},
		{"UCX, auto", []proc{{8, "UCX_IB_TRAFFIC_CLASS=auto", ucx}}, 106, 0, "UCX's default of python (PID 100)"},
		{"UCX_IB_TRAFFIC_CLASS", []proc{{8, "UCX_IB_TRAFFIC_CLASS=96", ucx}}, 96, 0,
			"UCX_IB_TRAFFIC_CLASS of python (PID 100)"},
		{"UCX_IB_SL", []proc{{8, "UCX_IB_SL=5", ucx}}, 106, 5, "UCX_IB_SL of python (PID 100)"},
		{"both libraries", []proc{{8, "HOME=/", ucx + nccl}}, 0, 0, "default of python (PID 100)"},
		{"most queue pairs", []proc{{8, "NCCL_IB_TC=96", nccl}, {200, "NCCL_IB_TC=104", nccl}}, 104, 0,
			"NCCL_IB_TC of python (PID 101)"},
		{"most queue pairs together", []proc{{30, "NCCL_IB_TC=96", nccl}, {20, "NCCL_IB_TC=104", nccl},
			{20, "NCCL_IB_TC=104", nccl}}, 104, 0, "NCCL_IB_TC of python (PID 101)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			procfs, k := t.TempDir(), &kernel{pairs: map[uint32]int{}}
			for i, p := range c.procs {
				process(t, procfs, 100+i, p.environ, p.maps)
				k.pairs[uint32(100+i)] = p.pairs
			}
			want := Choice{c.tc, c.sl, c.source}
			if got := New(procfs, k).Choose(t.Context()); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// TestOwnWorker: the probe ignores its own worker.
func TestOwnWorker(t *testing.T) {
	procfs := t.TempDir()
	process(t, procfs, 100, "NCCL_IB_TC=96", nccl)
	stat := filepath.Join(procfs, "100", "stat")
	text, err := os.ReadFile(stat)
	if err == nil {
		err = os.WriteFile(stat, []byte(strings.Replace(string(text), "python", "railscope-probe", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := Choice{Source: "default: no process has queue pairs"}
	if got := New(procfs, &kernel{pairs: map[uint32]int{100: 8}}).Choose(t.Context()); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestOtherNamespace: in a container, the kernel does not report the owners of queue pairs.
func TestOtherNamespace(t *testing.T) {
	want := Choice{Source: "default: processes cannot be read: 8 queue pairs belong to processes of another PID " +
		"namespace, or that ended"}
	k := &kernel{pairs: map[uint32]int{0: 8}}
	if got := New(t.TempDir(), k).Choose(t.Context()); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestHeld: a choice outlives its job by an hour, and a new job replaces it within 30 s.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		procfs, k := t.TempDir(), &kernel{pairs: map[uint32]int{100: 8}}
		process(t, procfs, 100, "NCCL_IB_TC=96", nccl)
		process(t, procfs, 101, "NCCL_IB_TC=104", nccl)
		r := New(procfs, k)
		expect := func(tc uint8) {
			t.Helper()
			if got := r.Choose(t.Context()); got.TrafficClass != tc {
				t.Errorf("%+v, want traffic class %d", got, tc)
			}
		}
		expect(96)
		k.pairs = nil
		time.Sleep(59 * time.Minute)
		expect(96)
		k.pairs = map[uint32]int{101: 1}
		time.Sleep(31 * time.Second)
		expect(104)
		k.pairs, k.err = nil, errors.New("permission denied")
		time.Sleep(61 * time.Minute)
		if got := r.Choose(t.Context()); got != (Choice{
			Source: "default: processes cannot be read: permission denied"}) {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Hour) // the lane's goroutine ends
	})
}
