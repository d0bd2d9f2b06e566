package rail

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/railscope/railscope/internal/sysfstest"
)

// Tolerance of 0.1 %: the values below are rounded.
var about = cmpopts.EquateApprox(1e-3, 0)

func TestParseLinkSpeed(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want float64 // 0: an error
	}{
		{"2.5 GT/s PCIe", 2.5},
		{"5.0 GT/s PCIe", 5},
		{"8.0 GT/s PCIe", 8},
		{"16.0 GT/s PCIe", 16},
		{"32.0 GT/s PCIe", 32},
		{"64.0 GT/s PCIe", 64},
		{"8 GT/s", 8}, // kernels before 5.8
		{"Unknown", 0},
		{"Unknown speed", 0},
		{"", 0},
		{"16.0", 0},
		{"16.0 Gb/s", 0},
		{" GT/s", 0},
		{"0 GT/s PCIe", 0},
		{"-8 GT/s PCIe", 0},
		{"NaN GT/s PCIe", 0},
		{"Inf GT/s PCIe", 0},
		{"1e999 GT/s PCIe", 0},
	} {
		got, err := ParseLinkSpeed(tt.in)
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("ParseLinkSpeed(%q) = %v, %v; want %v", tt.in, got, err, tt.want)
		}
	}
	if _, err := ParseLinkSpeed("Unknown"); err.Error() != `"Unknown" is not a PCIe link speed` {
		t.Error(err)
	}
}

func FuzzParseLinkSpeed(f *testing.F) {
	for _, s := range []string{"32.0 GT/s PCIe", "Unknown", "0x1p4 GT/s", "1_0 GT/s", " GT/s GT/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseLinkSpeed(s)
		if err != nil && v != 0 || err == nil && (!(v > 0) || math.IsInf(v, 0)) {
			t.Fatalf("ParseLinkSpeed(%q) = %v, %v", s, v, err)
		}
	})
}

func TestLinkBytesPerSecond(t *testing.T) {
	for _, tt := range []struct {
		link Link
		want float64 // bytes per second, rounded as in tables of PCI Express
	}{
		{Link{2.5, 1}, 250e6},
		{Link{5, 1}, 500e6},
		{Link{8, 1}, 984.6e6},
		{Link{16, 1}, 1.969e9},
		{Link{32, 1}, 3.938e9},
		{Link{64, 1}, 7.375e9},
		{Link{8, 16}, 15.754e9},
		{Link{16, 8}, 15.754e9},
		{Link{32, 4}, 15.754e9},
		{Link{32, 16}, 63.015e9},
		{Link{64, 16}, 118e9},
		{Link{32, 0}, 0},
		{Link{}, 0},
	} {
		if got := tt.link.BytesPerSecond(); !cmp.Equal(tt.want, got, about) {
			t.Errorf("%v: %.4g, want %.4g", tt.link, got, tt.want)
		}
	}
}

func TestCapacities(t *testing.T) {
	const (
		gb200, gb400 = 25e9, 50e9
		gen5x4       = 15.754e9
		gen5x16      = 63.015e9
	)
	// One DGX Spark: function f of slot s reaches port f.
	spark := func(up0, up1 bool) []Limits {
		return []Limits{
			{up0, gb200, gen5x4, "0000:01:00", "f0"}, {up1, gb200, gen5x4, "0000:01:00", "f1"},
			{up0, gb200, gen5x4, "0002:01:00", "f0"}, {up1, gb200, gen5x4, "0002:01:00", "f1"},
		}
	}
	for _, tt := range []struct {
		name  string
		rails []Limits
		want  []float64
	}{
		{"none", nil, []float64{}},
		{"Spark, one cable: two functions share the port", spark(true, false), []float64{12.5e9, 0, 12.5e9, 0}},
		{"Spark, two cables: two functions share the lanes", spark(true, true),
			[]float64{7.877e9, 7.877e9, 7.877e9, 7.877e9}},
		{"Spark, no cable", spark(false, false), []float64{0, 0, 0, 0}},
		{"HGX: the port is the limit", []Limits{{true, gb400, gen5x16, "0000:18:00", "a f0"},
			{true, gb400, gen5x16, "0000:3a:00", "b f0"}}, []float64{gb400, gb400}},
		{"fallen back to Gen4 x8", []Limits{{true, gb400, Link{16, 8}.BytesPerSecond(), "0000:18:00", "a"},
			{true, gb400, gen5x16, "0000:3a:00", "b"}}, []float64{15.754e9, gb400}},
		{"an unknown link", []Limits{{true, gb400, 0, "0000:18:00", "a"}}, []float64{gb400}},
		{"an unknown rate", []Limits{{true, 0, gen5x16, "0000:18:00", "a"}}, []float64{0}},
		{"nothing known", []Limits{{true, 0, 0, "", ""}}, []float64{0}},
		{"an unknown rate takes its share of the link all the same",
			[]Limits{{true, 0, gen5x16, "s", "a"}, {true, gb400, gen5x16, "s", "b"}},
			[]float64{0, gen5x16 / 2}},
		{"inactive takes no share", []Limits{{true, gb400, gen5x16, "s", "p"}, {false, gb400, gen5x16, "s", "p"}},
			[]float64{gb400, 0}},
		{"without keys nothing is shared", []Limits{{true, gb400, gen5x16, "", ""}, {true, gb200, gen5x4, "", ""}},
			[]float64{gb400, gen5x4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Capacities(tt.rails), about); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Which limits a Spark's four rails share, from the tree to the capacity.
func TestCapacitiesOfSpark(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/dgx-spark.txtar")
	rails, err := NewFinder(root.Sys(), Options{}, nil, time10).Rails()
	if err != nil {
		t.Fatal(err)
	}
	limits := make([]Limits, len(rails))
	for i, r := range rails {
		limits[i] = Limits{true, 25e9, Link{32, 4}.BytesPerSecond(), LinkKey(r.PCIAddress), r.PortKey("", "")}
	}
	got := map[string]string{}
	for i, c := range Capacities(limits) {
		got[rails[i].Device] = fmt.Sprintf("%s, %s, %.3g", limits[i].LinkKey, limits[i].PortKey, c)
	}
	want := map[string]string{
		"rocep1s0f0":   "0000:01:00, 4cbb:4703:0022:0100 f0, 7.88e+09",
		"rocep1s0f1":   "0000:01:00, 4cbb:4703:0022:0100 f1, 7.88e+09",
		"roceP2p1s0f0": "0002:01:00, 4cbb:4703:0022:0100 f0, 7.88e+09",
		"roceP2p1s0f1": "0002:01:00, 4cbb:4703:0022:0100 f1, 7.88e+09",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPortKey(t *testing.T) {
	const guid = "4cbb:4703:0022:0100"
	for _, tt := range []struct {
		name           string
		rail           Rail
		switchID, port string
		want           string
	}{
		{"the netdev tells", Rail{PCIAddress: "0000:01:00.0", Port: 1, SystemImageGUID: guid}, "22010003", "p0",
			"22010003 p0"},
		{"a switch without a port's name", Rail{PCIAddress: "0000:01:00.1", Port: 1, SystemImageGUID: guid}, "22010003",
			"", guid + " f1"},
		{"a port's name without a switch", Rail{PCIAddress: "0000:01:00.1", Port: 1, SystemImageGUID: guid}, "", "p1",
			guid + " f1"},
		{"by GUID and function", Rail{PCIAddress: "0002:01:00.1", Port: 1, SystemImageGUID: guid}, "", "",
			guid + " f1"},
		{"the second port of a device", Rail{PCIAddress: "0000:01:00.0", Port: 2, SystemImageGUID: guid}, "", "", ""},
		{"no GUID", Rail{PCIAddress: "0000:01:00.0", Port: 1}, "", "", ""},
		{"a GUID of zeros", Rail{PCIAddress: "0000:01:00.0", Port: 1, SystemImageGUID: "0000:0000:0000:0000"}, "",
			"", ""},
		{"a software device", Rail{Port: 1, SystemImageGUID: guid}, "", "", ""},
	} {
		if got := tt.rail.PortKey(tt.switchID, tt.port); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestActiveMTU(t *testing.T) {
	hardware, software := Rail{PCIAddress: "0000:18:00.0"}, Rail{Software: true}
	for _, tt := range []struct{ netdev, hardware, software int }{
		{9000, 4096, 4096},
		{4200, 4096, 4096},
		{4096 + 96, 4096, 4096},
		{4096 + 95, 2048, 4096},
		{4096 + 80, 2048, 4096},
		{4096 + 79, 2048, 2048},
		{4096, 2048, 2048},
		{1500, 1024, 1024},
		{512 + 96, 512, 512},
		{512 + 79, 256, 256},
		{256 + 96, 256, 256},
		{256 + 95, 0, 256},
		{100, 0, 256}, // rxe never reports less
		{0, 0, 256},
	} {
		got := [2]int{hardware.ActiveMTU(tt.netdev), software.ActiveMTU(tt.netdev)}
		if want := [2]int{tt.hardware, tt.software}; got != want {
			t.Errorf("netdev MTU %d: %v, want %v", tt.netdev, got, want)
		}
	}
}
