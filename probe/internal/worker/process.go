package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one run of the worker.
type process struct {
	conn net.Conn
	in   *bufio.Scanner // messages of conn
	cmd  *exec.Cmd      // nil in a simulation, which runs in goroutines of this process
	pid  int
	gone chan struct{} // closed when the process has ended, was waited for, and its stderr was read

	mu     sync.Mutex // protects all following fields
	stderr []string   // its first lines since the last request
	exit   error      // once gone is closed
}

const (
	maxStderr   = 3           // lines that are kept to explain a crash
	stderrGrace = time.Second // for reading the last lines of a process that ended
)

// start starts the worker. The child gets its end of a socket pair as descriptor 3. It ends with this process: because
// the other end closes, or, if it hangs in a provider, by Pdeathsig.
func start(command, env []string, log func(string)) (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "worker"), os.NewFile(uintptr(pair[1]), "exporter")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, err
	}
	stderr, theirStderr, err := os.Pipe()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	defer theirStderr.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = theirStderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{conn: conn, in: newScanner(conn), cmd: cmd, gone: make(chan struct{})}
	started, read := make(chan error), make(chan struct{})
	go p.run(started, read)
	if err := <-started; err != nil {
		stderr.Close()
		_ = conn.Close()
		return nil, err
	}
	p.pid = cmd.Process.Pid
	go func() {
		defer close(read)
		p.readStderr(stderr, log)
	}()
	return p, nil
}

// run starts the process and waits for its end on one thread: the kernel sends Pdeathsig when the thread that forked
// ends, and Go may end threads. stderr is closed when it was read.
func (p *process) run(started chan<- error, stderr <-chan struct{}) {
	runtime.LockOSThread() // and never unlocked: the thread ends with its capabilities
	dropPrivileges()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		close(p.gone)
		return
	}
	err = p.cmd.Wait()
	p.mu.Lock()
	p.exit = err
	p.mu.Unlock()
	_ = p.conn.Close() // ends a wait for an answer
	select {
	case <-stderr:
	case <-time.After(stderrGrace): // another process has it open, too
	}
	close(p.gone)
}

// readStderr logs what the worker, or a library in it, writes to stderr.
func (p *process) readStderr(stderr *os.File, log func(string)) {
	defer stderr.Close()
	lines := bufio.NewReaderSize(stderr, 4096)
	for {
		line, err := lines.ReadSlice('\n')
		if text := strings.TrimSpace(string(line)); text != "" {
			p.mu.Lock()
			if len(p.stderr) < maxStderr {
				p.stderr = append(p.stderr, text)
			}
			p.mu.Unlock()
			log(text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// exitReason describes how the process ended.
func (p *process) exitReason() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	how := "exit status 0"
	if p.exit != nil {
		how = p.exit.Error()
	}
	if len(p.stderr) > 0 {
		how += "; stderr: " + strings.Join(p.stderr, " / ")
	}
	return how
}

// kill kills the process without waiting: one that hangs in the kernel stays until the kernel releases it.
func (p *process) kill() {
	_ = p.conn.Close()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // an error means that it has ended
	}
}

// ended reports whether the process is gone.
func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// wait waits for the end of the process, but at most grace.
func (p *process) wait() {
	select {
	case <-p.gone:
	case <-time.After(grace):
	}
}

// exchange sends one request and reads until it is answered, or the connection is closed.
func (p *process) exchange(req request, progress progressFunc) (response, error) {
	p.mu.Lock()
	p.stderr = nil // a crash is explained by what follows
	p.mu.Unlock()
	if err := writeMessage(p.conn, req); err != nil {
		return response{}, err
	}
	for {
		var res response
		if err := readMessage(p.in, &res); err != nil {
			return res, err
		}
		switch {
		case res.ID != req.ID:
			return res, fmt.Errorf("an answer to request %d instead of %d: %w", res.ID, req.ID, io.ErrUnexpectedEOF)
		case res.Done:
			return res, nil
		case progress != nil:
			progress(time.Now().Add(-max(time.Duration(monotonic()-res.At), 0)), res.Progress)
		}
	}
}

// progressFunc gets the bytes that completed on each rail, and when they were counted.
type progressFunc = func(at time.Time, bytes []int64)

// monotonic returns CLOCK_MONOTONIC, which both processes share, in ns.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return t.Nano()
}
