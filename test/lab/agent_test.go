//go:build lab

package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// One connection to an agent carries one request, a line of JSON. A command is answered by two lines: started when
// it runs, result when it has ended. Closing the connection kills it and everything that it started. The segment is
// private to the two nodes, so there is no authentication.
type request struct {
	Argv    []string      `json:"argv,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`

	// instead of a command: a request for the node's QEMU; answered by a result
	Monitor json.RawMessage `json:"monitor,omitempty"`
}

type started struct {
	PID int    `json:"pid,omitempty"`
	Err string `json:"err,omitempty"`
}

type result struct {
	RC     int    `json:"rc"` // -1: killed by a signal
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	Err    string `json:"err,omitempty"` // reason why it did not end by itself
}

func serveAgent(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go serveRequest(conn)
	}
}

func serveRequest(conn net.Conn) {
	defer conn.Close()
	in, out := bufio.NewReader(conn), json.NewEncoder(conn)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return
	}
	var req request
	if err := json.Unmarshal(line, &req); err != nil {
		out.Encode(started{Err: err.Error()})
		return
	}
	if req.Monitor != nil {
		out.Encode(commandMonitor(req.Monitor))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), req.Timeout)
	defer cancel()
	go func() {
		in.ReadByte() // nothing more is sent: this returns when the other side closes the connection
		cancel()
	}()
	execute(ctx, req, out)
}

func execute(ctx context.Context, req request, out *json.Encoder) {
	if len(req.Argv) == 0 {
		out.Encode(started{Err: "no command"})
		return
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, req.Argv[0], req.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		out.Encode(started{Err: err.Error()})
		return
	}
	out.Encode(started{PID: cmd.Process.Pid})
	err := cmd.Wait()
	res := result{RC: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	if cause := ctx.Err(); cause != nil {
		res.Err = cause.Error()
	} else if err != nil && !errors.As(err, &exit) {
		res.Err = err.Error()
	}
	out.Encode(res)
}

// monitor is the QEMU machine protocol (JSON lines) over the node's only virtio serial port.
var monitor struct {
	sync.Mutex
	port io.ReadWriter
	in   *bufio.Reader
}

// commandMonitor sends one command and waits for its answer.
func commandMonitor(cmd json.RawMessage) result {
	monitor.Lock()
	defer monitor.Unlock()
	if monitor.port == nil {
		ports, _ := filepath.Glob("/dev/vport*") // the kernel chooses the number; there is only one
		port, err := os.OpenFile(strings.Join(ports, " "), os.O_RDWR, 0)
		if err != nil {
			return result{RC: 1, Err: err.Error()}
		}
		monitor.port, monitor.in = port, bufio.NewReader(port)
		if err := askMonitor(json.RawMessage(`{"execute":"qmp_capabilities"}`)); err != nil {
			return result{RC: 1, Err: err.Error()}
		}
	}
	if err := askMonitor(cmd); err != nil {
		return result{RC: 1, Err: err.Error()}
	}
	return result{}
}

func askMonitor(cmd json.RawMessage) error {
	if _, err := fmt.Fprintf(monitor.port, "%s\n", cmd); err != nil {
		return err
	}
	for {
		line, err := monitor.in.ReadBytes('\n')
		if err != nil {
			return err
		}
		var answer struct {
			Return json.RawMessage // neither: the greeting, or an event
			Error  *struct{ Desc string }
		}
		switch err := json.Unmarshal(line, &answer); {
		case err != nil:
			return fmt.Errorf("%s: %w", line, err)
		case answer.Error != nil:
			return errors.New(answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
}
