package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
)

// TestLossyPriority: what a rail sent by RDMA, and no priority with PFC carried, was lossy. Other functions and
// protocols use the same port, and the probe is no job.
func TestLossyPriority(t *testing.T) {
	const over = 10 * time.Minute
	const rdma, probe = "port_transmit_bytes_total", "probe_rail_bytes_total"
	const tera = 1e12
	on := func(priority, direction string) []string { return []string{"1", "eth1", priority, direction} }
	rise := func(row string, by float64, labels ...string) facts.Increase {
		return facts.Increase{Row: row, Labels: labels, By: by}
	}
	sent := func(priority string, by float64) facts.Increase {
		return rise("port_priority_bytes_total", by, on(priority, "transmit")...)
	}
	const found = "at least %s of the RDMA bytes that it sent in 10 min were on priorities without PFC (%s); PFC " +
		"is on for %s"
	for _, tc := range []struct {
		why        string
		pfc, pause string // settings of rail 1; empty: not read
		rises      []facts.Increase
		want       string
	}{
		{"all in the lossless one", "3", "", []facts.Increase{rise(rdma, tera, "1"), sent("3", 1.01*tera)}, ""},
		{"9 % beside " +
			"it", "3", "", []facts.Increase{rise(rdma, tera, "1"), sent("3", 0.91*tera), sent("0", 0.09*tera)}, ""},
		{"a fifth beside it", "3,4", "rx off tx off", []facts.Increase{rise(rdma, tera, "1"), sent("3", 0.5*tera),
			sent("4", 0.3*tera), sent("0", 0.2*tera), sent("6", 0.01*tera)},
			"warning rail 1: " + fmt.Sprintf(found, "20 %", "0", "3 and 4")},
		{"all in priorities 0 and " +
			"1", "3", "", []facts.Increase{rise(rdma, tera, "1"), sent("1", 0.5*tera), sent("0", 0.5*tera)},
			"warning rail 1: " + fmt.Sprintf(found, "100 %", "0 and 1", "3")},
		{"TCP and other functions in priority 0", "3", "", []facts.Increase{rise(rdma, tera, "1"), sent("3", tera),
			sent("0", 9*tera)}, ""},
		{"another direction", "3", "", []facts.Increase{rise(rdma, tera, "1"), sent("3", tera),
			rise("port_priority_bytes_total", tera, on("0", "receive")...)}, ""},
		{"the probe " +
			"alone", "3", "", []facts.Increase{rise(rdma, 1.05*tera, "1"), rise(probe, tera, "1"), sent("0", 1.05*tera)},
			""},
		{"little", "3", "", []facts.Increase{rise(rdma, 5e8, "1"), sent("0", 5e8)}, ""},
		{"a driver whose priorities are without " +
			"RDMA", "3", "", []facts.Increase{rise(rdma, tera, "1"), sent("0", 0.1*tera)}, ""},
		{"a driver without these counters", "3", "", []facts.Increase{rise(rdma, tera, "1")}, ""},
		{"global pause", "none", "rx on tx on", []facts.Increase{rise(rdma, tera, "1"), sent("0", tera)}, ""},
		{"unknown PFC", "", "", []facts.Increase{rise(rdma, tera, "1"), sent("0", tera)}, ""},
		{"a fabric without PFC", "none", "rx off tx off", []facts.Increase{rise(rdma, tera, "1"), sent("0", tera)},
			"info rail 1: RDMA is sent, and PFC is on for no priority of any rail"},
		{"a fabric without PFC, idle", "none", "", nil, ""},
	} {
		f := doctortest.Machine(t, "rxe", "")
		f.Live = &facts.Live{Over: over, Increases: tc.rises}
		r := &f.Rails[1]
		q := facts.QoS{Device: r.Device, Port: r.Port}
		for name, value := range map[string]string{"pfc": tc.pfc, "pause": tc.pause} {
			if value != "" {
				q.Settings = append(q.Settings, facts.Setting{Name: name, Value: value})
			}
		}
		f.QoS = []facts.QoS{q}
		got := ""
		for _, c := range liveChecks() {
			if c.ID != "rdma_on_lossy_priority" {
				continue
			}
			for _, one := range c.Find(f) {
				got += fmt.Sprintf("%s %s: %s%s", one.Severity, one.Subject, one.Evidence, doctortest.Incomplete(one))
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.why, diff)
		}
	}
}

// TestPeerClass: a class of jobs that only one of two different adapters treats as lossless is named at the other end.
func TestPeerClass(t *testing.T) {
	const sorting, none = "0=0-7 3=24,26", "0=0-63"
	end := func(node, kind, pfc, dscp string, jobs ...int) *facts.Facts {
		f := doctortest.Machine(t, "rxe", "")
		f.Node, f.Jobs.Classes, f.QoS = node, jobs, nil
		for i := range f.Rails {
			r := &f.Rails[i]
			r.Kind = kind
			f.QoS = append(f.QoS, facts.QoS{Device: r.Device, Port: r.Port,
				Settings: []facts.Setting{{Name: "pfc", Value: pfc}, {Name: "dscp", Value: dscp}}})
		}
		return f
	}
	for _, tc := range []struct {
		why         string
		here, there *facts.Facts
		want        string // node, evidence of rail 0
	}{
		{"no PFC there", end("a", "x", "3", sorting, 106), end("b", "y", "none", sorting),
			"b: jobs on a set the traffic class 106 (DSCP 26): priority 3 with PFC on rail 0, priority 3 without PFC on rail " +
				"0 of b"},
		{"another priority here", end("a", "x", "3", none), end("b", "y", "3", sorting, 106),
			"a: jobs on b set the traffic class 106 (DSCP 26): priority 3 with PFC on rail 0, priority 0 without PFC on rail " +
				"0 of a"},
		{"several classes, and numbers that are none", end("a", "x", "3", sorting, 362, -1, 106, 96), end("b", "y", "none", sorting),
			"b: jobs on a set the traffic class 96 (DSCP 24): priority 3 with PFC on rail 0, priority 3 without PFC on rail " +
				"0 of b"},
		{"no class at all", end("a", "x", "3", sorting, 362, -150), end("b", "y", "none", sorting), ""},
		{"lossless at both ends", end("a", "x", "3", sorting, 106), end("b", "y", "3", sorting, 106), ""},
		{"lossy at both ends", end("a", "x", "none", sorting, 106), end("b", "y", "none", none, 106), ""},
		{"no job", end("a", "x", "3", sorting), end("b", "y", "none", sorting), ""},
		{"adapters of one kind, which peer_pfc compares", end("a", "x", "3", sorting, 106), end("b", "x", "none", sorting),
			""},
		{"jobs of that node also, which it judges itself", end("a", "x", "3", sorting, 106), end("b", "y", "4", none, 106), ""},
		{"its jobs also, on a node without PFC", end("a", "x", "3", sorting, 106), end("b", "y", "none", none, 106),
			"b: jobs on a set the traffic class 106 (DSCP 26): priority 3 with PFC on rail 0, priority 0 without PFC on rail " +
				"0 of b"},
		{"nothing known there", end("a", "x", "3", sorting, 106), end("b", "y", "", ""), ""},
	} {
		t.Run(tc.why, func(t *testing.T) {
			var got string
			said := 0
			for _, f := range PeerChecks()[indexOfPeer("class_mismatch")].Find(tc.here, tc.there) {
				if f.Subject == "rail 0" {
					said++
					got = f.Node + ": " + strings.ReplaceAll(f.Evidence, " (rxe0, eth0)", "")
				}
			}
			if got != tc.want || said > 1 {
				t.Errorf("%d times %q, want %q", said, got, tc.want)
			}
		})
	}
}

// TestSharedClasses: a peer gets the numbers of the classes that jobs set, and neither names nor variables.
func TestSharedClasses(t *testing.T) {
	f := doctortest.Machine(t, "rxe", "")
	job := func(foreign bool, vars map[string]string) facts.Env {
		return facts.Env{Vars: vars, Count: 1, Foreign: foreign, Processes: []facts.Process{{PID: 7, Comm: "secret"}}}
	}
	f.Jobs.Envs = []facts.Env{job(false, map[string]string{"NCCL_IB_TC": "106", "UCX_IB_TRAFFIC_CLASS": "0x60"}),
		job(false, map[string]string{"NCCL_IB_TC": "106"}), job(true, map[string]string{"NCCL_IB_TC": "8"})}
	shared := travelled(t, Share(f))
	if got := fmt.Sprint(shared.Jobs.Classes); got != "[96 106]" || len(shared.Jobs.Envs) > 0 {
		t.Errorf("%s, %+v", got, shared.Jobs)
	}
}
