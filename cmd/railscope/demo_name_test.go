package main

import (
	"testing"

	"github.com/railscope/railscope/demo"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/serve"
)

// TestDemoNames: doctor calls a node of the demo by its name in serve, and any other node by its host name.
func TestDemoNames(t *testing.T) {
	d, err := demo.New(t.TempDir(), demo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, n := range d.Nodes {
		m := serve.Machine{Sysfs: n.Sysfs, Procfs: n.Procfs, Rootfs: n.Rootfs}
		g := serve.NewHost(m, &config.Config{}, nil, serve.GatherBudget).Gatherer(nil)
		if got := g.Gather(t.Context(), facts.All).Node; got != n.Name {
			t.Errorf("doctor calls the node %q, serve %q", got, n.Name)
		}
	}
}
