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

// process is one life of the worker.
type process struct {
	conn net.Conn
	cmd  *exec.Cmd // nil where the network is simulated: then it is no process, but goroutines of this one
	pid  int
	gone chan struct{} // closed when the process is no more, was waited for, and has no last words left

	mu   sync.Mutex // protects all following fields
	said []string   // the first lines of what it wrote to stderr since the last request
	exit error      // how it ended, once gone is closed
}

// most lines of stderr that are kept to explain a crash.
const mostSaid = 3

// start starts the worker. The child gets its end of a socket pair as
// descriptor 3, and dies with this process: when that closes the other end, or,
// should the child hang in a provider, by the kernel's hand.
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
	p := &process{conn: conn, cmd: cmd, gone: make(chan struct{})}
	started, heard := make(chan error), make(chan struct{})
	go p.live(started, heard)
	if err := <-started; err != nil {
		stderr.Close()
		_ = conn.Close()
		return nil, err
	}
	p.pid = cmd.Process.Pid
	go func() {
		defer close(heard)
		p.listen(stderr, log)
	}()
	return p, nil
}

// lastWords is how long what a process wrote at its end may take to be heard:
// it says why it ended.
const lastWords = time.Second

// live starts the process and waits for its end, on one thread: the kernel
// sends Pdeathsig when the thread that forked ends, and Go ends threads as it
// likes.
func (p *process) live(started chan<- error, heard <-chan struct{}) {
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
	_ = p.conn.Close() // whoever waits for an answer will not get one
	select {
	case <-heard:
	case <-time.After(lastWords): // somebody else has its stderr, too
	}
	close(p.gone)
}

// listen passes on what the worker, or a library in it, writes to stderr.
func (p *process) listen(stderr *os.File, log func(string)) {
	defer stderr.Close()
	lines := bufio.NewReaderSize(stderr, 4096)
	for {
		line, err := lines.ReadSlice('\n')
		if text := strings.TrimSpace(string(line)); text != "" {
			p.mu.Lock()
			if len(p.said) < mostSaid {
				p.said = append(p.said, text)
			}
			p.mu.Unlock()
			log(text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// forget drops what was said so far: a crash is explained by what came last.
func (p *process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = nil
}

// obituary says how the process ended, for people.
func (p *process) obituary() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	how := "exit status 0"
	if p.exit != nil {
		how = p.exit.Error()
	}
	if len(p.said) > 0 {
		how += "; it said: " + strings.Join(p.said, " / ")
	}
	return how
}

// kill ends the process by force. It does not wait: a process that hangs in the
// kernel does not die until the kernel lets it. One that was waited for is left
// alone: its number may be another's by now.
func (p *process) kill() {
	_ = p.conn.Close()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it is gone, or there is nothing to be done
}

// ended reports whether the process is no more.
func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// exchange sends one request and reads until it is answered, or the connection
// is closed.
func (p *process) exchange(req request, progress progressFunc) (response, error) {
	if err := writeFrame(p.conn, req); err != nil {
		return response{}, err
	}
	for {
		var res response
		if err := readFrame(p.conn, &res); err != nil {
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

// progressFunc gets the bytes that completed on each rail, and since when it is
// so many at least.
type progressFunc = func(at time.Time, bytes []int64)

// monotonic is the clock that both processes have, in ns.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return t.Nano()
}
