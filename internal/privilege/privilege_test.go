package privilege

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread that ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// status returns a line of the calling thread's status.
func status(t *testing.T, key string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestDrop: of the capabilities of root two are kept, one of each half of the set, for children also. Nothing changes
// in other threads.
func TestDrop(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	before := status(t, "CapPrm")
	onThread(func() {
		if err := Drop(unix.CAP_IPC_LOCK, unix.CAP_SYSLOG); err != nil {
			t.Error(err)
		}
		const want = "0000000400004000"
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
			if got := status(t, set); got != want {
				t.Errorf("%s is %s, want %s", set, got, want)
			}
		}
		if got := status(t, "NoNewPrivs"); got != "1" {
			t.Errorf("NoNewPrivs is %s", got)
		}
	})
	onThread(func() {
		if err := Drop(); err != nil || strings.Trim(status(t, "CapPrm")+status(t, "CapAmb"), "0") != "" {
			t.Errorf("%v, capabilities %s", err, status(t, "CapPrm"))
		}
		if err := Drop(unix.CAP_NET_RAW); err != nil || strings.Trim(status(t, "CapPrm"), "0") != "" {
			t.Errorf("a capability came back: %v, %s", err, status(t, "CapPrm"))
		}
	})
	if got := status(t, "CapPrm"); got != before {
		t.Errorf("capabilities of another thread: %s, before %s", got, before)
	}
}

// TestForbidSending: a thread can receive and not send, in any way.
func TestForbidSending(t *testing.T) {
	onThread(func() {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		message := []byte("x")
		send := map[string]func() error{
			"sendto": func() error {
				return unix.Sendto(pair[0], message, 0, &unix.SockaddrUnix{Name: "/not-there"})
			},
			"sendmsg": func() error { return unix.Sendmsg(pair[0], message, nil, nil, 0) },
			"sendmmsg": func() error {
				_, _, e := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(pair[0]), 0, 0, 0, 0, 0)
				return os.NewSyscallError("sendmmsg", e)
			},
			"bind": func() error { return unix.Bind(pair[0], &unix.SockaddrUnix{}) },
			"io_uring_setup": func() error {
				_, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 0, 0, 0)
				return os.NewSyscallError("io_uring_setup", e)
			},
		}
		if err := send["sendmsg"](); err != nil {
			t.Error(err)
		}
		if err := errors.Join(Drop(), ForbidSending()); err != nil {
			t.Error(err)
			return
		}
		for name, f := range send {
			if err := f(); !errors.Is(err, unix.EPERM) {
				t.Errorf("%s: %v, want EPERM", name, err)
			}
		}
		if n, err := unix.Read(pair[1], make([]byte, 8)); n != 1 || err != nil { // what was sent before
			t.Errorf("read: %d, %v", n, err)
		}
	})
}
