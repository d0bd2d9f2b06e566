package facts

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/proc"
)

func TestParseEnviron(t *testing.T) {
	long := strings.Repeat("x", maxValue+1)
	for _, tt := range []struct {
		name, text string
		want       map[string]string
	}{
		{"none of ours", environText("HOME=/root", "AWS_SECRET_ACCESS_KEY=hunter2"), nil},
		{"others of NCCL", environText("NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME=eth0"), nil},
		{"ours alone", environText("HOME=/root", "NCCL_IB_DISABLE=1", "TOKEN=hunter2", "UCX_TLS=rc,sm"),
			map[string]string{"NCCL_IB_DISABLE": "1", "UCX_TLS": "rc,sm"}},
		{"the first counts", environText("NCCL_NET=IB", "NCCL_NET=Socket"), map[string]string{"NCCL_NET": "IB"}},
		{"in another's value", environText("X=NCCL_IB_DISABLE=1"), nil},
		{"no value", environText("UCX_TLS", "NCCL_NET="), map[string]string{"NCCL_NET": ""}},
		{"no zero byte at the end", "NCCL_NET=Socket", map[string]string{"NCCL_NET": "Socket"}},
		{"not for a terminal", environText("NCCL_NET=\x1b[2Jé\n"), map[string]string{"NCCL_NET": "\ufffd[2Jé\ufffd"}},
		{"too long", environText("UCX_TLS="+long, "NCCL_NET=IB"), map[string]string{"NCCL_NET": "IB"}},
	} {
		if diff := cmp.Diff(tt.want, judgeable(proc.Variables(tt.text, wanted))); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// TestSanitize: lists beyond their bound are refused, texts cut and maps dropped.
func TestSanitize(t *testing.T) {
	f := Facts{Node: strings.Repeat("é", maxPeerText), System: System{
		Versions: []Installed{{Where: strings.Repeat("\xff", maxPeerText)}},
		Jobs:     Jobs{Envs: []Env{{Vars: map[string]string{"a": "b"}}}}}}
	if err := sanitize(reflect.ValueOf(&f), "facts", maxPeerList); err != nil || f.Jobs.Envs[0].Vars != nil ||
		f.Node != strings.Repeat("é", maxPeerText/2) ||
		f.Versions[0].Where != strings.Repeat("\ufffd", maxPeerText/3) {
		t.Errorf("%+v, %v", f, err)
	}
	for _, f := range []*Facts{{System: System{Versions: make([]Installed, maxVersions+1)}},
		{System: System{Jobs: Jobs{Devices: make([]RDMAPort, maxPeerList+1)}}}} {
		if err := sanitize(reflect.ValueOf(f), "facts", maxPeerList); err == nil {
			t.Errorf("%d versions, %d devices", len(f.Versions), len(f.Jobs.Devices))
		}
	}
}

// TestSystemFactsSize fills every list of a node's own facts to its bound. They must still fit into the 1 MB that a
// peer accepts.
func TestSystemFactsSize(t *testing.T) {
	wide := strings.Repeat("w", 40) // wider than names of devices, interfaces and files
	var f Facts
	for i := range maxPorts {
		device := fmt.Sprintf("%s%d", wide[:16], i)
		f.Rails = append(f.Rails, Rail{Name: wide, Device: device, Port: 1, Netdev: wide[:15], LinkLayer: "Ethernet",
			Kind: wide, Provider: "mlx5"})
		f.Devices.Uverbs = append(f.Devices.Uverbs, Uverbs{Device: device, Node: wide, State: UverbsMissing, Mode: wide,
			Err: wide})
		var set []Setting
		for range 15 {
			set = append(set, Setting{wide[:20], wide, wide + wide})
		}
		f.QoS = append(f.QoS, QoS{device, 1, set})
	}
	for range maxVersions {
		f.Versions = append(f.Versions, Installed{wide, wide, wide, wide + wide + wide})
	}
	for range maxEnvs {
		env := Env{Vars: map[string]string{}}
		for _, name := range JobVariables() {
			env.Vars[name] = strings.Repeat("v", longest(name))
		}
		for range MaxNamed {
			env.Processes = append(env.Processes, Process{1 << 22, wide[:16]})
		}
		f.Jobs.Envs = append(f.Jobs.Envs, env)
	}
	data, err := json.Marshal(f)
	if err != nil || len(data) > 900<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	t.Logf("%d bytes", len(data))
}

func TestUpstream(t *testing.T) {
	for v, want := range map[string]string{"1.16.0+ds-5ubuntu1": "1.16.0", "2:1.18.0-1.2410068": "1.18.0",
		"1.17.0": "1.17.0", "1.17.0~rc1-1": "1.17.0", "": ""} {
		if got := upstream(v); got != want {
			t.Errorf("%q: %q, want %q", v, got, want)
		}
	}
}

func environText(vars ...string) string { return strings.Join(vars, "\x00") + "\x00" }
