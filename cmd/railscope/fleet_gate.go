package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/gate"
	"github.com/railscope/railscope/internal/nodelist"
	"github.com/railscope/railscope/internal/outfile"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

type gateSettings struct {
	*common
	nodes, against, tokenFile, topology, save, compare, format string
	largest                                                    bool
	timeout                                                    time.Duration
}

func (s *gateSettings) define(app *kingpin.Application) *gateSettings {
	cmd := fleetGroup(app).Command("gate", "Try the rails of nodes against each other before a job starts on them, "+
		"through the railscopes that run there: each must have probe.allow_gate, and the others among its peers. The "+
		"exit code is 0 if the job may start, 1 if nodes should be left out, 2 if it is unknown. See docs/gate.md.")
	const variable = "RAILSCOPE_FLEET_GATE"
	cmd.Flag("nodes", "The nodes: a file with one host or host:port per line, - for standard input, dns+NAME for all "+
		"addresses of a name, or slurm:JOB for the nodes of a Slurm job.").Envar(variable + "_NODES").
		PlaceHolder("FILE|dns+NAME|slurm:JOB").StringVar(&s.nodes)
	cmd.Flag("against", "Try each of --nodes alone with some of these nodes, which are not judged: to put repaired "+
		"nodes back. In the form of --nodes.").Envar(variable + "_AGAINST").PlaceHolder("FILE|dns+NAME|slurm:JOB").
		StringVar(&s.against)
	tokenFlag(cmd, &s.tokenFile)
	cmd.Flag("topology", "CSV file of lines node,rail,leaf: leaf switches of rails without rails.leaf.").
		Envar(variable + "_TOPOLOGY").PlaceHolder("FILE").StringVar(&s.topology)
	cmd.Flag("largest", "Print only the largest set of nodes that was found on which the job may start, one per "+
		"line.").Envar(variable + "_LARGEST").BoolVar(&s.largest)
	cmd.Flag("save", "Also write the result as JSON, for --compare.").Envar(variable + "_SAVE").PlaceHolder("FILE").
		StringVar(&s.save)
	cmd.Flag("compare", "Leave out nodes whose rails carry less than in this file of --save.").
		Envar(variable + "_COMPARE").PlaceHolder("FILE").StringVar(&s.compare)
	cmd.Flag("timeout", "Longest time; what was not tried by then is unknown.").Envar(variable + "_TIMEOUT").
		Default("10m").DurationVar(&s.timeout)
	formatFlag(cmd, variable+"_FORMAT", &s.format, "table", "json", "html", "drain", "undrain")
	return s
}

func (s *gateSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("fleet gate", nil)()
	cfg, err := s.load()
	if err != nil {
		return err
	}
	o, err := s.options()
	if err != nil {
		return misuse{err}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	nodes, err := s.find(ctx, &o)
	if err != nil {
		return misuse{err}
	}
	security := cfg.ProbeOptions().Security
	security.TokenFile = cmp.Or(s.tokenFile, security.TokenFile)
	fabric, err := newGateFabric(nodes, security)
	if err != nil {
		return misuse{err}
	}
	report := gate.Run(ctx, fabric, o)
	return cmp.Or(s.write(w, report), verdictError(report.Verdict))
}

// find returns the nodes of a gate, its partners last.
func (s *gateSettings) find(ctx context.Context, o *gate.Options) ([]nodelist.Node, error) {
	finder := nodelist.NewFinder(options.DefaultPort)
	nodes, err := finder.Find(ctx, s.nodes)
	if err != nil {
		return nil, fmt.Errorf("--nodes: %w", err)
	}
	if s.against != "" {
		partners, err := finder.Find(ctx, s.against)
		if err != nil {
			return nil, fmt.Errorf("--against: %w", err)
		}
		partners = slices.DeleteFunc(partners, func(p nodelist.Node) bool {
			return slices.ContainsFunc(nodes, func(n nodelist.Node) bool { return n.Addresses[0] == p.Addresses[0] })
		})
		if len(partners) == 0 {
			return nil, errors.New("--against: no node that is not among --nodes")
		}
		nodes, o.Partners = append(nodes, partners...), len(partners)
	}
	o.Nodes, o.Found = namesOf(nodes)
	return nodes, nil
}

// namesOf returns the names of nodes as they were given: without the port, unless several nodes have the same host.
// found is true for mere addresses behind a DNS name.
func namesOf(nodes []nodelist.Node) (names []string, found []bool) {
	count := map[string]int{}
	for _, n := range nodes {
		host, _, _ := net.SplitHostPort(n.Addresses[0])
		count[host]++
	}
	for _, n := range nodes {
		host, _, _ := net.SplitHostPort(n.Addresses[0])
		if count[host] > 1 {
			host = n.Addresses[0]
		}
		names = append(names, host)
		found = append(found, n.TLSName != "")
	}
	return names, found
}

// verdictError returns the exit code of a gate. The output has the reasons.
func verdictError(v gate.Verdict) error {
	switch v {
	case gate.Start:
		return nil
	case gate.LeaveOut:
		return errReported
	}
	return errUnknown
}

// options reads the files that flags name, and checks the others.
func (s *gateSettings) options() (o gate.Options, err error) {
	switch {
	case s.timeout <= 0:
		return o, fmt.Errorf("--timeout must be positive, not %v", s.timeout)
	case s.largest && s.format != "table":
		return o, errors.New("--largest prints names: leave out --format, or --largest")
	case s.format == "undrain" && s.against == "":
		return o, errors.New("--format=undrain lists nodes that were tried alone: add --against=NODES")
	}
	if err := checkToken(s.tokenFile); err != nil {
		return o, err
	}
	if s.save != "" {
		if err := outfile.Check(s.save); err != nil {
			return o, fmt.Errorf("--save: %w", err)
		}
	}
	err = readNamed("--topology", s.topology, func(r io.Reader) (err error) {
		o.Topology, err = fleet.ReadTopology(r)
		return err
	})
	if err == nil {
		err = readNamed("--compare", s.compare, func(r io.Reader) error {
			before, err := gate.ReadReport(r)
			o.Before = &before
			return err
		})
	}
	if isTerminal(os.Stderr) {
		o.Progress = func(done, all int) { fmt.Fprintf(os.Stderr, "\r%d of %d visits\033[K", done, all) }
	}
	return o, err
}

// readNamed reads the file that a flag names, if it does.
func readNamed(flag, name string, read func(io.Reader) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if err := read(f); err != nil {
		return fmt.Errorf("%s %s: %w", flag, name, err)
	}
	return nil
}

func (s *gateSettings) write(w io.Writer, report gate.Report) error {
	if isTerminal(os.Stderr) {
		fmt.Fprint(os.Stderr, "\r\033[K") // the progress
	}
	var err error
	switch {
	case s.largest, s.format == "undrain":
		err = report.WriteNames(w)
	case s.format == "json":
		err = report.WriteJSON(w)
	case s.format == "html":
		err = report.WriteHTML(w)
	case s.format == "drain":
		err = report.WriteDrain(w)
	default:
		err = report.WriteTable(w, page().Color)
	}
	if s.save == "" {
		return err
	}
	var text bytes.Buffer
	return errors.Join(err, report.WriteJSON(&text), outfile.Write(s.save, text.Bytes()))
}

// gateFabric reaches nodes through the railscopes that run there.
type gateFabric struct {
	nodes []*probe.GateNode
	peers [][]string // addresses of each node
}

func newGateFabric(nodes []nodelist.Node, security options.Security) (*gateFabric, error) {
	f, id := new(gateFabric), rand.Text()
	for _, n := range nodes {
		own := security
		own.Name = cmp.Or(n.TLSName, own.Name)
		one, err := probe.NewGateNode(n.Addresses[0], id, own)
		if err != nil {
			return nil, err
		}
		f.nodes, f.peers = append(f.nodes, one), append(f.peers, n.Addresses)
	}
	return f, nil
}

func (f *gateFabric) Greet(ctx context.Context, node int) (name, instance string, err error) {
	return f.nodes[node].Greet(ctx)
}

func (f *gateFabric) Answers(ctx context.Context, node int) bool { return f.nodes[node].Answers(ctx) }

func (f *gateFabric) Leave(_ context.Context, node int) { f.nodes[node].Leave() }

func (f *gateFabric) Visit(ctx context.Context, from, to int, burst bool) gate.Visit {
	v, err := f.nodes[from].Visit(ctx, f.peers[to], burst)
	if err != nil {
		return gate.Visit{Unknown: err.Error()}
	}
	return visitOf(v)
}

// visitOf converts what a node reports. Nothing is known of a pair whose round was skipped, or where railscope itself
// lacks something.
func visitOf(v result.Visit) (out gate.Visit) {
	why := "no round was made"
	if v.Failure != nil {
		why = v.Failure.Error()
	}
	switch {
	case v.Transport == result.TCP && !v.OfRailscope:
		out.TCP = why
		return out
	case v.Transport != result.RDMA:
		out.Unknown = why
		return out
	}
	for _, r := range v.Rails {
		one := gate.Rail{Name: r.Rail, Leaf: r.Leaf, Retransmits: -1}
		if r.Failure != nil {
			one.Dead = r.Failure.Error()
		}
		if r.Left != nil {
			one.Unmeasured = r.Left.Error()
		}
		if r.Goodput != nil {
			one.Goodput = *r.Goodput
		}
		if r.Expected != nil {
			one.Expected = *r.Expected
		}
		if r.Retransmits != nil {
			one.Retransmits = float64(*r.Retransmits)
		}
		out.Rails = append(out.Rails, one)
	}
	return out
}
