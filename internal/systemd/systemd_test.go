package systemd_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/systemd"
)

// manager is the service manager's end of the notification socket.
type manager struct {
	t  *testing.T
	fd int
}

func listen(t *testing.T) manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return manager{t, int(f.Fd())}
}

// heard returns the datagrams that have arrived, without waiting.
func (m manager) heard() []string {
	m.t.Helper()
	list := []string{}
	var buf [4096]byte
	for {
		n, _, err := unix.Recvfrom(m.fd, buf[:], unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return list
		}
		if err != nil {
			m.t.Fatal(err)
		}
		list = append(list, string(buf[:n]))
	}
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}

func TestNotify(t *testing.T) {
	m := listen(t)
	systemd.Ready()
	before := monotonic(t)
	systemd.Reloading()
	after := monotonic(t)
	systemd.Stopping()
	got := m.heard()
	if len(got) != 3 {
		t.Fatalf("%q", got)
	}
	stamp := regexp.MustCompile(`MONOTONIC_USEC=(\d+)$`)
	digits := stamp.FindStringSubmatch(got[1])
	if digits == nil {
		t.Fatalf("no time in %q", got[1])
	}
	if at, err := strconv.ParseInt(digits[1], 10, 64); err != nil || at < before || at > after {
		t.Errorf("%q: not between %d and %d microseconds", got[1], before, after)
	}
	got[1] = stamp.ReplaceAllString(got[1], "MONOTONIC_USEC=now")
	if diff := cmp.Diff([]string{"READY=1", "RELOADING=1\nMONOTONIC_USEC=now", "STOPPING=1"}, got); diff != "" {
		t.Error(diff)
	}
}

// Outside a unit, and with a manager that has exited, nothing happens.
func TestNotifyNobody(t *testing.T) {
	for _, socket := range []string{"", filepath.Join(t.TempDir(), "absent")} {
		t.Setenv("NOTIFY_SOCKET", socket)
		systemd.Ready()
		systemd.Reloading()
		systemd.Stopping()
	}
}

func TestWatchdog(t *testing.T) {
	m := listen(t)
	t.Setenv("WATCHDOG_USEC", "4000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		stuck := make(chan struct{})
		stop := systemd.Watchdog(func() {
			if asked.Add(1) == 3 {
				<-stuck
			}
		})
		type moment struct {
			After time.Duration
			Asked int32
			Heard []string
		}
		start := time.Now()
		var got []moment
		look := func(at time.Duration) {
			time.Sleep(at - time.Since(start))
			synctest.Wait()
			got = append(got, moment{at, asked.Load(), m.heard()})
		}
		look(1900 * time.Millisecond)
		look(2100 * time.Millisecond) // twice per WatchdogSec
		look(4100 * time.Millisecond)
		look(6100 * time.Millisecond) // alive has not returned: no notification
		look(30 * time.Second)
		close(stuck)
		look(30100 * time.Millisecond) // alive has returned, and the missed tick follows
		stop()
		look(time.Minute)
		ping := []string{"WATCHDOG=1"}
		want := []moment{
			{1900 * time.Millisecond, 0, []string{}},
			{2100 * time.Millisecond, 1, ping},
			{4100 * time.Millisecond, 2, ping},
			{6100 * time.Millisecond, 3, []string{}},
			{30 * time.Second, 3, []string{}},
			{30100 * time.Millisecond, 4, []string{"WATCHDOG=1", "WATCHDOG=1"}},
			{time.Minute, 4, []string{}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWatchdogNotWanted(t *testing.T) {
	m := listen(t)
	for name, env := range map[string][2]string{
		"not set":       {"", ""},
		"rubbish":       {"soon", ""},
		"zero":          {"0", ""},
		"of another":    {"2000000", "1"},
		"another twice": {"2000000", strconv.Itoa(os.Getppid())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("WATCHDOG_USEC", env[0])
			t.Setenv("WATCHDOG_PID", env[1])
			if env[1] == "" {
				os.Unsetenv("WATCHDOG_PID")
			}
			synctest.Test(t, func(t *testing.T) {
				stop := systemd.Watchdog(func() { t.Error("asked") })
				time.Sleep(time.Minute)
				synctest.Wait()
				stop()
			})
			if got := m.heard(); len(got) != 0 {
				t.Errorf("heard %q", got)
			}
		})
	}
}
