package kmsg

import (
	"strings"

	"github.com/railscope/railscope/internal/kernellog"
	"github.com/railscope/railscope/internal/sysfs"
)

// pattern describes how to recognize one kind of event. Drivers begin their messages with "driver address: " or,
// about an interface, "driver address interface: " (dev_printk, netdev_printk).
type pattern struct {
	event  string
	prefix string   // beginning of the message; empty: any
	has    []string // strings that follow it, all required
	// Messages contain names that users choose, such as those of processes and files. A match therefore requires a
	// PCI function, which only the kernel can add to a message. With netdev, the valid name of an interface is
	// required instead.
	netdev bool
}

const watchdog = "NETDEV WATCHDOG: "

// patterns returns the patterns in order: the first match wins. The texts are from Linux 6.12 and the NVIDIA driver
// 570.
func patterns() []pattern {
	const mlx5 = "mlx5_core "
	return []pattern{
		// drivers/net/ethernet/mellanox/mlx5/core/cmd.c: cb_timeout_handler, wait_func_handle_exec_timeout
		{"command_timeout", mlx5, []string{"timeout. Will cause a leak of a command resource"}, false},
		// core/health.c: poll_health, mlx5_health_report
		{"health_compromised", mlx5, []string{"device's health compromised - reached miss count"}, false},
		{"health_compromised", mlx5, []string{"Health issue observed, "}, false},
		{"health_compromised", mlx5, []string{"Fatal error ", " detected"}, false},
		// core/events.c: mlx5_pcie_event, temp_warn, port_module
		{"insufficient_power", mlx5, []string{"Detected insufficient power on the PCIe slot"}, false},
		{"high_temperature", mlx5, []string{"High temperature on sensors with bit set"}, false},
		{"module_high_temperature", mlx5, []string{"Port module event[error]: module ", ", High Temperature"}, false},
		{"module_error", mlx5, []string{"Port module event[error]: module "}, false},
		{"cable_unplugged", mlx5, []string{"Port module event: module ", ", Cable unplugged"}, false},
		// net/sched/sch_generic.c: dev_watchdog
		{"transmit_timeout", "", []string{": NETDEV WATCHDOG: ", "transmit queue ", " timed out"}, false},
		{"transmit_timeout", watchdog, []string{"transmit queue ", " timed out"}, true}, // older kernels
		// drivers/pci/pcie/aer.c: aer_print_error; newer kernels know "CXL Bus Error"
		{"aer_fatal", "", []string{" Bus Error: severity=Uncorrect", " (Fatal)"}, false},
		{"aer_nonfatal", "", []string{" Bus Error: severity=Uncorrect", " (Non-Fatal)"}, false},
		{"aer_correctable", "", []string{" Bus Error: severity=Correct"}, false},
		// drivers/net/bonding/bond_main.c: bond_miimon_commit
		{"bond_member_down", "", []string{": (slave ", "): link status definitely down"}, true},
		// mlx5/core/en_main.c: mlx5e_update_carrier; bnxt/bnxt.c: bnxt_report_link; ice/ice_main.c: ice_print_link_msg
		{"link_down", "", []string{": Link down"}, false},
		{"link_down", "", []string{": NIC Link is Down"}, false},
	}
}

// event is the name of an event and its device.
type event struct {
	name   string
	pci    string // address of the PCI function; empty if not known
	netdev string // empty if none is named
}

// classify returns the event that a message reports.
func classify(list []pattern, r kernellog.Record) (event, bool) {
	if name, address, ok := xid(r.Text); ok {
		return event{name: name, pci: address}, true
	}
	for _, p := range list {
		e := event{name: p.event, pci: r.PCI, netdev: netdev(r.Text)}
		if p.fits(r.Text) && (r.PCI != "" || p.netdev && sysfs.ValidNetdev(e.netdev)) {
			return e, true
		}
	}
	return event{}, false
}

func (p pattern) fits(text string) bool {
	rest, ok := strings.CutPrefix(text, p.prefix)
	for _, part := range p.has {
		if ok {
			_, rest, ok = strings.Cut(rest, part)
		}
	}
	return ok
}

// xid parses "NVRM: Xid (PCI:0000:18:00): 79, …" (src/kernel/gpu/rc/kernel_rc.c of the open driver).
func xid(text string) (name, address string, ok bool) {
	rest, ok := strings.CutPrefix(text, "NVRM: Xid (PCI:")
	if !ok {
		return "", "", false
	}
	address, rest, ok = strings.Cut(rest, "): ")
	code, _, _ := strings.Cut(rest, ",")
	const digits, longest = "0123456789", len("00000000:00:00.0")
	if !ok || code == "" || len(code) > 4 || strings.Trim(code, digits) != "" || len(address) > longest ||
		strings.Trim(strings.ToLower(address), digits+"abcdef:.") != "" {
		return "", "", false
	}
	if strings.Count(address, ".") == 0 {
		address += ".0"
	}
	return "xid_" + code, strings.ToLower(address), true
}

// netdev returns the interface that a message names: "mlx5_core 0000:18:00.0 eth0: …", "NETDEV WATCHDOG: eth0 (…)",
// "bond0: (slave eth0): …".
func netdev(text string) string {
	if rest, ok := strings.CutPrefix(text, watchdog); ok {
		name, _, _ := strings.Cut(rest, " ")
		return name
	}
	if _, rest, ok := strings.Cut(text, ": (slave "); ok {
		name, _, _ := strings.Cut(rest, ")")
		return name
	}
	head, _, _ := strings.Cut(text, ": ")
	if fields := strings.Fields(head); len(fields) == 3 {
		return fields[2]
	}
	return ""
}
