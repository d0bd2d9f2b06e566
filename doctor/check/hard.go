package check

import "slices"

// Hard reports whether a check is about a hard fact: a device, port, bond member, GPU, GID or link that is gone, down
// or slower than before. It does not fluctuate and needs only the facts of [facts.Hard], so it is read on every request
// and raised at once.
func Hard(id string) bool {
	return slices.Contains([]string{"no_rails", "adapter_without_rdma", "rail_missing", "gpu_missing", "netdev_down",
		"port_down", "half_unused", "bond_member_down", "gid_missing", "gid_link_local", "gid_misbound", "rate_lost",
		"pcie_lost", "pcie_link_low"}, id)
}
