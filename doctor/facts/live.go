package facts

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/fingerprint"
)

// Live holds what only a running railscope knows: the exported values, and how their counters moved.
type Live struct {
	Over      time.Duration // window of the increases; 0 if the counters were read once
	Increases []Increase    // increases with By or Ever above 0
	Suspected []string      // current reasons of fallback_suspected
	Sockets   []string      // NCCL jobs that use sockets
	Hot       []Hot
	Imbalance map[string]float64 // by direction
	Shares    []Share            // shares of rails in the load of their group's best one
	Lags      []Lag              // rails that are slower than their equals beside even traffic
	GPULoad   map[string]float64 // PCI address → utilisation, 0 to 1
	Failed    map[string]string  // source → reason of an incomplete read
	Refused   bool               // whether the last configuration was refused
	// Faults are the times in which error counters rose and then stood still, by name of the rail.
	Faults map[string][]fingerprint.Fault
}

// Increase is the rise of a row's counters with equal labels.
type Increase struct {
	Row    string // row of the exporter's table, without the namespace
	Labels []string
	By     float64
	// Ever is the rise since the first examination, for series that appear with their first event; else 0.
	Ever float64
}

// Hot is a sensor of a rail's adapter or module at or above its critical temperature.
type Hot struct {
	Rail, Sensor string
	Excess       float64 // degrees Celsius above the critical temperature
}

// Share is a rail's load as a share of the best rail's.
type Share struct {
	Rail, Direction string
	Value           float64
}

// Lag is the highest rate of a rail that lags, and the median of those of its equals, in bytes per second.
type Lag struct {
	Rail, Direction string
	Rate, Equals    float64
}

// Increased returns the total rise of these rows for series whose first label has this value.
func (l *Live) Increased(label string, rows ...string) (sum float64) {
	for _, i := range l.Increases {
		if i.Labels[0] == label && slices.Contains(rows, i.Row) {
			sum += i.By
		}
	}
	return sum
}

// Series provides the series of the last scrape.
type Series interface {
	// Each calls each for every series of a row, with its value and the values of these labels, which must not be kept.
	Each(row string, labels []string, each func(values []string, v float64)) bool
}

// LiveRows returns the counters of [Live.Increases], with the labels that identify their series.
func LiveRows() map[string][]string {
	rail, netdev := []string{"rail"}, []string{"rail", "netdev"} // a bond has several interfaces
	return map[string][]string{
		"kernel_events_total":               {"subject", "event"},
		rowXIDs:                             {"gpu", "xid"},
		"netdev_carrier_changes_total":      netdev,
		"port_link_downed_total":            rail,
		"port_transmit_packets_total":       rail,
		"port_transmit_bytes_total":         rail,
		"probe_rail_bytes_total":            rail,
		"port_packet_sequence_errors_total": rail,
		"port_retransmitted_packets_total":  rail,
		"port_adaptive_retransmits_total":   rail,

		"port_priority_bytes_total":       {"rail", "netdev", "priority", "direction"},
		"port_pause_seconds_total":        {"rail", "netdev", "priority", "direction"},
		"port_global_pause_seconds_total": {"rail", "netdev", "direction"},
		"port_pause_storm_events_total":   {"rail", "netdev", "severity"},
		"netdev_phy_discards_total":       {"rail", "netdev", "direction"},

		"netdev_phy_symbol_errors_total":        netdev,
		"netdev_fec_uncorrectable_blocks_total": netdev,
		"port_symbol_errors_total":              rail,
		"port_link_error_recovery_total":        rail,
		"port_receive_packets_total":            rail,
		"port_out_of_sequence_packets_total":    rail,
		"port_out_of_buffer_total":              rail,
		"port_receive_discards_total":           rail,
		"port_rnr_naks_received_total":          rail,
		"port_rnr_retries_exceeded_total":       rail,
		"port_transport_retries_exceeded_total": rail,
		"port_ack_timeouts_total":               rail,

		"port_requester_completion_errors_total":             rail,
		"port_requester_completion_flush_errors_total":       rail,
		"port_requester_remote_invalid_request_errors_total": rail,
		"port_requester_remote_access_errors_total":          rail,
	}
}

// rowXIDs is recorded under the subject and event that the kernel log has for the same XID.
const rowXIDs = "gpu_xid_events_total"

// startsAtZero reports whether a series of the row appears with its first event. Others appear with their device.
func startsAtZero(key string) bool {
	row, _, _ := strings.Cut(key, "\xff")
	return row == "kernel_events_total" || row == rowXIDs
}

// liveWindow is the maximum age of the readings that increases are computed from.
const liveWindow = 10 * time.Minute

// History keeps the counters of the last 10 minutes. Not safe for concurrent use.
type History struct {
	past []moment           // oldest first
	ever map[string]float64 // row and labels → Increase.Ever
	gpus map[string]string  // label gpu → PCI address, also of lost GPUs
}

type moment struct {
	at     time.Time
	values map[string]float64 // row and labels → value; the last one of a series that is absent
}

// Live returns the current state of the series and adds them to the history. failed maps sources to the reason of their
// failure.
func (h *History) Live(series Series, failed map[string]string, now time.Time) *Live {
	l := &Live{Failed: maps.Clone(failed), Imbalance: map[string]float64{}, GPULoad: map[string]float64{}}
	current := moment{now, map[string]float64{}}
	for row, labels := range LiveRows() {
		series.Each(row, labels, func(values []string, v float64) {
			current.values[row+"\xff"+strings.Join(values, "\xff")] += v
		})
	}
	if n := len(h.past); n > 0 {
		for key, v := range h.past[n-1].values { // a device that does not answer in time has no series
			if _, read := current.values[key]; !read {
				current.values[key] = v
			}
		}
	}
	h.past = slices.DeleteFunc(h.past, func(m moment) bool { return now.Sub(m.at) > liveWindow })
	if h.gpus == nil {
		h.gpus, h.ever = map[string]string{}, map[string]float64{}
	}
	series.Each("gpu_info", []string{"gpu", "pci_address"}, func(values []string, _ float64) {
		h.gpus[strings.Clone(values[0])] = strings.Clone(values[1])
	})
	series.Each("gpu_utilization_ratio", []string{"gpu"}, func(values []string, v float64) {
		l.GPULoad[h.gpus[values[0]]] = v
	})
	if len(h.past) > 0 {
		l.Over = now.Sub(h.past[0].at)
		for _, key := range slices.Sorted(maps.Keys(current.values)) {
			by := h.increase(key, current.values[key])
			if startsAtZero(key) {
				h.ever[key] += rise(h.past[len(h.past)-1].values[key], current.values[key])
			}
			if by > 0 || h.ever[key] > 0 {
				parts := strings.Split(key, "\xff")
				if parts[0] == rowXIDs {
					parts[1], parts[2] = "gpu "+cmp.Or(h.gpus[parts[1]], parts[1]), "xid_"+parts[2]
				}
				l.Increases = append(l.Increases, Increase{parts[0], parts[1:], by, h.ever[key]})
			}
		}
	}
	h.past = append(h.past, current)
	l.readNow(series)
	return l
}

// readNow reads what does not depend on earlier readings.
func (l *Live) readNow(series Series) {
	holding := func(row, label string, to *[]string) {
		series.Each(row, []string{label}, func(values []string, v float64) {
			if v == 1 {
				*to = append(*to, values[0])
			}
		})
	}
	holding("fallback_suspected", "reason", &l.Suspected)
	holding("nccl_fallback", "job", &l.Sockets)
	series.Each("rails_imbalance_ratio", []string{"direction"}, func(values []string, v float64) {
		l.Imbalance[values[0]] = max(l.Imbalance[values[0]], v)
	})
	series.Each("rail_share_ratio", []string{"rail", "direction"}, func(values []string, v float64) {
		l.Shares = append(l.Shares, Share{strings.Clone(values[0]), strings.Clone(values[1]), v})
	})
	l.Lags = lags(series)
	series.Each("rail_temperature_excess_celsius", []string{"rail", "sensor"}, func(values []string, v float64) {
		l.Hot = append(l.Hot, Hot{strings.Clone(values[0]), strings.Clone(values[1]), v})
	})
	series.Each("config_last_reload_successful", nil, func(_ []string, v float64) { l.Refused = v == 0 })
}

// lags returns the rails that lag, sorted.
func lags(series Series) []Lag {
	found := map[[2]string]Lag{}
	series.Each("rail_lagging_bytes_per_second", []string{"rail", "direction", "of"}, func(values []string, v float64) {
		key := [2]string{strings.Clone(values[0]), strings.Clone(values[1])}
		of := found[key]
		of.Rail, of.Direction = key[0], key[1]
		if values[2] == "rail" {
			of.Rate = v
		} else {
			of.Equals = v
		}
		found[key] = of
	})
	return slices.SortedFunc(maps.Values(found), func(a, b Lag) int {
		return cmp.Or(cmp.Compare(a.Rail, b.Rail), cmp.Compare(a.Direction, b.Direction))
	})
}

// increase returns the rise of a counter in the window, including resets. A counter that is new began at 0 if it
// appears with its first event, else at its first value.
func (h *History) increase(key string, now float64) (sum float64) {
	before, known := 0.0, startsAtZero(key)
	for i, m := range h.past {
		v, read := m.values[key]
		if known && read && i > 0 {
			sum += rise(before, v)
		}
		if read {
			before, known = v, true
		}
	}
	if !known {
		return 0
	}
	return sum + rise(before, now)
}

// rise returns the increase between two readings; after a reset, the whole new value.
func rise(before, after float64) float64 {
	if after < before {
		return after
	}
	return after - before
}
