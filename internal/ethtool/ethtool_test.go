package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
)

func newTestDevice(t testing.TB, ioctl Ioctl) *Device {
	t.Helper()
	d, err := NewDevice("eth0", ioctl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func stats(pairs ...any) (list []ethtooltest.Stat) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, ethtooltest.Stat{Name: pairs[i].(string), Value: uint64(pairs[i+1].(int))})
	}
	return list
}

// TestRead reads one interface through all changes of its table, on kernels that check the count and on those that
// do not.
func TestRead(t *testing.T) {
	long := strings.Repeat("n", 32) // fills its field, so no zero byte ends it
	for _, checks := range []bool{false, true} {
		t.Run(fmt.Sprintf("kernel checks the count: %v", checks), func(t *testing.T) {
			eth0 := &ethtooltest.Netdev{Stats: stats("rx", 1, "tx", 2)}
			k := &ethtooltest.Kernel{Checks: checks, Netdevs: map[string]*ethtooltest.Netdev{"eth0": eth0}}
			var calls map[uint32]int
			eth0.Before = func(cmd uint32) error { calls[cmd]++; return nil }
			clock := time.Unix(0, 0)
			d := newTestDevice(t, k.Ioctl)
			d.now = func() time.Time { return clock }
			var names []string
			for _, step := range []struct {
				name   string
				do     func()
				learnt bool
				calls  string // count, names, values
				want   []ethtooltest.Stat
			}{
				{"first", func() {}, true, "1 1 1", stats("rx", 1, "tx", 2)},
				{"one ioctl", func() { eth0.Stats[0].Value = 1 << 40 }, false, "0 0 1", stats("rx", 1<<40, "tx", 2)},
				{"grows", func() {
					eth0.Stats = stats("rx", 3, long, 4, "tx", 5)
				}, true, "1 1 2", stats("rx", 3, long, 4, "tx", 5)},
				{"shrinks", func() { eth0.Stats = stats("tx", 6) }, true, "1 1 2", stats("tx", 6)},
				{"told to forget, nothing changed", d.Forget, false, "1 1 1", stats("tx", 6)},
				{"other name, told to forget", func() {
					d.Forget()
					eth0.Stats = stats("rx", 7)
				}, true, "1 1 1", stats("rx", 7)},
				{"other name, after a minute", func() {
					clock = clock.Add(MaxAge)
					eth0.Stats = stats("up", 8)
				}, true, "1 1 1", stats("up", 8)},
			} {
				step.do()
				calls = map[uint32]int{}
				learnt := false
				values, err := d.Read(func(n []string) { names, learnt = n, true })
				if err != nil {
					t.Fatalf("%s: %v", step.name, err)
				}
				var got []ethtooltest.Stat
				for i, v := range values {
					got = append(got, ethtooltest.Stat{Name: names[i], Value: v})
				}
				made := fmt.Sprint(calls[unix.ETHTOOL_GSSET_INFO], calls[unix.ETHTOOL_GSTRINGS],
					calls[unix.ETHTOOL_GSTATS])
				if diff := cmp.Diff(step.want, got); diff != "" || learnt != step.learnt || made != step.calls {
					t.Errorf("%s: learnt %v, calls %s (-want +got):\n%s", step.name, learnt, made, diff)
				}
			}
		})
	}
}

// refuse answers every request with an error.
func refuse(err error) func(uint32) error { return func(uint32) error { return err } }

func TestReadErrors(t *testing.T) {
	many := make([]ethtooltest.Stat, MaxStatistics+1)
	for name, tt := range map[string]struct {
		netdev *ethtooltest.Netdev
		want   error
	}{
		"no such interface": {nil, unix.ENODEV},
		"no statistics":     {&ethtooltest.Netdev{}, unix.EOPNOTSUPP},
		"no ethtool":        {&ethtooltest.Netdev{Before: refuse(unix.EOPNOTSUPP)}, unix.EOPNOTSUPP},
		"too many":          {&ethtooltest.Netdev{Stats: many}, unix.E2BIG},
		"broken":            {&ethtooltest.Netdev{Before: refuse(unix.EIO)}, unix.EIO},
	} {
		k := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": tt.netdev}}
		if tt.netdev == nil {
			k.Netdevs = nil
		}
		values, err := newTestDevice(t, k.Ioctl).Read(func([]string) {})
		if !errors.Is(err, tt.want) || values != nil {
			t.Errorf("%s: %v, %v; want %v", name, values, err, tt.want)
		}
	}
}

// TestReadGrowsBeyondBounds: between two reads, the driver gains more statistics than the buffer can hold.
func TestReadGrowsBeyondBounds(t *testing.T) {
	eth0 := &ethtooltest.Netdev{Stats: stats("rx", 1)}
	d := newTestDevice(t, (&ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": eth0}}).Ioctl)
	if _, err := d.Read(func([]string) {}); err != nil {
		t.Fatal(err)
	}
	eth0.Stats = make([]ethtooltest.Stat, len(d.request()))
	if _, err := d.Read(func([]string) {}); !errors.Is(err, unix.EFAULT) {
		t.Errorf("%v, want EFAULT", err)
	}
	eth0.Stats = stats("rx", 2)
	if values, err := d.Read(func([]string) {}); err != nil || values[0] != 2 {
		t.Errorf("afterwards: %v, %v", values, err)
	}
}

// TestReadNeverStill: the driver's statistics change with every request.
func TestReadNeverStill(t *testing.T) {
	eth0 := &ethtooltest.Netdev{Stats: stats("rx", 1)}
	attempts := 0
	eth0.Before = func(cmd uint32) error {
		if cmd == unix.ETHTOOL_GSSET_INFO {
			attempts++
		}
		eth0.Stats = append(eth0.Stats, ethtooltest.Stat{Name: "more"})
		return nil
	}
	d := newTestDevice(t, (&ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": eth0}}).Ioctl)
	if values, err := d.Read(func([]string) {}); !errors.Is(err, ErrChanged) || values != nil {
		t.Errorf("%v, %v", values, err)
	}
	if attempts != 3 {
		t.Errorf("%d attempts", attempts)
	}
}

func TestDriver(t *testing.T) {
	k := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": {Driver: "mlx5_core",
		Bus: "0000:1a:00.0"}}}
	driver, bus, err := newTestDevice(t, k.Ioctl).Driver()
	if driver != "mlx5_core" || bus != "0000:1a:00.0" || err != nil {
		t.Errorf("%q, %q, %v", driver, bus, err)
	}
}

// TestKernel queries the real kernel about a veth pair in a separate network namespace, and about interfaces
// without statistics or that do not exist.
func TestKernel(t *testing.T) {
	skip := make(chan string)
	go func() { // the thread is not unlocked: it ends with its namespace
		runtime.LockOSThread()
		skip <- testKernel(t)
	}()
	if why := <-skip; why != "" {
		t.Skip(why)
	}
}

func testKernel(t *testing.T) (skip string) {
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		return fmt.Sprintf("make a network namespace: %v", err)
	} else if err != nil {
		t.Errorf("make a network namespace: %v", err)
		return ""
	}
	if out, err := exec.Command("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1").
		CombinedOutput(); err != nil {
		return fmt.Sprintf("make a veth pair: %v: %s", err, out)
	}
	s, err := Open()
	if err != nil {
		t.Error(err)
		return ""
	}
	defer s.Close()
	d := newTestDevice(t, s.Ioctl)
	if driver, _, err := d.Driver(); driver != "veth" || err != nil {
		t.Errorf("driver %q, %v", driver, err)
	}
	var names []string
	for range 2 {
		values, err := d.Read(func(n []string) { names = n })
		if err != nil || len(values) != len(names) || len(names) == 0 || names[0] != "peer_ifindex" || values[0] == 0 {
			t.Errorf("%q %v, %v", names, values, err)
		}
	}
	for name, want := range map[string]error{"lo": unix.EOPNOTSUPP, "eth9": unix.ENODEV,
		"a-name-over-15-bytes": unix.ENODEV} {
		d, err := NewDevice(name, s.Ioctl)
		if err != nil {
			t.Error(err)
			return ""
		}
		if _, err := d.Read(func([]string) {}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		d.Close()
	}
	// veth has no FEC. The kernel would reject a malformed request with another error.
	if mode, err := d.FECMode(); mode != "" || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("FEC mode %q, %v", mode, err)
	}
	for name, want := range map[string]error{"eth0": unix.EOPNOTSUPP, "eth9": unix.ENODEV} {
		if fec, err := ReadFEC(name); !cmp.Equal(fec, FEC{}) || !errors.Is(err, want) {
			t.Errorf("FEC of %s: %v, %v, want %v", name, fec, err, want)
		}
	}
	// A driver with more statistics than the remaining buffer: the kernel's copy ends at the guard page.
	req := d.request()
	req = req[len(req)-16:]
	clear(req)
	binary.NativeEndian.PutUint32(req, unix.ETHTOOL_GSTATS)
	if len(names) > 1 {
		if err := s.Ioctl("eth0", req); !errors.Is(err, unix.EFAULT) {
			t.Errorf("beyond the room: %v, want EFAULT", err)
		}
	}
	return ""
}

func BenchmarkRead(b *testing.B) {
	for _, count := range []int{100, 3000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			list := make([]ethtooltest.Stat, count)
			d := newTestDevice(b,
				(&ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": {Stats: list}}}).Ioctl)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Read(func([]string) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
