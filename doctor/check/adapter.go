package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/units"
)

// checkAdapterWithoutRDMA finds functions whose driver made no RDMA device, or did not start, although others of the
// same kind and function number have one. The second port of each adapter may be meant for Ethernet.
func checkAdapterWithoutRDMA(f *facts.Facts, report reporter) {
	for _, a := range f.Adapters {
		missing := func(m rail.Missing) bool { return m.PCIAddress == a.Address }
		if a.RDMA || slices.ContainsFunc(f.Missing, missing) { // rail_missing reports these adapters
			continue
		}
		// The interfaces of these rails are in another network namespace, where they may be in one bond.
		elsewhere := func(r *facts.Rail) bool {
			return r.LinkKey() == rail.LinkKey(a.Address) && r.Netdev == "" && r.Ethernet()
		}
		if slices.ContainsFunc(f.Judged(), elsewhere) {
			continue
		}
		siblings := func(equal bool) (n int) {
			for _, o := range f.Adapters {
				if o.RDMA && o.Kind == a.Kind && (!equal || functionOf(o) == functionOf(a)) {
					n++
				}
			}
			return n
		}
		if siblings(false) == 0 {
			continue
		}
		out := finding.Finding{Subject: "adapter " + a.Address, Where: a.Netdev,
			Why: "Jobs cannot use this adapter, and nothing that looks at RDMA devices shows that it is there.",
			Fix: []string{note("see why: dmesg | grep %s", shellWord(a.Address))}}
		switch {
		case a.Driver == "":
			out.Evidence = "no driver is bound to it"
			out.Fix = append(out.Fix, sh("echo %s > /sys/bus/pci/drivers_probe", a.Address))
		case a.Netdev == "":
			out.Evidence = fmt.Sprintf("%s is bound to it, and made neither an RDMA device nor an interface", a.Driver)
			out.Fix = append(out.Fix, hands(f,
				note("if its firmware failed to start: %s; if that does not help, it must be replaced",
					reseat(f, "the adapter")))...)
		default:
			out.Evidence = fmt.Sprintf("%s is bound to it, and made the interface %s without an RDMA device", a.Driver,
				a.Netdev)
			out.Fix = append(out.Fix, note("RDMA may be disabled on it: devlink dev param show pci/%s name enable_roce",
				shellWord(a.Address)))
		}
		if a.Log != "" {
			out.Evidence += fmt.Sprintf("; the kernel log has %q", a.Log)
		}
		n := siblings(true)
		out.Evidence += fmt.Sprintf("; equal adapters that have one: %d", n)
		if n == 0 {
			out.Severity = info
			out.Why = "Other functions of this kind have one. If it is meant for Ethernet alone, that is no fault."
		}
		report(out)
	}
}

// functionOf returns the function number of an adapter's PCI address.
func functionOf(a facts.Adapter) string { return a.Address[len(a.Address)-1:] }

// checkBytesNotCounted finds rails whose driver has no counter of their bytes.
func checkBytesNotCounted(f *facts.Facts, report reporter) {
	var rails []*facts.Rail
	for _, r := range f.Judged() {
		// A software device has no PCI address: its interface counts the bytes, in whichever namespace it is.
		if r.Uncounted && r.PCIAddress != "" {
			rails = append(rails, r)
		}
	}
	if len(rails) == 0 {
		return
	}
	subject, where := subjects(rails)
	drivers := map[string]bool{}
	var names []string
	for _, r := range rails {
		if r.Driver != "" && !drivers[r.Driver] {
			drivers[r.Driver] = true
			names = append(names, r.Driver)
		}
	}
	evidence := "no counter has its bytes"
	if len(names) > 0 {
		evidence += " (driver " + listed(names) + ")"
	}
	report(finding.Finding{Subject: subject, Where: where, Evidence: evidence,
		Why: "What it carries is not measured: it is neither idle nor busy, and its balance with other rails is " +
			"unknown.",
		Fix: []string{"# see what the driver counts: grep . /sys/class/infiniband/*/ports/*/hw_counters/*; if one of " +
			"these is the bytes of RDMA, please report its name"}})
}

// checkRateDisagrees finds ports that report a different rate than their interface.
func checkRateDisagrees(f *facts.Facts, r *facts.Rail, report reporter) {
	if r.Reported == 0 || !r.Active() {
		return
	}
	used := "the port's counts here"
	if r.Rate == r.Speed {
		used = "the port's is its driver's default for a link mode that it does not know, so that of the interface " +
			"counts"
	}
	report(finding.Finding{
		Evidence: fmt.Sprintf("the port reports %s, its interface %s runs at %s: %s", units.Gigabits(r.Reported),
			r.Netdev, units.Gigabits(r.Speed), used),
		Why: "Programs that choose an adapter by its port's rate, such as NCCL, take it for a slower or a faster one.",
		Fix: []string{"# install a newer driver: a kernel or a DOCA-OFED that knows this link mode"}})
}

// checkPatternUnmatched finds configured patterns that match no port: a typing error, or a configuration of another
// machine.
func checkPatternUnmatched(f *facts.Facts, report reporter) {
	if len(f.Rails) == 0 {
		return // no_rails reports the patterns
	}
	for _, pattern := range slices.Compact(slices.Sorted(slices.Values(f.Idle))) {
		key, text, _ := strings.Cut(pattern, ": ")
		report(finding.Finding{Subject: "configuration " + key,
			Evidence: fmt.Sprintf("%q matches no RDMA port of this node", text),
			Why:      "What it was meant for is treated as any other port.",
			Fix: []string{"railscope rails --all", "# lists the devices and ports that a pattern can match; a " +
				"pattern with a slash is on device/port"}})
	}
}
