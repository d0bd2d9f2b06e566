// Package nodelist finds the nodes that a user names: in a file, behind a DNS name, or those of a Slurm job.
package nodelist

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/railscope/railscope/internal/hostport"
)

// Node is a node, and where it answers.
type Node struct {
	// Addresses are spellings of one address, host:port: first as it was named, then what that resolves to.
	Addresses []string
	TLSName   string // name that its certificate must contain; empty: the host of the first address
}

// Limits of what is read.
const (
	MaxNodes    = 16384
	maxFile     = 4 << 20 // bytes
	lookupTime  = 5 * time.Second
	commandTime = 30 * time.Second
	parallel    = 64 // lookups at a time
)

// Prefixes of what is not a file.
const (
	dnsPrefix   = "dns+"
	slurmPrefix = "slurm:"
)

// Finder finds nodes. All fields are required.
type Finder struct {
	Port   string // port of nodes that are named without one
	Stdin  io.Reader
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Command runs a program, and returns its standard output.
	Command func(ctx context.Context, name string, args ...string) ([]byte, error)
}

// NewFinder returns a finder that asks the system's resolver and the commands of Slurm.
func NewFinder(port string) *Finder {
	return &Finder{Port: port, Stdin: os.Stdin,
		Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}, Command: command}
}

func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second // also if a child keeps the pipe open
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}

// Find returns the nodes of FILE, with one host or host:port per line, of - for standard input, dns+NAME or slurm:JOB.
// Each is named once.
func (f *Finder) Find(ctx context.Context, from string) ([]Node, error) {
	switch {
	case from == "":
		return nil, errors.New("want the name of a file, dns+NAME or slurm:JOB")
	case strings.HasPrefix(from, dnsPrefix):
		return f.ofName(ctx, strings.TrimPrefix(from, dnsPrefix))
	case strings.HasPrefix(from, slurmPrefix):
		names, err := f.ofJob(ctx, strings.TrimPrefix(from, slurmPrefix))
		if err != nil {
			return nil, err
		}
		return f.resolve(ctx, names)
	}
	names, err := f.ofFile(from)
	if err != nil {
		return nil, err
	}
	return f.resolve(ctx, names)
}

// ofFile returns the nodes of a file: one per line, without what follows a # or a space.
func (f *Finder) ofFile(name string) (list []string, err error) {
	in := f.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // it was only read
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: more than %d MiB", name, maxFile>>20)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		address, ok := hostport.Parse(words[0], f.Port)
		if !ok {
			return nil, fmt.Errorf("%s, line %d: want host or host:port, not %q", name, number, words[0])
		}
		list = append(list, address)
	}
	return list, lines.Err()
}

// ofName returns the nodes behind a DNS name, as probe.peers finds them: IPv4 addresses, else IPv6 addresses.
func (f *Finder) ofName(ctx context.Context, text string) ([]Node, error) {
	address, ok := hostport.Parse(text, f.Port)
	if !ok {
		return nil, fmt.Errorf("want dns+NAME or dns+NAME:PORT, not %q", dnsPrefix+text)
	}
	host, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, err := f.Lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	both := slices.ContainsFunc(found, func(a netip.Addr) bool { return a.Unmap().Is4() })
	var list []Node
	for _, a := range found {
		a = a.Unmap()
		if a.Is4() || !both {
			list = append(list, Node{Addresses: []string{net.JoinHostPort(a.String(), port)},
				TLSName: strings.TrimSuffix(host, ".")})
		}
	}
	return bounded(list)
}

// jobID is the ID of a job, also of an array or of a heterogeneous one.
var jobID = regexp.MustCompile(`^[0-9]{1,10}(?:[_+][0-9]{1,10})?$`)

// ofJob returns the nodes that Slurm has given to a job.
func (f *Finder) ofJob(ctx context.Context, job string) (list []string, err error) {
	if !jobID.MatchString(job) {
		return nil, fmt.Errorf("want the ID of a Slurm job, such as slurm:4711, not %q", slurmPrefix+job)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, err := f.Command(ctx, "squeue", "--noheader", "--format=%N", "--jobs="+job)
	if err != nil {
		return nil, err
	}
	nodes := strings.Join(strings.Fields(string(out)), ",")
	if nodes == "" || nodes == "(null)" {
		return nil, fmt.Errorf("job %s has no nodes: it waits, or has ended", job)
	}
	out, err = f.Command(ctx, "scontrol", "show", "hostnames", nodes)
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(string(out)) {
		address, ok := hostport.Parse(name, f.Port)
		if !ok {
			return nil, fmt.Errorf("scontrol show hostnames %s: %q is no host", nodes, name)
		}
		list = append(list, address)
	}
	return list, nil
}

// resolve adds what the names of nodes resolve to. A name that does not is kept: the node is then not reached.
func (f *Finder) resolve(ctx context.Context, addresses []string) ([]Node, error) {
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	list := make([]Node, len(addresses))
	if _, err := bounded(list); err != nil {
		return nil, err
	}
	var lookups errgroup.Group
	lookups.SetLimit(parallel)
	for i, address := range addresses {
		list[i].Addresses = spellings(address)
		host, port, _ := net.SplitHostPort(address)
		if _, err := netip.ParseAddr(host); err == nil {
			continue
		}
		lookups.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, lookupTime)
			defer cancel()
			found, _ := f.Lookup(ctx, host) // without them, peers have to know it by its name
			for _, a := range found[:min(len(found), 8)] {
				list[i].Addresses = append(list[i].Addresses, net.JoinHostPort(a.Unmap().String(), port))
			}
			return nil
		})
	}
	_ = lookups.Wait() // the functions return no error
	return list, nil
}

// spellings returns an address as it was named, in its canonical form, and with the host without its domain.
func spellings(address string) (list []string) {
	host, port, _ := net.SplitHostPort(address)
	list = []string{address, hostport.Canonical(address)}
	if _, err := netip.ParseAddr(host); err != nil {
		if short, _, found := strings.Cut(host, "."); found {
			list = append(list, net.JoinHostPort(short, port))
		}
	}
	return slices.Compact(list)
}

func bounded(list []Node) ([]Node, error) {
	switch {
	case len(list) == 0:
		return nil, errors.New("no nodes")
	case len(list) > MaxNodes:
		return nil, fmt.Errorf("%d nodes: at most %d", len(list), MaxNodes)
	}
	return list, nil
}
