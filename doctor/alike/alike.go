// Package alike finds in the facts of a node what should be equal on nodes of one role.
package alike

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/nodefact"
	"github.com/railscope/railscope/internal/rail"
)

// Subjects returns all subjects, as docs/drift.md lists them.
func Subjects() []string {
	list := []string{nodefact.Adapters, nodefact.GPUs, "mtu", "gid", "qos", "dcqcn", "pcie", "gpudirect", "railscope",
		"configuration"}
	return append(list, components()...)
}

// components are the components of [facts.Installed].
func components() []string {
	return []string{"kernel", "firmware", "nic_driver", "rdma_core", "ucx", "nccl", "rccl", "nixl", "nvidia_driver"}
}

// Of returns what is known of a node, by subject. What could not be read is missing. version is railscope's, and
// configuration a digest of its configuration; they are left out if empty.
func Of(f *facts.Facts, version, configuration string) (list []nodefact.Fact) {
	add := func(subject, value string) {
		if value != "" {
			list = append(list, nodefact.Fact{Subject: subject, Value: short(value)})
		}
	}
	rails := slices.Clone(f.Rails)
	slices.SortFunc(rails, func(a, b facts.Rail) int { return rail.NaturalCompare(a.Name, b.Name) })
	if f.RDMA && !f.Hidden {
		add(nodefact.Adapters, counted(rails, func(r facts.Rail) string { return cmp.Or(r.Kind, r.Provider) }))
	}
	add(nodefact.GPUs, gpus(f))
	add("mtu", byRail(rails, func(r facts.Rail) string { return number(f.Netdev(r.Netdev).MTU) }))
	add("gid", byRail(rails, gid))
	add("qos", settings(f, rails, []string{"pfc", "trust", "dscp", "pause", "traffic_class", "roce_tos"}))
	add("dcqcn", settings(f, rails, append(facts.CongestionParameters(), "roce_np", "roce_rp")))
	add("pcie", nodefact.Join([]nodefact.Part{{Name: "link", Value: byRail(rails, link)},
		{Name: "relaxed_ordering", Value: relaxed(f)},
		{Name: "mrrs", Value: readRequests(f)},
		{Name: "acs", Value: acs(f)}}))
	add("gpudirect", f.GPUDirect.Mode)
	add("railscope", version)
	add("configuration", configuration)
	for _, c := range components() {
		add(c, versions(f, c))
	}
	return list
}

// maxValue bounds a value, in bytes. All parameters of DCQCN, with one value on all rails, fit.
const maxValue = 1000

// short bounds a value. A longer one ends with a digest of all of it.
func short(value string) string {
	if len(value) <= maxValue {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	const digest = 12
	return strings.ToValidUTF8(value[:maxValue-digest-len("… #")], "") + "… #" + hex.EncodeToString(sum[:])[:digest]
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// counted returns how many there are of each kind, such as "8 × mlx5_core MT4129", if all kinds are known.
func counted[T any](list []T, of func(T) string) string {
	counts := map[string]int{}
	for _, one := range list {
		kind := of(one)
		if kind == "" {
			return ""
		}
		counts[kind]++
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// gpus returns number and model of the GPUs, if all were read.
func gpus(f *facts.Facts) string {
	if !f.GPUsRead || len(f.GPUs) == 0 {
		return ""
	}
	return counted(f.GPUs, func(g facts.GPU) string {
		if g.AMD != nil {
			return strings.TrimSpace("AMD " + g.AMD.Model)
		}
		return f.GPUDirect.Model
	})
}

// byRail returns the value that all rails have, or that of each rail. If that of one rail is unknown, all are.
func byRail(rails []facts.Rail, of func(facts.Rail) string) string {
	on := map[string][]string{} // names of rails by value
	for _, r := range rails {
		value := of(r)
		if value == "" {
			return ""
		}
		on[value] = append(on[value], r.Name)
	}
	values := slices.Sorted(maps.Keys(on))
	if len(values) == 1 {
		return values[0]
	}
	for i, value := range values {
		values[i] = value + " (" + strings.Join(on[value], ",") + ")"
	}
	return strings.Join(values, ", ")
}

// gid returns family and index of the GID that programs should use on RoCE.
func gid(r facts.Rail) string {
	best := r.BestGID()
	switch {
	case !r.GIDsRead || !r.Ethernet():
		return ""
	case !best.OK():
		return "none"
	}
	family := "IPv6"
	if best.GID.Addr.Unmap().Is4() {
		family = "IPv4"
	}
	return fmt.Sprintf("%s at index %d", family, best.GID.Index)
}

// link returns the PCIe link of an adapter that it can have: what it has depends on power management.
func link(r facts.Rail) string {
	if r.Link == nil || r.Link.MaxWidth == 0 {
		return ""
	}
	return fmt.Sprintf("%g GT/s x%d", r.Link.MaxSpeed, r.Link.MaxWidth)
}

// settings returns settings of the rails that have them.
func settings(f *facts.Facts, rails []facts.Rail, names []string) string {
	var parts []nodefact.Part
	for _, name := range names {
		var having []facts.Rail
		values := map[string]string{}
		for _, r := range rails {
			for _, q := range f.QoS {
				i := slices.IndexFunc(q.Settings, func(s facts.Setting) bool { return s.Name == name })
				if q.Device == r.Device && q.Port == r.Port && i >= 0 {
					having, values[r.Name] = append(having, r), cmp.Or(q.Settings[i].Value, "empty")
				}
			}
		}
		parts = append(parts, nodefact.Part{Name: name,
			Value: byRail(having, func(r facts.Rail) string { return values[r.Name] })})
	}
	return nodefact.Join(parts)
}

// relaxed returns on how many adapters relaxed ordering is enabled.
func relaxed(f *facts.Facts) string {
	return counted(f.PCI.Adapters, func(a facts.PCIAdapter) string {
		return map[bool]string{true: "on", false: "off"}[a.Relaxed]
	})
}

// readRequests returns how many adapters have which Max_Read_Request_Size.
func readRequests(f *facts.Facts) string {
	return counted(f.PCI.Adapters, func(a facts.PCIAdapter) string { return number(a.ReadRequest) })
}

// acs returns how many ports between rails and GPUs redirect what devices write to each other.
func acs(f *facts.Facts) string {
	return counted(f.PCI.Ports, func(p facts.ACSPort) string {
		redirects := p.Control&(facts.ACSRequestRedirect|facts.ACSCompletionRedirect) != 0
		return map[bool]string{true: "redirects", false: "direct"}[redirects]
	})
}

// versions returns the versions of a component.
func versions(f *facts.Facts, component string) string {
	var parts []string
	for _, v := range f.Versions {
		if v.Component == component {
			parts = append(parts, strings.TrimSpace(v.Of+" "+v.Version))
		}
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ", ")
}
