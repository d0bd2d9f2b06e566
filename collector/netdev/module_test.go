package netdev

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
)

// TestNetdevModules: a module is read while its port has a carrier, rarely, and after the carrier changed.
func TestNetdevModules(t *testing.T) {
	const netdev = "enp1s0f0np0"
	root := sysfstest.Unpack(t, "testdata/lag.txtar")
	src := newTestNetdev(root, collectortest.Rails(rail.Rail{Name: "0", Netdev: netdev}), lagKernel())
	module, failure, asked := ethtool.Module{}, error(nil), 0
	src.module = func(string) (ethtool.Module, error) {
		asked++
		return module, failure
	}
	src.fec = func(string) (ethtool.FEC, error) { return ethtool.FEC{}, unix.EOPNOTSUPP }
	const light = `
		netdev_module_temperature_celsius{rail="0",netdev="enp1s0f0np0"} 46.5
		netdev_module_power_watts{rail="0",netdev="enp1s0f0np0",lane="0",direction="receive"} 0.0013
		netdev_module_power_watts{rail="0",netdev="enp1s0f0np0",lane="1",direction="receive"} 0
		netdev_module_power_watts{rail="0",netdev="enp1s0f0np0",lane="0",direction="transmit"} 0.001`
	carrier := func(up string) {
		collectortest.Edit(t, root.Dir, map[string]string{"sys/class/net/" + netdev + "/carrier": up + "\n"})
	}
	for _, step := range []struct {
		why    string
		do     func()
		want   string
		faults []string
		asked  int
	}{
		{"optics", func() {
			module = ethtool.Module{Temperature: new(46.5), Receive: []float64{0.0013, 0}, Transmit: []float64{0.001}}
		}, light, nil, 1},
		{"not asked again", func() { module = ethtool.Module{} }, light, nil, 0},
		{"no carrier", func() { carrier("0") }, "", nil, 0},
		{"copper", func() { carrier("1") }, "", nil, 1},
		{"no carrier again", func() { carrier("0") }, "", nil, 0},
		{"forbidden", func() { carrier("1"); failure = unix.EPERM }, "", []string{netdev + ": permission"}, 1},
		{"a driver without modules", func() { failure = unix.EOPNOTSUPP }, "", nil, 1},
	} {
		step.do()
		asked = 0
		lines, faults, _ := collectortest.ReadLines(t, src)
		lines = slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "netdev_module_") })
		want := collectortest.TextLines(step.want)
		if !slices.Equal(lines, want) || asked != step.asked || !slices.Equal(faults, step.faults) {
			t.Errorf("%s: asked %d times, want %d; faults %q (-want +got):\n%s", step.why, asked, step.asked, faults,
				cmp.Diff(want, lines))
		}
	}
	other := lagKernel()
	other.Netdevs[netdev].Bus = "0000:81:00.0"
	src = newTestNetdev(root, collectortest.Rails(rail.Rail{Name: "0", Netdev: netdev}), other)
	src.fec, asked = func(string) (ethtool.FEC, error) { return ethtool.FEC{}, nil }, 0
	src.module = func(string) (ethtool.Module, error) { asked++; return ethtool.Module{}, nil }
	if _, faults, _ := collectortest.ReadLines(t, src); asked != 0 || len(faults) != 1 {
		t.Errorf("the interface of another namespace: asked %d times, faults %q", asked, faults)
	}
}
