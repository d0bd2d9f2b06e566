package demo

import "path/filepath"

// fail takes the ports down that are to fail, on the first node, and the demo
// goes on with what is left.
func (d *Demo) fail() {
	n := d.Nodes[0]
	for r := range d.opts.Fail {
		l := d.links[r]
		l.mu.Lock()
		l.ports[n.index].down = true
		l.mu.Unlock()
		for path, text := range map[string]string{
			filepath.Join(n.portDir(r), "state"):                "1: DOWN",
			filepath.Join(n.portDir(r), "phys_state"):           "2: Polling",
			filepath.Join(n.portDir(r), "counters/link_downed"): "1",
			filepath.Join(n.netdevDir(r), "operstate"):          "down",
			filepath.Join(n.netdevDir(r), "carrier"):            "0",
			filepath.Join(n.netdevDir(r), "speed"):              "-1",
			filepath.Join(n.netdevDir(r), "carrier_changes"):    "3",
			filepath.Join(n.netdevDir(r), "carrier_down_count"): "2",
		} {
			_ = overwrite(path, text) // it was written a moment ago
		}
	}
}
