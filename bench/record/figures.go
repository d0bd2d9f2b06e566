package record

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
)

// Figures compares the figures that the command printed over RDMA and over TCP. Only the user knows whether higher is
// better.
type Figures struct {
	RDMA       *float64 `json:"rdma"` // medians
	TCP        *float64 `json:"tcp"`
	Ratio      *float64 `json:"ratio"`       // RDMA ÷ TCP; nil if one is not above 0
	RDMASpread *float64 `json:"rdma_spread"` // (highest − lowest) ÷ median; nil for one run
	TCPSpread  *float64 `json:"tcp_spread"`
	Clear      bool     `json:"clear"` // the ranges of both do not overlap
}

// ParseFigure parses the number that --figure found; nil if it is not a finite number.
func ParseFigure(text string) *float64 {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// figures returns the figures of the runs over a transport.
func (c Comparison) figures(transport string) (list []float64) {
	for _, r := range c.Runs {
		if r.Transport == transport && r.ExitCode == 0 && r.Figure != nil {
			list = append(list, *r.Figure)
		}
	}
	return list
}

// newFigures compares figures if every run printed one.
func newFigures(rdma, tcp []float64, rdmaRuns, tcpRuns int) *Figures {
	if len(rdma) < max(rdmaRuns, 1) || len(tcp) < max(tcpRuns, 1) {
		return nil
	}
	f := &Figures{RDMA: new(stats.Median(rdma)), TCP: new(stats.Median(tcp)), RDMASpread: spread(rdma),
		TCPSpread: spread(tcp),
		Clear:     apart(rdma, tcp)}
	if r := *f.RDMA / *f.TCP; *f.RDMA > 0 && *f.TCP > 0 && !math.IsInf(r, 0) {
		f.Ratio = &r
	}
	return f
}

func (f Figures) sentence() string {
	values := fmt.Sprintf("%.4g against %.4g", *f.RDMA, *f.TCP)
	if f.Ratio != nil {
		values = grid.Ratio(*f.Ratio) + " × that over TCP, " + values
	}
	switch {
	case !f.Clear:
		return "the figure does not differ beyond the runs' own spread (" + values + ")"
	case f.Ratio == nil:
		return "over RDMA and over TCP the figure differs (" + values + ")"
	case *f.Ratio >= worthIt:
		return "over RDMA the figure is higher (" + values + ")"
	case *f.Ratio > 1:
		return "over RDMA the figure is higher (" + values + "), " + notWorthIt
	}
	return "over RDMA the figure is lower (" + values + "), which is worse unless less is better"
}

// spread returns (highest − lowest) ÷ median; nil for fewer than 2 runs.
func spread(list []float64) *float64 {
	if len(list) < 2 {
		return nil
	}
	m := stats.Median(list)
	if m <= 0 {
		return nil
	}
	return new((slices.Max(list) - slices.Min(list)) / m)
}

func fourDigits(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.4g", *v)
}

func percent(v *float64) string {
	if v == nil {
		return ""
	}
	return terminal.Percent(*v)
}
