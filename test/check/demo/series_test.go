package demo

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scrape is the result of one scrape of one node.
type scrape struct {
	at     time.Time
	values map[string]float64 // keyed by series
	counts map[string]bool    // series that only increase
}

// get scrapes a node.
func get(url string) (*scrape, error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(url + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	s := &scrape{at: time.Now(), values: map[string]float64{}, counts: map[string]bool{}}
	kinds := map[string]string{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			kinds[name] = kind
		}
		cut := strings.LastIndex(line, " ")
		if cut < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		series := line[:cut]
		v, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		name, _, _ := strings.Cut(series, "{")
		whole := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		s.values[series], s.counts[series] = v, kinds[name] == "counter" || kinds[whole] == "histogram"
	}
	return s, nil
}

// sum returns the sum of all series with a name.
func (s *scrape) sum(name string) (sum float64) {
	for series, v := range s.values {
		if strings.HasPrefix(series, name+"{") {
			sum += v
		}
	}
	return sum
}

// least returns the minimum of all series with a name.
func (s *scrape) least(name string) float64 {
	least := math.Inf(1)
	for series, v := range s.values {
		if strings.HasPrefix(series, name+"{") {
			least = min(least, v)
		}
	}
	return least
}

// stretch is a pair of scrapes of a node, and the number of samples to which their time is stretched: counters keep
// increasing at the same rate, other values stay.
type stretch struct {
	from, to *scrape
	samples  int
}

// peer matches the label with the machine's address in the demo, which elsewhere has the name of the node.
var peer = regexp.MustCompile(`peer="[^"]*"`)

// series writes the series of a node as if each stretch had continued, in the format of promqltest.
func series(t *testing.T, b *strings.Builder, instance string, stretches []stretch) {
	t.Helper()
	all := map[string]bool{}
	for _, s := range stretches {
		for name := range s.to.values {
			all[name] = true
		}
	}
	for name := range all {
		metric, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		labels = peer.ReplaceAllString(labels, fmt.Sprintf("peer=%q", map[string]string{"1": "2", "2": "1"}[instance]))
		if labels != "" {
			labels = "," + labels
		}
		fmt.Fprintf(b, "  %s{job=\"railscope\",instance=%q%s}", metric, instance, labels)
		last := 0.0
		for _, s := range stretches {
			v, ok := s.to.values[name]
			if !ok {
				fmt.Fprintf(b, " _x%d", s.samples)
				continue
			}
			each := 0.0
			if s.to.counts[name] {
				each = (v - s.from.values[name]) / s.to.at.Sub(s.from.at).Seconds() * every.Seconds()
				if each < 0 {
					t.Errorf("%s of %s went from %v to %v", name, instance, s.from.values[name], v)
				}
				v = max(v, last)
			}
			fmt.Fprintf(b, " %s+%sx%d", number(v), number(each), s.samples-1)
			last = v + each*float64(s.samples)
		}
		b.WriteString("\n")
	}
	n := 0
	for _, s := range stretches {
		n += s.samples
	}
	fmt.Fprintf(b, "  up{job=\"railscope\",instance=%q} 1+0x%d\n", instance, n-1)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
