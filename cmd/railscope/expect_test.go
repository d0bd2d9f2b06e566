package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/internal/sysfstest"
)

// expectSettingsOf returns the flags of expect on a machine with one rail, after another state was saved.
func expectSettingsOf(t *testing.T) expectSettings {
	t.Helper()
	dir := t.TempDir()
	sysfstest.Write(t, dir, []byte(`
-- sys/devices/pci0000:00/0000:18:00.0/infiniband/mlx5_0/node_guid --
b859:9f03:0000:0001
-- sys/devices/pci0000:00/0000:18:00.0/infiniband/mlx5_0/ports/1/link_layer --
InfiniBand
-- sys/devices/pci0000:00/0000:18:00.0/infiniband/mlx5_0/ports/1/state --
4: ACTIVE
-- sys/devices/pci0000:00/0000:18:00.0/infiniband/mlx5_0/ports/1/rate --
100 Gb/sec (4X EDR)
-- sys/devices/pci0000:00/0000:18:00.0/infiniband/mlx5_0/device --
-> ../..
-- sys/class/infiniband/mlx5_0 --
-> ../../devices/pci0000:00/0000:18:00.0/infiniband/mlx5_0
-- state/state.json --
{"version": 1, "expect": {"ports": [{"place": "0000:18:00.0", "port": 1, "node_guid": "b859:9f03:0000:0001",
  "pci_address": "0000:18:00.0",
  "rate": {"value": 5e10, "since": "2026-11-02T08:00:00Z", "last": "2026-11-20T00:01:00Z"}}]}}
`))
	s := expectSettings{common: &common{Machine: serve.Machine{Sysfs: filepath.Join(dir, "sys")},
		stateDir: filepath.Join(dir, "state")}, format: "table"}
	s.log.Writer = io.Discard
	return s
}

func (s expectSettings) text(t *testing.T) (string, error) {
	t.Helper()
	var b bytes.Buffer
	err := s.run(t.Context(), newShutdownTracker(), &b)
	return b.String(), err
}

// rate returns the output line with the rate of rail 0.
func (s expectSettings) rate(t *testing.T) string {
	t.Helper()
	text, err := s.text(t)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(strings.Split(text, "\n")[1]), " ")
}

const lostRate = "rail 0 mlx5_0/1 0000:18:00.0 rate 100 Gb/s 400 Gb/s LOST best seen, 2026-11-02 to 2026-11-20"

// TestExpect: expect reads the state of serve, and does not write it.
func TestExpect(t *testing.T) {
	s := expectSettingsOf(t)
	before, _ := os.ReadFile(filepath.Join(s.stateDir, "state.json"))
	if got := s.rate(t); got != lostRate {
		t.Error(got)
	}
	s.format = "json"
	text, err := s.text(t)
	var list expect.List
	if err != nil || json.Unmarshal([]byte(text), &list) != nil || !list.Rows[0].Lost || list.Rows[0].Value != 50e9 {
		t.Error(err, text)
	}
	after, _ := os.ReadFile(filepath.Join(s.stateDir, "state.json"))
	entries, _ := os.ReadDir(s.stateDir)
	if !bytes.Equal(before, after) || len(entries) != 1 {
		t.Errorf("the state was changed: %s, %v", after, entries)
	}
	s.format, s.configFile = "table", filepath.Join(s.stateDir, "railscope.yml")
	if err := os.WriteFile(s.configFile, []byte("expect: {rate: 200Gb/s}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.rate(t); got != "rail 0 mlx5_0/1 0000:18:00.0 rate 100 Gb/s 200 Gb/s LOST configured" {
		t.Error(got)
	}
	s.stateDir, s.configFile = "", ""
	if got := s.rate(t); got != "rail 0 mlx5_0/1 0000:18:00.0 rate 100 Gb/s - not seen yet" {
		t.Error(got)
	}
}

// TestExpectReset: the command asks the running process. Without one, it changes the state itself.
func TestExpectReset(t *testing.T) {
	alone := expectSettingsOf(t)
	alone.reset = "0"
	text, err := alone.text(t)
	if want := "changed the state there.\nForgot rail 0 (mlx5_0/1): 400 Gb/s.\n"; err != nil ||
		!strings.HasSuffix(text, want) {
		t.Errorf("%q, %v", text, err)
	}
	alone.reset = ""
	if got := alone.rate(t); got != "rail 0 mlx5_0/1 0000:18:00.0 rate 100 Gb/s - not seen yet" {
		t.Error(got)
	}

	s := expectSettingsOf(t)
	keeper, stop := s.serve(t)
	s.reset = "0"
	if text, err := s.text(t); text != "Forgot rail 0 (mlx5_0/1): 400 Gb/s.\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if got := keeper.List().Rows[0]; got.Lost {
		t.Errorf("the process still expects %s", got.Expected)
	}
	s.reset = "7"
	if text, err := s.text(t); text != "" || err == nil || !strings.Contains(err.Error(), `no such rail: "7"`) {
		t.Errorf("%q, %v", text, err)
	}
	stop()
	if data, _ := os.ReadFile(filepath.Join(s.stateDir, "state.json")); bytes.Contains(data, []byte("5e+10")) ||
		bytes.Contains(data, []byte("50000000000")) {
		t.Errorf("the state has the old rate: %s", data)
	}
}

// serve keeps the state and answers on its socket as serve does, until stop is called.
func (s expectSettings) serve(t *testing.T) (keeper *expect.Keeper, stop func()) {
	t.Helper()
	logger := promslog.New(&s.log)
	store := serve.OpenState(s.stateDir, logger)
	n := assembled(t, serve.Options{Machine: s.Machine, Sources: serve.DefaultSources(), Store: store,
		SocketDir: s.stateDir}, &config.Config{}, logger)
	end := runTasks(t, n.Tasks())
	stop = sync.OnceFunc(func() { end(); _ = store.Close() })
	t.Cleanup(stop)
	client := statussock.Client(s.stateDir, time.Minute)
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		answer, err := client.Get(statussock.URL)
		if err == nil {
			answer.Body.Close()
			return n.Keeper, stop
		}
		if time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
}

// TestExpectResetErrors: the error says what to do.
func TestExpectResetErrors(t *testing.T) {
	s := expectSettingsOf(t)
	s.reset = "0"
	store := state.Open(s.stateDir, nil) // stands for a process without a socket
	_, err := s.text(t)
	if err == nil || !errors.Is(err, state.ErrLocked) || !strings.Contains(err.Error(), "restart it and retry") {
		t.Error(err)
	}
	_ = store.Close()
	s.stateDir = filepath.Join(s.stateDir, "none")
	if _, err := s.text(t); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	s.stateDir = ""
	_, err = s.text(t)
	if _, ok := errors.AsType[misuse](err); !ok {
		t.Error(err)
	}
}
