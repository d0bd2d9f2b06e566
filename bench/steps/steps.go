// Package steps has the steps of bench --suite: rounds with one peer, each with other measurements, whose results are
// those of one round with all of them.
package steps

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/railscope/railscope/probe/result"
)

// Parts of a suite, as --suite names them.
const (
	Host    = "host"    // plain memory of the host: READ, both directions, messages, sizes, KV caches
	GPU     = "gpu"     // memory that GPUs use
	TCP     = "tcp"     // TCP over the rails
	Bond    = "bond"    // TCP over bonds
	Storage = "storage" // checkpoints
)

// Parts returns all parts, in the order in which they are measured.
func Parts() []string { return []string{Host, GPU, TCP, Bond, Storage} }

// Runs is the number of rounds of each step: enough to know the spread of a figure.
const Runs = 3

// Step is one step: rounds that measure the same.
type Step struct {
	Name   string // unique
	What   string // what it measures, in words
	Extras []result.Extra
}

// Sizes are the sizes that steps measure, in bytes.
type Sizes struct {
	Sweep []int // sizes of transfers
	Pages []int // sizes of the pages of KV caches
}

// The names of steps.
const (
	First   = "round" // each rail alone, all at once, latency, TCP: the round that all others extend
	reads   = "read"
	sweep   = "sweep"
	caches  = "kv-cache"
	gpu     = "gpu"
	tcp     = "tcp"
	bond    = "bond"
	kib4    = 4096
	streams = 8
)

// Of returns the steps of parts. The first one is always made: it shows which rails work.
func Of(parts []string, sizes Sizes) (list []Step) {
	for _, one := range []struct {
		part string
		step Step
	}{
		{"", Step{Name: First, What: "each rail alone, all rails at once, messages of 8 B, TCP"}},
		{Host, Step{Name: reads, What: "READ, both directions at once, messages of 4 KiB", Extras: []result.Extra{
			{Kind: result.Reads}, {Kind: result.Bidirectional}, {Kind: result.Messages, Values: []int{kib4}}}}},
		{Host, Step{Name: sweep, What: "transfers of many sizes",
			Extras: []result.Extra{{Kind: result.Sweep, Values: sizes.Sweep}}}},
		{Host, Step{Name: caches, What: "pages of KV caches",
			Extras: []result.Extra{{Kind: result.KVCache, Values: sizes.Pages}}}},
		{GPU, Step{Name: gpu, What: "memory that GPUs use", Extras: []result.Extra{{Kind: result.GPU}}}},
		{TCP, Step{Name: tcp, What: "TCP with 8 streams per rail, with one stream over one rail, and its latency",
			Extras: []result.Extra{{Kind: result.TCPTime, Values: []int{8, kib4}}, {Kind: result.OneTCP},
				{Kind: result.TCPStreams, Values: []int{streams}}}}},
		{Bond, Step{Name: bond, What: "TCP over bonds", Extras: []result.Extra{{Kind: result.Bond}}}},
	} {
		if one.part == "" || slices.Contains(parts, one.part) {
			list = append(list, one.step)
		}
	}
	return list
}

// Done is a step that was made.
type Done struct {
	Name   string          `json:"name"`
	Extras []result.Extra  `json:"extras"`
	Rounds []result.Result `json:"rounds"` // rounds of a later step lack what all rounds have
}

// Ended reports whether all rounds were made.
func (d Done) Ended() bool { return len(d.Rounds) >= Runs }

// Add adds a round. Of all steps but the first, only what is not in every round is kept.
func (d *Done) Add(r result.Result) {
	if d.Name != First {
		r = result.Result{Peer: r.Peer, Node: r.Node, PeerNode: r.PeerNode, Start: r.Start, Duration: r.Duration,
			Outcome: r.Outcome, Transport: r.Transport, Reason: r.Reason, Detail: r.Detail, Failures: r.Failures,
			Extras: r.Extras}
	}
	d.Rounds = append(d.Rounds, r)
}

// Matches reports whether the step was made with these extras, so that it need not be made again.
func (d Done) Matches(s Step) bool {
	return d.Name == s.Name && slices.EqualFunc(d.Extras, s.Extras, func(a, b result.Extra) bool {
		return a.Kind == b.Kind && slices.Equal(a.Values, b.Values) && slices.Equal(a.Rails, b.Rails) &&
			a.Read == b.Read && slices.Equal(a.Memories, b.Memories)
	})
}

// Ended reports whether all steps were made.
func Ended(list []Done, all []Step) bool {
	return !slices.ContainsFunc(all, func(s Step) bool {
		return !slices.ContainsFunc(list, func(d Done) bool { return d.Matches(s) && d.Ended() })
	})
}

// Kept returns those of the steps that were made that are also asked for now. All are joined with the first one.
func Kept(list []Done, all []Step) []Done {
	return slices.DeleteFunc(list, func(d Done) bool { return !slices.ContainsFunc(all, d.Matches) })
}

// Joined returns the rounds of the first step, each with the extras of one round of each other step, as if one round
// had measured all of them. The last one has the most figures.
func Joined(list []Done) (rounds []result.Result) {
	if len(list) == 0 {
		return nil
	}
	rounds = slices.Clone(list[0].Rounds)
	for i := range rounds {
		rounds[i].Extras = slices.Clone(rounds[i].Extras)
	}
	for _, d := range list[1:] {
		made := slices.Clone(d.Rounds)
		slices.SortStableFunc(made, func(a, b result.Result) int { return cmp.Compare(missing(d, b), missing(d, a)) })
		for i := range made[:min(len(made), len(rounds))] {
			to := &rounds[len(rounds)-1-i]
			to.Extras = append(to.Extras, extras(d, made[len(made)-1-i])...)
		}
	}
	for i := range rounds {
		slices.SortStableFunc(rounds[i].Extras, func(a, b result.Measured) int { return order(a.Kind) - order(b.Kind) })
	}
	return rounds
}

func order(k result.Kind) int { return slices.Index(result.Kinds(), k) }

// missing counts what a round of a step did not measure.
func missing(d Done, r result.Result) (n int) {
	for _, m := range extras(d, r) {
		failed := func(f result.MeasuredFlow) bool { return f.Failure != nil }
		if m.Failure != nil || slices.ContainsFunc(m.Flows, failed) {
			n++
		}
	}
	return n
}

// extras returns the extras of a round. Those that it did not come to have its own failure.
func extras(d Done, r result.Result) []result.Measured {
	list := slices.Clone(r.Extras)
	if r.Outcome == result.OK || r.Outcome == result.Degraded {
		return list // what an extra does not return, this node does not have
	}
	for _, e := range d.Extras {
		if !slices.ContainsFunc(list, func(m result.Measured) bool { return m.Kind == e.Kind }) {
			list = append(list, result.Measured{Kind: e.Kind, Failure: &result.Failure{Stage: "extra",
				Reason: cmp.Or(r.Reason, "other"), Detail: r.Detail}})
		}
	}
	return list
}

// resumedAfter is the time between two rounds from which a suite was not made in one go.
const resumedAfter = time.Hour

// Notes returns how rounds ended that were not as good as those of the first step, and when a suite was not made in one
// go.
func Notes(list []Done) (notes []string) {
	var starts []time.Time
	for _, d := range list {
		for _, r := range d.Rounds {
			starts = append(starts, r.Start)
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	for i := 1; i < len(starts); i++ {
		if starts[i].Sub(starts[i-1]) > resumedAfter {
			notes = append(notes, fmt.Sprintf("resumed: measured until %s and from %s on", starts[i-1].UTC().
				Format(time.DateTime), starts[i].UTC().Format(time.DateTime)))
		}
	}
	for i, d := range list {
		for n, r := range d.Rounds {
			if i == 0 || r.Outcome == result.OK || r.Outcome == list[0].Rounds[0].Outcome {
				continue
			}
			why := r.Detail
			if why == "" && len(r.Failures) > 0 {
				why = r.Failures[0].Error()
			}
			notes = append(notes, fmt.Sprintf("step %s, round %d of %d was %s: %s", d.Name, n+1, len(d.Rounds),
				r.Outcome, cmp.Or(why, string(r.Reason))))
		}
	}
	return notes
}

// Left estimates how long steps take that need so many bursts, from those that were made: needs has the bursts of each
// round of a step, by its name.
func Left(done []Done, next []Step, needs map[string]int) time.Duration {
	var took time.Duration
	bursts, left := 0, 0
	for _, d := range done {
		for _, r := range d.Rounds {
			took, bursts = took+r.Duration, bursts+needs[d.Name]
		}
	}
	for _, s := range next {
		made := 0
		for _, d := range done {
			if d.Matches(s) {
				made = len(d.Rounds)
			}
		}
		left += max(Runs-made, 0) * needs[s.Name]
	}
	if bursts == 0 {
		return 0
	}
	return took / time.Duration(bursts) * time.Duration(left)
}
