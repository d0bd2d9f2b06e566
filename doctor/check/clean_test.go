package check

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/railscope/railscope/doctor/facts"
)

// evil is a text that must not reach a terminal or a shell unchanged.
const evil = "x\n$(reboot); `reboot` \x1b[2J'\""

// TestSanitize checks that a peer's facts can neither control a terminal nor put a command into a finding.
func TestSanitize(t *testing.T) {
	there, here := travelled(t, evilFacts()), travelled(t, evilFacts())
	here.Versions = []facts.Installed{{Component: "ucx", Version: "1", Where: "x"},
		{Component: "nccl", Version: "1", Where: "x"}}
	list := append(runSystem(there), runSystemPeer(here, there)...)
	if len(list) < 8 {
		t.Errorf("too few findings to be a test:\n%s", findingsText(list))
	}
	for _, f := range list {
		pasteable(t, f)
		for _, m := range f.Fix {
			if command, _, _ := strings.Cut(m, "#"); strings.Contains(strings.ReplaceAll(command,
				"$(basename $(readlink -f ", ""), "$(") || strings.Contains(command, "`") || strings.Contains(command,
				"; reboot") {
				t.Errorf("a command of the peer's: %s", m)
			}
		}
	}
}

// travelled returns the facts as a peer receives them.
func travelled(t testing.TB, f *facts.Facts) *facts.Facts {
	t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	f, err = facts.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func evilFacts() *facts.Facts {
	f := &facts.Facts{Version: facts.Version, System: facts.System{
		Memlock: facts.Memlock{Known: true},
		Devices: facts.Devices{Known: true, Class: true, NodeDir: true,
			Uverbs: []facts.Uverbs{{Device: "d0", Node: evil, State: facts.UverbsDenied, Mode: evil, Err: evil},
				{Device: "d1", Node: evil, State: facts.UverbsRules, Mode: evil, Err: evil}}},
		Verbs: facts.Verbs{Known: true, Library: evil, Providers: []facts.Provider{{Name: evil, Library: evil}}},
		Versions: []facts.Installed{{Component: "ucx", Version: evil, Where: evil},
			{Component: "nccl", Version: "2" + evil, Where: evil}},
		GPUDirect: facts.GPUDirect{GPUs: 1, Model: evil, Mode: "none", Reason: evil, Driver: evil},
		Jobs: facts.Jobs{Envs: []facts.Env{{Vars: map[string]string{"NCCL_IB_DISABLE": "1" + evil}, File: evil},
			{Vars: map[string]string{"UCX_TLS": "tcp"}, Count: 1, Processes: []facts.Process{{PID: 1, Comm: evil}}}}},
	}}
	for i, value := range []string{evil, "2", "2"} {
		device := fmt.Sprintf("d%d", i)
		f.Rails = append(f.Rails, facts.Rail{Name: evil, Device: device, Port: 1, Netdev: evil, StateID: 4, Kind: "k",
			Provider: evil})
		var set []facts.Setting
		for _, row := range qosRows() {
			set = append(set, facts.Setting{Name: row.name, Value: value, Where: evil})
		}
		f.QoS = append(f.QoS, facts.QoS{Device: device, Port: 1, Settings: set})
	}
	return f
}

// FuzzSystemPeer runs all checks on arbitrary facts of a peer.
func FuzzSystemPeer(f *testing.F) {
	seed, err := json.Marshal(evilFacts())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"version":3,"rails":{"rails":[{"device":"d","port":-1,"state_id":4,"kind":"k"}]},"system":{
		"qos":[{"device":"d","port":-1,"settings":[{"name":"pfc","value":"9"}]}]}}`))
	here := travelled(f, evilFacts())
	f.Fuzz(func(t *testing.T, data []byte) {
		there, err := facts.Parse(data)
		if err != nil {
			return
		}
		for _, found := range append(runSystem(there), runSystemPeer(here, there)...) {
			for _, s := range append([]string{found.Subject, found.Evidence}, found.Fix...) {
				if strings.ContainsAny(s, "\x00\x07\x1b\r") {
					t.Errorf("%q", s)
				}
			}
		}
	})
}
