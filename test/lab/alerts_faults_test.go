//go:build lab

package lab

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// hold returns how long a fault lasts at least, so that others could fire, too: half an hour, or half of that in a
// short run.
func hold() time.Duration {
	if *long {
		return 30 * minute
	}
	return 15 * minute
}

// alertFaults are the faults of the two nodes. Each must fire exactly its own alerts: severity, alert without
// Railscope, node. Alerts that may fire as well are consequences that depend on what the probe was doing at that
// moment.
var alertFaults = []struct {
	name  string
	fires string
	may   string
	ci    bool
	plant func(t *testing.T, w *watch) (fix func())
}{
	{name: "an interface is taken down", fires: "critical RailDown 1",
		plant: shell(1, "ip link set eth1 down", "ip link set eth1 up")},
	{name: "a cable is pulled", fires: "critical RailDown 2",
		ci: true, plant: func(t *testing.T, w *watch) func() {
			node(2).Cable(t, 1, false)
			return func() { node(2).Cable(t, 1, true) }
		}},
	{name: "a device is gone", fires: "critical RailDown 1",
		plant: shell(1, "rdma link delete rxe1", "rdma link add rxe1 type rxe netdev eth1")},
	{name: "an address comes", fires: "warning GIDFault 1",
		plant: shell(1, "ip address add 192.168.101.11/24 dev eth1", "ip address del 192.168.101.11/24 dev eth1")},
	{name: "a rail is put into a bond", fires: "warning GIDFault 1",
		may: "warning ProbeFailing 1, warning ProbeFailing 2",
		plant: shell(1, `
ip link add bond0 type bond mode active-backup miimon 100
ip -batch - <<-end
	link set eth1 down
	link set eth2 down
	address flush dev eth1
	address flush dev eth2
	link set eth1 master bond0
	link set eth2 master bond0
	link set bond0 mtu 4200 up
	address add 192.168.101.1/24 dev bond0
end`, `
ip link delete bond0
ip link set eth1 mtu 4200 up
ip link set eth2 mtu 4200 up
ip address add 192.168.101.1/24 dev eth1`)},
	{name: "a member of a bond is down", fires: "warning BondDegraded 1", plant: func(t *testing.T, w *watch) func() {
		besideBond(t, 1, "mode active-backup")
		node(1).Cable(t, 3, false)
		return func() { node(1).Cable(t, 3, true) }
	}},
	{name: "a bond without a partner", fires: "warning BondDegraded 1", plant: func(t *testing.T, w *watch) func() {
		besideBond(t, 1, "mode 802.3ad lacp_rate fast")
		return func() {
			besideBond(t, 2, "mode 802.3ad lacp_rate fast")
			w.restart(t, 1) // it has seen links change too often, which remains for minutes that are not hastened
		}
	}},
	// Node 2's rails are as fast as they report, so its traffic is less than the sampler calls busy.
	{name: "a rail at a third, under traffic", fires: "warning RailImbalance 1", may: "warning GoodputLow 1",
		plant: func(t *testing.T, w *watch) func() {
			job := startFlow(t, 0, 1) // before it is faster, so that the probe gives way
			limit(t, 0, "42mbit")
			limit(t, 1, "14mbit")
			return func() { limit(t, 0, w.rate); limit(t, 1, w.rate); job.stop() }
		}},
	{name: "a rail at a third, idle",
		fires: "critical GoodputLow 1, critical GoodputLow 2", may: "warning GoodputLow 1, warning GoodputLow 2",
		plant: func(t *testing.T, w *watch) func() {
			limit(t, 1, "4mbit")
			return func() { limit(t, 1, w.rate) }
		}},
	{name: "rails share a link", fires: "warning GoodputLow 1", may: "warning GoodputLow 2", plant: shell(1, `
modprobe -a ifb act_mirred cls_matchall
ip link add ifb0 type ifb
ip link set ifb0 mtu 16000 up
tc qdisc add dev ifb0 root tbf rate 16mbit burst 64kb limit 8mb
for i in 0 1; do
	tc qdisc add dev eth$i clsact
	tc filter add dev eth$i egress matchall action mirred egress redirect dev ifb0
done`, `for i in 0 1; do tc qdisc del dev eth$i clsact; done; ip link delete ifb0`)},
	{name: "packets are lost", fires: "warning Retransmissions 1, warning Retransmissions 2",
		may: "critical GoodputLow 1, warning GoodputLow 1, warning RailImbalance 1",
		plant: func(t *testing.T, w *watch) func() {
			job := startFlowLike(t, burst{size: 16 << 10, depth: 4, timeout: 15},
				1) // 45 ms in flight, 134 ms of patience; only over this rail
			node(1).Run(t, "tc", "qdisc", "replace", "dev", "eth1", "root", "netem", "rate", shape, "loss", "1%",
				"limit", "4000")
			return func() { limit(t, 1, w.rate); job.stop() }
		}},
	{name: "TCP where RDMA should be", fires: "warning Fallback 1",
		may: "warning Fallback 2, warning RailImbalance 1, warning RailImbalance 2",
		plant: func(t *testing.T, w *watch) func() {
			node(2).Start(t, "iperf3", "-s", "-B", node(2).address(0))
			eventually(t, commandTime, func() error {
				if node(2).Run(t, "ss", "-Hltn", "sport = :5201") == "" {
					return fmt.Errorf("iperf3 does not listen")
				}
				return nil
			})
			tcp := node(1).Start(t, "iperf3", "-c", node(2).address(0), "-t", "600", "-i", "0")
			eventually(t, commandTime,
				func() error { return moves(t, 0) }) // so that the probe gives way when it is faster
			for _, n := range []node{1, 2} {
				n.Run(t, "tc", "qdisc", "delete", "dev", "eth0", "root")
			}
			return func() { limit(t, 0, w.rate); tcp.kill() }
		}},
	{name: "a job's log says sockets", fires: "warning Fallback 1", plant: shell(1,
		`echo 'node1:1:1 [0] NCCL INFO Using network Socket' > /tmp/nccl/train.log`, `rm /tmp/nccl/train.log`)},
	// Rounds that collide are retried within seconds, which are minutes here: the last round before this may still
	// have had the rail of the previous fault.
	{name: "RDMA is filtered", fires: "critical ProbeFallback 1, critical ProbeFallback 2",
		may: "warning ProbeFailing 1, warning ProbeFailing 2",
		plant: func(t *testing.T, w *watch) func() {
			filter(t, 2, "udp", 4791, "eth0", "eth1")
			return func() { node(2).Shell(t, "tc qdisc del dev eth0 clsact; tc qdisc del dev eth1 clsact") }
		}},
	{name: "RDMA is filtered on one rail", fires: "warning ProbeFailing 1, warning ProbeFailing 2",
		plant: func(t *testing.T, w *watch) func() {
			filter(t, 2, "udp", 4791, "eth1")
			return func() { node(2).Run(t, "tc", "qdisc", "del", "dev", "eth1", "clsact") }
		}},
	{name: "no libibverbs", fires: "warning ExporterImpaired 1", may: "warning ExporterImpaired 2",
		plant: func(t *testing.T, w *watch) func() {
			w.restart(t, 1, "env", "RAILSCOPE_LIBIBVERBS=/no/such/library")
			return func() { w.restart(t, 1) }
		}},
	{name: "the peer's port is filtered", fires: "critical ProbeFailing 1", plant: func(t *testing.T, w *watch) func() {
		filter(t, 2, "tcp", 10092, "ctl0")
		return func() { node(2).Run(t, "tc", "qdisc", "del", "dev", "ctl0", "clsact") }
	}},
	{name: "railscope is stopped", fires: "warning ExporterDown 2", may: "critical ProbeFailing 1",
		plant: func(t *testing.T, w *watch) func() {
			w.stop(t, 2)
			return func() { w.start(t, 2) }
		}},
	{name: "railscope is stopped everywhere",
		fires: "warning ExporterDown 1, warning ExporterDown 2", may: "warning ExporterDown",
		plant: func(t *testing.T, w *watch) func() {
			w.stop(t, 1)
			w.stop(t, 2)
			return func() { w.start(t, 1); w.start(t, 2) }
		}},
	{name: "memory is corrupted", fires: "critical VerificationFailed 1",
		may: "critical VerificationFailed 2, critical ProbeFailing 1, critical ProbeFailing 2", plant: corrupt},
	{name: "a file cannot be read", fires: "warning ExporterImpaired 1", plant: func(t *testing.T, w *watch) func() {
		const file = "/sys/class/infiniband/rxe1/ports/1/phys_state"
		w.stop(t, 1)                                           // it keeps files open
		node(1).Run(t, "mount", "--bind", "/proc/1/mem", file) // reads return EIO
		w.start(t, 1)
		return func() { w.stop(t, 1); node(1).Run(t, "umount", file); w.start(t, 1) }
	}},
	{name: "railscope gets no time", fires: "warning ExporterImpaired 1", plant: func(t *testing.T, w *watch) func() {
		stopper := node(1).Start(t, "bash", "-c",
			fmt.Sprintf("while :; do kill -STOP %[1]d; sleep .3; kill -CONT %[1]d; sleep .3; done",
				w.exporters[1].process.PID))
		return func() {
			stopper.kill()
			node(1).Run(t, "kill", "-CONT", fmt.Sprint(w.exporters[1].process.PID))
		}
	}},
	{name: "a wrong configuration", fires: "warning ExporterImpaired 1", plant: func(t *testing.T, w *watch) func() {
		if err := os.WriteFile("/out/probe1.yaml", []byte("probe: {interval: often}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		reload := func() { node(1).Run(t, "kill", "-HUP", fmt.Sprint(w.exporters[1].process.PID)) }
		reload()
		return func() { w.config(t, 1); reload() }
	}},
	// The last fault: railscope finds it for minutes that are not hastened, and it suppresses its consequences.
	{name: "a link flaps", fires: "warning RailFlapping 1",
		may:   "critical RailDown 1, warning ProbeFailing 1, warning ProbeFailing 2",
		plant: flap},
}

// elsewhere are the alerts that no fault of the lab fires, with the reason.
var elsewhere = map[string]string{
	"RailDegraded":    "rxe has no PCIe link and one rate, and what is expected is learned in minutes",
	"LinkErrors":      "virtio-net has no symbol errors",
	"PFC":             "virtio-net has no PFC",
	"Discards":        "rxe does not count them",
	"HardwareEvents":  "its kernel logs nothing of the kind",
	"GPULost":         "needs a GPU",
	"GPUDirectLost":   "needs a GPU",
	"GPUMemoryFull":   "needs a GPU",
	"GPUMemoryErrors": "needs a GPU",
	"LatencyHigh":     "needs a day of latencies, which is 24 minutes of hastened ones",
	"ProbeSilent":     "its peers have no DNS name, nothing stops the prober, and both nodes run one version",
	"ManyNodes":       "there are two",
	"Finding":         "it waits for five minutes, and railscope for two examinations",
}

// TestAlertsFaults plants one fault after another, with rules in which a minute is a second. Each fires exactly its
// own alerts, which end when it is fixed. The test begins with healthy nodes.
func TestAlertsFaults(t *testing.T) {
	w := startWatch(t, hastened(t))
	w.probed(t)
	w.train(t, hold())
	w.quiet(t)
	w.healthy(t)
	if got := one(t, "count(count_over_time(rail:railscope_port_up:last_timestamp_seconds[20s]))"); got != 4 {
		t.Fatalf("Prometheus remembers %v rails of 4", got)
	}
	seen := map[string]bool{}
	for _, f := range alertFaults {
		for _, one := range append(strings.Split(f.fires, ", "), strings.Split(f.may, ", ")...) {
			if name := strings.Fields(one); len(name) > 1 {
				seen[name[1]] = true
			}
		}
		if f.ci || *long {
			t.Run(f.name, func(t *testing.T) { w.fires(t, f.fires, f.may, f.plant) })
		}
	}
	w.bad(t)
	text, err := os.ReadFile("/out/rules/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`- alert: Railscope(\w+)`).FindAllStringSubmatch(string(text), -1) {
		if (elsewhere[m[1]] != "") == seen[m[1]] {
			t.Errorf("%s: a fault here fires it: %t; and why none can: %q", m[1], seen[m[1]], elsewhere[m[1]])
		}
	}
}

// fires plants a fault, waits for its alerts, fixes it, waits until no alert is left, and compares all alerts that
// have fired.
func (w *watch) fires(t *testing.T, fires, may string, plant func(*testing.T, *watch) func()) {
	w.quiet(t)
	want, start := strings.Split(fires, ", "), time.Now()
	fix := sync.OnceFunc(plant(t, w))
	defer fix()
	eventually(t, 2*time.Minute, func() error {
		fired := w.alerts(t, "firing", start)
		for _, one := range want {
			if !slices.Contains(fired, one) {
				return fmt.Errorf("%s does not fire: there are %q, pending %q", one, fired,
					w.alerts(t, "pending", start))
			}
		}
		return nil
	})
	took := time.Since(start)
	time.Sleep(time.Until(start.Add(hold())))
	fix()
	fixed := time.Now()
	w.quiet(t)
	fired := w.alerts(t, "firing", start)
	t.Logf("after %.0f s: %s; quiet %.0f s after it was fixed; pended beside: %q", took.Seconds(),
		strings.Join(fired, ", "), time.Since(fixed).Seconds(),
		slices.DeleteFunc(w.alerts(t, "pending", start), func(a string) bool { return slices.Contains(fired, a) }))
	for _, one := range fired {
		if !starved(one) && !slices.Contains(want, one) && !slices.Contains(strings.Split(may, ", "), one) {
			t.Errorf("%s fired, too", one)
		}
	}
}

// starved reports whether an alert of hastened rules may be caused by starved emulated CPUs: the sampler is late,
// and a slow round counts for one minute per second of its age.
func starved(alert string) bool {
	name := strings.Fields(alert)[1]
	return slices.Contains([]string{"ExporterImpaired", "GoodputLow"}, name)
}

// shell plants and fixes a fault by scripts.
func shell(n node, plant, fix string) func(*testing.T, *watch) func() {
	return func(t *testing.T, _ *watch) func() {
		n.Shell(t, plant)
		return func() { n.Shell(t, fix) }
	}
}

// flap removes the carrier of a rail four times, briefly.
func flap(t *testing.T, _ *watch) func() {
	for range 4 {
		for _, plugged := range []bool{false, true} {
			node(1).Cable(t, 1, plugged)
			eventually(t, linkTime, func() error {
				return portState(t, 1, 1, map[bool]string{false: "1: DOWN", true: "4: ACTIVE"}[plugged])
			})
		}
	}
	// virtio forgets the speed that slowRails set
	node(1).Run(t, "ethtool", "-s", "eth1", "speed", "2500", "duplex", "full")
	return func() {}
}

// besideBond makes a bond from two interfaces that are not rails, until the test ends.
func besideBond(t *testing.T, n node, options string) {
	t.Helper()
	n.Shell(t, `
ip link add bond9 type bond miimon 100 `+options+`
ip -batch - <<-end
	link set eth2 down
	link set eth3 down
	link set eth2 master bond9
	link set eth3 master bond9
	link set bond9 up
end`)
	t.Cleanup(func() { n.Shell(t, "ip link delete bond9; ip link set eth2 up; ip link set eth3 up") })
}

// filter drops packets that arrive in a node for a port.
func filter(t *testing.T, n node, protocol string, port int, netdevs ...string) {
	t.Helper()
	number := map[string]int{"tcp": 6, "udp": 17}[protocol]
	for _, dev := range netdevs {
		n.Shell(t, fmt.Sprintf(`tc qdisc add dev %[1]s clsact
tc filter add dev %[1]s ingress protocol ip u32 match ip protocol %[2]d 0xff match ip dport %[3]d 0xffff action drop`,
			dev, number, port))
	}
}

// corrupt writes to the memory of node 2's worker during a round, to the registered memory, which is its only
// memory of huge pages.
func corrupt(t *testing.T, w *watch) func() {
	const script = `
my ($pid) = @ARGV;
while (1) {
	open my $maps, "<", "/proc/$pid/smaps" or exit;
	open my $mem, "+<", "/proc/$pid/mem" or exit;
	my ($from, $to);
	while (<$maps>) {
		($from, $to) = (hex $1, hex $2) if /^([0-9a-f]+)-([0-9a-f]+) rw-p/;
		next unless /^VmFlags:.* hg/ && $from;
		for (my $at = $from; $at < $to; $at += 65536) { sysseek $mem, $at, 0; syswrite $mem, "?"; }
	}
	select undef, undef, undef, 0.02;
}`
	p := node(2).Start(t, "perl", "-e", script, workerOf(t, w.exporters[2].process))
	return p.kill
}
