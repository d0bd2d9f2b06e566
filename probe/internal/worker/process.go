package worker

import (
	"bufio"
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

	"github.com/railscope/railscope/internal/privilege"
)

// process is one run of the worker.
type process struct {
	conn net.Conn
	in   *bufio.Scanner // reads messages of conn
	cmd  *exec.Cmd      // nil in a simulation, which runs in goroutines of this process
	log  *stderrLog
	pid  int
	gone chan struct{} // closed when the process was waited for and its stderr was read

	mu      sync.Mutex // protects all following fields
	exit    error      // once gone is closed
	stderr  []string   // its first lines since the last answer
	partial []byte     // beginning of a line that is not complete
}

const (
	maxStderr   = 3           // lines that are kept to explain a crash
	maxLine     = 4096        // bytes; a longer line is split
	stderrGrace = time.Second // time to read stderr of an ended process, if another one has it open
)

// start starts the worker. The child gets its end of a socket pair as descriptor 3. It ends with this process: because
// the other end closes, or, if it hangs in a provider, by Pdeathsig.
func start(command, env []string, log *stderrLog) (*process, error) {
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
	cmd := exec.Command(command[0], command[1:]...)
	p := &process{conn: conn, in: newMessages(conn), cmd: cmd, log: log, gone: make(chan struct{})}
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr, cmd.WaitDelay = p, stderrGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}

// run starts the process and waits for its end on one thread. The kernel sends Pdeathsig when the thread that forked
// ends, and Go may end threads.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with its capabilities
	// The worker runs foreign libraries, and must not read other users' files and processes. It keeps the capability
	// to lock memory beyond the limit. The probe works either way, so an error is ignored.
	_ = privilege.Drop(unix.CAP_IPC_LOCK)
	defer close(p.gone)
	err := p.cmd.Start()
	if err == nil {
		p.pid = p.cmd.Process.Pid
	}
	started <- err
	if err != nil {
		return
	}
	err = p.cmd.Wait()
	_, _ = p.Write([]byte("\n")) // ends a partial line
	_ = p.conn.Close()           // ends a wait for an answer
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exit = err
}

// Write logs the worker's stderr, which includes output of its libraries.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range b {
		p.partial = append(p.partial, c)
		if c != '\n' && len(p.partial) < maxLine {
			continue
		}
		if text := strings.TrimSpace(string(p.partial)); text != "" {
			if len(p.stderr) < maxStderr {
				p.stderr = append(p.stderr, text)
			}
			p.log.line(text)
		}
		p.partial = p.partial[:0]
	}
	return len(b), nil
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

// kill kills the process without waiting: a process that hangs in the kernel stays until the kernel releases it.
func (p *process) kill() {
	_ = p.conn.Close()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // fails only if it has ended
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
			p.mu.Lock()
			defer p.mu.Unlock()
			p.stderr = nil // lines after the last answer explain a crash; the first lines may precede the first request
			return res, nil
		case progress != nil:
			progress(time.Now().Add(-max(time.Duration(monotonic()-res.At), 0)), res.Progress)
		}
	}
}

// progressFunc receives the completed bytes of each rail, and the time at which they were counted.
type progressFunc = func(at time.Time, bytes []int64)

// monotonic returns CLOCK_MONOTONIC, which both processes share, in ns.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return t.Nano()
}

// raiseMemlock raises the soft RLIMIT_MEMLOCK, which limits ibv_reg_mr, to the hard limit. If that is too low,
// registering memory fails with its own reason.
func raiseMemlock() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil && l.Cur < l.Max {
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l)
	}
}

// hugePages allows or forbids huge pages in this process. If the kernel uses them for all memory, each thread's stack
// and each part of the heap takes 2 MiB, but only the buffers of bursts need huge pages.
func hugePages(on bool) {
	off := uintptr(1)
	if on {
		off = 0
	}
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, off, 0, 0, 0) // fails on a kernel without huge pages
}
