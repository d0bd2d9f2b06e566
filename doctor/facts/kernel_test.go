package facts

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRunningKernel queries the kernel of this machine about its loopback interface.
func TestRunningKernel(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil || lo.Flags&net.FlagUp == 0 {
		t.Skip("no loopback interface that is up")
	}
	k := rtnetlink{timeout: 10 * time.Second}
	all, err := k.addresses()
	if err != nil || !slices.Contains(all[lo.Index], netip.MustParsePrefix("127.0.0.1/8")) {
		t.Errorf("addresses: %v, %v", all, err)
	}
	list, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list { // the standard library uses its own queries to the same kernel
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !slices.Contains(all[i.Index], p) {
				t.Errorf("%s has %s, which is not in %v", i.Name, p, all[i.Index])
			}
		}
	}
	home := netip.MustParseAddr("127.0.0.1")
	if index, err := k.path(home, netip.MustParseAddr("127.0.0.9")); index != lo.Index || err != nil {
		t.Errorf("path: interface %d, %v, want %d", index, err, lo.Index)
	}
	if index, err := k.path(netip.MustParseAddr("198.51.100.77"), home); index != 0 {
		t.Errorf("path from an address that is not this machine's: interface %d, %v", index, err)
	}
	if list, err := k.gateways(lo.Index); err != nil || len(list) > 0 {
		t.Errorf("gateways of lo: %v, %v", list, err)
	}
	if route := defaultRoute(t); route != 0 {
		if list, err := k.gateways(route); err != nil || !slices.Contains(list, netip.MustParsePrefix("0.0.0.0/0")) {
			t.Errorf("gateways of interface %d: %v, %v", route, list, err)
		}
	}
}

// defaultRoute returns the interface of this machine's default route in /proc/net/route; 0 if there is none.
func defaultRoute(t *testing.T) int {
	t.Helper()
	data, _ := os.ReadFile("/proc/net/route") // without the file there is no route
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" && f[2] != "00000000" {
			i, err := net.InterfaceByName(f[0])
			if err != nil {
				t.Fatal(err)
			}
			return i.Index
		}
	}
	return 0
}
