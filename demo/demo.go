// Package demo is a machine that there is not: two nodes with two rails each, a
// training job on them, and files, GPUs and a network to show it by. Everything
// above stays what it is on real nodes. What it claims is what it carries: a rail
// is a pair of loopback sockets for the probe, shaped to the rate that its port
// names, and counters count what passed, the job's make-believe and the probe's
// real bytes together.
package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

// Nodes and Rails are how many there are, and rails of each.
const (
	Nodes = 2
	Rails = 2

	nodes = Nodes
)

// Rate is what a rail's port claims, in Gb/s: the least that the kernel has a
// word for, and what two cores carry over loopback on two rails at once.
const Rate = 2.5

// Notice is what people must know who look at the figures.
const Notice = "Demo: these nodes are simulated. Rails are shaped TCP connections on this machine, not RDMA; GPUs " +
	"and the job on them are made up."

// Options say what is to be seen. The zero value is two healthy nodes.
type Options struct {
	Rate      float64         // of a port, in Gb/s; 0 means [Rate]
	Degrade   map[int]float64 // rail → what is left of its rate, above 0 and below 1
	Fallback  bool            // RDMA does not get through
	Fail      map[int]bool    // rails whose port on the first node goes down
	FailAfter time.Duration   // when: a port that has never been up is nobody's loss
	// not before this is closed, unless nil: a busy machine shows the port later than FailAfter
	FailHold <-chan struct{}
}

// Demo is both nodes and what is between them.
type Demo struct {
	Nodes [Nodes]*Node

	opts  Options
	dir   string
	links [Rails]*link
	job   job

	moving sync.Mutex // protects the files' contents, and all following fields
	moved  time.Time  // until when the job has sent what it sends
	closed bool
}

// Node is one of the nodes: where its files are, and what else it has.
type Node struct {
	Name   string // as it calls itself
	Sysfs  string
	Procfs string
	Rootfs string

	demo  *Demo
	index int
	files []*counterFile
}

// New makes the files of both nodes in a directory of its own below parent,
// empty for that of temporary files. Close removes it.
func New(parent string, opts Options) (*Demo, error) {
	dir, err := os.MkdirTemp(parent, "railscope-demo-")
	if err != nil {
		return nil, fmt.Errorf("make files for the demo: %w (TMPDIR names another place)", err)
	}
	now := time.Now()
	d := &Demo{opts: opts, dir: dir, job: job{began: now}, moved: now}
	d.opts.Rate = cmp.Or(opts.Rate, Rate)
	for r := range d.links {
		d.links[r] = &link{rate: d.opts.Rate * 125e6 * cmp.Or(opts.Degrade[r], 1)}
	}
	for i := range d.Nodes {
		n := &Node{Name: fmt.Sprintf("demo-%d", i+1), demo: d, index: i, Rootfs: filepath.Join(dir, strconv.Itoa(i+1))}
		n.Sysfs, n.Procfs = filepath.Join(n.Rootfs, "sys"), filepath.Join(n.Rootfs, "proc")
		d.Nodes[i] = n
		if err := n.write(); err != nil {
			d.Close()
			return nil, fmt.Errorf("make files for the demo: %w (TMPDIR names another place)", err)
		}
	}
	return d, nil
}

// Dir is where the files are.
func (d *Demo) Dir() string { return d.dir }

// Close removes the files.
func (d *Demo) Close() {
	d.moving.Lock()
	defer d.moving.Unlock()
	d.closed = true
	for _, n := range d.Nodes {
		if n == nil {
			continue
		}
		for _, f := range n.files {
			f.close()
		}
	}
	_ = os.RemoveAll(d.dir) // it is ours and below the directory of temporary files: whoever clears that clears it
}

// every is how often the job moves, and the counters with it: often enough that
// a sample of 100 ms does not tell.
const every = 10 * time.Millisecond

// mostMissed is the most that the job makes up for when this machine had other
// things to do: all at once would be more than the rails carry.
const mostMissed = 3 * every

// Run has the job work, and rails fail, until ctx is done.
func (d *Demo) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !failed && time.Since(d.job.began) >= d.opts.FailAfter && !d.opts.held() {
				failed = true
				d.fail()
			}
			d.advance(0)
		}
	}
}

func (o *Options) held() bool {
	select {
	case <-o.FailHold:
		return false
	default:
		return o.FailHold != nil
	}
}

// advance has the job send what it sends until now, shows it, and then has the
// job stand aside for a while, if that is not 0.
func (d *Demo) advance(aside time.Duration) {
	d.moving.Lock()
	defer d.moving.Unlock()
	now := time.Now()
	d.move(d.job.at(now), min(now.Sub(d.moved), mostMissed))
	d.moved = now
	d.flushLocked()
	if aside > 0 {
		d.job.standAside(aside)
	}
}

// flush makes the files show what was carried.
func (d *Demo) flush() {
	d.moving.Lock()
	defer d.moving.Unlock()
	d.flushLocked()
}

func (d *Demo) flushLocked() {
	if d.closed {
		return
	}
	for _, n := range d.Nodes {
		for _, f := range n.files {
			f.update()
		}
	}
}

// Probe makes the probe's node one whose network is simulated.
func (n *Node) Probe(o *probe.NodeOptions) {
	d, rails := n.demo, o.Rails
	o.Sysfs = n.Sysfs
	o.Rails = func() ([]rail.Rail, error) { // a round begins with it, at both ends
		d.advance(asideFirst)
		return rails()
	}
	o.Addresses = func() (map[string][]netip.Prefix, error) {
		all := map[string][]netip.Prefix{}
		for r := range Rails {
			all[netdev(r)] = []netip.Prefix{netip.PrefixFrom(address(n.index, r), 24)}
		}
		return all, nil
	}
	o.Simulation = &probe.Simulation{
		Through: func(name, transport string, to io.Writer) io.Writer {
			r, err := strconv.Atoi(name)
			if err != nil || r < 0 || r >= Rails {
				return to
			}
			s := &shaped{link: d.links[r], from: n.index, to: to, before: func() { d.job.standAside(asideMore) }}
			if transport == string(probe.TCP) {
				s.transport = byTCP
			}
			return s
		},
		Fault: func() *probe.Failure {
			if !d.opts.Fallback {
				return nil
			}
			return &probe.Failure{Reason: "retry_exceeded",
				Detail: "simulated by --fallback: as if a firewall on the way dropped RoCE (UDP port 4791)"}
		},
		Moved: d.flush,
	}
}

// address is that of a rail: one of this machine's loopback interface, which all
// of 127/8 are on Linux.
func address(node, rail int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 18, byte(rail), byte(node + 1)})
}
