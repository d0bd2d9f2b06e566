package rdma

import (
	"strconv"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/units"
)

// addExpected adds the rows of the values that each rail should have.
func (t *table) addExpected(port collector.Group) {
	port = port.Ref("docs/expect.md")
	t.expected = port.Gauge("rail_expected_bytes_per_second", "What the rail should carry in one direction with all "+
		"ACTIVE rails loaded: as rail_capacity_bytes_per_second, with the configured port rate, else with the best "+
		"rate and PCIe link that were ever seen of the port. Also of a port that is down. Absent for software "+
		"devices (rxe, siw) without expect.rate.")
	t.expectedInfo = port.With("rate", "pcie", "mtu").Gauge("rail_expected_info", "What the port should be, always 1: "+
		"its rate, PCIe link and RoCE MTU, as configured, else the best ever seen; empty where neither is known.")
}

// emitExpected emits the expected values of each rail, also of a rail that is down or does not answer.
func (s *Source) emitExpected(rails []rail.Rail, limits []rail.Limits, emit func(collector.Sample)) {
	expected := s.Expected(rails)
	for i, v := range expect.Capacities(rails, limits, expected) {
		e, labels := expected[i], []string{rails[i].Name, rails[i].Device, strconv.Itoa(rails[i].Port)}
		if v > 0 {
			emit(collector.Sample{Metric: s.expected, Labels: labels, Value: v})
		}
		if !e.Rate.Known() && !e.Link.Known() && !e.MTU.Known() {
			continue
		}
		var rate, pcie, mtu string
		if e.Rate.Known() {
			rate = units.Gigabits(e.Rate.Value)
		}
		if e.Link.Known() {
			pcie = expect.LinkText(e.Link.Value)
		}
		if e.MTU.Known() {
			mtu = strconv.Itoa(e.MTU.Value)
		}
		emit(collector.Sample{Metric: s.expectedInfo, Labels: append(labels, rate, pcie, mtu), Value: 1})
	}
}
