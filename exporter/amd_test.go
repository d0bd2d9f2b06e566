package exporter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/gpu"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/rail"
)

// fallbackMachine is a machine with AMD's GPUs. The traffic of its rail 3 that is not RDMA is planted.
type fallbackMachine struct {
	name, gpu, driver string
	stats             []string // names of ethtool's statistics, of which the first counts the traffic
	file              bool     // statistics/rx_bytes counts it, too
}

// TestFallbackAMD: on a node with AMD's GPUs, traffic of a rail's interface without RDMA is a suspected fallback while
// a GPU computes, and none while all are idle.
func TestFallbackAMD(t *testing.T) {
	for _, m := range []fallbackMachine{
		{"oci-mi300x", "0000:29:00.0", "mlx5_core", []string{"rx_vport_unicast_bytes", "tx_vport_unicast_bytes"}, false},
		{"mi300x-thor2", "0000:09:00.0", "bnxt_en", []string{"rx_bytes", "tx_bytes"}, true},
		{"mi355x-pollara", "0000:09:00.0", "ionic", []string{"rx_bytes", "tx_bytes", "octets_rx_ok", "octets_tx_ok"},
			false},
	} {
		t.Run(m.name, func(t *testing.T) { lanetest.Test(t, m.test) })
	}
}

func (m fallbackMachine) test(t *testing.T) {
	all := machines.All()
	tree := machines.NewTree(t)
	all[slices.IndexFunc(all, func(one machines.Machine) bool { return one.Name == m.name })].Build(tree)
	finder := rail.NewFinder(tree.Sys(), rail.Options{}, nil, time.Second)
	rails, err := finder.Rails()
	if err != nil {
		t.Fatal(err)
	}
	var traffic atomic.Uint64 // bytes that the interface of rail 3 received
	kernel := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{}}
	for i, r := range rails {
		function := filepath.Base(rail.Function(filepath.Join(r.Dir, "device")))
		link := filepath.Join(tree.Sys(), "class/net", r.Netdev, "device") // the kernel's link ends in the PCI address
		if err := errors.Join(os.Remove(link), os.Symlink("../../../"+function, link)); err != nil {
			t.Fatal(err)
		}
		n := &ethtooltest.Netdev{Driver: m.driver, Bus: function}
		for _, name := range m.stats {
			n.Stats = append(n.Stats, ethtooltest.Stat{Name: name})
		}
		if i == 3 {
			n.Before = func(uint32) error { n.Stats[0].Value = traffic.Load(); return nil }
		}
		kernel.Netdevs[r.Netdev] = n
	}
	gpus := gpu.New(amdgpu.NewFinder(tree.Sys()), tree.Procfs(), noGPUs(), time.Second, 0)
	smp := sampler.New(sampler.Options{Sysfs: tree.Sys(), Rails: finder.Rails, Interval: sampler.DefaultInterval,
		Alarm: sampler.RuntimeAlarm, Ethtool: kernel.Ioctl,
		GPUs: func() ([]collector.GPUUse, bool) { return gpus.Use(time.Second) }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		smp.Run(ctx)
	}()
	time.Sleep(50 * time.Millisecond) // between two ticks
	for _, step := range []struct {
		what    string
		percent int
		bytes   uint64 // traffic of each second
		want    bool
	}{{"idle GPUs", 0, 2e9, false}, {"a busy GPU", 97, 2e9, true}, {"no more traffic", 97, 0, false},
		{"traffic again", 97, 2e9, true}, {"a GPU at 3 %", 3, 2e9, false}} {
		tree.File("bus/pci/devices/"+m.gpu+"/gpu_busy_percent", step.percent)
		for range 30 {
			traffic.Add(step.bytes)
			if m.file {
				tree.File("class/net/"+rails[3].Netdev+"/statistics/rx_bytes", traffic.Load())
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		var snap sampler.Snapshot
		smp.Snapshot(&snap)
		got, want := snap.Fallback[sampler.RDMAIdleTCPBusy], sampler.Suspicion{Known: true, Suspected: step.want}
		if got != want {
			t.Errorf("%s: %+v, want %+v", step.what, got, want)
		}
	}
	cancel()
	<-ended
}
