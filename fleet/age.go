package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/common/model"
)

// Old is a pair that is too old to be judged.
type Old struct {
	Node          // node that started the rounds
	Peer string   `json:"peer"`
	Age  *float64 `json:"age_seconds"` // age of the last round that measured; null if unknown
}

// why returns the reason for leaving the pair out.
func (o Old) why() string {
	if o.Age == nil {
		return "the age of the last round is not known"
	}
	return fmt.Sprintf("the last round ended %v ago", time.Duration(*o.Age*float64(time.Second)).Round(time.Second))
}

// Recent returns the answers without pairs whose last round is older than maxAge or of unknown age, and those pairs. A
// node's own figures are dropped if all of its pairs are, and goodput if the pair's last burst is older. maxAge 0 drops
// nothing.
func (a Answers) Recent(now time.Time, maxAge time.Duration) (Answers, []Old) {
	if maxAge <= 0 {
		return a, nil
	}
	saved := max(now.Sub(a.Time).Seconds(), 0) // time since the query to Prometheus
	age, burst := a.ages(questionAge, saved), a.ages(questionBurst, saved)
	old, fresh := map[Old]Old{}, map[Node]bool{}
	for _, question := range []string{"transport", "rail_up"} {
		for _, s := range a.Answers[question] {
			if s == nil {
				continue
			}
			p := pairOf(s)
			v, known := age[p]
			switch {
			case !known || v != v: // NaN
				old[p] = p
			case v > maxAge.Seconds():
				old[p] = Old{p.Node, p.Peer, &v}
			default:
				fresh[p.Node] = true
			}
		}
	}
	b := a
	b.Answers = map[string]model.Vector{}
	for question, vector := range a.Answers {
		b.Answers[question] = slices.DeleteFunc(slices.Clone(vector), func(s *model.Sample) bool {
			switch {
			case s == nil || question == "leaf":
				return false
			case question == "up" || question == "port_up": // values of the last scrape
				return saved > maxAge.Seconds()
			case question == "loopback" || question == "gpu":
				return !fresh[NodeOf(s)]
			case question == "goodput" && burst[pairOf(s)] > maxAge.Seconds():
				return true
			}
			_, is := old[pairOf(s)]
			return is
		})
	}
	return b, slices.SortedFunc(maps.Values(old), func(a, b Old) int {
		return cmp.Or(a.Compare(b.Node), cmp.Compare(a.Peer, b.Peer))
	})
}

// ages returns the ages of pairs by a question, in seconds, with those of the answers.
func (a Answers) ages(question string, saved float64) map[Old]float64 {
	age := map[Old]float64{}
	for _, s := range a.Answers[question] {
		if s != nil {
			age[pairOf(s)] = float64(s.Value) + saved
		}
	}
	return age
}

// pairOf returns the pair of a sample, by its label peer.
func pairOf(s *model.Sample) Old { return Old{Node: NodeOf(s), Peer: string(s.Metric["peer"])} }
