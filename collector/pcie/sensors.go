package pcie

import (
	"path/filepath"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/text"
)

// sensors are the temperatures of a function. They are a separate device, so that firmware that does not answer
// does not affect the link's values.
type sensors struct {
	table *table
	key   key
	dir   string
	facts collector.Facts
	errs  []error // errors of the last read
}

func (s *Source) openSensors(k key) *sensors {
	return &sensors{table: s.table, key: k, dir: filepath.Join(s.sysfs, "bus/pci/devices", k.address)}
}

func (s *sensors) Close() {}

// Read implements [collector.Device]. Faults are added outside the facts, which would be read again after a fault.
func (s *sensors) Read(r *collector.Reading) {
	s.facts.Read(r, func() { s.readFacts(r) })
	for _, err := range s.errs {
		r.Fail(err)
	}
}

func (s *sensors) readFacts(r *collector.Reading) {
	var list []rail.Temperature
	list, s.errs = rail.ReadTemperatures(s.dir)
	seen := map[string]bool{}
	for _, t := range list {
		t.Sensor = text.Label(t.Sensor)
		if seen[t.Sensor] {
			continue
		}
		seen[t.Sensor] = true
		row, labels := s.table.adapter, collector.RailLabels(s.key.rails, s.key.address, t.Sensor)
		if t.Module {
			row = s.table.module
		}
		r.Record(row, t.Celsius, nil, labels...)
		if t.Critical > 0 && t.Celsius >= t.Critical {
			r.Record(s.table.excess, t.Celsius-t.Critical, nil, labels...)
		}
	}
}
