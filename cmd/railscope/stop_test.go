package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

// TestForceStop: a process that has not ended in time exits, and reports the parts that still run.
func TestForceStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newShutdownTracker()
		done := r.begin("the configuration", nil)
		r.begin("the web port", func() []string { return []string{"source rdma", "source gpu"} })
		r.begin("the probe", func() []string { return nil })
		done()
		var said string
		r.setExit(0, func(limit time.Duration, still string) { said = fmt.Sprint(limit, ": ", still) })
		ctx, stop := context.WithCancel(t.Context())
		code, ended := -1, time.Time{}
		r.forceStop(ctx, stopLimit, func(c int) { code, ended = c, time.Now() })
		time.Sleep(time.Hour)
		synctest.Wait()
		if code != -1 {
			t.Fatal("exit before the stop")
		}
		stop()
		stopped := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := "14s: the probe; the web port (source rdma, source gpu)"; code != 0 || said != want ||
			ended.Sub(stopped) != stopLimit {
			t.Errorf("code %d after %v: %q, want %q", code, ended.Sub(stopped), said, want)
		}
	})
}

// shortStop shortens stopLimit.
const shortStop = "RAILSCOPE_TEST_STOP=1s"

// TestStopWhileFilesHang: railscope stops in time although files hang.
func TestStopWhileFilesHang(t *testing.T) {
	t.Run("the configuration", func(t *testing.T) {
		dir := t.TempDir()
		hung := hungfs.Mount(t, dir, map[string]string{"railscope.yml": "{}\n"})
		r := follow(t, command(t, []string{shortStop}, "--path.sysfs="+tree(t),
			"--config.file="+filepath.Join(dir, "railscope.yml")))
		t.Cleanup(hung.Release) // the kernel keeps a process until its reads return
		waitFor(t, func() bool { return hung.Waiting() > 0 })
		if err := r.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if still := r.line(t, forced+`.*still="?([^"]*)`); still != "the configuration" {
			t.Errorf("it names %q", still)
		}
		hung.Release()
		if code := r.stop(t, syscall.Signal(0)); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
	t.Run("a counter, while it is scraped", func(t *testing.T) {
		sys := t.TempDir()
		if err := sysfstest.WriteMlx5(sys, 2); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(sys, "class/infiniband/mlx5_1/ports/1/counters")
		hung := hungfs.Mount(t, dir, map[string]string{"port_xmit_data": "1\n"})
		r := start(t, []string{shortStop}, "--path.sysfs="+sys)
		t.Cleanup(hung.Release)
		waitFor(t, func() bool { return hung.Waiting() > 0 })
		go func() {
			if resp, err := http.Get(r.url + "/metrics"); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		began := time.Now()
		if err := r.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		r.line(t, `"msg":"(Stopping)`)
		waitFor(t, func() bool { return exited(r.Process.Pid) })
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		hung.Release()
		if code := r.stop(t, syscall.Signal(0)); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
}

// exited reports whether a process has ended, except for threads in the kernel: all of its threads are dead (Z, X)
// or wait for files (D).
func exited(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		_, state, found := strings.Cut(string(stat), ") ")
		if err == nil && found && !strings.ContainsAny(state[:1], "DXZ") {
			return false
		}
	}
	return true
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timeout")
		}
	}
}
