package probe

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/rail"
)

// lowScaling is the scaling below which rails share a bottleneck.
const lowScaling = 0.9

// judge computes from the striped burst what all rails carry together and with equal parts, their balance, and how that
// compares with each alone. A path that failed has carried nothing, and so has a missing rail.
func (r *round) judge() {
	var loads []rail.Load
	var judged []*path
	var sum, solos float64
	all := true
	slowest, fastest := math.Inf(1), 0.0
	live := 0
	for _, p := range r.paths {
		if p.peer == nil {
			continue // it cannot share the load
		}
		rate := 0.0
		if p.result.Failure == nil && p.result.Stealing != nil {
			rate = p.result.Stealing.BytesPerSecond()
			sum, slowest, fastest, live = sum+rate, min(slowest, rate), max(fastest, rate), live+1
		}
		if rate > 0 {
			rate = p.result.carried()
		}
		loads, judged = append(loads, p.load(rate)), append(judged, p)
		if p.result.Failure == nil && p.result.Solo != nil {
			solos += p.soloRate()
		} else {
			all = all && p.result.Failure != nil
		}
	}
	if live == 0 {
		return
	}
	for _, m := range r.res.Missing {
		if l, known := m.load(r.paths); known {
			loads = append(loads, l)
		}
	}
	r.res.Stealing, r.res.Static = new(sum), new(float64(live)*slowest)
	if live > 1 {
		r.res.FinishSkew = new(1 - slowest/fastest)
	}
	for i, share := range rail.Shares(loads) {
		if !math.IsNaN(share) && i < len(judged) {
			judged[i].result.Share = &share
		}
	}
	if imbalance, known := rail.Imbalance(loads); known {
		r.res.Imbalance = &imbalance
	}
	if all && solos > 0 && live > 1 { // one rail shares with none
		r.res.Scaling = new(*r.res.Stealing / solos)
		if *r.res.Scaling < lowScaling {
			r.res.Shared = shared(r.livePaths())
		}
	}
}

// group is that of the paths that are compared with this one. Its rate is the higher of both ends': a port that is down
// or trained down stays in the group of its siblings.
func (p *path) group() rail.Group {
	g := rail.Group{Role: p.local.Role, LinkLayer: p.local.LinkLayer, Rate: p.local.status.Limits.Rate}
	if p.peer != nil {
		g.Rate = max(g.Rate, p.peer.Rate)
	}
	return g
}

// load is what the path carried, for comparison.
func (p *path) load(carried float64) rail.Load {
	l := rail.Load{Rate: carried, Group: p.group()}
	if p.result.Capacity != nil {
		l.Capacity = *p.result.Capacity
	}
	return l
}

// Shares names what two rails share, as far as this node knows: the narrowest part; empty: nothing.
func (r *Result) Shares(a, b string) string {
	for _, s := range r.places {
		if slices.Contains(s.Rails, a) && slices.Contains(s.Rails, b) {
			return s.What
		}
	}
	return ""
}

// places are what paths share, the narrowest first.
func places(paths []*path) []Shared {
	return slices.Concat(shared(paths), sharing(paths, "PCIe switch", func(p *path) string {
		_, port := p.local.PCIAbove()
		return port
	}), sharing(paths, "PCIe root port", func(p *path) string {
		port, _ := p.local.PCIAbove()
		return port
	}))
}

// shared returns what several rails share: a PCIe link, a physical port.
func shared(paths []*path) []Shared {
	return slices.Concat(
		sharing(paths, "PCIe link", func(p *path) string { return p.local.status.Limits.LinkKey }),
		sharing(paths, "physical port", func(p *path) string { return p.local.status.Limits.PortKey }))
}

// sharing returns the paths with equal keys; an empty one is not known.
func sharing(paths []*path, what string, key func(*path) string) (list []Shared) {
	for _, p := range paths {
		k := key(p)
		if k == "" {
			continue
		}
		name := what + " " + k
		i := slices.IndexFunc(list, func(s Shared) bool { return s.What == name })
		if i < 0 {
			i, list = len(list), append(list, Shared{What: name})
		}
		list[i].Rails = append(list[i].Rails, p.local.Name)
	}
	return slices.DeleteFunc(list, func(s Shared) bool { return len(s.Rails) < 2 })
}

// mismatches are the components with incompatible versions at both ends. One firmware mismatch is enough.
func mismatches(here, there versions, paths []*path) []Mismatch {
	var list []Mismatch
	compare := func(component, a, b string, significant func(string) string) {
		if a != "" && b != "" && significant(a) != significant(b) {
			list = append(list, Mismatch{component, a, b})
		}
	}
	compare("railscope", here.Railscope, there.Railscope, func(v string) string { return firstParts(v, 2) })
	compare("kernel", here.Kernel, there.Kernel, func(v string) string { return firstParts(v, 2) })
	compare("rdma-core", here.RDMACore, there.RDMACore, func(v string) string { return firstParts(v, 1) })
	for _, p := range paths {
		if p.peer != nil && p.local.Driver == p.peer.Driver && len(list) < 16 {
			before := len(list)
			compare("firmware", p.local.Firmware, p.peer.Firmware, func(v string) string { return v })
			if len(list) > before {
				list[before].Here = fmt.Sprintf("%s (rail %s)", p.local.Firmware, p.local.Name)
				break
			}
		}
	}
	return list
}

// allVersions are the versions of both ends; firmware as often as rails have different ones.
func allVersions(here, there versions, paths []*path) []Mismatch {
	list := []Mismatch{{"railscope", here.Railscope, there.Railscope}, {"kernel", here.Kernel, there.Kernel},
		{"rdma-core", here.RDMACore, there.RDMACore}}
	for _, p := range paths {
		one := Mismatch{Component: "firmware", Here: p.local.Firmware}
		if p.peer != nil {
			one.There = p.peer.Firmware
		}
		if (one.Here != "" || one.There != "") && !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// firstParts returns the first n numbers of a version: 6.1 of 6.1.0-56-amd64.
func firstParts(version string, n int) string {
	parts := strings.FieldsFunc(strings.TrimPrefix(version, "v"), func(r rune) bool {
		return r == '.' || r == '-' || r == '+'
	})
	return strings.Join(parts[:min(n, len(parts))], ".")
}
