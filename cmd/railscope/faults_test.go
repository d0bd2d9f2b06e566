package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/internal/sysfstest"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/test/faults"
)

// files applies the file changes of the matrix as doctortest does.
func files(t *testing.T, change string) string {
	t.Helper()
	var gone, files strings.Builder
	for part := range strings.SplitSeq(change, "; ") {
		path, content, isFile := strings.Cut(part, " = ")
		link, target, isLink := strings.Cut(part, " -> ")
		removed, isGone := strings.CutPrefix(part, "gone ")
		var device, acs uint16
		switch {
		case part == "":
		case isGone:
			fmt.Fprintf(&gone, "gone %s\n", removed)
		case isLink && !isFile:
			files.WriteString(doctortest.File(link, "-> "+target))
		case !isFile:
			t.Fatalf("no change: %q", part)
		case strings.HasPrefix(content, "pci "):
			if _, err := fmt.Sscanf(content, "pci %v %v", &device, &acs); err != nil {
				t.Fatal(err)
			}
			files.WriteString(doctortest.File(path, doctortest.ConfigSpace(device, acs)))
		default:
			files.WriteString(doctortest.File(path, strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\0`, "\x00").
				Replace(content)))
		}
	}
	return gone.String() + files.String()
}

// captured is a serving node on a captured machine, with the flags of commands on it.
type captured struct {
	*serve.Node
	common
	root  sysfstest.Root
	state *state.Store
}

// serveCaptured assembles the node of a fault's machine, without the fault.
func serveCaptured(t *testing.T, f faults.Fault) *captured {
	t.Helper()
	root := sysfstest.Unpack(t, "../../doctor/testdata/"+f.Machine+".txtar")
	doctortest.Apply(t, root, files(t, f.Before))
	if !f.Later {
		doctortest.Apply(t, root, files(t, f.Change))
	}
	n := &captured{root: root}
	n.Machine = serve.Machine{Name: "n1", Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir,
		Facts: doctortest.Kernel(root), ProcessOptions: attributed(t, root)}
	if own := filepath.Join(root.Dir, "root"); exists(own) {
		n.Rootfs = own
	}
	cfg := &config.Config{}
	if f.Config != "" {
		var err error
		n.configFile = file(t, f.Config)
		cfg, err = config.Load(n.configFile)
		if err != nil {
			t.Fatal(err)
		}
	}
	sources := serve.DefaultSources()
	for _, name := range []string{"process", "kmsg", "nccl"} {
		*sources.On[name] = true // enabled, as for root
	}
	for _, name := range []string{"bond", "pcie", "gpu", "gpudirect"} {
		*sources.On[name] = false // disabled, because the machines have only the files that doctor reads
	}
	*sources.On["pcie"] = strings.Contains(f.Change, "/hwmon/")
	sources.NCCLLogs = []string{filepath.Join(root.Dir, "log/*.log")}
	n.state = state.Open(root.Dir, nil)
	t.Cleanup(func() { _ = n.state.Close() })
	m := n.Machine
	m.NVML, m.Kmsg = gpus(t, root), filepath.Join(root.Dir, "kernel/kmsg")
	m.Sampled, m.Ethtool = n.sampled, statistics(root)
	m.ProbeOptions = func(o *probe.NodeOptions) { o.Maintenance = func() bool { return true } } // no round starts
	for path, content := range map[string]string{"kernel/kmsg": "", "proc/4242/ns/pid": "-> pid:[4026531836]\n",
		"proc/self": "-> 4242\n"} {
		if _, err := os.Lstat(filepath.Join(root.Dir, path)); err != nil {
			sysfstest.Write(t, root.Dir, []byte("-- "+path+" --\n"+content))
		}
	}
	n.Node = assembled(t, serve.Options{Machine: m, Sources: sources, Store: n.state}, cfg,
		slog.New(slog.DiscardHandler))
	opts := options.DefaultOptions()
	opts.Peers = []string{"127.0.0.1:9"}
	if err := n.Start(t.Context(), &opts); err != nil {
		t.Fatal(err)
	}
	runTasks(t, n.Tasks(), "source nccl")
	return n
}

// runTasks runs tasks, or those with these names, until stop is called, or the test ends.
func runTasks(t *testing.T, tasks []serve.Task, names ...string) (stop func()) {
	t.Helper()
	tasks = slices.DeleteFunc(tasks, func(one serve.Task) bool {
		return len(names) > 0 && !slices.Contains(names, one.Name)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve.Run(ctx, tasks, nil) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// sampled sets what the sampler saw from kernel/sampled.
func (n *captured) sampled(s *sampler.Snapshot) {
	*s = sampler.Snapshot{Rails: []sampler.Rail{{Name: "0"}}}
	data, _ := os.ReadFile(filepath.Join(n.root.Dir, "kernel/sampled")) // empty without the file
	var imbalance float64
	if _, err := fmt.Sscanf(string(data), "imbalance %g", &imbalance); err == nil {
		s.Sets[0] = sampler.Set{Known: true, Roles: map[string]float64{"compute": imbalance}}
	}
	var lag sampler.Lag
	if _, err := fmt.Sscanf(string(data), "lag %g %g", &lag.Rate, &lag.Equals); err == nil {
		s.Rails[0].Lag[sampler.Transmit] = lag
	}
	for i := range s.Fallback {
		s.Fallback[i] = sampler.Suspicion{Known: true, Suspected: strings.TrimSpace(string(data)) == sampler.Reason(i)}
	}
}

// examine reads all sources again, as scrapes do, and examines the node.
func (n *captured) examine(t *testing.T) {
	t.Helper()
	n.Scraper.Update(nil, 0, func(*table.Table, map[string]string) {})
	n.Examiner.Examine(t.Context())
}

// follow waits until the logs of NCCL have been read, if there are any.
func (n *captured) follow(t *testing.T) {
	t.Helper()
	for read, deadline := !exists(filepath.Join(n.root.Dir, "log")), time.Now().Add(10*time.Second); !read; {
		if time.Now().After(deadline) {
			t.Fatal("the log is not read")
		}
		time.Sleep(10 * time.Millisecond)
		n.Scraper.Update([]string{"nccl"}, 0, func(series *table.Table, _ map[string]string) {
			series.Each("nccl_fallback", []string{"job"}, func([]string, float64) { read = true })
		})
	}
}

// plant applies a fault's change.
func (n *captured) plant(t *testing.T, f faults.Fault) {
	t.Helper()
	time.Sleep(25 * time.Millisecond) // longer than the finder caches a listing
	doctortest.Apply(t, n.root, files(t, f.Change))
	if path := filepath.Join(n.root.Dir, "railscope.yml"); exists(path) {
		_ = n.Reload(t.Context(), path, config.Load) // the reload may be refused
	}
}

// TestFaults plants each fault of the matrix in a captured machine. Two examinations find it by its name, without
// another critical finding, and all surfaces agree.
func TestFaults(t *testing.T) {
	for _, f := range faults.List() {
		if f.Machine == "" || f.ByHand || f.Far != "" {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			n := serveCaptured(t, f)
			if f.Later {
				n.Keeper.Observe()
				n.Keeper.Observe()
				n.examine(t)
				n.plant(t, f)
			}
			n.follow(t)
			n.examine(t)
			n.examine(t)
			if err := n.state.Close(); err != nil { // saves the state now
				t.Fatal(err)
			}
			answerIn(t, n.root.Dir, n.Local.ServeHTTP)
			all := surfaces(t, n.Node, n.common)
			known := n.common
			known.stateDir = n.root.Dir // lets doctor read what was better before
			all["doctor with the state"] = doctored(t, known)
			if diff := unnamed(f, all["status"]) + disagreement(all) + incomplete(n.Node); diff != "" {
				t.Error(diff, explained(n.Node))
			}
			if f.Later {
				return
			}
			// Without a running railscope, bench examines the node itself.
			alone := n.nodeFindings(t.Context(), n.Gatherer(n.ReadJobs()))
			live := func(f string) bool {
				id, _, _ := strings.Cut(f, ",")
				return check.Remembered(id, true)
			}
			if diff := cmp.Diff(slices.DeleteFunc(slices.Clone(all["status"]), live),
				slices.DeleteFunc(keys(alone), live)); diff != "" {
				t.Errorf("bench alone: %s", diff)
			}
		})
	}
}

// disagreement describes how surfaces differ; empty: they agree.
func disagreement(all map[string][]string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if diff := cmp.Diff(all["status"], all[name]); diff != "" {
			text += fmt.Sprintf("%s (-status +%[1]s): %s", name, diff)
		}
	}
	return text
}

// unnamed describes how the findings of severity warning and above differ from those that a row names. The fault's
// own finding may be less severe.
func unnamed(f faults.Fault, all []string) string {
	want := slices.Clone(f.Beside)
	if f.Want != "" {
		want = append(want, f.Want)
	}
	var got []string
	for _, key := range all {
		id, rest, _ := strings.Cut(key, ", ")
		severity, subject, _ := strings.Cut(rest, ", ")
		if text := severity + " " + id + ", " + subject; severity != "info" || text == f.Want {
			got = append(got, text)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		return "-want +got: " + diff
	}
	return ""
}

// incomplete returns the findings without evidence, a reason, or a useful fix.
func incomplete(n *serve.Node) (text string) {
	list, _ := n.Findings.List(time.Now())
	for _, f := range list {
		text += doctortest.Incomplete(f.Finding)
	}
	return text
}

// explained returns the evidence of all findings.
func explained(n *serve.Node) (text string) {
	list, _ := n.Findings.List(time.Now())
	for _, f := range list {
		text += fmt.Sprintf("\n%s, %s: %s", f.Check, f.Subject, f.Evidence)
	}
	return text
}
