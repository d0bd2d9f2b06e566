package doctor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// evil is what no text of a peer may do to who reads or pastes it.
const evil = "x\n$(reboot); `reboot` \x1b[2J'\""

// TestSanitize holds that a peer's facts can neither draw on a terminal nor put a
// command into a finding.
func TestSanitize(t *testing.T) {
	there := evilFacts()
	there.System.sanitize()
	here := evilFacts()
	here.System.sanitize()
	here.System.Versions = []VersionFact{{Component: "ucx", Version: "1", Where: "x"}, {Component: "nccl", Version: "1", Where: "x"}}
	list := append(runSystem(there), runSystemPeer(here, there)...)
	if len(list) < 8 {
		t.Errorf("too few findings to be a test:\n%s", findingsText(list))
	}
	for _, f := range list {
		pasteable(t, f)
		for _, m := range f.Mend {
			if command, _, _ := strings.Cut(m, "#"); strings.Contains(strings.ReplaceAll(command, "$(basename $(readlink -f ", ""), "$(") || strings.Contains(command, "`") || strings.Contains(command, "; reboot") {
				t.Errorf("a command of the peer's: %s", m)
			}
		}
	}
}

func evilFacts() *Facts {
	f := &Facts{System: SystemFacts{
		Memlock:   MemlockFacts{Known: true},
		Devices:   DeviceFacts{Known: true, Class: true, NodeDir: true, Uverbs: []UverbsFacts{{Device: "d0", Node: evil, State: uverbsDenied, Mode: evil, Err: evil}, {Device: "d1", Node: evil, State: uverbsRules, Mode: evil, Err: evil}}},
		Verbs:     VerbsFacts{Known: true, Library: evil, Providers: []ProviderFacts{{Name: evil, Library: evil}}},
		Versions:  []VersionFact{{"ucx", "", evil, evil}, {"nccl", "", "2" + evil, evil}},
		GPUDirect: GPUDirectFacts{GPUs: 1, Model: evil, Mode: "none", Reason: evil, Driver: evil},
		Jobs:      JobFacts{Envs: []JobEnv{{Vars: map[string]string{"NCCL_IB_DISABLE": "1" + evil}, File: evil}, {Vars: map[string]string{"UCX_TLS": "tcp"}, Count: 1, Processes: []Process{{1, evil}}}}},
	}}
	for i, value := range []string{evil, "2", "2"} {
		device := fmt.Sprintf("d%d", i)
		f.System.Ports = append(f.System.Ports, PortFacts{Rail: evil, Device: device, Port: 1, Netdev: evil, Active: true, Kind: "k", Provider: evil})
		var set []QoSSetting
		for _, row := range qosRows() {
			set = append(set, QoSSetting{row.name, value, evil})
		}
		f.System.QoS = append(f.System.QoS, QoSFacts{Device: device, Port: 1, Settings: set})
	}
	return f
}

func TestSanitizeBounds(t *testing.T) {
	f := SystemFacts{Versions: make([]VersionFact, maxPeerList+1), Jobs: JobFacts{Envs: []JobEnv{{Vars: map[string]string{
		"a\x00": strings.Repeat("é", maxPeerText), "b": strings.Repeat("\xff", maxPeerText)}}}}}
	f.sanitize()
	if len(f.Versions) != maxPeerList {
		t.Errorf("%d versions", len(f.Versions))
	}
	if diff := cmp.Diff(map[string]string{"a\ufffd": strings.Repeat("é", maxPeerText/2), "b": strings.Repeat("\ufffd", maxPeerText/3)}, f.Jobs.Envs[0].Vars); diff != "" {
		t.Error(diff)
	}
}

// TestSystemFactsSize fills every list of a node's own facts to its bound: they
// still go to a peer, whose limit is a megabyte for all facts.
func TestSystemFactsSize(t *testing.T) {
	wide := strings.Repeat("w", 40) // wider than names of devices, interfaces and files are
	var f SystemFacts
	for i := range maxPorts {
		device := fmt.Sprintf("%s%d", wide[:16], i)
		f.Ports = append(f.Ports, PortFacts{Rail: wide, Device: device, Port: 1, Netdev: wide[:15], LinkLayer: "Ethernet", Kind: wide, Provider: "mlx5"})
		f.Devices.Uverbs = append(f.Devices.Uverbs, UverbsFacts{Device: device, Node: wide, State: uverbsMissing, Mode: wide, Err: wide})
		var set []QoSSetting
		for _, row := range qosRows() {
			set = append(set, QoSSetting{row.name, wide, wide + wide})
		}
		f.QoS = append(f.QoS, QoSFacts{device, 1, set})
	}
	for range maxVersions {
		f.Versions = append(f.Versions, VersionFact{wide, wide, wide, wide + wide + wide})
	}
	for range maxEnvs {
		env := JobEnv{Vars: map[string]string{}}
		for _, name := range jobVars() {
			env.Vars[name] = strings.Repeat("v", maxValue)
		}
		for range maxKept {
			env.Processes = append(env.Processes, Process{1 << 22, wide[:16]})
		}
		f.Jobs.Envs = append(f.Jobs.Envs, env)
	}
	data, err := json.Marshal(f)
	if err != nil || len(data) > 800<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	t.Logf("%d bytes", len(data))
}

// FuzzSystemPeer gives whatever a peer may send to all checks.
func FuzzSystemPeer(f *testing.F) {
	seed, err := json.Marshal(evilFacts().System)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"ports":[{"active":true,"kind":"k","device":"d","port":-1}],"qos":[{"device":"d","port":-1,"settings":[{"name":"pfc","value":"9"}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var there SystemFacts
		if json.Unmarshal(data, &there) != nil {
			return
		}
		there.sanitize()
		for _, found := range append(runSystem(&Facts{System: there}), runSystemPeer(evilFacts(), &Facts{System: there})...) {
			for _, s := range append([]string{found.Subject, found.Read}, found.Mend...) {
				if strings.ContainsAny(s, "\x00\x07\x1b\r") {
					t.Errorf("%q", s)
				}
			}
		}
	})
}
