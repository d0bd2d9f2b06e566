package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/terminal"
)

// partOfExpected is the part of what is expected of a rail that makes traffic a proof: the default of
// probe.min_of_expected, and railscope:threshold:goodput_ratio of the rules.
const partOfExpected = 0.7

// RailProof is what last showed how much a rail can carry.
type RailProof struct {
	Rail
	Proof *proof.Proof `json:"proof"` // null: nothing, as far as Prometheus has it now
}

// peak is the highest rate of a rail's traffic in one direction, with its age in seconds.
type peak struct{ rate, age float64 }

func (r *reader) addBurst(s *model.Sample) { r.bursts[Pair{NodeOf(s), r.peer(s)}] = float64(s.Value) }

func (r *reader) peak(s *model.Sample, set func(*peak, float64)) {
	key := flow{r.rail(s), string(s.Metric["direction"])}
	if r.peaks[key] == nil {
		r.peaks[key] = &peak{}
	}
	set(r.peaks[key], float64(s.Value))
}

// flow is the traffic of a rail in one direction.
type flow struct {
	Rail
	direction string
}

// prove sets the proofs of rails whose ports are up, as of a time.
func (r *reader) prove(now time.Time) {
	before := func(seconds float64) time.Time { return now.Add(-time.Duration(seconds * float64(time.Second))) }
	last := map[Rail]*proof.Proof{}
	for path, round := range r.state.Rounds {
		age, known := r.bursts[path.Pair]
		rail := Rail{path.From, path.Rail}
		if known && round.Goodput > 0 && (last[rail] == nil || last[rail].At.Before(before(age))) {
			last[rail] = proof.Later(last[rail], &proof.Proof{By: proof.ByBurst, Rate: round.Goodput, At: before(age)})
		}
	}
	for of, p := range r.peaks {
		last[of.Rail] = proof.Later(last[of.Rail], proof.Traffic(p.rate, before(p.age), r.expected[of.Rail],
			partOfExpected))
	}
	for rail, up := range r.state.PortUp {
		if up {
			r.state.Proofs = append(r.state.Proofs, RailProof{rail, last[rail]})
		}
	}
	slices.SortFunc(r.state.Proofs, func(a, b RailProof) int { return a.Compare(b.Rail) })
}

// maxUnproved is the number of rails without a proof that are named.
const maxUnproved = 4

// proofs says in one sentence how many rails have a proof; empty if no rail is known.
func (s Shown) proofs() string {
	if len(s.Rails) == 0 {
		return ""
	}
	by := map[string]int{}
	var oldest *proof.Proof
	var without []string
	for _, r := range s.Rails {
		if r.Proof == nil {
			without = append(without, "rail "+r.Rail.Rail+" of "+r.String())
			continue
		}
		by[r.Proof.By]++
		if oldest == nil || r.Proof.At.Before(oldest.At) {
			oldest = r.Proof
		}
	}
	text := fmt.Sprintf("proof of what rails can carry: %d of %s", len(s.Rails)-len(without),
		terminal.Count(len(s.Rails), "rail"))
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(by)) {
		kinds = append(kinds, fmt.Sprintf("%d by %s", by[kind], kind))
	}
	if oldest != nil {
		text += fmt.Sprintf(" (%s), the oldest %s", strings.Join(kinds, ", "), oldest.Ago(s.Time))
	}
	if n := len(without); n > 0 && oldest != nil {
		text += "; without: " + strings.Join(without[:min(n, maxUnproved)], ", ")
		if n > maxUnproved {
			text += fmt.Sprintf(" and %d more", n-maxUnproved)
		}
	}
	return text
}
