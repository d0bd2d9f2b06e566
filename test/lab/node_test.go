//go:build lab

package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	poll        = 300 * time.Millisecond // interval of checks of a condition
	commandTime = 2 * time.Minute        // limit for a command that should end at once; the CPUs are emulated
	linkTime    = 45 * time.Second       // limit until nodes notice a link, or its loss, and facts are read again
)

// railscope is the program under test, built by run.sh outside the lab.
var railscope = filepath.Join(os.Getenv("LAB"), "railscope")

// node is one of the two machines: 1 runs the tests, 2 is its peer.
type node int

// control returns the node's address on the control segment, which no test modifies.
func (n node) control() string { return fmt.Sprintf("192.168.200.%d", n) }

func (n node) agent() string { return net.JoinHostPort(n.control(), "7000") }

// address returns the node's address on a rail.
func (n node) address(rail int) string { return fmt.Sprintf("192.168.10%d.%d", rail, n) }

// Run runs a command that must succeed and returns what it printed.
func (n node) Run(t testing.TB, argv ...string) string {
	t.Helper()
	res, err := n.Try(argv...)
	if err != nil {
		t.Fatalf("node %d: %s: %v", n, strings.Join(argv, " "), err)
	}
	return res.Stdout
}

// Shell runs a bash script whose commands must all succeed.
func (n node) Shell(t testing.TB, script string) string {
	t.Helper()
	return n.Run(t, "bash", "-euo", "pipefail", "-c", script)
}

// Try runs a command. If it fails or does not end, the error has its output.
func (n node) Try(argv ...string) (result, error) {
	p, err := n.start(commandTime, argv)
	if err != nil {
		return result{}, err
	}
	<-p.ended
	return p.result, p.failure()
}

// Start starts a command that runs until it ends, or until the test does.
func (n node) Start(t testing.TB, argv ...string) *process {
	t.Helper()
	p, err := n.start(2*time.Hour, argv)
	if err != nil {
		t.Fatalf("node %d: %s: %v", n, strings.Join(argv, " "), err)
	}
	t.Cleanup(p.kill)
	return p
}

// Cable plugs or pulls the cable of a rail at this node's end: the carrier drops at once, as for a real NIC. The
// other end only stops receiving, as behind a switch. It is plugged in again when the test ends.
func (n node) Cable(t testing.TB, rail int, plugged bool) {
	t.Helper()
	if err := n.cable(rail, plugged); err != nil {
		t.Fatalf("node %d: cable of rail %d: %v", n, rail, err)
	}
	if !plugged {
		t.Cleanup(func() {
			if err := n.cable(rail, true); err != nil {
				t.Errorf("node %d: cable of rail %d: %v", n, rail, err)
			}
		})
	}
}

func (n node) cable(rail int, plugged bool) error {
	cmd := fmt.Sprintf(`{"execute":"set_link","arguments":{"name":"r%d","up":%t}}`, rail, plugged)
	conn, in, err := n.ask(request{Monitor: json.RawMessage(cmd)})
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(commandTime))
	var res result
	if err := receive(in, &res); err != nil {
		return err
	}
	if res.RC != 0 {
		return errors.New(res.Err)
	}
	return nil
}

// process is a command that runs in a node.
type process struct {
	PID   int
	node  node
	conn  net.Conn
	ended chan struct{} // closed when it has ended; then result and err are set
	result
	err error
}

func (n node) start(timeout time.Duration, argv []string) (*process, error) {
	conn, in, err := n.ask(request{Argv: argv, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	var up started
	conn.SetReadDeadline(time.Now().Add(commandTime))
	err = receive(in, &up)
	if err == nil && up.Err != "" {
		err = errors.New(up.Err)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetReadDeadline(time.Now().Add(timeout + commandTime))
	p := &process{PID: up.PID, node: n, conn: conn, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		defer conn.Close()
		p.err = receive(in, &p.result)
	}()
	return p, nil
}

func (n node) ask(req request) (net.Conn, *bufio.Reader, error) {
	conn, err := net.DialTimeout("tcp", n.agent(), commandTime)
	if err != nil {
		return nil, nil, err
	}
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, bufio.NewReader(conn), nil
}

func receive(in *bufio.Reader, answer any) error {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return json.Unmarshal(line, answer)
}

// Running reports whether the process has not ended.
func (p *process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Wait waits for the end of a process that must succeed and returns what it printed.
func (p *process) Wait(t testing.TB, within time.Duration) string {
	t.Helper()
	p.end(t, within)
	if err := p.failure(); err != nil {
		t.Fatalf("node %d: process %d: %v", p.node, p.PID, err)
	}
	return p.Stdout
}

// end waits for the end of a process with any exit code.
func (p *process) end(t testing.TB, within time.Duration) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		t.Fatalf("node %d: process %d still runs after %v", p.node, p.PID, within)
	}
}

// Stop asks the process to end, as a service manager does, and waits for it.
func (p *process) Stop(t testing.TB) string {
	t.Helper()
	if p.Running() {
		p.node.Run(t, "kill", strconv.Itoa(p.PID))
	}
	return p.Wait(t, commandTime)
}

func (p *process) kill() {
	p.conn.Close()
	<-p.ended
}

// failure may be called after the process has ended.
func (p *process) failure() error {
	switch said := strings.TrimSpace(p.Stderr + p.Stdout); {
	case p.err != nil:
		return p.err
	case p.Err != "":
		return fmt.Errorf("%s: %s", p.Err, said)
	case p.RC != 0:
		return fmt.Errorf("exit code %d: %s", p.RC, said)
	}
	return nil
}

// eventually calls cond until it returns nil, and fails with its last error after within.
func eventually(t testing.TB, within time.Duration, cond func() error) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(poll) {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", within, err)
		}
	}
}

// lines splits the output of a command.
func lines(s string) []string {
	return strings.Split(strings.TrimSpace(s), "\n")
}
