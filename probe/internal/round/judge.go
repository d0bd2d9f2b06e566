package round

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/result"
)

// Judge derives from the striped burst the goodput of all rails together and with equal parts, their balance, and
// how that compares with each rail alone. A failed path and a missing rail have carried nothing.
func (r *Round) Judge() {
	var loads []rail.Load
	var judged []*Path
	var sum, solos float64
	all := true
	slowest, fastest := math.Inf(1), 0.0
	live := 0
	for _, p := range r.Paths {
		if p.Peer == nil {
			continue // it carries no load
		}
		rate := 0.0
		if p.Result.Failure == nil && p.Result.Stealing != nil {
			rate = p.Result.Stealing.BytesPerSecond()
			sum, slowest, fastest, live = sum+rate, min(slowest, rate), max(fastest, rate), live+1
		}
		if rate > 0 {
			rate = p.Result.Carried()
		}
		loads, judged = append(loads, p.load(rate)), append(judged, p)
		if p.Result.Failure == nil && p.Result.Solo != nil {
			solos += p.soloRate()
		} else {
			all = all && p.Result.Failure != nil
		}
	}
	if live == 0 {
		return
	}
	for _, m := range r.Res.Missing {
		if l, known := missingLoad(m, r.Paths); known {
			loads = append(loads, l)
		}
	}
	r.Res.Stealing, r.Res.Static = new(sum), new(float64(live)*slowest)
	if live > 1 {
		r.Res.FinishSkew = new(1 - slowest/fastest)
	}
	for i, share := range rail.Shares(loads) {
		if !math.IsNaN(share) && i < len(judged) {
			judged[i].Result.Share = &share
		}
	}
	if imbalance, known := rail.Imbalance(loads); known {
		r.Res.Imbalance = &imbalance
	}
	if all && solos > 0 && live > 1 { // scaling needs two rails
		r.Res.Scaling = new(*r.Res.Stealing / solos)
		if *r.Res.Scaling < result.SharedBelow {
			r.Res.Shared = Shared(r.LivePaths())
		}
	}
}

// group returns the group of paths that this path is compared with. The group's rate is the higher of both ends: a
// port that is down or runs at a lower rate stays in the group of its siblings.
func (p *Path) group() rail.Group {
	g := rail.Group{Role: p.Local.Role, LinkLayer: p.Local.LinkLayer, Rate: p.Local.Status.Limits.Rate}
	if p.Peer != nil {
		g.Rate = max(g.Rate, p.Peer.Rate)
	}
	return g
}

// load returns the traffic of the path as a load, for comparison.
func (p *Path) load(carried float64) rail.Load {
	l := rail.Load{Rate: carried, Group: p.group()}
	if p.Result.Capacity != nil {
		l.Capacity = *p.Result.Capacity
	}
	return l
}

// places returns what paths share, the narrowest first.
func places(paths []*Path) []result.Shared {
	return slices.Concat(Shared(paths), sharing(paths, "PCIe switch", func(p *Path) string {
		_, port := p.Local.PCIAbove()
		return port
	}), sharing(paths, "PCIe root port", func(p *Path) string {
		port, _ := p.Local.PCIAbove()
		return port
	}))
}

// Shared returns what several rails share: a PCIe link, a physical port.
func Shared(paths []*Path) []result.Shared {
	return slices.Concat(
		sharing(paths, "PCIe link", func(p *Path) string { return p.Local.Status.Limits.LinkKey }),
		sharing(paths, "physical port", func(p *Path) string { return p.Local.Status.Limits.PortKey }))
}

// sharing groups paths by key. An empty key is unknown.
func sharing(paths []*Path, what string, key func(*Path) string) (list []result.Shared) {
	for _, p := range paths {
		k := key(p)
		if k == "" {
			continue
		}
		name := what + " " + k
		i := slices.IndexFunc(list, func(s result.Shared) bool { return s.What == name })
		if i < 0 {
			i, list = len(list), append(list, result.Shared{What: name})
		}
		list[i].Rails = append(list[i].Rails, p.Local.Name)
	}
	return slices.DeleteFunc(list, func(s result.Shared) bool { return len(s.Rails) < 2 })
}

// Mismatches returns the components with incompatible versions at both ends. For firmware, one mismatch is enough.
func Mismatches(here, there protocol.Versions, paths []*Path) []result.Mismatch {
	var list []result.Mismatch
	compare := func(component, a, b string, significant func(string) string) {
		if a != "" && b != "" && significant(a) != significant(b) {
			list = append(list, result.Mismatch{Component: component, Here: a, There: b})
		}
	}
	compare("railscope", here.Railscope, there.Railscope, func(v string) string { return firstParts(v, 2) })
	compare("kernel", here.Kernel, there.Kernel, func(v string) string { return firstParts(v, 2) })
	compare("rdma-core", here.RDMACore, there.RDMACore, func(v string) string { return firstParts(v, 1) })
	for _, p := range paths {
		if p.Peer != nil && p.Local.Driver == p.Peer.Driver && len(list) < 16 {
			before := len(list)
			compare("firmware", p.Local.Firmware, p.Peer.Firmware, func(v string) string { return v })
			if len(list) > before {
				list[before].Here = fmt.Sprintf("%s (rail %s)", p.Local.Firmware, p.Local.Name)
				break
			}
		}
	}
	return list
}

// allVersions returns the versions of both ends, with one entry per pair of firmware versions that differs between
// rails.
func allVersions(here, there protocol.Versions, paths []*Path) []result.Mismatch {
	list := []result.Mismatch{{Component: "railscope", Here: here.Railscope, There: there.Railscope},
		{Component: "kernel", Here: here.Kernel, There: there.Kernel},
		{Component: "rdma-core", Here: here.RDMACore, There: there.RDMACore}}
	for _, p := range paths {
		one := result.Mismatch{Component: "firmware", Here: p.Local.Firmware}
		if p.Peer != nil {
			one.There = p.Peer.Firmware
		}
		if (one.Here != "" || one.There != "") && !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// firstParts returns the first n numbers of a version: 6.1 for 6.1.0-56-amd64.
func firstParts(version string, n int) string {
	parts := strings.FieldsFunc(strings.TrimPrefix(version, "v"), func(r rune) bool {
		return r == '.' || r == '-' || r == '+'
	})
	return strings.Join(parts[:min(n, len(parts))], ".")
}
