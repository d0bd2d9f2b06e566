package sampler

import (
	"slices"

	"github.com/railscope/railscope/collector"
)

// GPUPeaks is the peak of a GPU's memory in use, in bytes.
type GPUPeaks struct {
	Index         int
	Start, Minute uint64 // since sampling began; in the last 60 s
}

// gpuHistories has the peaks of all GPUs. The sampler's mutex protects it.
type gpuHistories struct {
	list []*gpuHistory // in order of index
	busy condition     // whether any GPU computes
	n    int           // seconds added
}

type gpuHistory struct {
	index int
	start uint64
	last  [60]uint64 // memory in use plus 1, by second modulo length; 0 if unknown
}

// add adds a second. known means that list has all GPUs.
func (b *gpuHistories) add(list []collector.GPUUse, known bool) {
	b.n++
	for _, h := range b.list {
		h.last[b.n%len(h.last)] = 0
	}
	b.busy = condition{met: known && len(list) == 0, known: known && len(list) == 0} // without GPUs, traffic decides
	for _, g := range list {
		b.busy.known = b.busy.known || g.BusyKnown
		b.busy.met = b.busy.met || g.BusyKnown && g.Busy
		if !g.UsedKnown {
			continue
		}
		at, found := slices.BinarySearchFunc(b.list, g.Index, func(h *gpuHistory, i int) int { return h.index - i })
		if !found {
			b.list = slices.Insert(b.list, at, &gpuHistory{index: g.Index})
		}
		h := b.list[at]
		h.start = max(h.start, g.Used)
		h.last[b.n%len(h.last)] = g.Used + 1
	}
}

// appendTo appends the peaks of the GPUs whose memory was known in the last minute.
func (b *gpuHistories) appendTo(to []GPUPeaks) []GPUPeaks {
	for _, h := range b.list {
		if minute := slices.Max(h.last[:]); minute > 0 {
			to = append(to, GPUPeaks{h.index, h.start, minute - 1})
		}
	}
	return to
}
