package probe

import (
	"fmt"
	"math"
	"strings"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/worker"
)

// lowScaling is below what the sum of the solos rails share a bottleneck.
const lowScaling = 0.9

// judge says how even the stealing burst was, and how the rails together
// compare with each alone. A path that broke has carried nothing.
func (r *round) judge() {
	var loads []rail.Load
	var judged []*path
	var solos float64
	all := true
	for _, p := range r.paths {
		if p.peer == nil {
			continue // no rail of the peer's to share the load with
		}
		rate := 0.0
		if p.result.Stealing != nil && p.result.Failure == nil {
			rate = p.result.Stealing.BytesPerSecond()
		}
		loads, judged = append(loads, p.load(rate)), append(judged, p)
		if p.result.Failure == nil && p.result.Solo != nil {
			solos += p.result.Solo.BytesPerSecond()
		} else {
			all = all && p.result.Failure != nil
		}
	}
	if len(loads) == 0 || r.res.Stealing == nil {
		return
	}
	for i, share := range rail.Shares(loads) {
		if !math.IsNaN(share) {
			judged[i].result.Share = &share
		}
	}
	if imbalance, known := rail.Imbalance(loads); known {
		r.res.Imbalance = &imbalance
	}
	if all && solos > 0 {
		scaling := *r.res.Stealing / solos
		r.res.Scaling = &scaling
		if scaling < lowScaling {
			r.res.Shared = shared(r.livePaths())
		}
	}
}

// load is what the path carried, for comparison. Its rate is the greater of both
// ends': a port that is down or has trained down stays with its siblings.
func (p *path) load(carried float64) rail.Load {
	l := rail.Load{Group: rail.Group{LinkLayer: p.local.LinkLayer, Rate: max(p.local.status.Limits.Rate, p.peer.Rate)},
		Rate: carried}
	if p.result.Capacity != nil {
		l.Capacity = *p.result.Capacity
	}
	return l
}

// shared finds what several rails hang on: a PCIe link, a physical port.
func shared(paths []*path) []Shared {
	var list []Shared
	for _, kind := range []struct {
		what string
		key  func(rail.Limits) string
	}{
		{"PCIe link", func(l rail.Limits) string { return l.LinkKey }},
		{"physical port", func(l rail.Limits) string { return l.PortKey }},
	} {
		var keys []string
		rails := map[string][]string{}
		for _, p := range paths {
			if key := kind.key(p.local.status.Limits); key != "" {
				if rails[key] == nil {
					keys = append(keys, key)
				}
				rails[key] = append(rails[key], p.local.Name)
			}
		}
		for _, key := range keys {
			if len(rails[key]) > 1 {
				list = append(list, Shared{Rails: rails[key], What: kind.what + " " + key})
			}
		}
	}
	return list
}

// equalParts is what a static burst of total bytes came to: its goodput, and its finish skew, 1 − slowest rail's rate ÷
// fastest's. Where the burst was stopped before, the rates tell how long the parts would have taken.
func equalParts(done worker.BurstDone, total int64) (rate, skew *float64) {
	var most, least float64 // seconds for a part
	part := float64(total) / float64(len(done.Rails))
	for i, b := range done.Rails {
		if b.Bytes == 0 || b.Last <= b.First {
			return nil, nil
		}
		took := (b.Last - b.First).Seconds() * part / float64(b.Bytes)
		if i == 0 || took < least {
			least = took
		}
		most = max(most, took)
	}
	if rate = goodput(done); done.Bytes < total && most > 0 {
		rate = positive(float64(total) / most)
	}
	if len(done.Rails) > 1 {
		v := 1 - least/most
		skew = &v
	}
	return rate, skew
}

// mismatches are the components whose versions differ between both ends in a
// way that matters: not in what only a build changes.
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
				break // one is enough to look
			}
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
