//go:build cgo

package worker

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/testenv"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

// role selects what this binary does when a test starts it.
const role = "RAILSCOPE_TEST_ROLE"

// TestMain is also the program of the processes that tests start.
func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "worker":
		os.Exit(Main(os.Getenv("RAILSCOPE_LIBIBVERBS"),
			Libraries{CUDA: os.Getenv("RAILSCOPE_LIBCUDA"), HSA: os.Getenv("RAILSCOPE_LIBHSA")}))
	case "parent":
		os.Exit(parent())
	case "talker":
		fmt.Fprintln(os.Stderr, "first")
		fmt.Fprint(os.Stderr, strings.Repeat("x", 1<<20)) // without a line break
		os.Exit(Main("", Libraries{}))
	case "stranger":
		fmt.Fprintln(os.Stderr, "what is this?")
		socket := os.NewFile(3, "exporter")
		_, _ = socket.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		_, _ = socket.Read(make([]byte, 1))
		os.Exit(0)
	case "capable":
		os.Exit(capable())
	case "goner":
		os.Exit(3)
	}
	testenv.Setup()
	os.Exit(m.Run())
}

// newWorker returns a worker of this binary, in a role.
func newWorker(t *testing.T, as string, env ...string) (*Worker, *lines) {
	t.Helper()
	said := &lines{}
	w := New(Options{Command: []string{os.Args[0]}, Env: append(env, role+"="+as), Log: said.add})
	t.Cleanup(func() {
		w.Close()
		said.mu.Lock()
		defer said.mu.Unlock()
		for _, line := range said.list {
			if strings.Contains(line, "DATA RACE") {
				t.Errorf("the worker has a data race: %q", said.list)
			}
		}
	})
	return w, said
}

// twoEnds returns a fabric with one rail from a to b, and a worker on each end.
func twoEnds(t *testing.T) (f *fakeverbs.Fabric, a, b *Worker) {
	t.Helper()
	f = fakeverbs.New(t)
	for i, node := range []string{"a", "b"} {
		f.Add(node, fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE(fmt.Sprintf("10.0.0.%d", i+1)),
			Knobs: fakeverbs.Knobs{Rate: 100e6}})
	}
	a, _ = newWorker(t, "worker", f.Env("a")...)
	b, _ = newWorker(t, "worker", f.Env("b")...)
	return f, a, b
}

func openArgs(i int) OpenArgs {
	gid := netip.AddrFrom16(netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i)).As16())
	return OpenArgs{Transport: RDMA, Target: i == 2, Buffer: size, Seed: seed, Depth: 4, QueuePairs: 1,
		Rails: []RailArg{{Name: "0", Device: "mlx5_0", Port: 1, GIDIndex: 3, GID: gid}}}
}

// connected opens and connects sessions at both ends.
func connected(t *testing.T, a, b *Worker) (asker, target *Session) {
	t.Helper()
	asker, ours := open(t, a, openArgs(1))
	target, theirs := open(t, b, openArgs(2))
	for s, remote := range map[*Session]End{asker: theirs.Ends[0], target: ours.Ends[0]} {
		c, err := s.Connect(t.Context(),
			ConnectArgs{RetryCount: 7,
				Rails: []ConnectRail{{Name: "0", Remote: remote, PathMTU: 4096, InFlight: time.Second}}})
		if err != nil || len(c) > 0 {
			t.Fatal(err, c)
		}
	}
	return asker, target
}

func open(t *testing.T, w *Worker, args OpenArgs) (*Session, Opened) {
	t.Helper()
	s, o, err := w.Open(t.Context(), args)
	if err != nil || o.Ends[0].Failure != nil {
		t.Fatal(err, o.Ends)
	}
	return s, o
}

// reason returns the reason of an error, which is always a failure.
func reason(t *testing.T, err error) failure.Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	f, ok := errors.AsType[*failure.Failure](err)
	if !ok {
		t.Fatalf("an error without a reason: %v", err)
	}
	return f.Reason
}

// within reports whether a condition becomes true in time.
func within(limit time.Duration, fn func() bool) bool {
	for deadline := time.Now().Add(limit); !fn(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
