package alike_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/alike"
	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/nodefact"
)

func text(list []nodefact.Fact) string {
	var b strings.Builder
	for _, one := range list {
		fmt.Fprintf(&b, "%s: %s\n", one.Subject, one.Value)
	}
	return b.String()
}

// TestOf: what captured machines have, with all that can be read of them.
func TestOf(t *testing.T) {
	for _, tc := range []struct{ machine, want string }{
		{doctortest.HGX, `adapters: 3 × mlx5_core MT4129 MT_0000000838
gid: IPv4 at index 3
qos: pfc=3; trust=dscp; dscp=none; pause=rx off tx off; traffic_class=106; roce_tos=106
dcqcn: np_cnp_dscp=48; np_cnp_prio=6; roce_np=3; roce_rp=3
gpudirect: peermem
railscope: 1.2.3
configuration: 0123456789ab
kernel: 6.8.0-55-generic
firmware: MT4129 MT_0000000838 28.39.1002
nic_driver: mlx5_core 24.10-1.1.4
rdma_core: 2410.0
ucx: 1.18.0
nccl: 2.26.2
nixl: 0.4.1
nvidia_driver: 570.124.06
`},
		{doctortest.Spark, `adapters: 4 × mlx5_core MT4129 NVD0000000087
qos: pfc=3; dscp=none; pause=rx off tx off
gpudirect: unsupported
railscope: 1.2.3
configuration: 0123456789ab
kernel: 6.11.0-1016-nvidia
firmware: MT4129 NVD0000000087 28.45.4028
rdma_core: 50.0
ucx: 1.16.0
nccl: 2.28.3
nvidia_driver: 580.95.05
`},
		{doctortest.RXE, `adapters: 2 × rxe
gid: IPv4 at index 1
railscope: 1.2.3
configuration: 0123456789ab
kernel: 6.1.0-40-amd64
rdma_core: 44.0
`},
		{doctortest.Laptop, `gpudirect: none
railscope: 1.2.3
configuration: 0123456789ab
kernel: 6.12.9-amd64
nvidia_driver: 550.54.15
`},
	} {
		t.Run(tc.machine, func(t *testing.T) {
			f := facts.New(doctortest.System(t, tc.machine)).Gather(t.Context(), facts.All)
			list := alike.Of(f, "1.2.3", "0123456789ab")
			if diff := cmp.Diff(tc.want, text(list)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, one := range list {
				if !slices.Contains(alike.Subjects(), one.Subject) {
					t.Errorf("%s is not among the subjects", one.Subject)
				}
			}
		})
	}
}

// TestOfRails: one value where all rails have it, else those of each; none if one is unknown.
func TestOfRails(t *testing.T) {
	link := &facts.Link{MaxSpeed: 32, MaxWidth: 16}
	f := &facts.Facts{
		Network: facts.Network{RDMA: true,
			Rails: []facts.Rail{{Name: "10", Kind: "b", Netdev: "eth1", Link: link, Device: "b"},
				{Name: "2", Kind: "a", Netdev: "eth0", Link: link, Device: "a"}},
			Netdevs:  []facts.Netdev{{Name: "eth0", MTU: 4200}, {Name: "eth1", MTU: 1500}},
			GPUsRead: true, GPUs: []facts.GPU{{}, {}},
		},
		System: facts.System{GPUDirect: facts.GPUDirect{Model: "NVIDIA H100"},
			QoS: []facts.QoS{{Device: "a", Settings: []facts.Setting{{Name: "pfc", Value: "3"}}},
				{Device: "b", Settings: []facts.Setting{{Name: "pfc", Value: "3;4"}}}},
			PCI: facts.PCI{Adapters: []facts.PCIAdapter{{Relaxed: true, ReadRequest: 4096}, {ReadRequest: 512}},
				Ports: []facts.ACSPort{{Control: facts.ACSRequestRedirect}, {Control: facts.ACSCompletionRedirect},
					{}}}},
	}
	want := `adapters: 1 × a, 1 × b
gpus: 2 × NVIDIA H100
mtu: 1500 (10), 4200 (2)
qos: pfc=3 (2), 3,4 (10)
pcie: link=32 GT/s x16; relaxed_ordering=1 × off, 1 × on; mrrs=1 × 4096, 1 × 512; acs=1 × direct, 2 × redirects
`
	if diff := cmp.Diff(want, text(alike.Of(f, "", ""))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.Rails[0].Link, f.Rails[1].Kind, f.Netdevs[0].MTU, f.GPUs[1].AMD = nil, "", 0, &facts.AMD{Model: "0x74a1"}
	f.QoS[1].Settings[0].Value = ""
	want = `gpus: 1 × AMD 0x74a1, 1 × NVIDIA H100
qos: pfc=3 (2), empty (10)
pcie: relaxed_ordering=1 × off, 1 × on; mrrs=1 × 4096, 1 × 512; acs=1 × direct, 2 × redirects
`
	if diff := cmp.Diff(want, text(alike.Of(f, "", ""))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.GPUsRead, f.GPUs[0].AMD, f.PCI = false, nil, facts.PCI{}
	f.Versions = []facts.Installed{{Component: "kernel", Version: strings.Repeat("é", 1000)}}
	got := alike.Of(f, "", "")
	if last := got[len(got)-1]; len(got) != 2 || len(last.Value) > 1000 || !strings.HasPrefix(last.Value, "éé") ||
		!strings.Contains(last.Value, "… #") {
		t.Errorf("%q", got)
	}
}
