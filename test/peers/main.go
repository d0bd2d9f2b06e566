// Command bench compares railscope with node_exporter on a simulated machine with ten mlx5 ports: whether every
// value exists and is equal, and the cost of a scrape. `make bench` builds both and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/railscope/railscope/internal/sysfstest"
)

// ports and counterFiles describe the simulated machine.
const (
	ports        = 10
	counterFiles = ports * (21 + 32)
)

func main() {
	var o options
	flag.StringVar(&o.railscope, "railscope", "./railscope", "railscope's `binary`")
	flag.StringVar(&o.nodeExporter, "node-exporter", ".bin/node_exporter", "node_exporter's `binary`")
	flag.IntVar(&o.scrapes, "scrapes", 400, "scrapes in a block")
	flag.IntVar(&o.blocks, "blocks", 8, "blocks of scrapes for each program and encoding")
	flag.DurationVar(&o.idle, "idle", 10*time.Second, "how long both are watched while nobody scrapes")
	tree := flag.String("tree", "", "write the made-up /sys into this `directory` and do nothing else")
	flag.Parse()
	var err error
	if *tree != "" {
		err = sysfstest.WriteMlx5(*tree, ports)
	} else {
		err = run(context.Background(), o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	railscope, nodeExporter string
	scrapes, blocks         int
	idle                    time.Duration
}

// run compares and reports. Only wrong values and failures to compare are errors; the cost is reported and not
// judged.
func run(ctx context.Context, o options, w io.Writer) error {
	dir, err := os.MkdirTemp("", "railscope-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sys, proc := filepath.Join(dir, "sys"), filepath.Join(dir, "proc")
	if err := errors.Join(sysfstest.WriteMlx5(sys, ports), os.Mkdir(proc, 0o755)); err != nil {
		return err
	}
	their, err := start(ctx, "node_exporter", o.nodeExporter, "--path.sysfs="+sys, "--collector.disable-defaults",
		"--collector.infiniband", "--collector.bonding")
	if err != nil {
		return err
	}
	defer their.stop()
	// Values that are not in the tree are not compared: the machine's own GPUs and bonds.
	our, err := start(ctx, "railscope", o.railscope, "--path.sysfs="+sys, "--path.procfs="+proc, "--no-source.gpu")
	if err != nil {
		return err
	}
	defer our.stop()
	both := []*exporter{their, our}
	fmt.Fprintf(w, "%s, %d processors of this machine, %s\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(),
		processor())
	fmt.Fprintf(w, "made-up machine: %d mlx5 ports, %d counter files, one bond\n", ports, counterFiles)
	for _, e := range both {
		fmt.Fprintf(w, "%s %s\n", e.name, strings.ReplaceAll(strings.Join(e.args, " "), dir, "TREE"))
	}
	wrong := checkValues(w, sys, their, our)
	if err := measure(w, o, both); err != nil {
		return err
	}
	return wrong
}

// checkValues compares the values, and again, compressed, after all counters have moved.
func checkValues(w io.Writer, sys string, their, our *exporter) error {
	var errs []error
	for _, moved := range []bool{false, true} {
		when := "at first"
		if moved {
			when = "after all counters have moved"
			if err := moveCounters(sys); err != nil {
				return err
			}
		}
		theirs, err := their.text(moved)
		if err != nil {
			return err
		}
		ours, err := our.text(moved)
		if err != nil {
			return err
		}
		values, wrong, err := compare(theirs, ours)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "values of node_exporter that railscope has, equal, %s: %d of %d\n", when,
			values-len(wrong), values)
		for _, text := range wrong {
			fmt.Fprintln(w, "  "+text)
		}
		if values < counterFiles || len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("%d of %d values are wrong %s", len(wrong), values, when))
		}
	}
	return errors.Join(errs...)
}

// moveCounters adds to every counter, in place, as a kernel would.
func moveCounters(sys string) error {
	files, err := filepath.Glob(filepath.Join(sys, "class/infiniband/*/ports/*/*counters/*"))
	if err != nil {
		return err
	}
	for i, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		if err := os.WriteFile(f, fmt.Appendln(nil, n+1+i), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// cost is the cost of blocks of scrapes.
type cost struct {
	cpu  []float64 // seconds per scrape, one value per block
	wall []float64 // seconds, one value per scrape
	size int       // bytes of one response
}

// measure scrapes both in alternating blocks, so that other load on the machine affects both equally, and prints
// the table.
func measure(w io.Writer, o options, both []*exporter) error {
	var rows []row
	for _, zip := range []bool{false, true} {
		costs := make([]cost, len(both))
		for block := range o.blocks {
			for i := range both {
				i = (i + block) % len(both)
				if err := costs[i].block(both[i], o.scrapes, zip); err != nil {
					return err
				}
			}
		}
		encoding := "plain"
		if zip {
			encoding = "gzip"
		}
		rows = append(rows,
			row{"processor time per scrape, " + encoding, "µs", 1e6,
				[]float64{median(costs[0].cpu), median(costs[1].cpu)}},
			row{"time a scrape takes, " + encoding, "µs", 1e6, []float64{median(costs[0].wall), median(costs[1].wall)}},
			row{"size of the answer, " + encoding, "kB", 1e-3,
				[]float64{float64(costs[0].size), float64(costs[1].size)}})
	}
	idle, err := watch(o.idle, both)
	if err != nil {
		return err
	}
	rows = append(rows, row{"processor time when idle", "% of a core", 100, idle})
	memory := row{"resident memory", "MB", 1e-6, nil}
	for _, e := range both {
		m, err := e.resident()
		if err != nil {
			return err
		}
		memory.values = append(memory.values, m)
	}
	rows = append(rows, memory)
	calls := row{"system calls per counter file", "", 1.0 / counterFiles, nil}
	for _, e := range both {
		n, err := e.syscalls(20)
		if err != nil {
			fmt.Fprintln(w, "system calls are not counted:", err)
			break
		}
		calls.values = append(calls.values, n)
	}
	if len(calls.values) == len(both) {
		rows = append(rows, calls)
	}
	fmt.Fprintf(w, "medians of %d blocks of %d scrapes:\n\n", o.blocks, o.scrapes)
	return table(w, rows)
}

// block scrapes n times.
func (c *cost) block(e *exporter, n int, zip bool) error {
	before, err := e.cpu()
	if err != nil {
		return err
	}
	for range n {
		begin := time.Now()
		body, err := e.scrape(zip)
		if err != nil {
			return err
		}
		c.wall = append(c.wall, time.Since(begin).Seconds())
		c.size = len(body)
	}
	after, err := e.cpu()
	c.cpu = append(c.cpu, (after-before).Seconds()/float64(n))
	return err
}

// watch returns the fraction of a core that each uses between scrapes.
func watch(d time.Duration, both []*exporter) ([]float64, error) {
	used := make([]float64, len(both))
	for _, sign := range []float64{-1, 1} {
		for i, e := range both {
			cpu, err := e.cpu()
			if err != nil {
				return nil, err
			}
			used[i] += sign * cpu.Seconds() / d.Seconds()
		}
		if sign < 0 {
			time.Sleep(d)
		}
	}
	return used, nil
}

// row is one line of the report: node_exporter's value, then railscope's.
type row struct {
	what, unit string
	factor     float64
	values     []float64
}

func table(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "\tnode_exporter\trailscope\trailscope ÷ node_exporter")
	for _, r := range rows {
		ratio := "-"
		if r.values[0] > 0 {
			ratio = fmt.Sprintf("%.2f", r.values[1]/r.values[0])
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.what, r.figure(0), r.figure(1), ratio)
	}
	return t.Flush()
}

func (r row) figure(i int) string {
	v := r.values[i] * r.factor
	digits := 1
	if v >= 100 {
		digits = 0
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'f', digits, 64) + " " + r.unit)
}

func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// processor returns the name of the machine's processor.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
