// Command fleet writes Prometheus data of a simulated fleet (fleetgen): the story for looking at dashboards, or a
// healthy fleet with planted faults (fleettest).
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/fleettest"
	"github.com/railscope/railscope/test/check/fleetgen"
	"github.com/railscope/railscope/test/check/ruleeval"
)

// settings are the flags.
type settings struct {
	format, out, testdata, faults string
	until                         int64
	lasts, every                  time.Duration
	nodes                         int
	sound                         bool
}

func main() {
	var s settings
	flag.StringVar(&s.format, "format", "storage", "storage: a directory that Prometheus is to be started with, with "+
		"recorded series; openmetrics: a file for promtool tsdb create-blocks-from openmetrics; promtool: "+
		"input_series of promtool test rules; api: answers instant queries as Prometheus does, at the address -out")
	flag.StringVar(&s.out, "out", "", "file, directory or address")
	flag.Int64Var(&s.until, "until", time.Now().Unix(), "time of the last scrape, in seconds of Unix")
	flag.DurationVar(&s.lasts, "lasts", 70*time.Minute, "time from the first scrape to the last, of the story")
	flag.DurationVar(&s.every, "every", 30*time.Second, "time between scrapes, of the story")
	flag.IntVar(&s.nodes, "nodes", 16, "nodes, at least 2; with less than 13 some faults of the story have no node")
	flag.BoolVar(&s.sound, "sound", false, "the story without faults")
	flag.StringVar(&s.faults, "faults", "", "instead of the story, half an hour with these planted, as "+
		"KIND:NODE[:RAIL]: slow_wire:17:3,peer_down:4; none: a healthy half hour")
	flag.StringVar(&s.testdata, "testdata", "../../exporter/testdata", "directory of the expositions")
	flag.Parse()
	if err := s.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func (s settings) run(ctx context.Context) error {
	if s.out == "" || s.nodes < 2 || s.every <= 0 || s.lasts <= s.every {
		return errors.New("wants -out, at least 2 -nodes, and -lasts longer than -every")
	}
	f, err := s.fleet()
	if err != nil {
		return err
	}
	switch s.format {
	case "storage":
		return s.store(ctx, f, s.out)
	case "openmetrics", "promtool":
		return s.text(f)
	case "api":
		return s.serve(ctx, f)
	}
	return fmt.Errorf("-format %q is neither storage, openmetrics, promtool nor api", s.format)
}

func (s settings) fleet() (*fleetgen.Fleet, error) {
	template, err := fleetgen.ReadTemplate(filepath.Join(s.testdata, "hgx.prom"))
	if err != nil {
		return nil, err
	}
	until := time.Unix(s.until, 0)
	if s.faults == "" {
		w := fleetgen.Story{World: fleetgen.Healthy(s.nodes), Nodes: s.nodes, Lasts: s.lasts.Seconds(), Sound: s.sound}
		return &fleetgen.Fleet{World: w, Nodes: s.nodes, Begin: until.Add(-s.lasts), To: s.lasts, Every: s.every,
			Name: func(n int) string { return fmt.Sprintf("node-%02d", n) }, Template: template, Native: true}, nil
	}
	planted, err := plant(s.faults, s.nodes)
	if err != nil {
		return nil, err
	}
	o := fleettest.Options{Nodes: s.nodes, Rails: 8, Fanout: 4, Noise: 0.02, Missing: 0.05, Loopback: true,
		LeafSize: 32, Faults: planted}
	f := fleetgen.OfState(fleettest.New(o), until)
	f.Template = template
	return f, nil
}

// plant parses the flag of the faults.
func plant(text string, nodes int) (list []fleettest.Fault, err error) {
	if text == "none" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		kind, where, _ := strings.Cut(one, ":")
		number, rail, _ := strings.Cut(where, ":")
		var n int
		if _, err := fmt.Sscan(number, &n); err != nil || n < 0 || n >= nodes {
			return nil, fmt.Errorf("-faults: %q wants KIND:NODE[:RAIL] with a node from 0 to %d", one, nodes-1)
		}
		switch k := fleet.Kind(kind); k {
		case fleet.PeerDown, fleet.TCPFallback, fleet.RailDown, fleet.SlowWire, fleet.SlowHost, fleet.GPUPath:
			list = append(list, fleettest.Fault{Kind: k, Node: fleet.Node{Name: fleettest.Name(n)}, Rail: rail})
		default:
			return nil, fmt.Errorf("-faults: %q is not peer_down, tcp_fallback, rail_down, slow_wire, slow_host or "+
				"gpu_path", kind)
		}
	}
	return list, nil
}

func (s settings) text(f *fleetgen.Fleet) error {
	file, err := os.Create(s.out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(s.out), "families")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := bufio.NewWriter(file)
	if s.format == "promtool" {
		err = f.Promtool(out)
	} else {
		err = f.OpenMetrics(out, dir)
	}
	return errors.Join(err, out.Flush(), file.Close())
}

// open opens a storage that consists of one block.
func open(dir string) (*tsdb.DB, error) {
	o := tsdb.DefaultOptions()
	o.MinBlockDuration, o.MaxBlockDuration = (48 * time.Hour).Milliseconds(), (48 * time.Hour).Milliseconds()
	return tsdb.Open(dir, promslog.NewNopLogger(), nil, o, nil)
}

// store writes all samples, and the series that the rules record from them.
func (s settings) store(ctx context.Context, f *fleetgen.Fleet, dir string) error {
	db, err := open(dir)
	if err != nil {
		return err
	}
	if err := f.Store(ctx, db); err != nil {
		return err
	}
	r, err := ruleeval.New(ctx, db, filepath.Join(s.testdata, "..", "..", "deploy", "rules"))
	if err != nil {
		return err
	}
	for since := f.From; since <= f.To; since += f.Every {
		if err := r.Eval(ctx, f.Begin, f.Begin.Add(since)); err != nil {
			return err
		}
	}
	return errors.Join(r.Close(), db.Close())
}

func (s settings) serve(ctx context.Context, f *fleetgen.Fleet) error {
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := s.store(ctx, f, dir); err != nil {
		return err
	}
	db, err := open(dir)
	if err != nil {
		return err
	}
	return errors.Join(http.ListenAndServe(s.out, fleetgen.NewAPI(db, f.Begin.Add(f.To))), db.Close())
}
