// Package advice says what follows from the figures of a suite: which rails to use, the variables of NCCL, UCX and NIXL
// for that, and when a further rail or another kind of memory pays.
package advice

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// For returns the advice that the figures of a round and its suite give, in the order in which it is shown. Without
// figures by RDMA there is none.
func For(r result.Result, s suite.Suite) []suite.Advice {
	list := []suite.Advice{}
	if r.Transport != result.RDMA {
		return list
	}
	chosen, text := choose(&r)
	if len(chosen) == 0 {
		return list
	}
	list = append(list, suite.Advice{Text: text, Lines: variables(&r, chosen)})
	for _, text := range []string{sizes(s), caches(s), gpu(s), gradients(s)} {
		if text != "" {
			list = append(list, suite.Advice{Text: text, Lines: []string{}})
		}
	}
	return list
}

// enough is the part of what all rails carry from which fewer rails are as good.
const enough = 0.97

// choose returns the rails that jobs should use, and why.
func choose(r *result.Result) (chosen []*result.RailResult, text string) {
	var left []string
	best, sum := 0.0, 0.0
	for i := range r.Rails {
		one := &r.Rails[i]
		switch {
		case one.Striped != nil:
			chosen, sum = append(chosen, one), sum+one.Striped.BytesPerSecond()
			if one.Solo != nil {
				best = max(best, one.Solo.BytesPerSecond())
			}
		case !one.Unpaired:
			why := cmp.Or(one.Failure, one.Left, one.SoloFailure, r.StripedFailure,
				&result.Failure{Reason: "not_measured"})
			left = append(left, fmt.Sprintf("rail %s (%s)", one.Rail, why.Reason))
		}
	}
	if len(chosen) == 0 {
		return nil, ""
	}
	text = fmt.Sprintf("Use rail %s: it carries %s.", chosen[0].Rail, grid.GigabitsPerSecond(sum))
	if len(chosen) > 1 {
		text = fmt.Sprintf("Use %s: together they carry %s", names(chosen), grid.GigabitsPerSecond(sum))
		if best > 0 {
			text += fmt.Sprintf(", %s times the best one", grid.Ratio(sum/best))
		}
		text += "."
	}
	if few, share := onePerShare(r, chosen); len(few) < len(chosen) && alone(few) >= enough*sum {
		text = fmt.Sprintf("Use %s: the others share %s with them. All %d rails together carry %s, and these %s alone.",
			names(few), share, len(chosen), grid.GigabitsPerSecond(sum), grid.GigabitsPerSecond(alone(few)))
		chosen = few
	}
	if even := forEqualParts(chosen); len(even) < len(chosen) {
		slow := slices.DeleteFunc(slices.Clone(chosen), func(one *result.RailResult) bool {
			return slices.Contains(even, one)
		})
		text = fmt.Sprintf("Use %s, without %s until it is repaired: NCCL and UCX cut transfers in equal parts, and "+
			"so all "+
			"%d rails together reach %s, and these %s.", names(even), names(slow), len(chosen),
			grid.GigabitsPerSecond(equalParts(chosen)), grid.GigabitsPerSecond(equalParts(even)))
		chosen = even
	}
	if len(left) > 0 {
		text += " Without a figure: " + strings.Join(left, ", ") + "."
	}
	return chosen, text
}

// onePerShare returns the first rail of each group that shares hardware, and what they share; rails that share nothing
// stay.
func onePerShare(r *result.Result, rails []*result.RailResult) (few []*result.RailResult, share string) {
	taken := map[string]bool{}
	for _, one := range rails {
		group := one.Rail
		for _, s := range r.Shared {
			if slices.Contains(s.Rails, one.Rail) {
				group, share = s.What, cmp.Or(share, s.What)
			}
		}
		if !taken[group] {
			taken[group], few = true, append(few, one)
		}
	}
	return few, share
}

// forEqualParts returns the rails over which transfers in equal parts are fastest: without those that are so slow that
// the others wait for them.
func forEqualParts(rails []*result.RailResult) []*result.RailResult {
	best := rails
	byRate := slices.SortedStableFunc(slices.Values(rails), func(a, b *result.RailResult) int {
		return cmp.Compare(b.Striped.BytesPerSecond(), a.Striped.BytesPerSecond())
	})
	for n := 1; n < len(byRate); n++ {
		if equalParts(byRate[:n])*pays > equalParts(best) {
			best = byRate[:n]
		}
	}
	return slices.DeleteFunc(slices.Clone(rails), func(one *result.RailResult) bool {
		return !slices.Contains(best,
			one)
	})
}

// equalParts is what rails reach together where each gets the same.
func equalParts(rails []*result.RailResult) float64 {
	slowest := math.Inf(1)
	for _, one := range rails {
		slowest = min(slowest, one.Striped.BytesPerSecond())
	}
	return float64(len(rails)) * slowest
}

// alone is what rails carry, each alone.
func alone(rails []*result.RailResult) (sum float64) {
	for _, one := range rails {
		if one.Solo != nil {
			sum += one.Solo.BytesPerSecond()
		}
	}
	return sum
}

func names(rails []*result.RailResult) string {
	if len(rails) == 1 {
		return "rail " + rails[0].Rail
	}
	var list []string
	for _, one := range rails {
		list = append(list, one.Rail)
	}
	last := len(list) - 1
	return "rails " + strings.Join(list[:last], ", ") + " and " + list[last]
}

// variables returns the lines that make jobs use these rails.
func variables(r *result.Result, rails []*result.RailResult) (lines []string) {
	var ports []string
	indexes := map[int]bool{}
	for _, one := range rails {
		ports = append(ports, fmt.Sprintf("%s:%d", one.Device, max(one.Port, 1)))
		if one.GID != "" && one.GIDIndex > 0 {
			indexes[one.GIDIndex] = true
		}
	}
	list := strings.Join(ports, ",")
	lines = []string{"# NCCL", "export NCCL_IB_HCA='=" + list + "'"}
	switch len(indexes) {
	case 0:
	case 1:
		lines = append(lines, fmt.Sprintf("# before NCCL 2.21 also: export NCCL_IB_GID_INDEX=%d",
			slices.Collect(maps.Keys(indexes))[0]))
	default:
		lines = append(lines, "# before NCCL 2.21 they cannot be used together: no GID index is the same on all of "+
			"them")
	}
	class := ""
	if strings.HasPrefix(r.Class.Source, "configured") {
		lines = append(lines, fmt.Sprintf("export NCCL_IB_TC=%d", r.Class.TrafficClass))
		class = fmt.Sprintf(" UCX_IB_TRAFFIC_CLASS=%d", r.Class.TrafficClass)
	}
	return append(lines, "# UCX, and NIXL and vLLM's NixlConnector over it", "export UCX_NET_DEVICES="+list,
		fmt.Sprintf("export UCX_MAX_RMA_RAILS=%[1]d UCX_MAX_RNDV_RAILS=%[1]d%s", len(rails), class))
}

// rowOf returns a row with a figure.
func rowOf(rows []suite.Row, is func(suite.Row) bool) *suite.Row {
	i := slices.IndexFunc(rows, func(row suite.Row) bool { return row.Goodput != nil && *row.Goodput > 0 && is(row) })
	if i < 0 {
		return nil
	}
	return &rows[i]
}

// ofHost reports whether a row is a write from plain memory of the host, over one rail or over all.
func ofHost(row suite.Row, one bool) bool {
	return row.Transport == string(result.RDMA) && row.Op == string(result.Write) && row.Memory == "host" &&
		row.Size == 0 && (len(row.Rails) == 1) == one
}

// fastest returns the fastest of the rails alone.
func fastest(s suite.Suite) (best *suite.Row) {
	for i := range s.Rows {
		row := &s.Rows[i]
		if row.Goodput != nil && *row.Goodput > 0 && ofHost(*row, true) && (best == nil ||
			*row.Goodput > *best.Goodput) {
			best = row
		}
	}
	return best
}

// pays is how much less a transfer must take to be called faster.
const pays = 0.9

// sizes says from which size on a transfer over all rails is faster than over one. That of one rail is its latency and
// the size at its goodput.
func sizes(s suite.Suite) string {
	one := fastest(s)
	if one == nil || len(one.Latency) == 0 || len(s.Sweep) < 2 || len(s.Sweep[0].Rails) < 2 {
		return ""
	}
	from := -1
	for i, row := range s.Sweep {
		if len(row.Latency) == 0 {
			continue
		}
		alone := one.Latency[0].P50 + float64(row.Size) / *one.Goodput
		switch faster := row.Latency[0].P50 <= pays*alone; {
		case !faster:
			from = -1
		case from < 0:
			from = i
		}
	}
	last := s.Sweep[len(s.Sweep)-1]
	if from < 0 {
		return fmt.Sprintf("Single transfers up to %s are not faster over all rails than over one: further rails pay "+
			"for "+
			"many transfers at once.", last.Name)
	}
	row := s.Sweep[from]
	return fmt.Sprintf("From %s on, a single transfer is faster over all rails: %s µs, and about %s µs over one.",
		row.Name, microseconds(row.Latency[0].P50), microseconds(one.Latency[0].P50 + float64(row.Size) / *one.Goodput))
}

// caches says what all rails save for the largest KV cache that is given as a size, else for the largest of all.
func caches(s suite.Suite) string {
	seconds := map[string]float64{}
	var of *suite.KVCache
	for i := range s.KVCache {
		c := &s.KVCache[i]
		if c.Seconds != nil && c.Row == tables.AllRails && (of == nil || c.Tokens == 0 && (of.Tokens > 0 ||
			c.Bytes > of.Bytes) || of.Tokens > 0 && c.Bytes > of.Bytes) {
			of = c
		}
	}
	if of == nil {
		return ""
	}
	for _, c := range s.KVCache {
		if c.Seconds != nil && c.Model == of.Model && c.Tokens == of.Tokens {
			seconds[c.Row] = *c.Seconds
		}
	}
	all, one, tcp := seconds[tables.AllRails], seconds[tables.OneRail], seconds[tables.OverTCP]
	if one == 0 {
		return ""
	}
	text := fmt.Sprintf("A KV cache of %s takes %s over all rails and %s over one: ", cacheName(*of), span(all),
		span(one))
	if all <= pays*one {
		text += span(one-all) + " saved"
	} else {
		text += "further rails do not pay for it"
	}
	if tcp > 0 {
		text += ", and " + span(tcp) + " over TCP"
	}
	return text + "."
}

func cacheName(c suite.KVCache) string {
	if c.Tokens > 0 {
		return fmt.Sprintf("%s with %d tokens (%s)", terminal.Plain(c.Model), c.Tokens, grid.Size(c.Bytes))
	}
	return terminal.Plain(c.Model)
}

// near is the part of plain host memory from which memory of GPUs is as fast.
const near = 0.9

// gpu says which memory of GPUs to use.
func gpu(s suite.Suite) string {
	best, alone := map[string]float64{}, map[string]float64{}
	for _, row := range s.Rows {
		if row.Transport == string(result.RDMA) && row.Op == string(result.Write) && row.Goodput != nil &&
			row.Size == 0 {
			best[row.Memory] = max(best[row.Memory], *row.Goodput)
			if len(row.Rails) == 1 {
				alone[row.Memory] = max(alone[row.Memory], *row.Goodput)
			}
		}
	}
	host := best["host"]
	for _, direct := range []string{"cuda_dmabuf", "cuda_peermem", "rocm_dmabuf"} {
		switch got := best[direct]; {
		case got == 0 || host == 0:
		case got >= near*host:
			return fmt.Sprintf("Buffers in GPU memory are reached directly (%s): %s, as fast as memory of the host. "+
				"Do not "+
				"stage.", direct, grid.GigabitsPerSecond(got))
		default:
			return fmt.Sprintf("Buffers in GPU memory are reached directly (%s), at %s; memory of the host carries "+
				"%s: look "+
				"at the GPU's distance to the rails (railscope rails).", direct, grid.GigabitsPerSecond(got),
				grid.GigabitsPerSecond(host))
		}
	}
	pinned, staged := best["cuda_host"], best["cuda_staged"]
	if pinned == 0 {
		return ""
	}
	text := fmt.Sprintf("The rails do not reach GPU memory. Allocate buffers as pinned host memory (cudaHostAlloc): %s",
		grid.GigabitsPerSecond(pinned))
	if staged > 0 {
		text += "; GPU memory that is copied through the host carries " + grid.GigabitsPerSecond(staged)
		if one := alone["cuda_staged"]; one > 0 && one < staged && pays*staged <= one {
			text += ", and a further rail does not help it"
		}
		if pinned <= staged/near {
			text = fmt.Sprintf("The rails do not reach GPU memory, and copying it through the host (%s) is as fast as "+
				"pinned "+
				"host memory (%s)", grid.GigabitsPerSecond(staged), grid.GigabitsPerSecond(pinned))
		}
	}
	return text + "."
}

// parameters is the size of the model whose gradients are an example, and bf16Bytes that of each.
const (
	parameters = 7e9
	bf16Bytes  = 2
)

// gradients says how long two nodes take to synchronise gradients, and in which steps that matters. In a ring of two,
// each sends all of them once.
func gradients(s suite.Suite) string {
	row := rowOf(s.Rows, func(row suite.Row) bool { return ofHost(row, false) })
	if row == nil {
		row = fastest(s)
	}
	if row == nil {
		return ""
	}
	const bytes = parameters * bf16Bytes
	took := bytes / *row.Goodput
	text := fmt.Sprintf("Gradients of 7B parameters in bf16 take %s s between two nodes", grid.ThreeDigits(took))
	best := 0.0
	for _, row := range s.Rows {
		if row.Transport == string(result.TCP) && row.Goodput != nil {
			best = max(best, *row.Goodput)
		}
	}
	if best > 0 {
		text += fmt.Sprintf(" by RDMA and %s s by TCP", grid.ThreeDigits(bytes/best))
	}
	return fmt.Sprintf("%s. By RDMA that is below 20 %% of a step that takes at least %s s, and above 40 %% of one "+
		"below "+
		"%s s, unless computing hides it.", text, grid.ThreeDigits(took/grid.GoodShare),
		grid.ThreeDigits(took/grid.FairShare))
}

func microseconds(seconds float64) string {
	return grid.Microseconds(time.Duration(seconds * float64(time.Second)))
}

// span formats a time, in ms where it is short.
func span(seconds float64) string {
	if seconds < 1 {
		return grid.Decimal(1e3*seconds, 0) + " ms"
	}
	return grid.ThreeDigits(seconds) + " s"
}
