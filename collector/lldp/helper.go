package lldp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lldp"
	"github.com/railscope/railscope/internal/privilege"
)

// helperSocket is the descriptor of the packet socket in the helper.
const helperSocket = 3

// Bounds of what the helper sends.
const (
	maxFrames = 100     // frames in a second; a port has one in 30 s, or one in a second after a change
	maxLine   = 8 << 10 // bytes of a frame in JSON: four texts of 255 bytes, of which each byte may need six
)

// heard is a frame on its way from the helper.
type heard struct {
	Index int `json:"index"` // index of the interface
	lldp.Neighbor
}

// HelperMain is the main function of the helper. It receives frames from a packet socket, its descriptor 3, parses
// them, and writes them to its standard output, one object of JSON per line. Its standard input has the indices of the
// interfaces to listen on, one per line, and is closed when the helper should end. It returns the exit code.
func HelperMain() int {
	switch has, err := privilege.Has(); {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	case has:
		fmt.Fprintln(os.Stderr, "it has a capability, and must have none: they could not be dropped")
		return 1
	}
	socket := lldp.FromFile(helperSocket)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			if index, err := strconv.Atoi(in.Text()); err == nil {
				if err := socket.Join(index); err != nil { // the interface may be gone
					fmt.Fprintln(os.Stderr, err)
				}
			}
		}
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, relay(socket.Receive, os.Stdout, time.Sleep))
	return 1
}

// relay writes received frames until one of the ends fails, and returns why. What comes faster than maxFrames waits in
// the kernel, which drops what does not fit.
func relay(receive func(*[lldp.MaxFrame]byte) ([]byte, int, error), w io.Writer, sleep func(time.Duration)) error {
	var buf [lldp.MaxFrame]byte
	out := json.NewEncoder(w)
	for n := 1; ; n++ {
		b, index, err := receive(&buf)
		if err != nil {
			return err
		}
		if neighbor, err := lldp.Parse(b); err == nil {
			if err := out.Encode(heard{index, neighbor}); err != nil {
				return err
			}
		}
		if n%maxFrames == 0 {
			sleep(time.Second)
		}
	}
}

// helper is a process that receives.
type helper struct {
	frames *os.File // objects of JSON
	joins  *os.File // indices of interfaces; closing it ends the process
	pid    int
	gone   chan struct{} // closed when the process has ended
	err    error         // how it ended; once gone is closed
}

// start starts the helper, by command. It has no capability and cannot send: its only access to the network is the
// packet socket, which open opens here ([lldp.Open]).
func start(command []string, open func() (*lldp.Socket, error)) (*helper, error) {
	h := &helper{gone: make(chan struct{})}
	started := make(chan error)
	go h.run(command, open, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return h, nil
}

// run starts the process and waits for its end on one thread: the kernel sends Pdeathsig when the thread that forked
// ends.
func (h *helper) run(command []string, open func() (*lldp.Socket, error), started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with its privileges
	cmd, err := h.prepare(command, open)
	if cmd != nil {
		if err == nil {
			err = cmd.Start()
		}
		for _, file := range []any{cmd.ExtraFiles[0], cmd.Stdin, cmd.Stdout} { // the process has its own
			_ = file.(io.Closer).Close()
		}
		if err != nil {
			h.stop()
		} else {
			h.pid = cmd.Process.Pid
		}
	}
	started <- err
	if err != nil {
		return
	}
	err = cmd.Wait()
	if err == nil {
		err = errors.New("exit status 0")
	}
	h.err = fmt.Errorf("the process that receives LLDP ended: %w: %s", err, cmd.Stderr)
	close(h.gone)
}

// prepare opens what the process gets, and then drops the privileges of the thread.
func (h *helper) prepare(command []string, open func() (*lldp.Socket, error)) (*exec.Cmd, error) {
	socket, err := open()
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w (CAP_NET_RAW is missing: docs/lldp.md)", err)
	}
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec // it is this program
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{socket.File()}
	cmd.Stderr = &lastLine{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, joins, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, cmd.ExtraFiles[0].Close())
	}
	frames, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, cmd.ExtraFiles[0].Close(), in.Close(), joins.Close())
	}
	cmd.Stdin, cmd.Stdout, h.joins, h.frames = in, out, joins, frames
	_ = privilege.Drop() // the process verifies it
	return cmd, privilege.ForbidSending()
}

// join makes the process listen on an interface. Only a process that hangs does not take it.
func (h *helper) join(index int) error {
	if err := h.joins.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(h.joins, index)
	return err
}

// receive calls note for each frame until the process has ended, and returns how it ended.
func (h *helper) receive(note func(heard)) error {
	in := bufio.NewScanner(h.frames)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		var one heard
		if json.Unmarshal(in.Bytes(), &one) == nil {
			note(one)
		}
	}
	h.stop()
	<-h.gone
	return h.err
}

// stop ends the process.
func (h *helper) stop() {
	_ = h.joins.Close() // fails only if it is closed
	_ = h.frames.Close()
}

// lastLine keeps the last line that was written.
type lastLine struct{ text string }

func (l *lastLine) Write(b []byte) (int, error) {
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	l.text = lines[len(lines)-1][:min(len(lines[len(lines)-1]), 255)]
	return len(b), nil
}

func (l *lastLine) String() string { return l.text }
