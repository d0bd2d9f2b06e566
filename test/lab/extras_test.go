//go:build lab

package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/test/faults"
)

// extra is one extra burst of `railscope bench`.
type extra struct {
	Kind       string
	QueuePairs int `json:"queue_pairs"`
	Flows      []struct {
		Rail    string
		To      string `json:"to_rail"`
		Op      string
		Path    int
		UDPPort int                   `json:"udp_port"`
		Goodput float64               `json:"goodput_bytes_per_second"`
		Latency struct{ Samples int } `json:"latency_seconds"`
		Loss    *struct{ Retransmits, Packets int64 }
		Failure *fault
	}
	Failure *fault
}

// kinds returns the bursts of a kind as "op rail, op rail", with the reason of a failure.
func (r report) kinds(kind string) (list []string) {
	for _, m := range r.Extras {
		if m.Kind != kind {
			continue
		}
		if m.Failure != nil {
			list = append(list, m.Failure.String())
		}
		var flows []string
		for _, f := range m.Flows {
			text := f.Op + " " + f.Rail
			if f.To != "" {
				text += " to " + f.To
			}
			if f.Failure != nil {
				text += " " + f.Failure.Reason
			} else if f.Goodput <= 0 {
				text += " not measured"
			}
			flows = append(flows, text)
		}
		list = append(list, strings.Join(flows, ", "))
	}
	return list
}

func (r report) made(t *testing.T, kind string, want ...string) {
	t.Helper()
	if got := r.kinds(kind); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", kind, got, want)
	}
}

// TestExtras: both directions, queue pairs and loopback over Soft-RoCE, each burst verified to the last byte.
func TestExtras(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0, 1)
	for i := range 2 {
		limit(t, i, "30mbit")
	}
	answer(t)
	r := bench(t, append(small, "--bidirectional", "--queue-pairs=2,8", "--loopback")...)
	r.is(t, "ok", "rdma", "")
	r.made(t, "bidirectional", "write 0, read 0", "write 1, read 1", "write 0, read 0, write 1, read 1")
	r.made(t, "queue_pairs", "write 0, write 1", "write 0, write 1")
	for _, m := range r.Extras {
		for _, f := range m.Flows {
			t.Logf("%s, %d queue pairs: %s %s %s %.3f MB/s", m.Kind, m.QueuePairs, f.Op, f.Rail, f.To, f.Goodput/1e6)
		}
	}
	loops := r.kinds("loopback")
	if len(loops) != 4 || loops[0] != "write 0 to 0" || loops[3] != "write 1 to 1" {
		t.Errorf("loopback: %q", loops)
	}
}

// TestExtraPaths: packets with some UDP source ports are dropped, all of them or 1/20. The flow labels of these
// ports are found, and no others.
func TestExtraPaths(t *testing.T) {
	onlyLong(t) // TestExtraPaths of probe covers it
	freshRails(t, 2)
	meet(t, 0, 1)
	for i := range 2 {
		limit(t, i, "30mbit")
	}
	answer(t)
	r := bench(t, append(small, "--paths=16")...)
	t.Logf("findings %+v", r.Findings)
	r.is(t, "ok", "rdma", "")
	ports := map[int]int{} // UDP ports of rail 1, by flow label
	for _, m := range r.Extras {
		if f := m.Flows[0]; f.Rail == "1" {
			ports[f.Path] = f.UDPPort
		}
	}
	if len(ports) != 16 {
		t.Fatalf("paths of rail 1: %v", ports)
	}
	dropped := []int{ports[3], ports[8], ports[15]}
	node(2).Shell(t, "modprobe -a cls_u32 act_gact && tc qdisc add dev eth1 clsact")
	t.Cleanup(func() { node(2).Shell(t, "tc qdisc del dev eth1 clsact") })
	filter := func(port int, action string) {
		node(2).Shell(t, fmt.Sprintf("tc filter add dev eth1 ingress protocol ip u32 match ip protocol 17 0xff "+
			"match ip sport %d 0xffff match ip dport 4791 0xffff action %s", port, action))
	}
	for _, port := range dropped {
		filter(port, "drop")
	}
	r = bench(t, append(small, "--paths=16")...)
	found := map[string][]int{}
	for _, m := range r.Extras {
		if f := m.Flows[0]; f.Failure != nil {
			found[f.Rail] = append(found[f.Rail], f.UDPPort)
			t.Logf("port %d: %v", f.UDPPort, f.Failure)
		}
	}
	slices.Sort(dropped)
	slices.Sort(found["1"])
	t.Logf("dropped %v, found %v; findings %+v", dropped, found, r.Findings)
	if !slices.Equal(slices.Compact(found["1"]), slices.Compact(dropped)) || found["0"] != nil {
		t.Errorf("found %v, want %v on rail 1 alone", found, dropped)
	}
	if !slices.ContainsFunc(r.Findings, func(f finding) bool {
		return f.Check == "lossy_path" &&
			f.Subject == "rail 1"
	}) {
		t.Errorf("no lossy_path of rail 1: %+v", r.Findings)
	}

	node(2).Shell(t, "tc filter del dev eth1 ingress")
	filter(ports[5], "pass random netrand drop 20")
	r = bench(t, append(small, "--paths=16")...)
	for _, m := range r.Extras {
		if f := m.Flows[0]; f.Loss != nil && f.Loss.Retransmits > 0 || f.Failure != nil {
			t.Logf("rail %s, port %d: %+v, %v", f.Rail, f.UDPPort, f.Loss, f.Failure)
		}
	}
	want := fmt.Sprintf("UDP source ports %d", ports[5])
	if i := slices.IndexFunc(r.Findings, func(f finding) bool { return f.Check == "lossy_path" }); i < 0 ||
		r.Findings[i].Subject != "rail 1" || !strings.HasSuffix(r.Findings[i].Evidence, want) {
		t.Errorf("port %d loses one packet in 20, found %+v", ports[5], r.Findings)
	}
}

// TestExtraLoopback: a rail with a slow link is not slow in loopback, so the link is the cause.
func TestExtraLoopback(t *testing.T) {
	onlyLong(t) // TestRound of doctor/check covers it
	freshRails(t, 2)
	meet(t, 0, 1)
	limit(t, 0, "30mbit")
	limit(t, 1, "8mbit")
	answer(t)
	r := bench(t, append(small, "--loopback", config(t, 1, withToken, "peers: ["+target+"]"))...)
	t.Logf("%q", r.kinds("loopback"))
	for _, m := range r.Extras {
		if f := m.Flows[0]; f.Rail == f.To {
			t.Logf("rail %s to itself %.3f MB/s", f.Rail, f.Goodput/1e6)
			if f.Goodput < 3e6 {
				t.Errorf("rail %s to itself carries %.3f MB/s", f.Rail, f.Goodput/1e6)
			}
		}
	}
	if slow := r.Rails[1].Solo; slow > 1.1e6 {
		t.Errorf("rail 1 carries %.3f MB/s, limited to 1", slow/1e6)
	}
}

// TestExtraPairs: two of four rails behind one shaper are found as a pair.
func TestExtraPairs(t *testing.T) {
	onlyLong(t) // TestRound of doctor/check covers it
	freshRails(t, 4)
	meet(t, 0, 1, 2, 3)
	node(1).Shell(t, strings.ReplaceAll(faults.OneShaper, faults.Shape, "12mbit"))
	t.Cleanup(func() { node(1).Shell(t, "for i in 0 1; do tc qdisc del dev eth$i clsact; done; ip link del ifb0") })
	limit(t, 2, "12mbit")
	limit(t, 3, "12mbit")
	answer(t)
	r := bench(t, append(small, "--pairs")...)
	var evidence []string
	for _, f := range r.Findings {
		if f.Check == "shared_bottleneck" {
			evidence = append(evidence, f.Evidence)
		}
	}
	text := strings.Join(evidence, "; ")
	t.Logf("%s", text)
	if !strings.Contains(text, "rails 0 and 1 together") || strings.Count(text, "of what each carries alone") != 1 {
		t.Errorf("%q, want rails 0 and 1 alone", text)
	}
}
