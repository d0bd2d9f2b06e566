package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/sysfstest"
)

// machine is a simulated node: a captured /sys and /proc whose files the test changes.
type machine struct {
	sysfstest.Root
	t *testing.T

	mu      sync.Mutex
	moving  bool
	total   map[string]uint64
	running sync.WaitGroup
	end     chan struct{}
}

func newMachine(t *testing.T, capture string) *machine {
	t.Helper()
	m := &machine{Root: sysfstest.Unpack(t, filepath.Join("../../exporter/testdata", capture+".txtar")), t: t,
		total: map[string]uint64{}, end: make(chan struct{})}
	m.running.Go(m.run)
	t.Cleanup(func() { close(m.end); m.running.Wait() })
	return m
}

// run moves the counters of every active port ten times a second.
func (m *machine) run() {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-m.end:
			return
		case <-ticker.C:
		}
		m.mu.Lock()
		if m.moving {
			m.step(n)
		}
		m.mu.Unlock()
	}
}

func (m *machine) step(n int) {
	ports, _ := filepath.Glob(m.Sys("class/infiniband/*/ports/*"))
	for i, port := range ports {
		if state, _ := os.ReadFile(filepath.Join(port, "state")); !strings.Contains(string(state), "ACTIVE") {
			continue
		}
		for j, name := range []string{"port_xmit_data", "port_rcv_data"} {
			file := filepath.Join(port, "counters", name)
			if m.total[file] == 0 {
				text, _ := os.ReadFile(file)
				m.total[file], _ = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
			}
			const capacity = 5e10
			share := 0.6 + 0.2*float64((n/10+i+3*j)%7)/7
			m.total[file] += uint64(share * capacity / 10 / 4)
			put(m.t, file, fmt.Sprintln(m.total[file]))
		}
	}
}

// move starts or stops the counters.
func (m *machine) move(moving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moving = moving
}

// set replaces the content of a port's file.
func (m *machine) set(content string, elem ...string) { put(m.t, m.Sys(elem...), content) }

// put changes a file in one call, so that no reader finds it empty.
func put(t *testing.T, path, content string) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	old, err := f.Stat()
	if err == nil {
		for len(content) < int(old.Size()) {
			content += "\n"
		}
		_, err = f.WriteAt([]byte(content), 0)
	}
	if err != nil {
		t.Error(err)
	}
}
