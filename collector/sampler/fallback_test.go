package sampler

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
)

// TestTCPBusy: evidence for RDMA that fell back to TCP, and traffic that is not evidence.
func TestTCPBusy(t *testing.T) {
	const capacity = 400 * gigabit // 50 GB/s
	look := func(tcp, rdma float64) []railLoad {
		l := railLoad{tcp: tcp, rdma: rdma, tcpKnown: true, rdmaKnown: true, capacity: capacity}
		return []railLoad{l, {tcpKnown: true, rdmaKnown: true, capacity: capacity}}
	}
	busy, not := condition{true, true}, condition{false, true}
	for name, tc := range map[string]struct {
		looks []railLoad
		gpus  condition
		was   bool // a fallback was suspected before
		want  condition
	}{
		"fallen back":                     {look(2e9, 0), busy, false, busy},
		"the probe's RDMA hides nothing":  {look(2e9, 1e8), busy, false, busy},
		"RDMA works beside it":            {look(2e9, 1e9), busy, false, not},
		"ssh and scrapes":                 {look(5e6, 0), busy, false, not},
		"a copy, little for such a rail":  {look(3e8, 0), busy, false, not},
		"no GPU computes":                 {look(2e9, 0), not, false, not},
		"GPUs do not say":                 {look(2e9, 0), condition{}, false, condition{}},
		"idle":                            {look(0, 0), busy, false, not},
		"stays at half of the thresholds": {look(3e8, 5e7), busy, true, busy},
		"and not below":                   {look(2e8, 0), busy, true, not},
		"no rail tells what is not RDMA":  {[]railLoad{{rdmaKnown: true}}, busy, false, condition{}},
		"one does not tell what is RDMA": {append(look(2e9, 0), railLoad{tcpKnown: true}), busy, false,
			condition{}},
		"one tells nothing of TCP and is idle": {append(look(2e9, 0), railLoad{rdmaKnown: true}), busy, false, busy},
		"capacities are not known": {[]railLoad{{tcp: 2e7, tcpKnown: true, rdmaKnown: true}}, busy,
			false, busy},
		"no rails": {nil, busy, false, condition{}},
	} {
		var s suspicion
		s.now[RDMAIdleTCPBusy].Suspected = tc.was
		if got := s.tcpBusy(tc.looks, tc.gpus); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestSingleRail judges sequences of reads: each letter is a read.
func TestSingleRail(t *testing.T) {
	const capacity = 400 * gigabit
	shares := map[rune][]float64{
		'b': {0.4, 0.4, 0.4, 0.4}, // balanced
		'u': {0.4, 0.4, 0.4, 0.1}, // uneven
		's': {0.8, 0, 0, 0.01},    // single
		'o': {0, 0.8, 0, 0},       // another single rail
		'm': {0.8, 0.1, 0.1, 0},   // most traffic on one rail
		'i': {0, 0, 0, 0},         // idle
		'l': {0.006, 0, 0, 0},     // little traffic
	}
	for looks, want := range map[string]string{ // + while suspected, x while unknown
		"bbbsssss":        ".....+++",
		"bbsssss":         ".......",         // not balanced for long enough
		"sssssss":         ".......",         // a single rail from the start is intended
		"bbbssbsss":       "........+",       // three consecutive reads are required
		"bbbuuuusssb":     ".........++",     // still suspected at the first contradicting read
		"bbbssssmmmm":     ".....++++++",     // most traffic on one rail keeps the suspicion
		"bbbssssuuuu":     ".....++++..",     // even enough to end the suspicion
		"bbbsssbbbb":      ".....+++..",      //
		"bbbiiiiisss":     "..........+",     // a pause of 25 s
		"bbbiiiiiissssss": "...............", // a pause of 30 s: another job
		"bbbsssiiiiiisss": ".....+++.......", // the job ended
		"bbbooo":          ".....+",          //
		"bbbsss?sssss":    ".....+++++++",    // one read that could not be judged
		"bbbsss???sss":    ".....+++x...",    // three such reads, as after a device disappeared
		"???b":            "xxx.",
		"bbblllllll":      "..........",  // too little traffic to judge
		"bbbsssiisss":     ".....++++++", //
	} {
		var s suspicion
		got := ""
		for _, c := range looks {
			var list []railLoad
			for _, part := range shares[c] {
				list = append(list, railLoad{carried: part * capacity, carriedKnown: true, capacity: capacity})
			}
			s.judge(list, condition{})
			switch s.now[SingleRail] {
			case Suspicion{}:
				got += "x"
			case Suspicion{Known: true}:
				got += "."
			case Suspicion{true, true}:
				got += "+"
			}
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", looks, got, want)
		}
	}
}

// rxe adds a rail of a software device with its own interface. Its packets have the maximum size.
func (m *machine) rxe(n int, rdma, tcp func(time.Duration) float64) {
	const mtu = 4200
	name := fmt.Sprintf("rxe%d", n)
	r := rail.Rail{Name: strconv.Itoa(n), Role: rail.Compute, Device: name, Port: 1, ID: name + "#1",
		Dir: "/sys/class/infiniband/" + name, Netdev: fmt.Sprintf("eth%d", n), LinkLayer: "Ethernet", Software: true}
	begin := time.Now()
	number := func(f func(time.Duration) float64) func() (string, error) {
		return func() (string, error) { return strconv.FormatUint(uint64(f(time.Since(begin))), 10) + "\n", nil }
	}
	all := number(func(d time.Duration) float64 { return rdma(d) + tcp(d) })
	packets := number(func(d time.Duration) float64 { return rdma(d) / (mtu + 14) })
	m.text(r.Dir+"/ports/1/state", "4: ACTIVE\n")
	m.text(r.Dir+"/ports/1/rate", "10 Gb/sec (1X QDR)\n")
	m.set(r.Dir+"/ports/1/hw_counters/sent_pkts", packets)
	m.set(r.Dir+"/ports/1/hw_counters/rcvd_pkts", packets)
	m.set("/sys/class/net/"+r.Netdev+"/statistics/rx_bytes", all)
	m.set("/sys/class/net/"+r.Netdev+"/statistics/tx_bytes", all)
	m.text("/sys/class/net/"+r.Netdev+"/mtu", fmt.Sprintln(mtu))
	m.text("/sys/class/net/"+r.Netdev+"/carrier_changes", "1\n")
	m.rails = append(m.rails, r)
}

// TestFallbackRxe: on software rails, TCP instead of RDMA is suspected within 20 s, and the suspicion ends within
// another 20 s. Their TCP bytes are not exported.
func TestFallbackRxe(t *testing.T) {
	between := func(from, to time.Duration, rate float64) func(time.Duration) float64 {
		return func(d time.Duration) float64 { return rate * max(0, min(d, to)-from).Seconds() }
	}
	const begins, ends = 30 * time.Second, 90 * time.Second
	for name, tc := range map[string]struct {
		rdma, tcp float64
		want      bool
		role      string
	}{
		"TCP alone":              {0, 50e6, true, rail.Compute},
		"with RDMA as much":      {50e6, 50e6, false, rail.Compute},
		"RDMA alone":             {50e6, 0, false, rail.Compute},
		"RDMA of a probe":        {1e6, 50e6, true, rail.Compute},
		"too little to tell":     {0, 4e6, false, rail.Compute},
		"TCP on a storage rail":  {0, 50e6, false, "storage"},
		"RDMA on a storage rail": {50e6, 0, false, "storage"},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.rxe(0, between(begins, ends, tc.rdma), between(begins, ends, tc.tcp))
				m.rxe(1, idle, idle)
				m.rails[0].Role = tc.role
				s := m.sampler(DefaultInterval, Options{})
				begin := time.Now()
				var snap Snapshot
				at := func(when time.Duration, want bool) {
					t.Helper()
					time.Sleep(when + 500*time.Millisecond - time.Since(begin))
					s.Snapshot(&snap)
					if got, want := snap.Fallback[RDMAIdleTCPBusy], (Suspicion{true, want}); got != want {
						t.Errorf("after %v: %+v, want %+v", when, got, want)
					}
				}
				run(t, s, time.Second, func() {
					at(29*time.Second, false)
					at(30*time.Second+9*time.Second, false)
					at(30*time.Second+20*time.Second, tc.want)
					at(ends, tc.want)
					at(ends+21*time.Second, false)
				})
				if snap.Rails[0].TCPKnown {
					t.Error("rxe counts no RDMA bytes, so what is not RDMA cannot be known")
				}
			})
		})
	}
}

// TestTCPBytes: mlx5 counts traffic other than RDMA, and all members of a bond count. A counter that decreases or
// another member adds no bytes.
func TestTCPBytes(t *testing.T) {
	sys := tree(t, map[string]string{
		"class/net/bond0/bonding/active_slave": "",
		"class/net/eth0/device":                "-> ../../../devices/0000:01:00.0",
		"class/net/eth1/device":                "-> ../../../devices/0000:01:00.1",
		"class/net/bond0/lower_eth0":           "-> ../eth0",
		"class/net/bond0/lower_eth1":           "-> ../eth1",
	})
	stats := func(rx, tx uint64) []ethtooltest.Stat {
		return []ethtooltest.Stat{{Name: "rx_bytes", Value: 99}, {Name: "rx_vport_rdma_unicast_bytes", Value: 1 << 40},
			{Name: "rx_vport_unicast_bytes", Value: rx}, {Name: "tx_vport_unicast_bytes", Value: tx}}
	}
	eth0 := &ethtooltest.Netdev{Driver: "mlx5_core", Bus: "0000:01:00.0", Stats: stats(1000, 50)}
	eth1 := &ethtooltest.Netdev{Driver: "mlx5_core", Bus: "0000:01:00.1", Stats: stats(100, 5)}
	k := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": eth0, "eth1": eth1}}
	r := &tcpReader{rail: rail.Rail{Driver: "mlx5_core", Netdev: "bond0"},
		s: &Sampler{opts: Options{Sysfs: sys}, ioctl: k.Ioctl}}
	defer r.Close()
	var rates [directions]tcpRate
	now := time.Unix(1000, 0)
	var got []string
	look := func(what string) {
		r.Read(nil)
		l := r.last
		now = now.Add(tcpEvery)
		l.At = now
		for d := range rates {
			rates[d].add(l, d)
		}
		got = append(got, fmt.Sprintf("%s: exact %v, %d received, %d sent, %v/s", what, rates[Receive].exact,
			rates[Receive].total, rates[Transmit].total, rates[Receive].least))
	}
	look("first")
	eth0.Stats, eth1.Stats = stats(2000, 150), stats(600, 5)
	look("1500 and 100 more")
	eth0.Stats = stats(0, 0)
	look("a reset")
	eth0.Stats = stats(50, 0)
	look("50 more")
	k.Netdevs["eth1"] = &ethtooltest.Netdev{Driver: "mlx5_core", Bus: "0000:07:00.1", Stats: stats(1e9, 1e9)}
	replaceDir(t, filepath.Join(sys, "class/net/eth1"))
	look("another machine's eth1")
	k.Netdevs["eth1"] = &ethtooltest.Netdev{Driver: "mlx5_core", Bus: "0000:01:00.1", Stats: stats(1e9, 1e9)}
	look("a new eth1")
	k.Netdevs["eth1"].Stats = stats(1e9+5, 1e9)
	look("5 more")
	k.Netdevs["eth1"].Stats = []ethtooltest.Stat{{Name: "rx_bytes", Value: 7}}
	for range streakReads {
		look("a driver that does not count apart")
	}
	if diff := cmp.Diff([]string{
		"first: exact true, 0 received, 0 sent, 0/s",
		"1500 and 100 more: exact true, 1500 received, 100 sent, 300/s",
		"a reset: exact true, 1500 received, 100 sent, 300/s",
		"50 more: exact true, 1550 received, 100 sent, 10/s",
		"another machine's eth1: exact true, 1550 received, 100 sent, 10/s",
		"a new eth1: exact true, 1550 received, 100 sent, 10/s",
		"5 more: exact true, 1555 received, 100 sent, 1/s",
		"a driver that does not count apart: exact true, 1555 received, 100 sent, 1/s",
		"a driver that does not count apart: exact true, 1555 received, 100 sent, 1/s",
		"a driver that does not count apart: exact false, 1555 received, 100 sent, 1/s",
	}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if rates[Receive].known {
		t.Error("the rate is still known")
	}
	k.Netdevs["eth0"] = &ethtooltest.Netdev{Driver: "bnxt_en", Bus: "0000:01:00.0",
		Stats: []ethtooltest.Stat{{Name: "rx_bytes", Value: 7}, {Name: "tx_bytes", Value: 8}}}
	other := &tcpReader{rail: rail.Rail{Netdev: "eth0", LinkLayer: "Ethernet"},
		s: &Sampler{opts: Options{Sysfs: sys}, ioctl: k.Ioctl}}
	defer other.Close()
	other.Read(nil)
	if l := other.last; l.HasStack || !l.HasPhysical || l.Physical != [directions]uint64{Receive: 7, Transmit: 8} {
		t.Errorf("without counters of the interface: %+v", l)
	}
}

// replaceDir replaces the directory of an interface, as if another interface took its name.
func replaceDir(t *testing.T, dir string) {
	t.Helper()
	target, err := os.Readlink(filepath.Join(dir, "device"))
	if err == nil {
		err = os.Mkdir(dir+".new", 0o755)
	}
	if err == nil {
		err = os.Symlink(target, filepath.Join(dir+".new", "device"))
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = os.Rename(dir+".new", dir)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTCPOfReplacedDevice: the counter of a device does not continue that of an earlier device with the same name,
// even if its files were opened equally often.
func TestTCPOfReplacedDevice(t *testing.T) {
	sys := tree(t, map[string]string{"class/net/eth0/device": "-> ../../../devices/0000:01:00.0"})
	eth0 := &ethtooltest.Netdev{Driver: "mlx5_core", Bus: "0000:01:00.0"}
	k := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": eth0}}
	var rate tcpRate
	for life, bytes := range []uint64{1000, 1e12} {
		eth0.Stats = []ethtooltest.Stat{{Name: "rx_vport_unicast_bytes", Value: bytes},
			{Name: "tx_vport_unicast_bytes", Value: bytes}}
		r := &tcpReader{rail: rail.Rail{Driver: "mlx5_core", Netdev: "eth0"}, id: life,
			s: &Sampler{opts: Options{Sysfs: sys}, ioctl: k.Ioctl}}
		r.Read(nil)
		look := r.last
		look.At = time.Unix(1000, 0).Add(time.Duration(life) * tcpEvery)
		rate.add(look, Receive)
		r.Close()
	}
	if !rate.exact || rate.total != 0 {
		t.Errorf("nothing was seen to move, and yet %d bytes (%v)", rate.total, rate.exact)
	}
}
