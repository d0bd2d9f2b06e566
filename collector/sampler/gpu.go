package sampler

import "slices"

// GPU is what a GPU holds and does at one moment.
type GPU struct {
	Index     int
	Used      uint64 // bytes of memory in use
	UsedKnown bool
	Busy      bool // it computes
	BusyKnown bool
}

// peakSeconds is how far the short peak reaches back.
const peakSeconds = 60

// GPUPeaks is the most memory that a GPU had in use, in bytes.
type GPUPeaks struct {
	Index         int
	Start, Minute uint64 // since sampling began; in the last 60 s
}

// gpuHistories keeps the peaks of all GPUs. The sampler's mutex protects it.
type gpuHistories struct {
	list []*gpuHistory // in order of index
	busy condition     // whether any GPU computes
}

type gpuHistory struct {
	index int
	start uint64
	last  [peakSeconds]uint64 // plus one, by second modulo length; 0 where it was not known
	n     int                 // seconds added
}

// readGPUs adds what the GPUs hold now.
func (s *Sampler) readGPUs() {
	list, known := s.opts.GPUs()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gpus.add(list, known)
}

// add adds a second. known says that the list holds all GPUs.
func (b *gpuHistories) add(list []GPU, known bool) {
	b.busy = condition{}
	for _, h := range b.list {
		h.last[h.n%peakSeconds] = 0
		h.n++
	}
	for _, g := range list {
		if g.BusyKnown {
			b.busy.known = true
			b.busy.met = b.busy.met || g.Busy
		}
		if !g.UsedKnown {
			continue
		}
		h := b.of(g.Index)
		h.start = max(h.start, g.Used)
		h.last[(h.n+peakSeconds-1)%peakSeconds] = g.Used + 1
	}
	if known && len(list) == 0 {
		b.busy = condition{met: true, known: true} // no GPU: traffic alone decides
	}
}

func (b *gpuHistories) of(index int) *gpuHistory {
	at, found := slices.BinarySearchFunc(b.list, index, func(h *gpuHistory, i int) int { return h.index - i })
	if !found {
		b.list = slices.Insert(b.list, at, &gpuHistory{index: index, n: 1})
	}
	return b.list[at]
}

// appendTo appends the peaks of the GPUs whose use was known in the last minute.
func (b *gpuHistories) appendTo(to []GPUPeaks) []GPUPeaks {
	for _, h := range b.list {
		if minute := slices.Max(h.last[:]); minute > 0 {
			to = append(to, GPUPeaks{h.index, h.start, minute - 1})
		}
	}
	return to
}
