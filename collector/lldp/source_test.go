package lldp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/lldp"
	"github.com/railscope/railscope/internal/netnstest"
	"github.com/railscope/railscope/internal/rail"
)

func write(t *testing.T, path string, content any) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Append(nil, content, "\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// machine is two rails: eth0, and a bond of eth1 and eth2. A third rail has no interface.
type machine struct{ dir string }

func newMachine(t *testing.T) machine {
	m := machine{t.TempDir()}
	for name, index := range map[string]int{"eth0": 2, "eth1": 3, "eth2": 4, "bond0": 5} {
		m.set(t, name, index, 1)
	}
	for _, dir := range []string{"bonding", "lower_eth1", "lower_eth2"} {
		if err := os.Mkdir(filepath.Join(m.dir, "class/net/bond0", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m machine) set(t *testing.T, name string, index, ups int) {
	write(t, filepath.Join(m.dir, "class/net", name, "ifindex"), index)
	write(t, filepath.Join(m.dir, "class/net", name, "carrier_up_count"), ups)
}

func (m machine) rails() ([]rail.Rail, error) {
	return []rail.Rail{{Name: "0", Netdev: "eth0"}, {Name: "1", Netdev: "bond0"}, {Name: "ib"}}, nil
}

func said(chassis, port, system string) lldp.Neighbor {
	return lldp.Neighbor{Chassis: chassis, Port: port, System: system, TTL: 2 * time.Minute}
}

// TestNeighbors: what is known of each interface, as frames and time go by.
func TestNeighbors(t *testing.T) {
	station := said("h", "eth0", "node-2")
	station.Station = true
	stopping := said("a", "swp1", "leaf-a")
	stopping.TTL = 0
	type step struct {
		after time.Duration // since the last step
		index int           // interface of the frame; 0: none
		frame lldp.Neighbor
		ups   int // carrier_up_count of eth0 from now on; 0: unchanged
	}
	for _, tc := range []struct {
		name   string
		steps  []step
		want   string // series of the rail 0, as neighbor/port
		leaves [2]string
	}{
		{"nothing heard", nil, "", [2]string{}},
		{"one switch", []step{{index: 2, frame: said("a", "swp1", "leaf-a")}}, "leaf-a/swp1", [2]string{"leaf-a"}},
		{"without name", []step{{index: 2, frame: said("a", "swp1", "")}}, "a/swp1", [2]string{"a"}},
		{"an interface of no rail", []step{{index: 9, frame: said("a", "swp1", "leaf-a")}}, "", [2]string{}},
		{"a host", []step{{index: 2, frame: station}}, "node-2/eth0", [2]string{}},
		{"a bond to two switches", []step{{index: 4, frame: said("b", "swp1", "leaf-b")},
			{index: 3, frame: said("a", "swp1", "leaf-a")}}, "", [2]string{"", "leaf-a+leaf-b"}},
		{"a bond to one switch", []step{{index: 4, frame: said("a", "swp2", "leaf-a")},
			{index: 3, frame: said("a", "swp1", "leaf-a")}}, "", [2]string{"", "leaf-a"}},
		{"half of a bond was heard", []step{{index: 3, frame: said("a", "swp1", "leaf-a")}}, "", [2]string{"", "leaf-a"}},
		{"two at once", []step{{index: 2, frame: said("a", "swp1", "leaf-a")},
			{index: 2, frame: said("b", "swp1", "leaf-b")}}, "leaf-a/swp1 leaf-b/swp1", [2]string{}},
		{"two with the same names", []step{{index: 2, frame: said("a", "swp1", "leaf-a")},
			{index: 2, frame: said("b", "swp1", "leaf-a")}}, "leaf-a/swp1", [2]string{}},
		{"the first of two is silent for its TTL", []step{{index: 2, frame: said("a", "swp1", "leaf-a")},
			{after: 121 * time.Second, index: 2, frame: said("b", "swp1", "leaf-b")}}, "leaf-b/swp1", [2]string{"leaf-b"}},
		{"the first of two stops", []step{{index: 2, frame: said("a", "swp1", "leaf-a")}, {index: 2, frame: stopping},
			{after: time.Second, index: 2, frame: said("b", "swp1", "leaf-b")}}, "leaf-b/swp1", [2]string{"leaf-b"}},
		{"a switch that died", []step{{index: 2, frame: said("a", "swp1", "leaf-a")}, {after: time.Hour}},
			"leaf-a/swp1", [2]string{"leaf-a"}},
		{"a switch that stopped", []step{{index: 2, frame: stopping}, {after: time.Hour}},
			"leaf-a/swp1", [2]string{"leaf-a"}},
		{"the carrier came back a minute ago", []step{{index: 2, frame: said("a", "swp1", "leaf-a")},
			{after: time.Hour, ups: 2}, {after: time.Minute}}, "leaf-a/swp1", [2]string{"leaf-a"}},
		{"the carrier came back, and nothing was heard since", []step{{index: 2, frame: said("a", "swp1", "leaf-a")},
			{after: time.Hour, ups: 2}, {after: 121 * time.Second}}, "", [2]string{}},
		{"another switch after the carrier came back", []step{{index: 2, frame: said("a", "swp1", "leaf-a")},
			{after: time.Second, ups: 2}, {after: time.Second, index: 2, frame: said("b", "swp1", "leaf-b")}},
			"leaf-b/swp1", [2]string{"leaf-b"}},
		{"a new name of the same switch", []step{{index: 2, frame: said("a", "swp1", "sonic")},
			{index: 2, frame: said("a", "swp1", "leaf-a")}}, "leaf-a/swp1", [2]string{"leaf-a"}},
		{"more than there can be", []step{{index: 2, frame: said("a", "swp1", "leaf-a")},
			{index: 2, frame: said("b", "swp1", "leaf-b")}, {index: 2, frame: said("a", "swp1", "leaf-a")},
			{index: 2, frame: said("c", "swp1", "leaf-c")}, {index: 2, frame: said("d", "swp1", "leaf-d")},
			{index: 2, frame: said("e", "swp1", "leaf-e")}},
			"leaf-a/swp1 leaf-c/swp1 leaf-d/swp1 leaf-e/swp1", [2]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				s := New(m.dir, m.rails)
				s.update(s.find(), time.Now())
				for _, step := range tc.steps {
					time.Sleep(step.after)
					if step.ups > 0 {
						m.set(t, "eth0", 2, step.ups)
					}
					s.update(s.find(), time.Now())
					if step.index > 0 {
						s.note(heard{step.index, step.frame})
					}
				}
				lines, faults, _ := collectortest.ReadLines(t, s)
				var got []string
				for _, line := range lines {
					var name, port string
					if strings.Contains(line, `rail="0",netdev="eth0"`) {
						_, rest, _ := strings.Cut(line, `neighbor="`)
						name, rest, _ = strings.Cut(rest, `"`)
						_, rest, _ = strings.Cut(rest, `"`)
						port, _, _ = strings.Cut(rest, `"`)
						got = append(got, name+"/"+port)
					}
				}
				if leaves := [2]string{s.Leaf("0"), s.Leaf("1")}; strings.Join(got, " ") != tc.want || leaves != tc.leaves ||
					len(faults) > 0 {
					t.Errorf("%q, leaves %q, faults %q; want %q, %q", got, leaves, faults, tc.want, tc.leaves)
				}
			})
		})
	}
}

// TestAbsent: InfiniBand has no interfaces that could hear anything, which is no fault.
func TestAbsent(t *testing.T) {
	m := newMachine(t)
	s := New(m.dir, func() ([]rail.Rail, error) { return []rail.Rail{{Name: "ib"}}, nil })
	s.update(s.find(), time.Now())
	if _, _, err := collectortest.ReadLines(t, s); !errors.Is(err, collector.ErrAbsent) {
		t.Error(err)
	}
}

// TestReplacedInterface: an interface of another name, or one that is gone, does not keep what was heard.
func TestReplacedInterface(t *testing.T) {
	m := newMachine(t)
	s := New(m.dir, m.rails)
	s.update(s.find(), time.Now())
	s.note(heard{2, said("a", "swp1", "leaf-a")})
	s.note(heard{3, said("b", "swp1", "leaf-b")})
	m.set(t, "eth0", 3, 1) // the indices have changed places
	m.set(t, "eth1", 2, 1)
	s.update(s.find(), time.Now())
	if lines, _, _ := collectortest.ReadLines(t, s); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
}

// frame is a frame of a switch.
func frame(system string) []byte {
	tlv := func(kind int, value string) []byte {
		return append(binary.BigEndian.AppendUint16(nil, uint16(kind<<9|len(value))), value...)
	}
	return slices.Concat(tlv(1, "\x07c"), tlv(2, "\x05swp1"), tlv(3, "\x00\x78"), tlv(5, system), tlv(0, ""))
}

// send sends a frame to the address of nearest bridges.
func send(netdev string, payload []byte) error {
	at, err := net.InterfaceByName(netdev)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, payload, 0, &unix.SockaddrLinklayer{Protocol: 0xcc88, Ifindex: at.Index, Halen: 6,
		Addr: [8]byte{1, 0x80, 0xc2, 0, 0, 0x0e}})
}

// TestHelper: the helper process, without capabilities, receives what the kernel has, of an interface that appears
// later also. A helper that is killed is reported, and no process stays when the source ends.
func TestHelper(t *testing.T) {
	n := netnstest.New(t, "link add eth0 type veth peer name far0\nlink set eth0 up\nlink set far0 up\n"+
		"link add eth1 type veth peer name far1\nlink set eth1 up\nlink set far1 up")
	m := machine{t.TempDir()}
	add := func(name string) {
		err := n.In(func() error {
			at, err := net.InterfaceByName(name)
			if err == nil {
				m.set(t, name, at.Index, 1)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add("eth0")
	s := New(m.dir, func() ([]rail.Rail, error) {
		return []rail.Rail{{Name: "0", Netdev: "eth0"}, {Name: "1", Netdev: "eth1"}}, nil
	}, "/proc/self/exe", "helper")
	s.open = func() (socket *lldp.Socket, err error) {
		err = n.In(func() (err error) { socket, err = lldp.Open(); return err })
		return socket, err
	}
	h, err := start(s.command, s.open)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.tend(ctx, h)
	received := make(chan error)
	go func() { received <- h.receive(s.note) }()
	// heardOf waits until a rail's switch is known. The frames are sent again: the first may come too early.
	heardOf := func(rail, far, system string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); s.Leaf(rail) != system; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("rail %s: %q, want %q", rail, s.Leaf(rail), system)
			}
			err := n.In(func() error { return errors.Join(send(far, []byte("broken")), send(far, frame(system))) })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	heardOf("0", "far0", "leaf-a")
	add("eth1")
	heardOf("1", "far1", "leaf-b")

	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(h.pid), "status"))
	for _, want := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if err != nil || !strings.Contains(string(status), want+"\n") {
			t.Errorf("%v, no %q in\n%s", err, want, status)
		}
	}
	if err := unix.Kill(h.pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := <-received; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("after the helper was killed: %v", err)
	}

	stopped := make(chan error)
	ctx, stop = context.WithCancel(t.Context())
	go func() { stopped <- s.listen(ctx) }()
	heardOf("0", "far0", "leaf-c")
	stop()
	if err := <-stopped; err == nil || strings.Contains(err.Error(), "killed") {
		t.Errorf("stopped: %v", err)
	}
}

// TestErrors: what a read says if nothing is received.
func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error // error of opening the socket
		want string
	}{
		{"no capability", unix.EPERM, ": permission"},
		{"no packet sockets", unix.EAFNOSUPPORT, ": io"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				s := New(m.dir, m.rails)
				s.open = func() (*lldp.Socket, error) { return nil, fmt.Errorf("open a packet socket: %w", tc.err) }
				ctx, stop := context.WithCancel(t.Context())
				go s.Run(ctx)
				synctest.Wait()
				_, faults, err := collectortest.ReadLines(t, s)
				if !slices.Equal(faults, []string{tc.want}) || !errors.Is(err, tc.err) {
					t.Errorf("%q, %v", faults, err)
				}
				stop()
			})
		})
	}
}

// TestRelay: frames that come faster than any switch sends them wait in the kernel.
func TestRelay(t *testing.T) {
	var out bytes.Buffer
	slept, frames := 0, 0
	err := relay(func(*[lldp.MaxFrame]byte) ([]byte, int, error) {
		frames++
		if frames > 250 {
			return nil, 0, unix.EBADF
		}
		if frames%2 == 0 {
			return []byte("broken"), 7, nil
		}
		return frame("leaf-a"), 7, nil
	}, &out, func(d time.Duration) { slept += int(d / time.Second) })
	if lines := bytes.Count(out.Bytes(), []byte("\n")); lines != 125 || slept != 2 || !errors.Is(err, unix.EBADF) {
		t.Errorf("%d frames, slept for %d s, %v", lines, slept, err)
	}
}
