package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// exporter is one of the two programs, running.
type exporter struct {
	name string
	args []string
	url  string
	cmd  *exec.Cmd
	log  bytes.Buffer
	http http.Client
}

// start starts a program on a free loopback port and waits until it serves.
func start(ctx context.Context, name, binary string, args ...string) (*exporter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	e := &exporter{name: name, args: args, url: "http://" + address + "/metrics",
		cmd: exec.CommandContext(ctx, binary, append(args, "--web.listen-address="+address)...)}
	e.http.Transport = &http.Transport{DisableCompression: true} // we request gzip ourselves
	e.http.Timeout = time.Minute
	e.cmd.Stderr = &e.log
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err = e.scrape(false)
		if err == nil {
			return e, nil
		}
		if time.Since(begin) > 15*time.Second {
			e.stop()
			return nil, fmt.Errorf("%s does not serve: %w\n%s", name, err, e.log.String())
		}
	}
}

// stop ends the program and waits for it.
func (e *exporter) stop() {
	e.cmd.Process.Signal(os.Interrupt) //nolint:errcheck // it may have ended by itself
	e.cmd.Wait()                       //nolint:errcheck // it ends by the signal
}

// accept is the Accept header of Prometheus 3.
const accept = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6," +
	"application/openmetrics-text;version=0.0.1;q=0.5," +
	"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"

// scrape scrapes as Prometheus does and returns the exposition unmodified.
func (e *exporter) scrape(zip bool) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, e.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if zip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s", e.name, resp.Status)
	case zip != (resp.Header.Get("Content-Encoding") == "gzip"):
		return nil, fmt.Errorf("%s answered with Content-Encoding %q", e.name, resp.Header.Get("Content-Encoding"))
	}
	return body, nil
}

// text returns the exposition of one scrape, requested with or without compression.
func (e *exporter) text(zip bool) (io.Reader, error) {
	body, err := e.scrape(zip)
	if err != nil || !zip {
		return bytes.NewReader(body), err
	}
	return gzip.NewReader(bytes.NewReader(body))
}

// userHZ is the unit of /proc/<pid>/stat on every Linux port of Go.
const userHZ = 100

// cpu returns the processor time that the program has used, user and system.
func (e *exporter) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", e.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name, in parentheses, may have spaces
	fields := strings.Fields(rest)
	const utime, stime = 14 - 3, 15 - 3 // proc(5) counts from 1, and two fields are cut off
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc/%d/stat has no times", e.cmd.Process.Pid)
	}
	var ticks int64
	for _, f := range fields[utime : stime+1] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ, nil
}

// resident returns the program's resident memory, in bytes.
func (e *exporter) resident() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return n * 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// syscalls counts the system calls of n scrapes with strace.
func (e *exporter) syscalls(n int) (float64, error) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return 0, err
	}
	out, err := os.CreateTemp("", "strace")
	if err != nil {
		return 0, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.Command(strace, "-f", "-c", "-U", "calls,name", "-o", out.Name(), "-p", strconv.Itoa(e.cmd.Process.Pid))
	said, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	buf := make([]byte, 1024)
	if k, err := said.Read(buf); err != nil || !bytes.Contains(buf[:k], []byte("attached")) {
		cmd.Wait() //nolint:errcheck // the message says it
		return 0, fmt.Errorf("strace: %s", bytes.TrimSpace(buf[:k]))
	}
	go io.Copy(io.Discard, said) //nolint:errcheck // it ends when strace does
	var failed error
	for range n {
		if _, err := e.scrape(false); err != nil {
			failed = err
		}
	}
	cmd.Process.Signal(os.Interrupt) //nolint:errcheck // Wait reports it
	cmd.Wait()                       //nolint:errcheck // it ends by the signal
	table, err := io.ReadAll(out)
	if err := errors.Join(failed, err); err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) == 2 && f[1] == "total" {
			total, err := strconv.ParseFloat(f[0], 64)
			return total / float64(n), err
		}
	}
	return 0, fmt.Errorf("strace gave no total: %s", table)
}
