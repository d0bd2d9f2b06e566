package expect

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
	"github.com/railscope/railscope/internal/units"
)

// machine is a sysfs of mlx5 adapters, in the format of drivers/infiniband/core/sysfs.c and
// drivers/pci/pci-sysfs.c, with a keeper that restart recreates.
type machine struct {
	t      *testing.T
	sys    string
	opts   Options
	finder *rail.Finder
	*Keeper
	saved int
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, sys: t.TempDir()}
	m.restart()
	return m
}

// restart makes a new keeper from the saved memory.
func (m *machine) restart() {
	m.t.Helper()
	m.finder = rail.NewFinder(m.sys, rail.Options{}, nil, time.Minute)
	var memory Memory
	if m.Keeper != nil {
		data, err := json.Marshal(m.memory)
		if err = errors.Join(err, json.Unmarshal(data, &memory), memory.Check()); err != nil {
			m.t.Fatal(err)
		}
	}
	m.Keeper = New(Options{Sysfs: m.sys, Find: m.finder.Snapshot, Budget: time.Minute, Memory: memory,
		Save: func(Memory) { m.saved++ }, Forget: m.finder.Forget, Config: m.opts.Config})
}

// card writes an adapter: port rate in Gb/s, or "down", PCIe speed and width, and MTU of its interface.
func (m *machine) card(i int, rate, pcie string, mtu int) {
	m.t.Helper()
	state := "4: ACTIVE"
	if rate == "down" {
		rate, state = "10", "1: DOWN" // mlx5's values for a port without a link (mlx5_ib, translate_eth_proto_oper)
	}
	speed, width, _ := strings.Cut(pcie, " x")
	address := fmt.Sprintf("0000:%02x:00.0", 0x18+i)
	function := "sys/devices/pci0000:00/" + address
	_ = os.Remove(filepath.Join(m.sys, fmt.Sprintf("class/infiniband/mlx5_%d", i)))
	_ = os.Remove(filepath.Join(m.sys, fmt.Sprintf("class/net/eth%d", i)))
	_ = os.Remove(filepath.Join(m.sys, "devices/pci0000:00", address, fmt.Sprintf("infiniband/mlx5_%d/device", i)))
	sysfstest.Write(m.t, filepath.Dir(m.sys), []byte(strings.ReplaceAll(fmt.Sprintf(`
-- %[1]s/infiniband/mlx5_%[2]d/node_guid --
b859:9f03:0000:%04[2]x
-- %[1]s/infiniband/mlx5_%[2]d/ports/1/link_layer --
Ethernet
-- %[1]s/infiniband/mlx5_%[2]d/ports/1/state --
%[3]s
-- %[1]s/infiniband/mlx5_%[2]d/ports/1/rate --
%[4]s Gb/sec (4X NDR)
-- %[1]s/infiniband/mlx5_%[2]d/device --
-> ../..
-- %[1]s/current_link_speed --
%[5]s GT/s PCIe
-- %[1]s/current_link_width --
%[6]s
-- %[1]s/net/eth%[2]d/mtu --
%[7]d
-- sys/class/infiniband/mlx5_%[2]d --
-> ../../devices/pci0000:00/%[8]s/infiniband/mlx5_%[2]d
-- sys/class/net/eth%[2]d --
-> ../../devices/pci0000:00/%[8]s/net/eth%[2]d
`, function, i, state, rate, speed, width, mtu, address), "sys/", filepath.Base(m.sys)+"/")))
}

func (m *machine) remove(i int) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.sys, fmt.Sprintf("class/infiniband/mlx5_%d", i))); err != nil {
		m.t.Fatal(err)
	}
}

// gpu writes a PCI function with a class.
func (m *machine) gpu(address, vendor, class string) {
	m.t.Helper()
	sysfstest.Write(m.t, m.sys, []byte(fmt.Sprintf("-- bus/pci/devices/%[1]s/vendor --\n%[2]s\n"+
		"-- bus/pci/devices/%[1]s/class --\n%[3]s\n", address, vendor, class)))
}

// minutes observes once per minute.
func (m *machine) minutes(n int) {
	for range n {
		time.Sleep(time.Minute)
		m.Observe()
	}
}

// expects returns the expectations, one rail per line.
func (m *machine) expects() string {
	var lines []string
	rails := m.finder.Snapshot().Rails
	for i, e := range m.Expected(rails) {
		line := rails[i].Name + ":"
		if e.Rate.Known() {
			line += " " + e.Rate.Evidence(units.Gigabits(e.Rate.Value))
		}
		if e.Link.Known() {
			line += ", " + LinkText(e.Link.Value)
		}
		if e.MTU.Known() {
			line += fmt.Sprint(", ", e.MTU.Value)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (m *machine) check(want string) {
	m.t.Helper()
	if diff := cmp.Diff(want, m.expects()); diff != "" {
		m.t.Errorf("-want +got: %s", diff)
	}
}

const gen5 = "32.0 x16"

// TestBestSeen: a value that was seen twice in a row is remembered. Nothing lowers it: a link that trains low, a
// port that is down, a missing card, a restart.
func TestBestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.card(0, "400", gen5, 9000)
		m.check("0:")
		m.Observe()
		m.check("0:") // once is not enough
		m.minutes(1)
		const good = "0: 400 Gb/s on 2000-01-01 (best seen), 32 GT/s x16, 4096"
		m.check(good)
		time.Sleep(48 * time.Hour)
		m.card(0, "100", "16.0 x8", 1500)
		m.minutes(2)
		m.check(good)
		m.restart()
		m.card(0, "down", "16.0 x8", 1500)
		m.minutes(2)
		m.check(good)
		m.remove(0)
		m.minutes(2)
		m.check("")
		m.card(0, "400", gen5, 9000)
		m.minutes(2)
		m.check("0: 400 Gb/s on 2000-01-03 (best seen), 32 GT/s x16, 4096")
	})
}

// TestNonsense: a momentary value, or one of a port that is down or of a software device, is not remembered.
func TestNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.card(0, "100", gen5, 9000)
		m.minutes(2)
		m.card(0, "800", gen5, 9000)
		m.minutes(1)
		m.card(0, "100", gen5, 9000)
		m.minutes(3)
		m.check("0: 100 Gb/s on 2000-01-01 (best seen), 32 GT/s x16, 4096")
		m.card(1, "down", gen5, 9000)
		m.minutes(3)
		m.check("0: 100 Gb/s on 2000-01-01 (best seen), 32 GT/s x16, 4096\n1:")
		sysfstest.Write(t, m.sys, []byte(`
-- class/infiniband/rxe0/parent --
eth9
-- class/infiniband/rxe0/ports/1/link_layer --
Ethernet
-- class/infiniband/rxe0/ports/1/state --
4: ACTIVE
-- class/infiniband/rxe0/ports/1/rate --
2.5 Gb/sec (1X SDR)
`))
		m.minutes(3)
		m.check("0: 100 Gb/s on 2000-01-01 (best seen), 32 GT/s x16, 4096\n1:\n2:")
		m.Configure(Config{Rate: 50e9, MTU: 4096}) // the configuration applies to software devices, too
		m.check("0: 400 Gb/s configured, 32 GT/s x16, 4096\n1: 400 Gb/s configured, 4096\n2: 400 Gb/s configured, 4096")
	})
}

// TestSavedOncePerDay: the state is written when it changes, and once a day.
func TestSavedOncePerDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.card(0, "400", gen5, 9000)
		m.gpu("0000:1a:00.0", "0x10de", "0x030200")
		m.minutes(24*60 - 1)
		if m.saved != 1 {
			t.Errorf("saved %d times on the first day", m.saved)
		}
		m.minutes(2 * 24 * 60)
		if m.saved != 3 {
			t.Errorf("saved %d times in three days", m.saved)
		}
		f := m.Expected(m.finder.Snapshot().Rails)[0].Rate
		if f.Why() != "best seen, 2000-01-01 to 2000-01-03" {
			t.Error(f.Why())
		}
	})
}

// TestIdentity: a card is recognized at another bus number, a replacement gets the memory of its slot, and a bond's
// device is not its first function.
func TestIdentity(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(place, guid string, members int) rail.Rail {
		return rail.Rail{Device: "mlx5_" + place, Port: 1, Place: place, PCIAddress: place, NodeGUID: guid, Members: members}
	}
	rate := func(gigabits float64) reading { return reading{rate: gigabits * 125e6} }
	cards := func(cards ...rail.Rail) []rail.Rail { return cards }
	first, second, bond := at("18", "a", 0), at("3a", "b", 0), at("18", "a", 2)
	for name, tc := range map[string]struct {
		before, after []rail.Rail
		want          []float64 // Gb/s after the change; the ports before have 100, 200, …
	}{
		"unchanged":       {cards(first, second), cards(first, second), []float64{100, 200}},
		"buses shifted":   {cards(first, second), cards(at("19", "a", 0), at("3b", "b", 0)), []float64{100, 200}},
		"cards swapped":   {cards(first, second), cards(at("18", "b", 0), at("3a", "a", 0)), []float64{200, 100}},
		"replaced":        {cards(first), cards(at("18", "c", 0)), []float64{100}},
		"another one":     {cards(first), cards(second), []float64{0}},
		"no GUIDs":        {cards(at("18", "0000:0000", 0), at("3a", "", 0)), cards(at("3a", "", 0)), []float64{200}},
		"GUIDs alike":     {cards(first, at("3a", "a", 0)), cards(at("3a", "a", 0), first), []float64{200, 100}},
		"became a bond":   {cards(first), cards(bond), []float64{0}},
		"a bond remained": {cards(bond), cards(bond), []float64{100}},
	} {
		var m Memory
		var seen []reading
		for i := range tc.before {
			seen = append(seen, rate(float64(i+1)*100))
		}
		if !m.learn(tc.before, seen, now) || m.learn(tc.before, seen, now) {
			t.Errorf("%s: nothing learned, or twice", name)
		}
		for i, e := range m.expected(Config{}, tc.after) {
			if got := e.Rate.Value / 125e6; got != tc.want[i] {
				t.Errorf("%s: %v Gb/s of %s, want %v", name, got, tc.after[i].Device, tc.want[i])
			}
		}
	}
}

// TestManyPorts: at most 128 ports are remembered, and present ones are kept.
func TestManyPorts(t *testing.T) {
	var m Memory
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	here := []rail.Rail{{Device: "here", Port: 1, Place: "here", PCIAddress: "here"}}
	m.learn(here, []reading{{rate: 1e9}}, now)
	for i := range 300 {
		now = now.Add(time.Hour)
		name := fmt.Sprint("card", i)
		there := rail.Rail{Device: name, Port: 1, Place: name, PCIAddress: name}
		m.learn(append(here, there), []reading{{rate: 1e9}, {rate: 1e9}}, now)
	}
	if len(m.Ports) != maxPorts || m.expected(Config{}, here)[0].Rate.Value != 1e9 || m.Check() != nil {
		t.Error(len(m.Ports), m.expected(Config{}, here), m.Check())
	}
	data, _ := json.MarshalIndent(m, "", "  ")
	if len(data) > 100<<10 {
		t.Errorf("%d bytes of state", len(data))
	}
	newest := rail.Rail{Device: "card299", Port: 1, Place: "card299", PCIAddress: "card299"}
	if m.expected(Config{}, []rail.Rail{newest})[0].Rate.Value != 1e9 {
		t.Error("the newest was dropped")
	}
}

// TestGPUs: GPUs of jobs on PCI count, of either vendor; the largest number seen is remembered.
func TestGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.gpu("0000:1a:00.0", "0x10de", "0x030200")
		m.gpu("0000:1b:00.0", "0x10de", "0x030000")
		m.gpu("0000:1c:00.0", "0x1002", "0x120000") // MI300X
		m.gpu("0000:0f:00.0", "0x1002", "0x030000") // AMD's graphics of the processor
		m.gpu("0000:03:00.0", "0x1a03", "0x030000") // ASPEED
		m.gpu("0000:1a:00.1", "0x10de", "0x040300") // its audio function
		m.gpu("0000:1a:00.4", "0x10de", "0x030200") // a vGPU
		sysfstest.Write(t, m.sys, []byte("-- bus/pci/devices/0000:1a:00.4/physfn --\n-> ../0000:1a:00.0\n"))
		m.minutes(3)
		want := Node{GPUs: Figure[int]{Value: 3, Source: BestSeen},
			GPUAddresses: []string{"0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0"}}
		node := m.Node()
		node.GPUs.Since, node.GPUs.Last = time.Time{}, time.Time{}
		if diff := cmp.Diff(want, node); diff != "" {
			t.Error(diff)
		}
		if err := os.RemoveAll(filepath.Join(m.sys, "bus/pci/devices/0000:1b:00.0")); err != nil {
			t.Fatal(err)
		}
		m.minutes(3)
		m.restart()
		m.minutes(3)
		if n := m.Node(); n.GPUs.Value != 3 {
			t.Error(n)
		}
		if text, err := m.Reset("gpus"); text != "3 GPUs" || err != nil {
			t.Error(text, err)
		}
		m.minutes(2)
		if n := m.Node(); n.GPUs.Value != 2 {
			t.Error(n)
		}
		m.Configure(Config{GPUs: 8, Rails: 4})
		if n := m.Node(); n.GPUs.Value != 8 || n.GPUs.Source != Configured || n.Rails.Value != 4 {
			t.Error(n)
		}
	})
}

// TestReset: after a planned change a port is learned again, and a removed rail is no longer missing.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.card(0, "400", gen5, 9000)
		m.card(1, "400", gen5, 9000)
		m.minutes(2)
		m.card(0, "100", gen5, 9000)
		m.minutes(2)
		text, err := m.Reset("0")
		if text != "rail 0 (mlx5_0/1): 400 Gb/s, PCIe 32 GT/s x16, MTU 4096" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		m.minutes(1)
		m.check("0: 100 Gb/s on 2000-01-01 (best seen), 32 GT/s x16, 4096\n" +
			"1: 400 Gb/s on 2000-01-01 (best seen), 32 GT/s x16, 4096")
		m.remove(1)
		m.minutes(1)
		if n := m.Node(); n.Rails.Value != 2 {
			t.Error(n)
		}
		text, err = m.Reset("1")
		if text != "rail 1 (mlx5_1/1, missing): 400 Gb/s, PCIe 32 GT/s x16, MTU 4096" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		if n, snap := m.Node(), m.finder.Snapshot(); n.Rails.Value != 1 || len(snap.Missing) != 0 {
			t.Error(n, snap.Missing)
		}
		_, err = m.Reset("1")
		if !errors.Is(err, ErrUnknown) || err.Error() != `no such rail: "1"; there are: 0, gpus` {
			t.Error(err)
		}
		m.finder.SetOptions(rail.Options{Names: map[string]string{"mlx5_7/1": "seven"}})
		time.Sleep(time.Minute)
		if _, err := m.Reset("seven"); err == nil || !strings.Contains(err.Error(), "remove it there and reload") {
			t.Error(err)
		}
	})
}

// TestCapacities: expected capacities do not decrease with ports and links.
func TestCapacities(t *testing.T) {
	const gigabits = 125e6
	nic := func(place string) rail.Rail { return rail.Rail{PCIAddress: place, Port: 1} }
	best := func(rate float64, link rail.Link) Rail {
		e := Rail{Rate: Figure[float64]{Value: rate * gigabits, Source: BestSeen}}
		if link != (rail.Link{}) {
			e.Link = Figure[rail.Link]{Value: link, Source: BestSeen}
		}
		return e
	}
	set := func(rate float64) Rail {
		return Rail{Rate: Figure[float64]{Value: rate * gigabits, Source: Configured}}
	}
	x16, x8 := rail.Link{GigaTransfers: 32, Width: 16}, rail.Link{GigaTransfers: 16, Width: 8}
	on := func(rate float64, link rail.Link) rail.Limits {
		return rail.Limits{Active: rate > 0, Rate: rate * gigabits, Link: link.BytesPerSecond()}
	}
	half := func(rate float64) rail.Limits {
		l := on(rate, x16)
		l.PortKey = "p0"
		return l
	}
	for name, tc := range map[string]struct {
		rails    []rail.Rail
		limits   []rail.Limits
		expected []Rail
		want     []float64
	}{
		"as it was":           {[]rail.Rail{nic("a.0")}, []rail.Limits{on(400, x16)}, []Rail{best(400, x16)}, []float64{400}},
		"trained low":         {[]rail.Rail{nic("a.0")}, []rail.Limits{on(100, x16)}, []Rail{best(400, x16)}, []float64{400}},
		"PCIe trained low":    {[]rail.Rail{nic("a.0")}, []rail.Limits{on(400, x8)}, []Rail{best(400, x16)}, []float64{400}},
		"better than before":  {[]rail.Rail{nic("a.0")}, []rail.Limits{on(400, x16)}, []Rail{best(100, x8)}, []float64{400}},
		"nothing known":       {[]rail.Rail{nic("a.0")}, []rail.Limits{on(100, x16)}, []Rail{{}}, []float64{100}},
		"down":                {[]rail.Rail{nic("a.0")}, []rail.Limits{on(0, x16)}, []Rail{best(400, x16)}, []float64{400}},
		"down from the start": {[]rail.Rail{nic("a.0")}, []rail.Limits{on(0, x16)}, []Rail{{}}, []float64{0}},
		"software":            {[]rail.Rail{{Software: true}}, []rail.Limits{on(2.5, rail.Link{})}, []Rail{{}}, []float64{0}},
		"software, configured": {[]rail.Rail{{Software: true}}, []rail.Limits{on(2.5, rail.Link{})}, []Rail{set(10)},
			[]float64{10}},
		"less configured": {[]rail.Rail{nic("a.0")}, []rail.Limits{on(400, x16)}, []Rail{set(200)}, []float64{200}},
		"halves of one port": {[]rail.Rail{nic("a.0"), nic("b.0")}, []rail.Limits{half(100), half(100)},
			[]Rail{best(200, x16), best(200, x16)}, []float64{100, 100}},
		"one half is down": {[]rail.Rail{nic("a.0"), nic("b.0")}, []rail.Limits{half(200), half(0)},
			[]Rail{best(200, x16), best(200, x16)}, []float64{200, 100}},
	} {
		got := Capacities(tc.rails, tc.limits, tc.expected)
		for i := range got {
			got[i] /= gigabits
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got: %s", name, diff)
		}
	}
}

// TestMemoryCheck: a memory that no keeper writes is rejected.
func TestMemoryCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                        "",
		`{"ports": [{"place": "a", "port": 1}]}`:    "",
		`{"ports": [{"port": 1}]}`:                  "no place or port",
		`{"ports": [{"place": "a"}]}`:               "no place or port",
		`{"ports": [{"place": "a\nb", "port": 1}]}`: "invalid text",
		`{"ports": [{"place": "a", "port": 1, "rate": {"value": -1}}]}`:    "invalid rate -1",
		`{"ports": [{"place": "a", "port": 1, "rate": {"value": 1e300}}]}`: "invalid rate 1e+300",
		`{"ports": [{"place": "a", "port": 1, "mtu": {"value": 9000}}]}`:   "invalid MTU 9000",
		`{"ports": [{"place": "a", "port": 1, "pcie": {"value": {}}}]}`:    "invalid PCIe link",
		`{"ports": [` + strings.Repeat(`{},`, 128) + `{}]}`:                "129 ports",
		`{"gpus": {"value": [` + strings.Repeat(`"",`, 128) + `""]}}`:      "129 GPUs",
		`{"gpus": {"value": ["` + strings.Repeat("a", 129) + `"]}}`:        "invalid text",
	} {
		var m Memory
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(text, err)
		}
		if err := m.Check(); want == "" && err != nil || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
}

// FuzzMemory: an accepted memory can be used without a panic, and survives a write and a read.
func FuzzMemory(f *testing.F) {
	f.Add([]byte(`{"ports": [{"place": "18", "port": 1, "rate": {"value": 5e10}, "pcie": {"value": ` +
		`{"gigatransfers": 32, "width": 16}}, "mtu": {"value": 4096}}], "gpus": {"value": ["a"]}}`))
	rails := []rail.Rail{{Device: "mlx5_0", Port: 1, Place: "18", PCIAddress: "18", NodeGUID: "a"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m, again Memory
		if json.Unmarshal(data, &m) != nil || m.Check() != nil {
			return
		}
		m.learn(rails, []reading{{rate: 1e9, mtu: 1024}}, time.Now())
		m.learnGPUs([]string{"a", "b"}, time.Now())
		if e := m.expected(Config{}, rails)[0]; e.Rate.Value < 1e9 || e.MTU.Value < 1024 {
			t.Error(e)
		}
		out, err := json.Marshal(m)
		if err = errors.Join(err, json.Unmarshal(out, &again), again.Check()); err != nil {
			t.Error(err)
		}
	})
}
