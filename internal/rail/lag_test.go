package rail

import "testing"

// TestLAGOfOne: a driver's device of a bond keeps the bond when only one member is left, unless GIDs of the member are
// beside those of the bond.
func TestLAGOfOne(t *testing.T) {
	for why, tc := range map[string]struct {
		netdev string
		gids   []string // interfaces of the port's GIDs
		want   string
	}{
		"the kernel knows the bond":   {"bond0", []string{"bond0"}, "bond0"},
		"the kernel knows the member": {"eth0", []string{"bond0"}, "bond0"},
		"a member with its own GIDs":  {"eth0", []string{"bond0", "eth0"}, ""},
		"no GID of the bond":          {"eth0", []string{"eth0"}, ""},
	} {
		root := t.TempDir()
		const function = "devices/pci0000:00/0000:01:00.0"
		writeFile(t, "1\n", root, function, "net/eth0/carrier")
		link(t, "../../bus/pci/drivers/mlx5_core", root, function, "driver")
		link(t, "../../"+function+"/net/eth0", root, "class/net/eth0")
		link(t, "../../../0000:01:00.0", root, function, "net/eth0/device")
		link(t, "../../../../virtual/net/bond0", root, function, "net/eth0/master")
		link(t, "../eth0", root, "class/net/bond0/lower_eth0")
		for i, name := range tc.gids {
			writeFile(t, name+"\n", root, "mlx5_bond_0/ports/1/gid_attrs/ndevs", string(rune('0'+i)))
		}
		d := device{sysfs: root, dir: root + "/mlx5_bond_0", name: "mlx5_bond_0"}
		got := d.lag(location{function: Function(root + "/class/net/eth0")}, 1, tc.netdev)
		if got.netdev != tc.want {
			t.Errorf("%s: %+v, want %q", why, got, tc.want)
		}
	}
}
