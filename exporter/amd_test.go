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

// TestFallbackAMD: on a node with AMD's GPUs, traffic of a rail's interface without RDMA is a suspected fallback while
// a GPU computes, and none while all are idle.
func TestFallbackAMD(t *testing.T) {
	all := machines.All()
	m := all[slices.IndexFunc(all, func(m machines.Machine) bool { return m.Name == "oci-mi300x" })]
	lanetest.Test(t, func(t *testing.T) {
		tree := machines.NewTree(t)
		m.Build(tree)
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
			n := &ethtooltest.Netdev{Driver: "mlx5_core", Bus: function, Stats: []ethtooltest.Stat{
				{Name: "rx_vport_unicast_bytes"}, {Name: "tx_vport_unicast_bytes"}}}
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
			percent int
			want    bool
		}{{0, false}, {97, true}, {3, false}} {
			tree.File("bus/pci/devices/0000:29:00.0/gpu_busy_percent", step.percent)
			for range 30 {
				traffic.Add(2e9)
				time.Sleep(time.Second)
			}
			synctest.Wait()
			var snap sampler.Snapshot
			smp.Snapshot(&snap)
			got, want := snap.Fallback[sampler.RDMAIdleTCPBusy], sampler.Suspicion{Known: true, Suspected: step.want}
			if got != want {
				t.Errorf("a GPU at %d %%: %+v, want %+v", step.percent, got, want)
			}
		}
		cancel()
		<-ended
	})
}
