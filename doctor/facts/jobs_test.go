package facts_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/sysfs"
)

// TestJobsBounds has more different environments than are kept.
func TestJobsBounds(t *testing.T) {
	change := doctortest.Tree{}
	for i := range facts.MaxEnvs + 10 {
		change[fmt.Sprintf("proc/%d/environ", 5000+i)] = doctortest.Environ(fmt.Sprintf("UCX_TLS=tcp,x%d,%s", i,
			strings.Repeat("y", facts.MaxValue-20)))
	}
	s := doctortest.System(t, doctortest.HGX, change)
	f := facts.New(s).Gather(t.Context(), facts.All)
	unread := f.Unread
	if len(f.Jobs.Envs) != facts.MaxEnvs || len(unread) != 1 || !strings.Contains(unread[0],
		"environments of processes (10): more than 32 different ones") {
		t.Errorf("%d environments, %q", len(f.Jobs.Envs), unread)
	}
	if data, err := json.Marshal(f.Jobs); err != nil || len(data) > 64<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// TestJobsHostile: of environments that are too long or invalid, the readable part is judged and the rest reported.
func TestJobsHostile(t *testing.T) {
	// The argument begins 10 bytes before the end of what is read.
	long := func(last string) string {
		return doctortest.Environ("NCCL_NET=Socket", strings.Repeat("x", proc.MaxEnviron-len("NCCL_NET=Socket")-2-10),
			last)
	}
	pipe := func(s facts.Options) {
		if err := errors.Join(os.MkdirAll(filepath.Join(s.Procfs, "1236"), 0o755),
			unix.Mkfifo(filepath.Join(s.Procfs, "1236/environ"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change doctortest.Tree
		with   func(facts.Options)
		found  int
		unread string
	}{
		{"cut in the middle of a value", doctortest.Tree{"proc/1235/environ": long("UCX_TLS=tcp,rc")}, nil, 1,
			"environments of processes (1): what follows their first 262144 bytes; check by hand: tr '\\0' '\\n' < " +
				"/proc/1235/environ | grep -E '^(NCCL|UCX)_'"},
		{"cut, and without an end",
			doctortest.Tree{"proc/1235/environ": strings.Repeat("NCCL_NET=Socket", proc.MaxEnviron)}, nil, 0,
			"environments of processes (1): what follows their first 262144 bytes"},
		{"no zero byte", doctortest.Tree{"proc/1235/environ": "NCCL_IB_DISABLE=1"}, nil, 1, ""},
		{"binary", doctortest.Tree{
			"proc/1235/environ": "\xff\xfe\x00UCX_TLS\x00=\x00NCCL_NET=\x1b[31mSocket\x00NCCL_IB_DISABLE\x00"},
			nil, 0, ""},
		{"a pipe", nil, pipe, 0,
			"environments of processes (1): read PROC/1236/environ: not a regular file; see dmesg"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := doctortest.System(t, doctortest.HGX, tt.change)
			if tt.with != nil {
				tt.with(s)
			}
			f := facts.New(s).Gather(t.Context(), facts.All)
			unread := f.Unread
			want := strings.ReplaceAll(tt.unread, "PROC", s.Procfs)
			if text := strings.Join(unread, "\n"); !strings.HasPrefix(text, want) || want == "" && text != "" {
				t.Errorf("not read: %q, want %q", text, want)
			}
			if list := jobFindings(f); len(list) != tt.found {
				t.Errorf("%+v", list)
			}
		})
	}
}

// TestJobsHidden counts unreadable processes and reports them once.
func TestJobsHidden(t *testing.T) {
	s := doctortest.System(t, doctortest.HGX, doctortest.Job("NCCL_NET=Socket"),
		doctortest.Tree{"proc/77/environ": "x", "proc/78/environ": "x", "proc/79/environ": "x", "proc/80/environ": "x",
			"proc/77/cmdline": "a", "proc/78/cmdline": "b", "proc/79/cmdline": "c", "proc/80/cmdline": "\n"})
	if err := os.Truncate(filepath.Join(s.Procfs, "80/cmdline"), 0); err != nil { // a kernel thread
		t.Fatal(err)
	}
	g := facts.New(s)
	g.SetEnviron(func(root string, pid int, wanted func(string) bool) (map[string]string, bool, error) {
		if pid >= 77 && pid <= 79 {
			return nil, false, &sysfs.Error{Path: "environ", Reason: sysfs.ReasonPermission, Err: os.ErrPermission}
		}
		return facts.ReadEnviron(root, pid, wanted)
	})
	f := g.Gather(t.Context(), facts.All)
	unread := f.Unread
	if want := []string{"environments of processes of other users (3): permission denied; run doctor as root, " +
		"outside of containers"}; !slices.Equal(unread, want) {
		t.Errorf("%q", unread)
	}
	if list := jobFindings(f); len(list) != 1 || list[0].Check != "nccl_net" {
		t.Errorf("%+v", list)
	}
}

// TestJobsHang has a process whose environment never arrives, like one that hangs in the kernel with its memory locked:
// all others are read, and the hung one is reported.
func TestJobsHang(t *testing.T) {
	t.Parallel()
	change := doctortest.Job("NCCL_NET=Socket")
	for i := range 50 {
		change[fmt.Sprintf("proc/%d/environ", 6000+i)] = "A=b\x00"
	}
	s := doctortest.System(t, doctortest.HGX, change)
	never := make(chan struct{})
	defer close(never)
	s.Budget = 5 * time.Second // enough for the others on a busy machine
	g := facts.New(s)
	g.SetEnviron(func(root string, pid int, wanted func(string) bool) (map[string]string, bool, error) {
		if pid == 6007 {
			<-never
			return nil, false, os.ErrProcessDone
		}
		return facts.ReadEnviron(root, pid, wanted)
	})
	for range 2 { // it costs one goroutine, however many readings follow
		f := g.Gather(t.Context(), facts.All)
		unread := f.Unread
		if len(unread) != 1 || !strings.HasPrefix(unread[0], "environments of processes: 50 of 52 were read in time") {
			// The 2 unread ones are PID 6007, which hangs, and the process itself, which has no environment.
			t.Errorf("%q", unread)
		}
		if list := jobFindings(f); len(list) != 1 || list[0].Check != "nccl_net" {
			t.Errorf("%+v", list)
		}
	}
}

// TestJobsManyHang: of many hung processes only a few block a thread, and the rest is reported.
func TestJobsManyHang(t *testing.T) {
	change := doctortest.Tree{}
	for i := range 3 * facts.MaxStuck {
		change[fmt.Sprintf("proc/%d/environ", 6000+i)] = "A=b\x00"
	}
	s := doctortest.System(t, doctortest.HGX, change)
	never, stuck := make(chan struct{}), new(atomic.Int32)
	defer close(never)
	s.Budget = 400 * time.Millisecond
	g := facts.New(s)
	g.SetEnviron(func(string, int, func(string) bool) (map[string]string, bool, error) {
		stuck.Add(1)
		<-never
		return nil, false, os.ErrProcessDone
	})
	for range 2 {
		if f := g.Gather(t.Context(), facts.All); len(f.Unread) != 1 || !strings.HasPrefix(f.Unread[0],
			"environments of processes: 0 of 13 were read in time") {
			t.Errorf("%q", f.Unread)
		}
		if n := stuck.Load(); n != facts.MaxStuck {
			t.Errorf("%d calls are stuck", n)
		}
	}
}

// jobFindings returns the findings about environments.
func jobFindings(f *facts.Facts) (list []finding.Finding) {
	for _, c := range check.Checks() {
		if strings.HasPrefix(c.ID, "nccl_") || strings.HasPrefix(c.ID, "ucx_") {
			list = append(list, c.Find(f)...)
		}
	}
	return list
}

// TestWithoutJobs: facts that everybody may see have nothing about processes, not even that some could not be read.
func TestWithoutJobs(t *testing.T) {
	s := doctortest.System(t, doctortest.HGX, doctortest.Job("NCCL_NET=Socket"),
		doctortest.Tree{"root/etc/nccl.conf": "NCCL_IB_DISABLE=1\n"})
	g := facts.New(s)
	g.SetEnviron(func(string, int, func(string) bool) (map[string]string, bool, error) {
		t.Error("an environment was read")
		return nil, false, os.ErrPermission
	})
	if f := g.Gather(t.Context(), facts.WithoutJobs); len(f.Unread) > 0 || !reflect.DeepEqual(f.Jobs, facts.Jobs{}) {
		t.Errorf("%q, %+v", f.Unread, f.Jobs)
	}
}

// TestOneHang: the page and peers share one gatherer, so that a hung read blocks one lane, however many readings
// follow.
func TestOneHang(t *testing.T) {
	s := doctortest.System(t, doctortest.HGX)
	s.Budget = 200 * time.Millisecond
	never, stuck := make(chan struct{}), new(atomic.Int32)
	defer close(never)
	s.Kernel.DCB = func(netdev string) (facts.DCB, error) {
		if netdev == "enp77s0np0" {
			stuck.Add(1)
			<-never
		}
		return facts.DCB{PFC: 1 << 3}, nil
	}
	g := facts.New(s)
	for _, scope := range []facts.Scope{facts.All, facts.WithoutJobs, facts.All, facts.WithoutJobs} {
		if f := g.Gather(t.Context(), scope); len(f.QoS) != 2 || len(f.Unread) != 1 || !strings.HasPrefix(f.Unread[0],
			"PFC and DCQCN of mlx5_2/1: ") {
			t.Errorf("%d rails, not read: %q", len(f.QoS), f.Unread)
		}
	}
	if n := stuck.Load(); n != 1 {
		t.Errorf("%d calls are stuck", n)
	}
}
