package browser

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the real railscope, built once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "railscope-page-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "railscope")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/railscope")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// exporter is a railscope that serves a machine.
type exporter struct {
	t       *testing.T
	machine *machine
	flags   []string
	address string
	url     string
	client  *http.Client
	cmd     *exec.Cmd
}

// serve starts railscope on a free port.
func serve(t *testing.T, m *machine, flags ...string) *exporter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &exporter{t: t, machine: m, flags: flags, address: l.Addr().String(),
		client: &http.Client{Timeout: 10 * time.Second}}
	l.Close()
	e.url = "http://" + e.address
	e.start()
	t.Cleanup(func() { e.stop(syscall.SIGKILL) })
	return e
}

func (e *exporter) start() {
	e.t.Helper()
	path, err := binary()
	if err != nil {
		e.t.Fatal(err)
	}
	e.cmd = exec.Command(path,
		append([]string{"serve", "--path.sysfs=" + e.machine.Sys(), "--path.procfs=" + e.machine.Proc(),
			"--web.listen-address=" + e.address}, e.flags...)...)
	said, err := e.cmd.StderrPipe()
	if err == nil {
		err = e.cmd.Start()
	}
	if err != nil {
		e.t.Fatal(err)
	}
	ready, log := make(chan bool, 1), ""
	go func() {
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			log += lines.Text() + "\n"
			if strings.Contains(lines.Text(), "msg=Serving") {
				ready <- true
			}
		}
		close(ready)
	}()
	select {
	case ok := <-ready:
		if !ok {
			e.t.Fatalf("railscope ended:\n%s", log)
		}
	case <-time.After(30 * time.Second):
		e.t.Fatal("railscope does not serve")
	}
}

// stop ends it, and returns how long that took.
func (e *exporter) stop(signal syscall.Signal) time.Duration {
	start := time.Now()
	if e.cmd.ProcessState == nil {
		_ = e.cmd.Process.Signal(signal)
		_ = e.cmd.Wait()
	}
	return time.Since(start)
}

// series returns the current series of /metrics: line up to its value → value.
func (e *exporter) series() map[string]float64 {
	e.t.Helper()
	resp, err := e.client.Get(e.url + "/metrics")
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	series := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		at := strings.LastIndexByte(line, ' ')
		if v, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64); err == nil {
			series[line[:at]] = v
		}
	}
	return series
}

// stream opens a stream as a page does, and counts its events until ctx is done.
func (e *exporter) stream(ctx context.Context) (events, bytes int, err error) {
	req, err := http.NewRequestWithContext(ctx, "GET", e.url+"/-/page/events", nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		bytes += len(line)
		if strings.HasPrefix(line, "data: ") {
			events++
		}
		if err != nil {
			return events, bytes, nil
		}
	}
}
