package classes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
)

// TestOf: each priority of a rail that is lossless, used, or chosen by a job or the probe. A priority is "number
// (DSCPs) lossless bytes per second probe: jobs".
func TestOf(t *testing.T) {
	const table = "0=0-7 1=8-15 3=24,26"
	sent := func(priority string, by float64) facts.Increase {
		return facts.Increase{Row: "port_priority_bytes_total", Labels: []string{"0", "eth0", priority, "transmit"}, By: by}
	}
	rdma := facts.Increase{Row: "port_transmit_bytes_total", Labels: []string{"0"}, By: 6e9}
	job := func(variable, value string, count int) facts.Env {
		return facts.Env{Vars: map[string]string{variable: value}, Count: count,
			Processes: []facts.Process{{PID: 1, Comm: "python3"}}}
	}
	foreign, file := job("NCCL_IB_TC", "106", 1), facts.Env{Vars: map[string]string{"NCCL_IB_TC": "106"}, File: "/f"}
	foreign.Foreign = true
	class := func(n uint8) *uint8 { return &n }
	for _, tc := range []struct {
		why      string
		settings map[string]string
		envs     []facts.Env
		live     []facts.Increase // nil: no railscope runs
		probe    *uint8
		want     string
	}{
		{"nothing is known", nil, nil, nil, nil, ""},
		{"no PFC, and nothing sent", map[string]string{"pfc": "none"}, nil, []facts.Increase{}, nil, ""},
		{"a lossless priority that nobody uses", map[string]string{"pfc": "3", "dscp": table}, nil, nil, nil,
			"3 (24,26) true ?"},
		{"two of them, one used", map[string]string{"pfc": "3,4"}, nil, []facts.Increase{rdma, sent("3", 6e9)}, nil,
			"3 () true 1e+08; 4 () true 0"},
		{"bytes beside it", map[string]string{"pfc": "3", "dscp": table}, nil, []facts.Increase{rdma, sent("3", 3e9),
			sent("0", 6e9)}, nil, "0 (0-7) false 1e+08; 3 (24,26) true 5e+07"},
		{"a driver whose priorities are without RDMA", map[string]string{"pfc": "3"}, nil,
			[]facts.Increase{rdma, sent("0", 1e8)}, nil, "3 () true ?"},
		{"global pause", map[string]string{"pfc": "3", "pause": "rx on tx on"}, nil, []facts.Increase{rdma, sent("0", 6e9)},
			nil, "0 () ? 1e+08"},
		{"a job and the probe", map[string]string{"pfc": "3", "dscp": table}, []facts.Env{job("NCCL_IB_TC", "106", 8)}, nil,
			class(0), "0 (0-7) false ? probe; 3 (24,26) true ?: 8 × python3 (NCCL_IB_TC=106)"},
		{"UCX", map[string]string{"pfc": "3", "dscp": table}, []facts.Env{job("UCX_IB_TRAFFIC_CLASS", " "+
			"0x6a", 1)}, nil, nil,
			"3 (24,26) true ?: python3 (UCX_IB_TRAFFIC_CLASS=106)"},
		{"no job of this network namespace, no number", map[string]string{"pfc": "none", "dscp": table},
			[]facts.Env{foreign, file, job("UCX_IB_TRAFFIC_CLASS", "auto", 1), job("NCCL_IB_TC", "300", 1)}, nil, nil, ""},
		{"DSCPs that the table lacks", map[string]string{"pfc": "3", "dscp": "3=26"}, []facts.Env{job("NCCL_IB_TC", "96", 1)},
			nil, nil, "0 () false ?: python3 (NCCL_IB_TC=96); 3 (26) true ?"},
		{"the VLAN tag decides", map[string]string{"pfc": "3", "dscp": table, "trust": "pcp"},
			[]facts.Env{job("NCCL_IB_TC", "106", 1)}, nil, class(106),
			"3 (24,26) true ?;  () ? ? probe: python3 (NCCL_IB_TC=106)"},
		{"the device has a class of its own", map[string]string{"traffic_class": "106", "dscp": table, "pfc": "3"},
			[]facts.Env{job("NCCL_IB_TC", "0", 1)}, nil, nil, "3 (24,26) true ?;  () ? ?: python3 (NCCL_IB_TC=0)"},
		{"the driver decides", map[string]string{"traffic_class": "unset", "dscp": "none", "pfc": "4"}, nil, nil, class(5),
			"4 () true ?;  () ? ? probe"},
		{"nothing is known of the adapter", nil, []facts.Env{job("NCCL_IB_TC", "0", 1)}, nil, class(5), ""},
	} {
		f := doctortest.Machine(t, "rxe", "")
		f.Rails = f.Rails[:1]
		q := facts.QoS{Device: f.Rails[0].Device, Port: f.Rails[0].Port}
		for name, value := range tc.settings {
			q.Settings = append(q.Settings, facts.Setting{Name: name, Value: value})
		}
		f.QoS, f.Jobs.Envs = []facts.QoS{{Device: "other", Port: 1}, q}, tc.envs
		if tc.live != nil {
			f.Live = &facts.Live{Over: time.Minute, Increases: tc.live}
		}
		var list []string
		for _, u := range Of(f, tc.probe) {
			text := fmt.Sprintf("%s (%s)", u.Priority, u.DSCP)
			if u.Lossless != nil {
				text += fmt.Sprint(" ", *u.Lossless)
			} else {
				text += " ?"
			}
			if u.Sent != nil {
				text += fmt.Sprint(" ", *u.Sent)
			} else {
				text += " ?"
			}
			if u.Probe {
				text += " probe"
			}
			if len(u.Jobs) > 0 {
				text += ": " + strings.Join(u.Jobs, ", ")
			}
			list = append(list, text)
		}
		if got := strings.Join(list, "; "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
	}
}

// TestServed: what everybody may see names no process and no value of a variable.
func TestServed(t *testing.T) {
	f := doctortest.Machine(t, "rxe", "")
	f.Rails = f.Rails[:1]
	f.QoS = []facts.QoS{{Device: f.Rails[0].Device, Port: f.Rails[0].Port,
		Settings: []facts.Setting{{Name: "dscp", Value: "3=24,26"}}}}
	f.Jobs.Envs = []facts.Env{{Vars: map[string]string{"NCCL_IB_TC": "106"}, Count: 2,
		Processes: []facts.Process{{PID: 7, Comm: "python3"}}}}
	uses := Served(f, nil)
	if len(uses) != 1 || !slices.Equal(uses[0].Jobs, []string{"2 processes"}) {
		t.Errorf("%+v", uses)
	}
}
