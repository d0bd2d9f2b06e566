package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/doctor/report"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/bundle"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/kernellog"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/internal/terminal"
)

// Limits of a bundle.
const (
	maxBundle      = 16 << 20 // bytes, before compression
	maxBundlePeers = 16       // most peers asked
	maxKernelLines = 5000
	bundleTime     = time.Minute
	statusTime     = 2 * time.Second
	maxStatus      = 4 << 20 // bytes
)

type bundleSettings struct {
	*common
	app          *kingpin.Application
	output       string
	includePeers bool
	kernelLog    string // path of the kernel log
	now          func() time.Time
}

func (s *bundleSettings) define(app *kingpin.Application) *bundleSettings {
	s.app, s.kernelLog, s.now = app, "/dev/kmsg", time.Now
	cmd := app.Command("bundle", "Pack what railscope knows of this node into one archive for a colleague: facts, "+
		"findings, rails, metrics, settings, versions, kernel log. It prints what the archive holds, and writes it "+
		"with mode 0600. Tokens, passwords and variables of processes other than those that doctor judges are not in "+
		"it. Run it as root for all of it.")
	cmd.Flag("output", "File to create, which must not exist and ends in .tar.gz or .tgz. Without it, "+
		"railscope-NODE-TIME.tar.gz in the current directory.").PlaceHolder("FILE").StringVar(&s.output)
	cmd.Flag("include-peers", "Ask the peers that the configuration lists by address for their facts, and add these, "+
		"and what a comparison with each finds.").BoolVar(&s.includePeers)
	return s
}

func (s *bundleSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("bundle", nil)()
	ctx, cancel := context.WithTimeout(ctx, bundleTime)
	defer cancel()
	if s.output != "" && !strings.HasSuffix(s.output, ".tar.gz") && !strings.HasSuffix(s.output, ".tgz") {
		return misuse{fmt.Errorf("--output must end in .tar.gz or .tgz, not %q", s.output)}
	}
	cfg, err := s.load()
	if err != nil {
		return err
	}
	h := s.host(cfg, listBudget)
	here := h.Gatherer(h.ReadJobs()).Gather(ctx, facts.ByHand)
	here.Node = s.nameOf(cfg, here, nil)

	at := s.now().UTC()
	name := "railscope-" + fileWord(here.Node) + "-" + at.Format("20060102T150405Z")
	b := bundle.New(name, at, maxBundle)
	s.addReport(b, "doctor", here, nil)
	b.Add("facts.json", "what was read of the node, with the processes and variables that doctor judges",
		func(w io.Writer) error { return writeJSON(w, here) })
	b.Add("rails.json", "railscope rails", func(w io.Writer) error {
		return inventory.Read(s.Sysfs, h.Finder, rdmadev.New(s.Sysfs), h.Keeper, listBudget).WriteJSON(w)
	})
	b.Add("expect.json", "railscope expect", func(w io.Writer) error { return h.Keeper.List().WriteJSON(w) })
	b.Add("metrics.txt", "railscope metrics, with names of processes and pods", func(w io.Writer) error {
		return s.writeMetrics(ctx, cfg, w)
	})
	s.addStatus(ctx, b)
	s.addSettings(b)
	b.Add("versions.txt", "versions of railscope, kernel, drivers and libraries", func(w io.Writer) error {
		return s.writeVersions(w, here)
	})
	b.Add("kernel-log.txt", "messages of drivers of RDMA devices, bonds, GPUs and PCIe", s.writeKernelLog)
	s.addAMD(b)
	if s.includePeers {
		s.addPeers(ctx, b, cfg, here)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return errors.New("stopped before everything was read")
	}

	path := cmp.Or(s.output, name+".tar.gz")
	if _, err := fmt.Fprintf(w, "%s\n", b.Manifest()); err != nil {
		return err
	}
	if err := b.Create(path); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "Wrote %s (mode 0600). Read it before you pass it on.\n", terminal.Plain(path))
	return err
}

var notInFileName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// fileWord turns a name into a part of a file name.
func fileWord(name string) string {
	const most = 100
	name = notInFileName.ReplaceAllString(name, "-")
	return strings.TrimLeft(name[:min(len(name), most)], ".-")
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// addReport adds what doctor finds, as text and as JSON.
func (s *bundleSettings) addReport(b *bundle.Bundle, name string, here, there *facts.Facts) {
	begun := time.Now()
	found := report.Examine(here, there, nil)
	found.Took(time.Since(begun))
	b.Add(name+".txt", "railscope doctor", func(w io.Writer) error { return found.WriteText(w, report.Page{}) })
	b.Add(name+".json", "the same", found.WriteJSON)
}

func (s *bundleSettings) writeMetrics(ctx context.Context, cfg *config.Config, w io.Writer) error {
	sources := sourceSettings{Sources: serve.DefaultSources()}
	for _, name := range serve.Followers() {
		*sources.On[name] = false
	}
	*sources.On["process"] = true
	text, err := sources.readOnce(ctx, s.common, cfg, slog.New(slog.DiscardHandler)) // the text contains the errors
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// addStatus adds the status of the running railscope. A railscope that is too old to have one is not noted.
func (s *bundleSettings) addStatus(ctx context.Context, b *bundle.Bundle) {
	const name = "status.json"
	if s.stateDir == "" {
		b.Note("%s: --state.dir is not set, so the running railscope was not asked", name)
		return
	}
	b.Add(name, "what the running railscope shows: rails, findings, last rounds", func(w io.Writer) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, statussock.URL+status.Path, nil)
		if err != nil {
			return err
		}
		answer, err := statussock.Client(s.stateDir, statusTime).Do(req)
		if errors.Is(err, statussock.ErrNotRunning) {
			return nil
		}
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusOK:
			_, err = io.Copy(w, io.LimitReader(answer.Body, maxStatus))
			return err
		case http.StatusNotFound:
			return nil
		}
		return fmt.Errorf("the running railscope answered %s", answer.Status)
	})
}

// addSettings adds the flags of all commands, as they apply here, and the configuration.
func (s *bundleSettings) addSettings(b *bundle.Bundle) {
	b.Add("flags.txt", "flags and their values", func(w io.Writer) error {
		for _, f := range s.app.Model().Flags {
			if f.Name != "help" && f.Name != "version" && !f.Hidden {
				fmt.Fprintf(w, "--%s=%s\n", f.Name, f.Value)
			}
		}
		return nil
	})
	if s.configFile == "" {
		return
	}
	b.Add("railscope.yml", "the configuration, without comments and values of secret keys", func(w io.Writer) error {
		text, err := config.Redacted(s.configFile)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
}

func (s *bundleSettings) writeVersions(w io.Writer, here *facts.Facts) error {
	fmt.Fprintf(w, "%s\n\narchitecture: %s\n", version.Print("railscope"), runtime.GOARCH)
	for _, of := range []struct{ what, path string }{
		{"kernel", filepath.Join(s.Procfs, "sys/kernel/osrelease")},
		{"system", filepath.Join(s.Rootfs, "etc/os-release")},
	} {
		text, _, _ := proc.Head(of.path, 64<<10) // missing on some systems
		for line := range strings.Lines(text) {
			name, value, found := strings.Cut(strings.TrimSpace(line), "=")
			switch {
			case !found:
				fmt.Fprintf(w, "%s: %s\n", of.what, name)
			case name == "PRETTY_NAME":
				fmt.Fprintf(w, "%s: %s\n", of.what, strings.Trim(value, `"`))
			}
		}
	}
	for _, v := range here.Versions {
		fmt.Fprintf(w, "%s %s: %s (%s)\n", v.Component, v.Of, v.Version, v.Where)
	}
	return nil
}

func (s *bundleSettings) writeKernelLog(w io.Writer) error {
	list, err := kernellog.Read(s.kernelLog, maxKernelLines, kernellog.Record.Driver)
	for _, r := range list {
		fmt.Fprintf(w, "[%12.6f] %s\n", r.At.Seconds(), r.Text)
	}
	return err
}

// addAMD adds the files of amdgpu and amdkfd. Each GPU is read in a lane: one that hangs costs its own files.
func (s *bundleSettings) addAMD(b *bundle.Bundle) {
	const name = "amd.txtar"
	finder := amdgpu.NewFinder(s.Sysfs)
	gpus, err := finder.GPUs(s.now())
	if err != nil {
		b.Note("%s: %v", name, err)
	}
	if len(gpus) == 0 {
		return
	}
	reads := map[string]func(io.Writer) error{"amdkfd": finder.DumpNodes}
	for _, g := range gpus {
		reads[g.PCIAddress] = g.Dump
	}
	type dump struct {
		text bytes.Buffer
		err  error
	}
	var lanes lane.Group[*dump]
	results := lanes.Run(listBudget, slices.Sorted(maps.Keys(reads)), func(key string) *dump {
		d := &dump{}
		d.err = reads[key](&d.text)
		return d
	})
	b.Add(name, "files of AMD's GPUs, without unique_id", func(w io.Writer) (err error) {
		for _, r := range results {
			if r.Err != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", r.Key, r.Err))
				continue
			}
			_, writeErr := w.Write(r.Value.text.Bytes())
			err = errors.Join(err, r.Value.err, writeErr)
		}
		return err
	})
}

// addPeers asks all peers for their facts, in parallel.
func (s *bundleSettings) addPeers(ctx context.Context, b *bundle.Bundle, cfg *config.Config, here *facts.Facts) {
	opts := cfg.Probe
	if opts == nil {
		b.Note("peers: the configuration has no probe")
		return
	}
	if n := len(opts.DNS) + len(opts.Files); n > 0 {
		b.Note("peers: those of dns+ and file: entries (%d) are not asked", n)
	}
	peers := opts.Peers
	if more := len(peers) - maxBundlePeers; more > 0 {
		b.Note("peers: %d more are not asked (limit %d)", more, maxBundlePeers)
		peers = peers[:maxBundlePeers]
	}
	there, errs := make([]*facts.Facts, len(peers)), make([]error, len(peers))
	var asking sync.WaitGroup
	for i, peer := range peers {
		asking.Go(func() { there[i], errs[i] = fetchFacts(ctx, peer, opts.Security) })
	}
	asking.Wait()
	for i, peer := range peers {
		if errs[i] != nil {
			b.Note("peer %s: %v", peer, errs[i])
			continue
		}
		if there[i].Node == here.Node {
			there[i].Node += " at " + peer
		}
		dir := "peers/" + fileWord(peer) + "/"
		b.Add(dir+"facts.json", "what the peer says of itself",
			func(w io.Writer) error { return writeJSON(w, there[i]) })
		s.addReport(b, dir+"doctor", here, there[i])
	}
}
