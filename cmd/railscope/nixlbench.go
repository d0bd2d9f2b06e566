package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/railscope/railscope/bench/nixl"
	"github.com/railscope/railscope/bench/record"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/options"
)

type nixlbenchSettings struct {
	*common
	peer, program, etcd, group, op, address    string
	backends, memory, rails, threads, from, to string
	format                                     string
	port, batch, iterations                    int
	timeout                                    time.Duration
}

func (s *nixlbenchSettings) define(app *kingpin.Application) *nixlbenchSettings {
	cmd := app.Command("nixlbench", "Run nixlbench, the benchmark of NIXL, between this node and a peer, and say what "+
		"failed. The command for the peer is printed; nothing is started there.")
	cmd.Arg("peer", "The peer: a host, where you start the target.").Required().StringVar(&s.peer)
	flag := func(name, help string) *kingpin.FlagClause {
		return cmd.Flag(name, help).Envar("RAILSCOPE_NIXLBENCH_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	}
	flag("nixlbench", "The program. By default it is searched in PATH.").Default("nixlbench").StringVar(&s.program)
	flag("backends", "UCX, LIBFABRIC or both, separated by commas.").Default("UCX").StringVar(&s.backends)
	flag("memory", "DRAM, VRAM or both.").Default("DRAM").StringVar(&s.memory)
	flag("rails", "all, or the name of a rail; several, separated by commas, are measured one after the other.").
		Default("all").StringVar(&s.rails)
	flag("threads", "Numbers of threads, such as 1,8. More than one have progress threads.").Default("1").
		StringVar(&s.threads)
	flag("op", "WRITE or READ.").Default("WRITE").EnumVar(&s.op, "WRITE", "READ")
	flag("from", "Smallest block.").Default("64KiB").StringVar(&s.from)
	flag("to", "Largest block; sizes are doubled.").Default("64MiB").StringVar(&s.to)
	flag("batch", "Blocks in a batch.").Default("1").IntVar(&s.batch)
	flag("iterations", "Iterations of each size. nixlbench rounds them up, and makes 1/16 above 1 MiB.").
		Default("1000").
		IntVar(&s.iterations)
	flag("etcd", "Coordinate by this etcd, such as http://spark-01:2379, in place of a connection of its own.").
		PlaceHolder("URL").StringVar(&s.etcd)
	flag("group", "Name of the keys in etcd.").Default("railscope").StringVar(&s.group)
	flag("address", "IPv4 address of this node that the peer reaches. By default that of the route to the peer.").
		PlaceHolder("IP").StringVar(&s.address)
	flag("port", "TCP port at which the initiator waits for the target.").Default("12345").IntVar(&s.port)
	flag("timeout", "Longest time of one run.").Default("10m").DurationVar(&s.timeout)
	formatFlag(cmd, "RAILSCOPE_NIXLBENCH_FORMAT", &s.format, "table", "json")
	return s
}

func (s *nixlbenchSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("nixlbench", nil)()
	cfg, err := s.load()
	if err != nil {
		return err
	}
	rails, _ := s.host(cfg, listBudget).Finder.Rails() // rails that cannot be read are left out
	list, err := s.combinations(rails)
	if err != nil {
		return misuse{err}
	}
	settings, err := s.settings(ctx)
	if err != nil {
		return misuse{err}
	}
	say := func(text string) { fmt.Fprintln(os.Stderr, terminal.PlainLines(text)) }
	if settings.Etcd != "" {
		e, err := nixl.CheckEtcd(ctx, settings)
		if err != nil {
			return fmt.Errorf("--etcd %s: %w", settings.Etcd, err)
		}
		say(fmt.Sprintf("etcd %s at %s is healthy", e.Version, settings.Etcd))
		if e.Stale > 0 {
			return fmt.Errorf("%d keys of an earlier run are left in etcd: remove them by %s", e.Stale,
				settings.RemoveKeys())
		}
	}
	vars := map[string]string{}
	for _, v := range environment() {
		vars[v.Name] = v.Here
	}
	r := nixl.Runner{Settings: settings, Environment: vars, Line: say, Output: os.Stderr}
	if len(rails) > 0 {
		r.Watch = func() *record.Recorder {
			return record.Start(record.Options{Sysfs: s.Sysfs, Procfs: s.Procfs, Rails: rails})
		}
	}
	var rows []nixl.Row
	for _, c := range list {
		rows = append(rows, r.Run(ctx, c))
		if ctx.Err() != nil {
			break
		}
	}
	if s.format == "json" {
		err = nixl.WriteJSON(w, rows)
	} else {
		err = nixl.WriteTable(w, settings, rows, page().Color)
	}
	if err == nil && slices.ContainsFunc(rows, func(r nixl.Row) bool { return len(r.Causes) > 0 }) {
		err = errReported
	}
	return err
}

// Limits of the flags.
const (
	maxThreads    = 256
	maxIterations = 10_000_000
	maxBlock      = 1 << 40
)

func (s *nixlbenchSettings) settings(ctx context.Context) (out nixl.Settings, err error) {
	out.Program, err = exec.LookPath(s.program)
	if err != nil {
		return out, fmt.Errorf("%w; install nixlbench (of github.com/ai-dynamo/nixl), or name it by --nixlbench", err)
	}
	host := s.peer
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	out.Peer, out.Port, out.Etcd, out.Group, out.Op = host, s.port, s.etcd, s.group, s.op
	out.Batch, out.Iterations, out.Timeout = int64(s.batch), s.iterations, s.timeout
	from, err := units.ParseStrictBytes(s.from)
	to, err2 := units.ParseStrictBytes(s.to)
	switch {
	case err != nil || err2 != nil || from < 1 || from > to || to > maxBlock:
		return out, fmt.Errorf("--from and --to must be sizes such as 64KiB and 64MiB, not %q and %q", s.from, s.to)
	case s.port < 1 || s.port > 65535 || s.batch < 1 || s.iterations < 1 || s.iterations > maxIterations ||
		s.timeout <= 0:
		return out, errors.New("--port, --batch, --iterations and --timeout must be positive, and a port at most 65535")
	case s.group == "" || strings.ContainsAny(s.group, " /'\"$`\\"):
		return out, fmt.Errorf("--group must be a name without spaces, slashes and quotes, not %q", s.group)
	}
	out.From, out.To = from, to
	out.Address = s.address
	if out.Address == "" && s.etcd == "" {
		out.Address, err = localAddress(ctx, host)
	}
	return out, err
}

// localAddress returns this node's IPv4 address on the route to a host. Nothing is sent.
func localAddress(ctx context.Context, host string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp4", net.JoinHostPort(host, options.DefaultPort))
	if err != nil {
		return "", fmt.Errorf("find the address of this node that %s reaches: %w; set --address", host, err)
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	address, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return address, err
}

// combinations returns all requested combinations, in order.
func (s *nixlbenchSettings) combinations(rails []rail.Rail) (list []nixl.Combination, err error) {
	threads, err := numbers("--threads", s.threads, maxThreads)
	if err != nil {
		return nil, err
	}
	words := func(flag, text string, valid ...string) (list []string, err error) {
		for word := range strings.SplitSeq(strings.ToUpper(text), ",") {
			if !slices.Contains(valid, word) {
				return nil, fmt.Errorf("--%s must be of %s, separated by commas, not %q", flag,
					strings.Join(valid, ", "), text)
			}
			list = append(list, word)
		}
		return list, nil
	}
	backends, err := words("backends", s.backends, "UCX", "LIBFABRIC")
	if err != nil {
		return nil, err
	}
	memory, err := words("memory", s.memory, "DRAM", "VRAM")
	if err != nil {
		return nil, err
	}
	for _, backend := range backends {
		for _, m := range memory {
			for name := range strings.SplitSeq(s.rails, ",") {
				var devices []string
				if name != "all" {
					i := slices.IndexFunc(rails, func(r rail.Rail) bool { return r.Name == name })
					if i < 0 {
						return nil, fmt.Errorf("--rails: this node has no rail %q (see railscope rails)", name)
					}
					if rails[i].Port != 1 {
						return nil, fmt.Errorf("--rails: rail %s is port %d of its device, and nixlbench uses port 1 "+
							"alone", name, rails[i].Port)
					}
					devices = []string{rails[i].Device}
				}
				for _, n := range threads {
					list = append(list, nixl.Combination{Backend: backend, Memory: m, Devices: devices, Threads: n})
				}
			}
		}
	}
	return list, nil
}
