package fleetgen

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// Template is the exposition of a machine. A generated node gets the series from it that no other code has added,
// with constant counters.
type Template []Row

// Row is a series of a template.
type Row struct {
	name   string
	pairs  []string
	counts bool
	v      float64
}

// NewRow returns a gauge.
func NewRow(name string, v float64, pairs ...string) Row { return Row{name: name, v: v, pairs: pairs} }

// ReadTemplate reads a file of exporter/testdata.
func ReadTemplate(file string) (list Template, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, err := textparse.New(text, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return nil, err
	}
	kind := model.MetricTypeUnknown
	for {
		entry, err := p.Next()
		switch {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case entry == textparse.EntryType:
			_, kind = p.Type()
		case entry == textparse.EntrySeries:
			var l labels.Labels
			p.Labels(&l)
			r := Row{name: l.Get(model.MetricNameLabel), counts: kind == model.MetricTypeCounter}
			_, _, r.v = p.Series()
			switch {
			case r.counts || r.name == "railscope_nccl_fallback":
				r.v = 0
			case r.name == "railscope_source_success": // the captured machine has no NVML
				r.v = 1
			}
			l.Range(func(l labels.Label) {
				if l.Name != model.MetricNameLabel {
					r.pairs = append(r.pairs, l.Name, l.Value)
				}
			})
			list = append(list, r)
		}
	}
}

func (n *node) template() {
	for _, r := range n.Template {
		n.add(r.counts, r.name, is(r.v), r.pairs...)
	}
}
