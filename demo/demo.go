// Package demo simulates two nodes with two rails each, and a training job on them. It simulates files, GPUs and
// the network; all code above them is the same as on real nodes. The probe's rail is a pair of loopback sockets,
// shaped to the port's rate. Counters count the job's simulated traffic and the probe's real bytes.
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
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/result"
)

// Number of nodes, and of rails per node.
const (
	Nodes = 2
	Rails = 2
)

// Rate is the rate of a rail's port in Gb/s: the lowest that the kernel knows, which two cores carry over loopback
// on two rails.
const Rate = 2.5

// Notice states that all values are simulated.
const Notice = "Demo: these nodes are simulated. Rails are shaped TCP connections on this machine, not RDMA; GPUs " +
	"and the job on them are simulated too."

// Options select faults. The zero value is two healthy nodes.
type Options struct {
	Rate      float64         // rate of a port, in Gb/s; 0 means [Rate]
	Degrade   map[int]float64 // rail → remaining share of its rate, above 0 and below 1
	Fallback  bool            // RDMA fails
	Fail      map[int]bool    // rails whose port on the first node goes down
	FailAfter time.Duration   // time after which they fail; a port that was never up raises no alert
	FailHold  <-chan struct{} // ports fail only after it is closed; nil: no condition
}

// ParseRail parses the name of a rail: rail1, or 1.
func ParseRail(text string) (int, error) {
	for r := range Rails {
		if strings.TrimPrefix(text, "rail") == strconv.Itoa(r) {
			return r, nil
		}
	}
	return 0, fmt.Errorf("unknown rail %q: the demo has rail0 to rail%d", text, Rails-1)
}

// ParseDegrade parses a rail and the remaining share of its rate: rail1=0.3.
func ParseDegrade(text string) (r int, share float64, err error) {
	name, value, found := strings.Cut(text, "=")
	if !found {
		return 0, 0, fmt.Errorf("invalid value %q: name a rail and the remaining share of its rate, such as rail1=0.3",
			text)
	}
	r, err = ParseRail(name)
	if err != nil {
		return 0, 0, err
	}
	share, err = strconv.ParseFloat(value, 64)
	if err != nil || !(share >= 0.01 && share < 1) {
		return 0, 0, fmt.Errorf("%q must be the part of %s's rate that is left, from 0.01 to less than 1, such as 0.3",
			value, name)
	}
	return r, share, nil
}

// Check returns an error for options that contradict each other.
func (o Options) Check() error {
	if len(o.Fail) >= Rails {
		return fmt.Errorf("all %d rails fail: leave one for the job", Rails)
	}
	for r := range o.Fail {
		if _, both := o.Degrade[r]; both {
			return fmt.Errorf("rail%d cannot both fail and be slow", r)
		}
	}
	return nil
}

// Demo holds both nodes and the network between them.
type Demo struct {
	Nodes [Nodes]*Node
	Dir   string // root directory of the files

	opts  Options
	links [Rails]*link
	job   job

	mu   sync.Mutex // protects the counter files and sent
	sent time.Time  // time up to which the job's traffic was sent
}

// Node is one of the nodes.
type Node struct {
	Name   string
	Sysfs  string
	Procfs string
	Rootfs string

	demo  *Demo
	index int
	files [Rails][]*os.File // in the order of counters
}

// New writes the files of both nodes to a new directory below parent; if empty, below os.TempDir. Close removes it.
func New(parent string, opts Options) (*Demo, error) {
	const failed = "make files for the demo: %w (set TMPDIR to another directory)"
	dir, err := os.MkdirTemp(parent, "railscope-demo-")
	if err != nil {
		return nil, fmt.Errorf(failed, err)
	}
	now := time.Now()
	d := &Demo{Dir: dir, opts: opts, job: job{began: now}, sent: now}
	d.opts.Rate = cmp.Or(opts.Rate, Rate)
	for r := range d.links {
		d.links[r] = &link{rate: d.opts.Rate * 125e6 * cmp.Or(opts.Degrade[r], 1)}
	}
	for i := range d.Nodes {
		root := filepath.Join(dir, strconv.Itoa(i+1))
		d.Nodes[i] = &Node{Name: fmt.Sprintf("demo-%d", i+1), demo: d, index: i, Rootfs: root,
			Sysfs: filepath.Join(root, "sys"), Procfs: filepath.Join(root, "proc")}
	}
	for _, n := range d.Nodes {
		if err := n.write(); err != nil {
			d.Close()
			return nil, fmt.Errorf(failed, err)
		}
	}
	return d, nil
}

// Close removes the files.
func (d *Demo) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.Nodes {
		for _, files := range n.files {
			for _, f := range files {
				_ = f.Close() // a later write fails
			}
		}
	}
	_ = os.RemoveAll(d.Dir) // temporary files
}

const (
	// interval of the job's traffic and the counters: too short to show in a sample of 100 ms
	interval = 10 * time.Millisecond
	// most traffic sent at once after this machine was busy: more would exceed the rails
	maxCatchUp = 3 * interval
)

// Run runs the job, and fails rails, until ctx is done.
func (d *Demo) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	failAfter, hold := time.After(d.opts.FailAfter), (<-chan struct{})(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-failAfter:
			hold = d.opts.FailHold
			if hold == nil {
				d.fail()
			}
		case <-hold:
			hold = nil
			d.fail()
		case <-tick.C:
			d.advance(0)
		}
	}
}

// advance sends the job's traffic until now, writes the counters, and then pauses the job unless pause is 0.
func (d *Demo) advance(pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.send(d.job.at(now), min(now.Sub(d.sent), maxCatchUp))
	d.sent = now
	for _, n := range d.Nodes {
		n.update()
	}
	if pause > 0 {
		d.job.pause(pause)
	}
}

// Probe simulates the network of the node's probe.
func (n *Node) Probe(o *probe.NodeOptions) {
	d, rails := n.demo, o.Rails
	o.Sysfs = n.Sysfs
	o.Rails = func() ([]rail.Rail, error) { // called at the start of a round, on both nodes
		d.advance(roundPause)
		return rails()
	}
	o.Addresses = func() (map[string][]netip.Prefix, error) {
		all := map[string][]netip.Prefix{}
		for r := range Rails {
			all[netdev(r)] = []netip.Prefix{netip.PrefixFrom(address(n.index, r), 24)}
		}
		return all, nil
	}
	o.Class = nil // the demo does not show the processes of this machine
	o.Simulation = &probe.Simulation{
		Through: func(name, transport string, op result.Op, to io.Writer) io.Writer {
			r, err := ParseRail(name)
			if err != nil {
				return to
			}
			s := &shaped{link: d.links[r], from: n.index, to: to, before: func() { d.job.pause(piecePause) }}
			if transport == string(result.TCP) {
				s.transport = byTCP
			}
			if op == result.Read {
				s.from = 1 - n.index
			}
			return s
		},
		Fault: func() *result.Failure {
			if !d.opts.Fallback {
				return nil
			}
			return &result.Failure{Reason: "retry_exceeded",
				Detail: "simulated by --fallback: as if a firewall dropped RoCE (UDP port 4791)"}
		},
		Moved: func() { d.advance(0) },
	}
}

// address returns a rail's address: on Linux, all of 127/8 belongs to the loopback interface.
func address(node, rail int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 18, byte(rail), byte(node + 1)})
}
