package fakeverbs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfs"
)

// client is a process that calls the library on command: see testdata/client.c.
type client struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func start(t *testing.T, f *Fabric, node string) *client {
	t.Helper()
	lib := Library(t)
	// FAKEVERBS_RUN is the command that runs programs of another architecture.
	command := append(strings.Fields(os.Getenv("FAKEVERBS_RUN")),
		Compile(t, sources, "client", []string{"-Wl,-rpath," + filepath.Dir(lib)}, "client.c", lib))
	c := &client{t: t, cmd: exec.Command(command[0], command[1:]...), lines: make(chan string, 64)}
	c.cmd.Env = append(os.Environ(), f.Env(node)...)
	c.cmd.Stderr = os.Stderr
	var err error
	c.in, err = c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		c.in.Close()
		timer := time.AfterFunc(5*time.Second, func() { _ = c.cmd.Process.Kill() })
		<-done
		_ = c.cmd.Wait()
		timer.Stop()
	})
	return c
}

// send sends one line.
func (c *client) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

// do sends one line and returns the answer: "" if the process died, "hangs" after a timeout.
func (c *client) do(format string, args ...any) string {
	c.t.Helper()
	c.send(format, args...)
	return c.answer(10 * time.Second)
}

func (c *client) answer(limit time.Duration) string {
	select {
	case s := <-c.lines:
		return s
	case <-time.After(limit):
		return "hangs"
	}
}

func (c *client) want(answer, format string, args ...any) {
	c.t.Helper()
	if got := c.do(format, args...); got != answer {
		c.t.Fatalf("%s: %q, want %q", fmt.Sprintf(format, args...), got, answer)
	}
}

// end is one endpoint of a client.
type end struct {
	*client
	letter, gid     string
	qpn, addr, rkey uint64
}

const (
	size     = 1 << 20
	depth    = 32
	access   = 3 // local and remote write
	signaled = 2
	psnA     = 0x123456
	psnB     = 0x654321
)

func (c *client) open(letter, device, addr string) *end {
	c.t.Helper()
	return c.openWith(letter, device, addr, access)
}

func (c *client) openWith(letter, device, addr string, access int) *end {
	c.t.Helper()
	e := &end{client: c, letter: letter, gid: "::ffff:" + addr}
	answer := c.do("open %s %s %d %d %d", letter, device, size, access, depth)
	if _, err := fmt.Sscan(answer, &e.qpn, &e.addr, &e.rkey); err != nil {
		c.t.Fatalf("open %s: %q", device, answer)
	}
	return e
}

func (e *end) rtr(to *end, psn int) string {
	return e.do("rtr %s %s %d %d 3 5 1 0", e.letter, to.gid, to.qpn, psn)
}

func connect(a, b *end) {
	a.t.Helper()
	a.want("ok", "init %s - 1 %d", a.letter, access)
	b.want("ok", "init %s - 1 %d", b.letter, access)
	if s := a.rtr(b, psnB) + b.rtr(a, psnA); s != "okok" {
		a.t.Fatal(s)
	}
	a.want("ok", "rts %s - %d", a.letter, psnA)
	b.want("ok", "rts %s - %d", b.letter, psnB)
}

// write posts writes of this many bytes. It returns the error of post, or else "wr_id:status/vendor" of each
// completion, and the time since before the post.
func (e *end) write(to *end, bytes, count int) (string, time.Duration) {
	e.t.Helper()
	begin := time.Now()
	if s := e.do("write %s - %d %d %d %d %d", e.letter, to.addr, to.rkey, bytes, count, signaled); s != "ok" {
		return s, 0
	}
	got, _ := e.poll(count, 5*time.Second)
	return got, time.Since(begin)
}

func (e *end) poll(count int, limit time.Duration) (string, time.Duration) {
	e.t.Helper()
	statuses, took, ok := strings.Cut(e.do("poll %s - %d %d", e.letter, count, limit.Milliseconds()), "in ")
	seconds, err := strconv.ParseFloat(took, 64)
	if !ok || err != nil {
		e.t.Fatalf("poll: %q %q", statuses, took)
	}
	return strings.TrimSpace(statuses), time.Duration(seconds * float64(time.Second))
}

// pair returns two connected endpoints on two nodes, each in its own process.
func pair(t *testing.T, knobs Knobs) (f *Fabric, a, b *end) {
	t.Helper()
	f = New(t)
	f.Add("A", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.1"), Knobs: knobs})
	f.Add("B", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.2")})
	a, b = start(t, f, "A").open("a", "mlx5_0", "192.0.2.1"), start(t, f, "B").open("b", "mlx5_0", "192.0.2.2")
	connect(a, b)
	return f, a, b
}

// TestWriteArrives: written bytes arrive in both directions, in another process and in the same one. Both ports count
// them, and nothing stays open.
func TestWriteArrives(t *testing.T) {
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
			f := New(t)
			nodes := []string{"A", "B"}[:processes]
			f.Add(nodes[0], Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.1")})
			f.Add(nodes[processes-1], Device{Name: "mlx5_1", GIDs: RoCE("192.0.2.2")})
			ca := start(t, f, nodes[0])
			cb := ca
			if processes == 2 {
				cb = start(t, f, nodes[1])
			}
			a, b := ca.open("a", "mlx5_0", "192.0.2.1"), cb.open("b", "mlx5_1", "192.0.2.2")
			connect(a, b)
			a.want("ok", "fill a - 7")
			if got, _ := a.write(b, size, 1); got != "0:0/0" {
				t.Fatal(got)
			}
			b.want("0 wrong", "check b - 7")
			b.want("ok", "fill b - 9")
			if got, _ := b.write(a, size, 2); got != "0:0/0 1:0/0" {
				t.Fatal(got)
			}
			a.want("0 wrong", "check a - 9")
			packets, wire := uint64(size/4096), uint64(size/4096*(4096+58))
			want := map[string]uint64{"A xmit": wire / 4, "A rcv": 2 * wire / 4, "A packets": packets,
				"B xmit": 2 * wire / 4, "B rcv": wire / 4, "B packets": 2 * packets}
			got := map[string]uint64{}
			for i, node := range []string{nodes[0], nodes[processes-1]} {
				port := filepath.Join(f.Sysfs(node), "class/infiniband", fmt.Sprint("mlx5_", i), "ports/1/counters")
				for name, file := range map[string]string{"xmit": "port_xmit_data", "rcv": "port_rcv_data",
					"packets": "port_xmit_packets"} {
					v, err := sysfs.ReadUint(port, file)
					if err != nil {
						t.Fatal(err)
					}
					got[[]string{"A ", "B "}[i]+name] = v
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if left := f.Left(); len(left) != 10 {
				t.Errorf("%d objects are open, want 10: %q", len(left), left)
			}
			a.want("dealloc: errno 16", "dealloc a -") // it contains the region
			a.want("ok", "close a -")
			b.want("ok", "close b -")
			if left := f.Left(); left != nil {
				t.Error(left)
			}
		})
	}
}

// TestLockOfTheDead: a process that was killed with the fabric's lock does not block others.
func TestLockOfTheDead(t *testing.T) {
	f, a, b := pair(t, Knobs{})
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	f.shared.owner.Store(uint64(dead.Process.Pid))
	if got, _ := a.write(b, size, 1); got != "0:0/0" {
		t.Error(got)
	}
	if owner := f.shared.owner.Load(); owner != 0 {
		t.Errorf("process %d has the lock still", owner)
	}
}
