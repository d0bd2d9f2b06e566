package statussock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func always() bool { return true }

// running serves in dir until the test ends or stop is called.
func running(t *testing.T, dir string, handler http.HandlerFunc) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	open := make(chan error, 1)
	var done sync.WaitGroup
	done.Go(func() { New(dir, handler).Run(ctx, always, func(err error) { open <- err }) })
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	if err := <-open; err != nil {
		t.Fatal(err)
	}
	return stop
}

func ask(dir string) (string, error) {
	answer, err := Client(dir, time.Minute).Get(URL + "/-/status")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func answering(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " ", r.URL.Path) }

// TestAnswer: a socket that only its user may open answers, and is removed afterwards.
func TestAnswer(t *testing.T) {
	dir := t.TempDir()
	stop := running(t, dir, answering)
	if got, err := ask(dir); got != "GET /-/status" || err != nil {
		t.Error(got, err)
	}
	info, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Error(info.Mode(), err)
	}
	stop()
	if _, err := os.Lstat(filepath.Join(dir, fileName)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the socket remained:", err)
	}
	if _, err := ask(dir); !errors.Is(err, ErrNotRunning) {
		t.Error(err)
	}
}

// TestStale: the socket of a killed process does not answer, and the next process replaces it. Another file is not
// removed.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	killed, err := net.Listen("unix", filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	killed.Close()
	if _, err := ask(dir); !errors.Is(err, ErrNotRunning) {
		t.Error(err)
	}
	running(t, dir, answering)
	if got, err := ask(dir); got != "GET /-/status" || err != nil {
		t.Error(got, err)
	}

	path := filepath.Join(t.TempDir(), fileName)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(filepath.Dir(path), nil).listen(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "is not a socket") {
		t.Error(err)
	}
	if data, _ := os.ReadFile(path); string(data) != "mine" {
		t.Error("a file was removed")
	}
	deep := filepath.Join(t.TempDir(), strings.Repeat("a", maxPath))
	if _, err := New(deep, nil).listen(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "shorter --state.dir") {
		t.Error(err)
	}
}

// TestNotOwned: without the lock of the directory, the owner's socket is kept.
func TestNotOwned(t *testing.T) {
	dir := t.TempDir()
	running(t, dir, answering)
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int32
	New(dir, http.NotFoundHandler()).Run(ctx, func() bool {
		asked.Add(1)
		cancel()
		return false
	}, func(err error) { t.Error(err) })
	if got, err := ask(dir); got != "GET /-/status" || err != nil || asked.Load() == 0 {
		t.Error(got, err, asked.Load())
	}
}

// TestManyClients: clients that send nothing have a limited number of places, and a client that waits for a
// response gives up.
func TestManyClients(t *testing.T) {
	dir := t.TempDir()
	release := make(chan struct{})
	running(t, dir, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	_, err := Client(dir, 50*time.Millisecond).Get(URL)
	if !os.IsTimeout(err) {
		t.Error(err)
	}
	for i := range 2 * maxConnections {
		c, err := net.Dial("unix", filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i < maxConnections {
			continue // these have a place
		}
		_ = c.SetReadDeadline(time.Now().Add(readTime - time.Second)) // before it is closed because it sends nothing
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d: %v", i+1, err)
		}
	}
}

// TestClients: only root and the user of this process may connect, according to the kernel's peer credentials.
func TestClients(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "a.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if user, err := userOf(c); err != nil || int(user) != os.Geteuid() {
		t.Errorf("user %d, %v", user, err)
	}
	of := ownClients{l, 990}
	for user, want := range map[uint32]bool{0: true, 990: true, 991: false, 65534: false} {
		if of.mayAsk(user) != want {
			t.Errorf("user %d of a socket of user 990: want %t", user, want)
		}
	}
}
