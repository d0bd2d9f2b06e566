package rdma

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

// rdmaTree is a synthetic tree of two mlx5 devices with a source.
type rdmaTree struct {
	testing.TB
	sys    string
	source *Source
}

func newRDMATree(t testing.TB) *rdmaTree {
	t.Helper()
	tree := &rdmaTree{TB: t, sys: t.TempDir()}
	if err := sysfstest.WriteMlx5(tree.sys, 2); err != nil {
		t.Fatal(err)
	}
	finder := rail.NewFinder(tree.sys, rail.Options{}, nil, time.Second)
	tree.source = New(tree.sys, finder.Snapshot, time.Second)
	t.Cleanup(func() { tree.source.set.Close() }) // closes files
	return tree
}

func (tree *rdmaTree) port(device int, elem ...string) string {
	return filepath.Join(append([]string{tree.sys, "class/infiniband", fmt.Sprintf("mlx5_%d", device), "ports/1"},
		elem...)...)
}

func (tree *rdmaTree) write(path, content string) {
	tree.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		tree.Fatal(err)
	}
}

// replace removes the device at a path and restores it, in fake time.
func (tree *rdmaTree) replace(device string) {
	tree.Helper()
	away := filepath.Join(tree.sys, "away")
	if err := os.Rename(device, away); err != nil {
		tree.Fatal(err)
	}
	time.Sleep(time.Second)
	tree.read()
	if err := os.Rename(away, device); err != nil {
		tree.Fatal(err)
	}
	time.Sleep(time.Second)
}

// read returns the values by name and labels, and the faults as "device reason".
func (tree *rdmaTree) read() (values map[string]float64, faults []string) {
	values = map[string]float64{}
	err := tree.source.Read(func(s collector.Sample) {
		values[s.Metric.Name+" "+strings.Join(s.Labels, " ")] = s.Value
	})
	for _, f := range collector.Faults(err) {
		faults = append(faults, f.Device+" "+f.Reason)
	}
	return values, faults
}

// TestRDMABadInput: if a file is invalid, its series is absent, the fault is counted with its reason, and all other
// values are unchanged.
func TestRDMABadInput(t *testing.T) {
	replace := func(with func(t *testing.T, path string)) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			with(t, path)
		}
	}
	content := func(s string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, bad := range []struct {
		name   string
		spoil  func(t *testing.T, path string)
		reason string
	}{
		{"a word", content("unknown\n"), sysfs.ReasonInvalid},
		{"empty", content(""), sysfs.ReasonEmpty},
		{"white space", content(" \n\n"), sysfs.ReasonEmpty},
		{"binary", content("\x7fELF\x00\xff\xfe"), sysfs.ReasonInvalid},
		{"negative", content("-1\n"), sysfs.ReasonInvalid},
		{"over 64 bits", content("18446744073709551616\n"), sysfs.ReasonRange},
		{"too large", content(strings.Repeat("1", 1<<20)), sysfs.ReasonTooLarge},
		{"directory", replace(func(t *testing.T, path string) { os.Mkdir(path, 0o755) }), sysfs.ReasonNotRegular},
		{"pipe", replace(func(t *testing.T, path string) { syscall.Mkfifo(path, 0o644) }), sysfs.ReasonNotRegular},
		{"dangling link", replace(func(t *testing.T, path string) { os.Symlink("nowhere", path) }),
			sysfs.ReasonVanished},
		{"loop of links", replace(func(t *testing.T, path string) {
			os.Symlink(filepath.Base(path), path)
		}), sysfs.ReasonIO},
	} {
		for _, file := range []struct{ name, series string }{
			{"counters/port_rcv_data", "port_receive_bytes_total 1 mlx5_1 1"},
			{"hw_counters/np_cnp_sent", "port_cnp_sent_total 1 mlx5_1 1"},
			{"hw_counters/lifespan", "port_lifespan_seconds 1 mlx5_1 1"},
			{"phys_state", "port_physical_state_id 1 mlx5_1 1"},
			{"rate", "port_rate_bytes_per_second 1 mlx5_1 1"},
		} {
			t.Run(bad.name+"/"+filepath.Base(file.name), func(t *testing.T) {
				lanetest.Test(t, func(t *testing.T) {
					tree := newRDMATree(t)
					want, faults := tree.read()
					if len(faults) > 0 || want[file.series] == 0 {
						t.Fatal("not a healthy tree", faults)
					}
					bad.spoil(t, tree.port(1, file.name))
					time.Sleep(time.Second) // a file of a captured tree is looked for again after this time
					delete(want, file.series)
					if file.name == "rate" {
						delete(want, "rail_capacity_bytes_per_second 1 mlx5_1 1")
					}
					for range 2 { // the second read has the same result
						got, faults := tree.read()
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("(-want +got):\n%s", diff)
						}
						reason := bad.reason
						if file.name == "rate" && reason == sysfs.ReasonRange {
							reason = sysfs.ReasonInvalid // a rate is not a 64-bit number
						}
						if file.name == "phys_state" && bad.name == "white space" {
							reason = sysfs.ReasonEmpty
						}
						if diff := cmp.Diff([]string{"mlx5_1 " + reason}, faults); diff != "" {
							t.Errorf("faults (-want +got):\n%s", diff)
						}
					}
				})
			})
		}
	}
}

// TestRDMANotAvailable: a counter that the port lacks is absent, which is not a failure, like one that the kernel
// refuses. It is not read again until the device is replaced. A state without a value is a failure: every port has
// a state.
func TestRDMANotAvailable(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		tree := newRDMATree(t)
		const series = "port_receive_bytes_total 1 mlx5_1 1"
		whole, _ := tree.read()
		for _, text := range []string{"N/A (no PMA)\n", "N/A", "Not supported\n"} {
			tree.write(tree.port(1, "counters/port_rcv_data"), text)
			tree.replace(filepath.Join(tree.sys, "class/infiniband/mlx5_1"))
			want := maps.Clone(whole)
			delete(want, series)
			want["rail_bytes_counted 1 mlx5_1 1"] = 0
			values := map[string]float64{}
			err := tree.source.Read(func(s collector.Sample) {
				values[s.Metric.Name+" "+strings.Join(s.Labels, " ")] = s.Value
			})
			if diff := cmp.Diff(want, values); diff != "" {
				t.Errorf("%q (-want +got):\n%s", text, diff)
			}
			for _, f := range collector.Faults(err) {
				if !f.Expected || f.Reason != sysfs.ReasonUnsupported {
					t.Errorf("%q: %+v", text, f)
				}
			}
			if _, faults := tree.read(); len(faults) > 0 {
				t.Errorf("%q: asked again at once: %v", text, faults)
			}
		}
		tree.write(tree.port(1, "counters/port_rcv_data"), "7\n")
		tree.replace(filepath.Join(tree.sys, "class/infiniband/mlx5_1"))
		if got, _ := tree.read(); got[series] != 4*7 {
			t.Errorf("a counter that came: %v", got[series])
		}
		tree.write(tree.port(1, "phys_state"), "N/A\n")
		_, faults := tree.read()
		if diff := cmp.Diff([]string{"mlx5_1 " + sysfs.ReasonInvalid}, faults); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRDMAVanish: a file that disappears removes only its own series, and a file that reappears is read again.
func TestRDMAVanish(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		tree := newRDMATree(t)
		whole, _ := tree.read()
		const bytes0, bytes1 = "port_receive_bytes_total 0 mlx5_0 1", "port_receive_bytes_total 1 mlx5_1 1"

		os.Remove(tree.port(1, "counters/port_rcv_data"))
		time.Sleep(time.Second) // a file of a captured tree is looked for again after this time
		got, faults := tree.read()
		if _, there := got[bytes1]; there || len(got) != len(whole)-1 || len(faults) > 0 {
			t.Errorf("a counter that went: %d of %d series, %v", len(got), len(whole), faults)
		}
		os.WriteFile(tree.port(1, "counters/new"), []byte("4444\n"), 0o644)
		os.Rename(tree.port(1, "counters/new"), tree.port(1, "counters/port_rcv_data"))
		time.Sleep(listEvery)
		got, _ = tree.read()
		if got[bytes1] != 4*4444 {
			t.Errorf("a counter that came back: %v", got[bytes1])
		}

		time.Sleep(30 * time.Millisecond) // longer than the finder's settling time
		os.Rename(filepath.Join(tree.sys, "class/infiniband/mlx5_0"), filepath.Join(tree.sys, "gone"))
		got, faults = tree.read()
		for series := range got {
			if strings.Contains(series, "mlx5_0") && !strings.HasPrefix(series, "rail_missing_info ") {
				t.Errorf("a device that went still has %s", series)
			}
		}
		if got[bytes1] != 4*4444 || len(faults) > 0 {
			t.Errorf("the other device: %v %v", got[bytes1], faults)
		}
		time.Sleep(30 * time.Millisecond)
		os.Rename(filepath.Join(tree.sys, "gone"), filepath.Join(tree.sys, "class/infiniband/mlx5_0"))
		got, _ = tree.read()
		if got[bytes0] != whole[bytes0] || len(got) != len(whole) {
			t.Errorf("a device that came back has %v, %d of %d series", got[bytes0], len(got), len(whole))
		}
	})
}

// TestRDMAExcluded: ports that the configuration excludes are counted separately from missing ones, also if no rail
// remains.
func TestRDMAExcluded(t *testing.T) {
	tree := newRDMATree(t)
	var got [][]string
	for _, include := range []string{"mlx5", "^mlx5_0$", "none"} {
		finder := rail.NewFinder(tree.sys, rail.Options{Include: regexp.MustCompile(include)}, nil, time.Second)
		tree.source = New(tree.sys, finder.Snapshot, time.Second)
		values, _ := tree.read() // absent without a rail
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(values)), func(k string) bool {
			return !strings.HasPrefix(k, "port_up ") && !strings.HasPrefix(k, "rail_excluded_info ")
		})
		got = append(got, keys)
	}
	want := [][]string{
		{"port_up 0 mlx5_0 1", "port_up 1 mlx5_1 1"},
		{"port_up 0 mlx5_0 1", "rail_excluded_info mlx5_1"},
		{"rail_excluded_info mlx5_0", "rail_excluded_info mlx5_1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRDMAMissing: a rail that disappeared is reported, also if no rail remains.
func TestRDMAMissing(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		tree := newRDMATree(t)
		finder := rail.NewFinder(tree.sys, rail.Options{}, nil, time.Second)
		tree.source = New(tree.sys, finder.Snapshot, time.Second)
		var got []string
		for _, gone := range []string{"", "mlx5_1", "mlx5_0"} {
			if gone != "" {
				if err := os.RemoveAll(filepath.Join(tree.sys, "class/infiniband", gone)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			values, _ := tree.read()
			for _, k := range slices.Sorted(maps.Keys(values)) {
				if strings.HasPrefix(k, "port_up ") || strings.HasPrefix(k, "rail_missing_info ") {
					got = append(got, k)
				}
			}
			got = append(got, "")
		}
		want := []string{
			"port_up 0 mlx5_0 1", "port_up 1 mlx5_1 1", "",
			"port_up 0 mlx5_0 1", "rail_missing_info 1 mlx5_1 1 ", "",
			"rail_missing_info 0 mlx5_0 1 ", "rail_missing_info 1 mlx5_1 1 ", "",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestRDMAVirtual: counters of virtual functions, with their numbers, for at most 256 ports.
func TestRDMAVirtual(t *testing.T) {
	tree := newRDMATree(t)
	snap := rail.NewFinder(tree.sys, rail.Options{}, nil, time.Second).Snapshot()
	port := snap.Rails[1]
	snap.Rails, snap.Virtual = snap.Rails[:1], []rail.VirtualFunction{{Rail: port, PF: "mlx5_0", VF: 3}}
	tree.source = New(tree.sys, func() rail.Snapshot { return snap }, time.Second)
	t.Cleanup(func() { tree.source.set.Close(); tree.source.virtual.Close() })
	for name, value := range map[string]string{"counters/port_rcv_data": "250", "counters/port_xmit_data": "500",
		"counters/port_rcv_packets": "3", "counters/port_xmit_packets": "4", "hw_counters/out_of_sequence": "5",
		"hw_counters/packet_seq_err": "6"} {
		tree.write(tree.port(1, name), value+"\n")
	}
	virtual := func() (map[string]float64, []string) {
		values, faults := tree.read()
		maps.DeleteFunc(values, func(k string, _ float64) bool { return !strings.HasPrefix(k, "vf_") })
		return values, faults
	}
	want := map[string]float64{
		"vf_port_receive_bytes_total mlx5_1 1 mlx5_0 3": 1000, "vf_port_transmit_bytes_total mlx5_1 1 mlx5_0 3": 2000,
		"vf_port_receive_packets_total mlx5_1 1 mlx5_0 3": 3, "vf_port_transmit_packets_total mlx5_1 1 mlx5_0 3": 4,
		"vf_port_out_of_sequence_packets_total mlx5_1 1 mlx5_0 3": 5,
		"vf_port_packet_sequence_errors_total mlx5_1 1 mlx5_0 3":  6}
	got, faults := virtual()
	if diff := cmp.Diff(want, got); diff != "" || faults != nil {
		t.Errorf("faults %v (-want +got):\n%s", faults, diff)
	}
	if err := os.RemoveAll(tree.port(1, "hw_counters")); err != nil { // another driver has no such directory
		t.Fatal(err)
	}
	snap.Virtual = nil
	for i := range 257 {
		snap.Virtual = append(snap.Virtual, rail.VirtualFunction{Rail: port, PF: "0000:18:00.0", VF: i - 1})
	}
	got, faults = virtual()
	if v := got["vf_port_transmit_packets_total mlx5_1 1 0000:18:00.0 "]; v != 4 || len(got) != 4*256 {
		t.Errorf("packets of a function without number %v, %d series", v, len(got))
	}
	if diff := cmp.Diff([]string{" too_large"}, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// TestRDMAMaxMTU: the maximum MTU is reported for the ports for which it is known.
func TestRDMAMaxMTU(t *testing.T) {
	tree := newRDMATree(t)
	tree.source.MaxMTU = func(device string, port int) int {
		return map[string]int{"mlx5_1 1": 2048}[fmt.Sprint(device, " ", port)]
	}
	values, _ := tree.read()
	got := map[string]float64{}
	for k, v := range values {
		if strings.HasPrefix(k, "port_mtu_bytes ") {
			got[k] = v
		}
	}
	want := map[string]float64{"port_mtu_bytes 1 mlx5_1 1 max": 2048} // the tree has no interfaces
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRDMALeaf: the switch of a rail is that of the configuration, else the announced one.
func TestRDMALeaf(t *testing.T) {
	tree := newRDMATree(t)
	find := tree.source.find
	tree.source.find = func() rail.Snapshot {
		found := find()
		found.Rails = slices.Clone(found.Rails)
		found.Rails[0].Leaf = "configured"
		return found
	}
	tree.source.Leaf = func(rail string) string { return map[string]string{"0": "heard", "1": "heard"}[rail] }
	values, _ := tree.read()
	got := map[string]float64{}
	for k, v := range values {
		if strings.HasPrefix(k, "rail_leaf_info ") {
			got[k] = v
		}
	}
	want := map[string]float64{"rail_leaf_info 0 mlx5_0 1 configured": 1, "rail_leaf_info 1 mlx5_1 1 heard": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRDMANarrowCounters: a 32-bit counter is exported unchanged across a wrap, any reset, and a restart of
// railscope. A saturating counter reports that it is saturated.
func TestRDMANarrowCounters(t *testing.T) {
	tree := newRDMATree(t)
	const wraps, stays = "port_receive_write_requests_total 0 mlx5_0 1", "port_symbol_errors_total 0 mlx5_0 1"
	for _, step := range []struct {
		raw uint64
		why string
	}{
		{1<<32 - 10, "near the end of 32 bits"},
		{5, "a wrap"},
		{3e9, "on"},
		{100, "a reset from above the middle of the range: no wrap"},
		{1 << 40, "wider than the table says"},
		{7, "a reset"},
	} {
		tree.write(tree.port(0, "hw_counters/rx_write_requests"), fmt.Sprintf("%d\n", step.raw))
		got, _ := tree.read()
		if got[wraps] != float64(step.raw) {
			t.Errorf("%s: %d reads as %v", step.why, step.raw, got[wraps])
		}
		again := map[string]float64{}
		finder := rail.NewFinder(tree.sys, rail.Options{}, nil, time.Minute)
		_ = New(tree.sys, finder.Snapshot, time.Minute).Read(func(s collector.Sample) {
			again[s.Metric.Name+" "+strings.Join(s.Labels, " ")] = s.Value
		})
		if again[wraps] != got[wraps] {
			t.Errorf("%s: %v, after a restart %v", step.why, got[wraps], again[wraps])
		}
	}
	for _, step := range []struct {
		raw  uint64
		flag bool
	}{{65534, false}, {65535, true}, {0, false}, {70000, false}} {
		tree.write(tree.port(0, "counters/symbol_error"), fmt.Sprintf("%d\n", step.raw))
		got, _ := tree.read()
		_, flag := got["port_saturated_info 0 mlx5_0 1 symbol_error"]
		if got[stays] != float64(step.raw) || flag != step.flag {
			t.Errorf("symbol_error %d reads as %v, saturated %v", step.raw, got[stays], flag)
		}
	}
}

// TestRDMABudget: a slow finder or slow firmware takes no time from a port's budget.
func TestRDMABudget(t *testing.T) {
	collectortest.TestBudget(t, func(t *testing.T, slow bool) collector.Source {
		tree := newRDMATree(t)
		find := collectortest.SlowRails(slow, func() ([]rail.Rail, error) { return tree.source.find().Rails, nil })
		source := New(tree.sys, func() rail.Snapshot { rails, _ := find(); return rail.Snapshot{Rails: rails} },
			collectortest.Budget)
		source.MaxMTU = func(string, int) int {
			if slow {
				time.Sleep(collectortest.Slow)
			}
			return 4096
		}
		return source
	})
}

func TestRDMATable(t *testing.T) {
	collectortest.TestTable(t, New("", func() rail.Snapshot { return rail.Snapshot{} }, 0))
}

// TestRDMAEveryFile: every file of counters/ and hw_counters/ is exported, each as its own series, except the peaks
// of bnxt_re.
func TestRDMAEveryFile(t *testing.T) {
	tree := newRDMATree(t)
	tree.write(tree.port(0, "counters/link_down_events"), "71\n") // a second name of link_downed
	tree.write(tree.port(0, "counters/brand_new"), "72\n")
	tree.write(tree.port(0, "hw_counters/brand_new"), "73\n")   // an unknown name that occurs in both directories
	tree.write(tree.port(0, "hw_counters/tx_cnp_pkts"), "74\n") // another driver's name of np_cnp_sent
	tree.write(tree.port(0, "hw_counters/active_qps"), "75\n")
	tree.write(tree.port(0, "hw_counters/watermark_qps"), "76\n")
	got, faults := tree.read()
	if len(faults) > 0 {
		t.Error(faults)
	}
	values := slices.Collect(maps.Values(got))
	for _, want := range []float64{71, 72, 73, 74, 75} {
		if !slices.Contains(values, want) {
			t.Errorf("the counter with the value %v is lost", want)
		}
	}
	if slices.Contains(values, 76) {
		t.Error("a peak is exported")
	}
	if got["port_link_downed_total 0 mlx5_0 1"] == 71 || got["port_cnp_sent_total 0 mlx5_0 1"] == 74 {
		t.Error("the second name of a counter took the first one's place")
	}
	if got["port_native_value 0 mlx5_0 1 brand_new"]+
		got["port_native_value 0 mlx5_0 1 hw_counters/brand_new"] != 72+
		73 {
		t.Error("two unknown counters of one name are not told apart")
	}
}

// TestRDMAStates: the rate is the port's rate only while it is ACTIVE.
func TestRDMAStates(t *testing.T) {
	for _, tc := range []struct {
		state    string
		id, up   float64
		withRate bool
	}{
		{"4: ACTIVE", 4, 1, true}, {"1: DOWN", 1, 0, false}, {"2: INIT", 2, 0, false}, {"3: ARMED", 3, 0, false},
		{"5: ACTIVE_DEFER", 5, 0, false}, {"0: NOP", 0, 0, false},
	} {
		tree := newRDMATree(t)
		tree.write(tree.port(0, "state"), tc.state+"\n")
		got, faults := tree.read()
		_, rate := got["port_rate_bytes_per_second 0 mlx5_0 1"]
		_, capacity := got["rail_capacity_bytes_per_second 0 mlx5_0 1"]
		if got["port_state_id 0 mlx5_0 1"] != tc.id || got["port_up 0 mlx5_0 1"] != tc.up || rate != tc.withRate ||
			capacity != tc.withRate || len(faults) > 0 {
			t.Errorf("%s: id %v, up %v, rate %v, capacity %v, %v", tc.state, got["port_state_id 0 mlx5_0 1"],
				got["port_up 0 mlx5_0 1"], rate, capacity, faults)
		}
	}
}

// TestRDMAKeepsFilesOpen: only the first scrape opens files, so that a counter costs one system call.
func TestRDMAKeepsFilesOpen(t *testing.T) {
	tree := newRDMATree(t)
	tree.read()
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(list)
	}
	before := open()
	for range 10 {
		tree.read()
	}
	if after := open(); after != before || before < 2*53 {
		t.Errorf("%d descriptors before ten reads, %d after; 53 counters of 2 ports are to be kept open", before, after)
	}
	os.RemoveAll(filepath.Join(tree.sys, "class/infiniband"))
	time.Sleep(30 * time.Millisecond) // longer than the finder's settling time
	tree.read()
	os.Mkdir(filepath.Join(tree.sys, "class/infiniband"), 0o755)
	if left := open(); left > before-2*50 {
		t.Errorf("%d descriptors, %d while the devices were there: those of devices that are gone were left open",
			left, before)
	}
}

// TestRDMASum: bytes counted by IP version are summed. If one of the two cannot be read, there is no sum: half of
// it is not the rail's traffic.
func TestRDMASum(t *testing.T) {
	tree := newRDMATree(t)
	const bytes4, bytes6, all = "port_ipv4_receive_bytes_total 0 mlx5_0 1", "port_ipv6_receive_bytes_total 0 mlx5_0 1",
		"port_receive_bytes_total 0 mlx5_0 1"
	if err := os.RemoveAll(tree.port(0, "counters")); err != nil {
		t.Fatal(err)
	}
	tree.write(tree.port(0, "hw_counters/ip4InOctets"), "700\n")
	tree.write(tree.port(0, "hw_counters/ip6InOctets"), "40\n")
	tree.write(tree.port(0, "hw_counters/ip4OutOctets"), "1\n")
	tree.write(tree.port(0, "hw_counters/ip6OutOctets"), "1\n")
	for _, step := range []struct{ file, content, want string }{
		{"ip4InOctets", "700", "700 40 740"},
		{"ip6InOctets", "41", "700 41 741"},
		{"ip6InOctets", "unknown", "700 - -"},
		{"ip4InOctets", "", "- - -"},
		{"ip6InOctets", "42", "- 42 -"},
		{"ip4InOctets", "701", "701 42 743"},
	} {
		tree.write(tree.port(0, "hw_counters", step.file), step.content+"\n")
		values, _ := tree.read()
		var got []string
		for _, series := range []string{bytes4, bytes6, all} {
			if v, there := values[series]; there {
				got = append(got, fmt.Sprint(v))
			} else {
				got = append(got, "-")
			}
		}
		if s := strings.Join(got, " "); s != step.want {
			t.Errorf("%s %q: %s, want %s", step.file, step.content, s, step.want)
		}
	}
}

// TestGIDSeriesBounded: at most 16 entries of a full GID table are series, namely those that a connection could
// use. The total number is exported, too.
func TestGIDSeriesBounded(t *testing.T) {
	tree := newRDMATree(t)
	entry := func(device, index int, gid, typ, netdev string) {
		for name, content := range map[string]string{"gids": gid, "gid_attrs/types": typ, "gid_attrs/ndevs": netdev} {
			path := tree.port(device, name, fmt.Sprint(index))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			tree.write(path, content+"\n")
		}
	}
	netdev, _ := os.ReadFile(tree.port(0, "gid_attrs/ndevs/0"))
	for i := range 256 {
		typ := "RoCE v2"
		if i < 100 {
			typ = "IB/RoCE v1"
		}
		entry(0, i, fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a00:%04x", i+1), typ, strings.TrimSpace(string(netdev)))
	}
	values, _ := tree.read()
	series := 0
	for name := range values {
		if strings.HasPrefix(name, "gid_info 0 ") {
			series++
			if !strings.Contains(name, " RoCE v2 ") {
				t.Errorf("%s: nobody would use it", name)
			}
		}
	}
	if series != 16 {
		t.Errorf("%d series, want 16", series)
	}
}
