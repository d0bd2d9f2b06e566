package exporter

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/bond"
	"github.com/railscope/railscope/collector/events"
	"github.com/railscope/railscope/collector/gpu"
	"github.com/railscope/railscope/collector/gpudirect"
	"github.com/railscope/railscope/collector/netdev"
	"github.com/railscope/railscope/collector/pcie"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/doctor/alike"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	exporterprobe "github.com/railscope/railscope/exporter/probe"
	exportersampler "github.com/railscope/railscope/exporter/sampler"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
	"github.com/railscope/railscope/probe/result"
)

// counted holds the number of series of an exposition: with classic histograms, where each bucket is one, and with
// native ones, where a whole histogram is one.
type counted struct{ classic, native int }

func (c counted) minus(d counted) counted { return counted{c.classic - d.classic, c.native - d.native} }
func (c counted) times(n int) counted     { return counted{c.classic * n, c.native * n} }
func (c counted) plus(d counted) counted  { return counted{c.classic + d.classic, c.native + d.native} }

func (c counted) String() string {
	if c.classic == c.native {
		return fmt.Sprint(c.classic)
	}
	return fmt.Sprintf("%d, or %d native", c.classic, c.native)
}

// count counts the series whose labels match.
func count(text []byte, labels string) (c counted) {
	histograms := map[string]bool{}
	want := regexp.MustCompile(labels)
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); words[0] == "#" {
			histograms[words[2]] = histograms[words[2]] || words[1] == "TYPE" && words[3] == "histogram"
			continue
		}
		if !want.MatchString(line) {
			continue
		}
		c.classic++
		name, _, _ := strings.Cut(line, "{")
		inside := slices.ContainsFunc([]string{"_bucket", "_sum"}, func(s string) bool {
			base, ok := strings.CutSuffix(name, s)
			return ok && histograms[base]
		})
		if !inside { // only _count is counted for a histogram
			c.native++
		}
	}
	return c
}

// capture returns a machine of testdata, reduced to the rails that match include.
func capture(t *testing.T, name, include string) (_ sysfstest.Root, rails []string) {
	t.Helper()
	root := sysfstest.Unpack(t, filepath.Join("testdata", name+".txtar"))
	finder := rail.NewFinder(root.Sys(), rail.Options{Include: regexp.MustCompile(include)}, nil, time.Second)
	list, err := finder.Rails()
	if err != nil || len(list) == 0 {
		t.Fatal(err, len(list))
	}
	for _, r := range list {
		rails = append(rails, r.Name)
	}
	return root, rails
}

// defaults returns the sources that are enabled by default for a machine, without GPUs.
func defaults(root sysfstest.Root, include string) []collector.Source {
	const budget = time.Second
	finder := rail.NewFinder(root.Sys(), rail.Options{Include: regexp.MustCompile(include)}, nil, budget)
	rails := finder.Rails
	return []collector.Source{
		ports(root, finder, budget), bond.New(root.Sys(), root.Proc(), rails, budget),
		netdev.New(root.Sys(), rails, budget, nil),
		pcie.New(root.Sys(), finder.Snapshot, budget), gpudirect.New(root.Sys(), root.Proc(), root.Dir, budget),
		events.New(events.Options{Rails: finder.Snapshot}),
	}
}

// gpus is an NVML with n GPUs, all with the values of a capture's first GPU.
type gpus struct {
	collector.Source
	n    int
	told []collector.Sample
}

func newGPUs(t *testing.T, name string, n int) *gpus {
	t.Helper()
	g := &gpus{Source: gpu.New(amdgpu.NewFinder(t.TempDir()), "/proc", noGPUs(), time.Second, 0), n: n}
	archive, err := txtar.ParseFile("../collector/gpu/testdata/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]*collector.Metric{}
	for _, m := range g.Metrics() {
		rows[m.Name] = m
	}
	value := regexp.MustCompile(`="([^"]*)"`)
	for _, f := range archive.Files {
		for line := range strings.Lines(string(f.Data)) {
			name, labels, ok := strings.Cut(line, "{")
			if f.Name != "want" || !ok || rows[name] == nil || !strings.HasPrefix(labels, `gpu="0"`) {
				continue
			}
			s := collector.Sample{Metric: rows[name]}
			for _, m := range value.FindAllStringSubmatch(labels, -1) {
				s.Labels = append(s.Labels, m[1])
			}
			g.told = append(g.told, s)
		}
	}
	if len(g.told) < 10 {
		t.Fatalf("%s tells %d values", name, len(g.told))
	}
	return g
}

func (g *gpus) Read(emit func(collector.Sample)) error {
	for i := range g.n {
		for _, s := range g.told {
			s.Labels = append([]string{fmt.Sprint(i)}, s.Labels[1:]...)
			emit(s)
		}
	}
	return nil
}

// sampling returns the source of a sampler that has seen rails and GPUs under load.
func sampling(rails []string, gpus int) *exportersampler.Source {
	return exportersampler.NewSource(func(snap *sampler.Snapshot) {
		*snap = sampler.Snapshot{}
		for i, name := range rails {
			device := fmt.Sprintf("mlx5_%d", i)
			snap.Rails = append(snap.Rails, sampler.Rail{Name: name, TCPKnown: true,
				Tally: [2]sampler.Tally{tallied(0, 0.3, 0.97), tallied(0.02)}, Peaks: peaks(1e9)})
			snap.Devices = append(snap.Devices, sampler.Device{Name: device, Interval: 100 * time.Millisecond,
				Samples: 7, Reading: time.Second})
		}
		for i := range gpus {
			snap.GPUs = append(snap.GPUs, sampler.GPUPeaks{Index: i, Start: 1, Minute: 1})
		}
		for i := range snap.Sets {
			snap.Sets[i] = sampler.Set{Known: true, Active: len(rails), Busy: 1, Imbalanced: 1,
				Roles: map[string]float64{rail.Compute: 0.1}}
		}
		for i := range snap.Fallback {
			snap.Fallback[i].Known = true
		}
	})
}

// probing returns the probe source of a node after a day of healthy rounds.
func probing(peers int, rails []string) *exporterprobe.Source {
	var names []string
	for i := range peers {
		names = append(names, fmt.Sprintf("node-%04d:10092", i))
	}
	p := newTestProbe(names...)
	for _, peer := range names {
		for i := range 6 {
			r := healthy(peer)
			one := r.Rails[0]
			one.Past = &baseline.Past{Median: one.Solo.BytesPerSecond()}
			r.Start, r.Rails = noon.Add(time.Duration(i)*time.Hour), nil
			for _, name := range rails {
				one.Rail = name
				r.Rails = append(r.Rails, one)
			}
			if i == 5 { // beside a job
				r.Outcome, r.Striped = result.Reached, nil
				r.BurstSkipped = &result.Failure{Reason: "busy"}
				for j := range r.Rails {
					r.Rails[j].Busy, r.Rails[j].Left, r.Rails[j].Striped, r.Rails[j].Solo = true, r.BurstSkipped, nil,
						nil
				}
			}
			p.Observe(r, nil)
		}
	}
	return p
}

// TestDocsSizing compares the numbers in docs/sizing.md with the series of the captures.
func TestDocsSizing(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		parts, each := partsText(t)
		text := parts + "\nWhole nodes, as they are scraped:\n\n" + nodesText(t, each)
		const path, begin, end = "../docs/sizing.md", "<!-- generated: make docs -->\n",
			"<!-- end of what is generated -->\n"
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, ok := strings.Cut(string(page), begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no %q and %q", path, begin, end)
		}
		compareGolden(t, path, []byte(before+begin+text+end+after))
	})
}

// hgxParts holds the number of series for each part of an HGX with mlx5 rails.
type hgxParts struct{ node, rail, gpu, peer, peerRail counted }

// of returns the number of series of a node with this many parts.
func (p hgxParts) of(rails, gpus, peers int) counted {
	return p.node.plus(p.rail.times(rails)).plus(p.gpu.times(gpus)).
		plus(p.peer.plus(p.peerRail.times(rails)).times(peers))
}

// partsText returns the table of series for each part of a node.
func partsText(t *testing.T) (text string, hgx hgxParts) {
	t.Helper()
	const ofRail, ofGPU = `[{,](rail|device)="[^"]`, `[{,]gpu="`
	var b strings.Builder
	b.WriteString("| for each | series | |\n|---|---|---|\n")
	row := func(what string, c any, note string) { fmt.Fprintf(&b, "| %s | %v | %s |\n", what, c, note) }

	none := exportertest.Text(t,
		exportertest.Scraper(t, append(defaults(sysfstest.Root{Dir: t.TempDir()}, ""), newGPUs(t, "h200", 0),
			sampling(nil, 0), newTestProbe())...))
	hgx.node = count(none, "")
	row("node", hgx.node, "railscope itself, its sources, and what the node has once")
	facts := counted{len(alike.Subjects()), len(alike.Subjects())}
	hgx.node = hgx.node.plus(facts)
	row("node: what equal nodes have in common", facts, "at most: one for each subject that is known")
	for _, machine := range []struct{ name, what string }{
		{"hgx", "mlx5, RoCE, with its interface and PCIe link"}, {"bnxt", "bnxt_re"}, {"irdma", "irdma"},
		{"efa", "efa"}, {"rxe-bond-trap", "Soft-RoCE"},
	} {
		root, rails := capture(t, machine.name, "")
		got := count(exportertest.Text(t, exportertest.Scraper(t, defaults(root, "")...)), ofRail)
		n := len(rails)
		mean := counted{(got.classic + n/2) / n, (got.native + n/2) / n}
		if machine.name == "hgx" {
			hgx.rail = mean
		}
		row("rail: "+machine.what, mean, fmt.Sprintf("mean of %d; GID tables differ", n))
	}
	row("rail: its driver's statistics", driverStatistics(t), "mlx5 with PFC on one priority and 4 lanes, read by "+
		"ethtool; the simulated machines above and below have none. Codewords by errors are 5 more")
	buckets := func(src collector.Source, labels string) int {
		return count(exportertest.Text(t, exportertest.Scraper(t, src)), `_bucket\{.*`+labels).classic
	}
	sampled := func(rails []string, gpus int) counted {
		return count(exportertest.Text(t, exportertest.Scraper(t, sampling(rails, gpus))), "")
	}
	one, two := []string{"0"}, []string{"0", "1"}
	perRail := sampled(two, 0).minus(sampled(one, 0))
	row("rail: the sampler", perRail, fmt.Sprintf("with two histograms of %d buckets",
		buckets(sampling(one, 0), `direction="receive"`)))
	hgx.rail = hgx.rail.plus(perRail)
	for _, gpu := range []struct{ name, what string }{{"h200", "H200"}, {"gb10", "GB10 (DGX Spark)"}} {
		got := count(exportertest.Text(t, exportertest.Scraper(t, newGPUs(t, gpu.name, 1))), ofGPU).
			plus(sampled(one, 1).minus(sampled(one, 0)))
		if gpu.name == "h200" {
			hgx.gpu = got
		}
		row("GPU: "+gpu.what, got, "with the sampler's peaks; MIG devices come on top")
	}
	probed := func(peers int, rails []string) counted {
		return count(exportertest.Text(t, exportertest.Scraper(t, probing(peers, rails))), "")
	}
	root, _ := capture(t, "hgx", "")
	links := count(exportertest.Text(t, exportertest.Scraper(t, defaults(root, "")...)),
		`[{,]kind="gpu",pci_address="0000:18:00.0"`)
	hgx.gpu = hgx.gpu.plus(links)
	row("GPU: PCIe link", links, "where the slot reports errors")
	root, _ = capture(t, "bonded", "")
	bonded := exportertest.Text(t, exportertest.Scraper(t, defaults(root, "")...))
	members := count(bonded, `[{,]member="[^"]`)
	row("bond", count(bonded, `[{,]bond="`).minus(members), "in mode 802.3ad")
	row("member of a bond", counted{members.classic / 2, members.native / 2}, "mean of 2")
	root, _ = capture(t, "hgx", "")
	logs := exportertest.Text(t, exportertest.Scraper(t, ncclLogs(t, root)))
	const ofJob = `[{,]job="`
	row("node: `--source.nccl`", count(logs, "nccl").minus(count(logs, ofJob)), "256 jobs at most")
	row("job: `--source.nccl`", count(logs, ofJob).classic/2, "mean of 2")
	withOne := probed(2, one).minus(probed(1, one))
	hgx.peerRail = probed(2, two).minus(probed(1, two)).minus(withOne)
	hgx.peer = withOne.minus(hgx.peerRail)
	hgx.peerRail.native++ // the native histogram per rail, which the text format does not have
	hgx.peer.native--     // the classic histogram of all rails, which replaces it in the text format
	row("peer", hgx.peer, fmt.Sprintf("that this node asks, with one histogram of %d buckets; each kind of failure, and "+
		"each reason of skipping, that occurred is one more", buckets(probing(1, one), "")))
	row("peer and rail", hgx.peerRail, "with a native histogram instead of that of the peer")
	return b.String(), hgx
}

// driverStatistics counts the series of an mlx5 interface's ethtool statistics.
func driverStatistics(t *testing.T) counted {
	t.Helper()
	root, _ := capture(t, "hgx", "^mlx5_0$")
	finder := rail.NewFinder(root.Sys(), rail.Options{Include: regexp.MustCompile("^mlx5_0$")}, nil, time.Second)
	rails, err := finder.Rails()
	if err != nil || len(rails) != 1 {
		t.Fatal(err, len(rails))
	}
	of := func(kernel *ethtooltest.Kernel) counted {
		src := netdev.New(root.Sys(), finder.Rails, time.Second, kernel.Ioctl)
		return count(exportertest.Text(t, exportertest.Scraper(t, src)), `[{,]rail="[^"]`)
	}
	var stats []ethtooltest.Stat
	for _, m := range netdev.New(root.Sys(), finder.Rails, time.Second, nil).Metrics() {
		for _, from := range m.From {
			digits := []string{"0", "1", "2", "3", "4", "5", "6", "7"}
			switch {
			case strings.Contains(from.Name, "pause"), strings.Contains(from.Name, "pfc"):
				digits = digits[3:4]
			case strings.Contains(from.Name, "lane"):
				digits = digits[:4]
			}
			for _, digit := range digits {
				stats = append(stats, ethtooltest.Stat{Name: strings.ReplaceAll(from.Name, "#", digit), Value: 1})
			}
		}
	}
	slices.SortFunc(stats, func(a, b ethtooltest.Stat) int { return strings.Compare(a.Name, b.Name) })
	stats = slices.CompactFunc(stats, func(a, b ethtooltest.Stat) bool { return a.Name == b.Name })
	mlx5 := func(stats []ethtooltest.Stat) *ethtooltest.Kernel {
		return &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{rails[0].Netdev: {Driver: "mlx5_core",
			Bus: rails[0].PCIAddress, FEC: unix.ETHTOOL_FEC_RS, Stats: stats}}}
	}
	return of(mlx5(stats)).minus(of(mlx5(nil)))
}

// nodesText returns the table of series for whole nodes.
func nodesText(t *testing.T, hgx hgxParts) string {
	t.Helper()
	const scrape, bytesPerSample = 15, 1.3
	var b strings.Builder
	perDay := func(n int) float64 { return float64(n) * 86400 / scrape * bytesPerSample / 1e6 }
	b.WriteString("| node | series | scrape | with gzip | samples a second, every 15 s | storage a day, classic |\n" +
		"|---|---|---|---|---|---|\n")
	for _, node := range []struct {
		what, capture, include, gpu string
		gpus, peers                 int
	}{
		{"DGX Spark, the 2 rails of one cable, 1 peer", "spark", `^(rocep1s0f0|roceP2p1s0f0)$`, "gb10", 1, 1},
		{"DGX Spark, all 4 ports, 1 peer", "spark", "", "gb10", 1, 1},
		{"HGX, 8 rails, 4 GPUs, no peer", "hgx", "", "h200", 4, 0},
		{"HGX, 8 rails, 4 GPUs, 1 peer", "hgx", "", "h200", 4, 1},
		{"HGX, 8 rails, 8 GPUs, the default 4 peers", "hgx", "", "h200", 8, 4},
		{"HGX, 8 rails, 4 GPUs, 16 peers", "hgx", "", "h200", 4, 16},
	} {
		root, rails := capture(t, node.capture, node.include)
		s := exportertest.Scraper(t, append(defaults(root, node.include), newGPUs(t, node.gpu, node.gpus),
			sampling(rails, node.gpus), probing(node.peers, rails))...)
		exportertest.Text(t, s)
		text := exportertest.Text(t, s)
		// native histograms, which the text format does not have
		c := count(text, "").plus(counted{native: (len(rails) - 1) * node.peers})
		if most := 2000; node.gpus == 8 && max(c.classic, c.native) > most {
			t.Errorf("%s has %v series: the limit is %d", node.what, c, most)
		}
		fmt.Fprintf(&b, "| %s | %v | %.0f kB | %.0f kB | %.0f | %.0f MB |\n",
			node.what, c, kb(len(text)), kb(zipped(t, text)), float64(c.classic)/scrape, perDay(c.classic))
		if sum := hgx.of(8, node.gpus,
			node.peers); node.capture == "hgx" && math.Abs(float64(sum.classic)/float64(c.classic)-1) > 0.02 {
			t.Errorf("%s has %v series, and by the sum of its parts %v", node.what, c, sum)
		}
	}
	ten := hgx.of(10, 8, 4)
	fmt.Fprintf(&b, "| HGX, 10 rails, 8 GPUs, 4 peers, by the figures above | %v | | | %.0f | %.0f MB |\n", ten,
		float64(ten.classic)/scrape, perDay(ten.classic))
	fmt.Fprintf(&b, "| 10,000 of these | %.1f M, or %.1f M native | | | %.2f M | %.0f GB |\n",
		float64(ten.classic)/1e2, float64(ten.native)/1e2, float64(ten.classic)/scrape/1e2, perDay(ten.classic)*10)
	return b.String()
}

func kb(n int) float64 { return float64(n) / 1000 }

// zipped returns the length after the server's compression.
func zipped(t *testing.T, text []byte) int {
	t.Helper()
	var b bytes.Buffer
	buffered := bufio.NewWriter(&b)
	zip, err := gzip.NewWriterLevel(buffered, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zip.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	_ = buffered.Flush() // b never fails
	return b.Len()
}
