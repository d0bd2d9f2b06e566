// Package netnstest makes network namespaces for tests of what the running kernel does.
package netnstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace of its own, in which functions can be called.
type Namespace struct{ fd int }

// New returns a namespace for which the lines of the command ip were run, and ends with the test. It skips the test
// without root, the command, and a kernel with what the lines need.
func New(tb testing.TB, lines string) Namespace {
	tb.Helper()
	n := Namespace{fd: -1}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		made <- err
	}()
	if err := <-made; err != nil {
		tb.Skip("a network namespace: ", err)
	}
	tb.Cleanup(func() { unix.Close(n.fd) })
	if err := n.IP(lines); err != nil {
		tb.Skip(err)
	}
	return n
}

// Path is a name of the namespace for the command ip, in this process and its children.
func (n Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd) }

// In calls fn on a thread of the namespace.
func (n Namespace) In(fn func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := errors.New("the call ended its goroutine, as FailNow of a test does")
		defer func() { ended <- err }()
		if failed := unix.Setns(n.fd, unix.CLONE_NEWNET); failed != nil {
			err = failed
			return
		}
		err = fn()
	}()
	return <-ended
}

// IP runs lines of the command ip in the namespace.
func (n Namespace) IP(lines string) error {
	return n.In(func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(lines)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip: %w: %s", err, out)
		}
		return nil
	})
}
