// Package hungfs is a small FUSE file system for tests whose files do not answer a read until they are released.
// Meanwhile a reader hangs in the kernel and cannot be cancelled, like during a firmware command that hangs.
//
// It implements the kernel's protocol itself (include/uapi/linux/fuse.h, 7.31): one directory and a few files. The
// server is a separate process: a process that waits for its own file system cannot even be killed.
package hungfs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// environment turns a test binary into the server: the directory and the files, as JSON.
const environment = "RAILSCOPE_HUNGFS"

type request struct {
	Dir   string
	Files map[string]string
}

// Main must be called first in TestMain by every package that mounts. In the server process it serves and does not
// return.
func Main() {
	text := os.Getenv(environment)
	if text == "" {
		return
	}
	var r request
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = serve(r, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// FS is a mounted file system.
type FS struct {
	tb      testing.TB
	command io.WriteCloser
	answer  *bufio.Scanner
}

// Mount mounts files (name → content) at dir until the test ends. If the machine does not allow it, the test is
// skipped. With RAILSCOPE_REQUIRE_FUSE set, it fails instead, because a skip would hide a missing test.
func Mount(tb testing.TB, dir string, files map[string]string) *FS {
	tb.Helper()
	text, err := json.Marshal(request{dir, files})
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), environment+"="+string(text))
	cmd.Stderr = os.Stderr
	// its death ends the mount and wakes waiting readers
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	f := &FS{tb: tb}
	f.command, err = cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	f.answer = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		f.command.Close()
		_ = unix.Unmount(dir, unix.MNT_DETACH) // fails if it was never mounted
		_ = cmd.Wait()
	})
	if said := f.said(); said != "mounted" {
		if os.Getenv("RAILSCOPE_REQUIRE_FUSE") != "" {
			tb.Fatal(said)
		}
		tb.Skip(said)
	}
	return f
}

// said returns the server's next line.
func (f *FS) said() string {
	if !f.answer.Scan() {
		return "the server is gone"
	}
	return f.answer.Text()
}

// ask sends a command and returns the answer.
func (f *FS) ask(command string) string {
	f.tb.Helper()
	if _, err := fmt.Fprintln(f.command, command); err != nil {
		f.tb.Fatal(err)
	}
	return strings.TrimSpace(f.said())
}

// Waiting returns the number of reads that wait for an answer.
func (f *FS) Waiting() (n int) {
	f.tb.Helper()
	if _, err := fmt.Sscan(f.ask("waiting"), &n); err != nil {
		f.tb.Fatal(err)
	}
	return n
}

// Release answers all waiting reads, and from now on every read at once.
func (f *FS) Release() {
	f.tb.Helper()
	f.ask("release")
}
