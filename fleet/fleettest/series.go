package fleettest

import "github.com/railscope/railscope/fleet"

// Series is one sample as Prometheus has it.
type Series struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// instanceOf is the address of the exporter of a node, and peerOf that by which others ask it.
func instanceOf(n fleet.Node) string { return n.Name + ".example:10091" }
func peerOf(n fleet.Node) string     { return n.Name + ":10092" }

// SeriesOf are the series of a state, as its nodes and Prometheus expose them now.
func SeriesOf(s fleet.State) (list []Series) {
	add := func(n fleet.Node, name string, v float64, pairs ...string) {
		labels := map[string]string{"job": "railscope", "instance": instanceOf(n)}
		if n.Cluster != "" {
			labels["cluster"] = n.Cluster
		}
		for i := 0; i < len(pairs); i += 2 {
			labels[pairs[i]] = pairs[i+1]
		}
		list = append(list, Series{name, labels, v})
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	for n, up := range s.Nodes {
		add(n, "up", flag(up))
	}
	for p, transport := range s.Pairs {
		for _, t := range []string{"rdma", "tcp", "none"} {
			add(p.From, "railscope_probe_transport", flag(t == transport), "peer", peerOf(p.To), "transport", t)
		}
	}
	for p, r := range s.Rounds {
		of := []string{"peer", peerOf(p.To), "rail", p.Rail}
		add(p.From, "railscope_probe_rail_up", flag(r.Up), of...)
		if r.Expected > 0 {
			add(p.From, "railscope_probe_rail_expected_bytes_per_second", r.Expected, of...)
		}
		if r.Goodput > 0 {
			add(p.From, "railscope_probe_rail_goodput_bytes_per_second", r.Goodput, append(of, "mode", "solo")...)
			add(p.From, "railscope_probe_rail_goodput_bytes_per_second", 0.9*r.Goodput, append(of, "mode", "stealing")...)
		}
		if r.Retransmits >= 0 {
			add(p.From, "railscope_probe_rail_retransmits_total", r.Retransmits, of...)
		}
	}
	for r, up := range s.PortUp {
		add(r.Node, "railscope_port_up", flag(up), "rail", r.Rail, "device", "mlx5_"+r.Rail, "port", "1")
	}
	for r, leaf := range s.Leaves {
		if s.Nodes[r.Node] {
			add(r.Node, "railscope_rail_leaf_info", 1, "rail", r.Rail, "leaf", leaf)
		}
	}
	for r, v := range s.Loopback {
		add(r.Node, "railscope_probe_loopback_goodput_bytes_per_second", v, "rail", r.Rail)
	}
	for r, v := range s.GPU {
		add(r.Node, "railscope_probe_gpu_ratio", v, "rail", r.Rail, "memory", "cuda_dmabuf")
	}
	return list
}
