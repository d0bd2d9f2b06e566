package facts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// table maps rows to series, each with the values of its labels and its value.
type table map[string][]struct {
	labels []string
	value  float64
}

func (t table) Each(row string, _ []string, each func([]string, float64)) bool {
	for _, s := range t[row] {
		each(s.labels, s.value)
	}
	return t[row] != nil
}

func counters(row string, values ...float64) table {
	t := table{}
	for i, v := range values {
		t[row] = append(t[row], struct {
			labels []string
			value  float64
		}{[]string{string(rune('0' + i))}, v})
	}
	return t
}

// TestHistory: increases cover 10 minutes and resets. A counter that is new starts at its first value.
func TestHistory(t *testing.T) {
	const row = "netdev_carrier_changes_total"
	start := time.Unix(1e9, 0)
	var h History
	for _, tt := range []struct {
		minute int
		values []float64
		want   float64 // increase for rail 0
		over   time.Duration
	}{
		{0, []float64{100}, 0, 0},
		{1, []float64{100}, 0, time.Minute},
		{2, []float64{104}, 4, 2 * time.Minute},
		{3, []float64{2}, 6, 3 * time.Minute}, // the interface was created again
		{4, []float64{3}, 7, 4 * time.Minute},
		{12, []float64{3}, 3, 10 * time.Minute}, // 2 since the reset in minute 3, plus 1
		{30, []float64{50}, 0, 0},               // no readings in the last 10 minutes
		{31, []float64{50, 8}, 0, time.Minute},
	} {
		l := h.Live(counters(row, tt.values...), map[string]string{"rdma": "x"}, start.Add(time.Duration(tt.minute)*time.Minute))
		if got := l.Increased("0", row); got != tt.want || l.Over != tt.over || l.Failed["rdma"] != "x" {
			t.Errorf("minute %d: %v in %v, want %v in %v", tt.minute, got, l.Over, tt.want, tt.over)
		}
	}
	l := h.Live(counters(row, 51, 9, 5), nil, start.Add(32*time.Minute))
	want := []Increase{{Row: row, Labels: []string{"0"}, By: 1}, {Row: row, Labels: []string{"1"}, By: 1}}
	if diff := cmp.Diff(want, l.Increases); diff != "" {
		t.Error(diff)
	}
}

// TestGaps: a series that was absent did not rise from 0. Only one that appears with its first event does.
func TestGaps(t *testing.T) {
	const gap = -1
	for _, tt := range []struct {
		row    string
		values []float64 // values per minute
		want   float64
	}{
		{"netdev_carrier_changes_total", []float64{40, 40, gap, 40}, 0},
		{"netdev_carrier_changes_total", []float64{40, 43, gap}, 3},
		{"netdev_carrier_changes_total", []float64{40, gap, 42}, 2},
		{"netdev_carrier_changes_total", []float64{gap, 40, 41}, 1},
		{"netdev_carrier_changes_total", []float64{40, gap, 2, 3}, 3}, // reset
		{"port_retransmitted_packets_total", []float64{gap, gap, 40}, 0},
		{"kernel_events_total", []float64{gap, 2}, 2},
		{"kernel_events_total", []float64{gap, 2, gap, 2}, 2},
		{"kernel_events_total", []float64{5, gap, 5}, 0},
		{rowXIDs, []float64{gap, gap, 1}, 1},
	} {
		var h History
		var l *Live
		for minute, v := range tt.values {
			series := table{}
			if v != gap {
				series = counters(tt.row, v)
				series[tt.row][0].labels = []string{"0", "x"}
			}
			l = h.Live(series, nil, time.Unix(1e9, 0).Add(time.Duration(minute)*time.Minute))
		}
		label := "0"
		if tt.row == rowXIDs {
			label = "gpu 0"
		}
		if got := l.Increased(label, tt.row); got != tt.want {
			t.Errorf("%s %v: %v, want %v", tt.row, tt.values, got, tt.want)
		}
	}
}

// TestLiveNow: the current state does not depend on the history.
func TestLiveNow(t *testing.T) {
	type series = []struct {
		labels []string
		value  float64
	}
	var h History
	l := h.Live(table{
		"fallback_suspected":            series{{[]string{"single_rail"}, 0}, {[]string{"rdma_idle_tcp_busy"}, 1}},
		"nccl_fallback":                 series{{[]string{"train"}, 1}, {[]string{"eval"}, 0}},
		"rails_imbalance_ratio":         series{{[]string{"transmit"}, 0.1}, {[]string{"transmit"}, 0.4}},
		"config_last_reload_successful": series{{nil, 0}},
		"rail_lagging_bytes_per_second": series{{[]string{"3", "transmit", "rail"}, 4}, {[]string{"1", "transmit", "rail"},
			1}, {[]string{"1", "transmit", "equals"}, 2}, {[]string{"3", "transmit", "equals"}, 9}},

		"rail_temperature_excess_celsius": series{{[]string{"1", "asic"}, 2}},
		"gpu_info":                        series{{[]string{"0", "0000:1b:00.0"}, 1}},
		"gpu_utilization_ratio":           series{{[]string{"0"}, 0.7}},
	}, nil, time.Now())
	want := &Live{Suspected: []string{"rdma_idle_tcp_busy"}, Sockets: []string{"train"},
		Imbalance: map[string]float64{"transmit": 0.4}, Refused: true, Hot: []Hot{{"1", "asic", 2}},
		Lags:    []Lag{{"1", "transmit", 1, 2}, {"3", "transmit", 4, 9}},
		GPULoad: map[string]float64{"0000:1b:00.0": 0.7}}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
}

// TestLiveXIDs: an XID has the subject of the kernel log, even after its GPU was lost.
func TestLiveXIDs(t *testing.T) {
	series := func(xids float64, address string) table {
		list := counters(rowXIDs, xids)
		list[rowXIDs][0].labels = []string{"1", "79"}
		if address != "" {
			list["gpu_info"] = counters("gpu_info", 1)["gpu_info"]
			list["gpu_info"][0].labels = []string{"1", address}
		}
		return list
	}
	var h History
	start := time.Unix(1e9, 0)
	h.Live(series(0, "0000:1b:00.0"), nil, start)
	got := h.Live(series(1, ""), nil, start.Add(time.Minute)).Increases
	for minute := 2; minute < 30; minute++ {
		later := h.Live(series(1, ""), nil, start.Add(time.Duration(minute)*time.Minute)).Increases
		if len(later) != 1 || later[0].Ever != 1 || later[0].By != 0 && minute > 11 {
			t.Errorf("minute %d: %+v, want it to be known", minute, later)
		}
	}
	if diff := cmp.Diff([]Increase{{rowXIDs, []string{"gpu 0000:1b:00.0", "xid_79"}, 1, 1}}, got); diff != "" {
		t.Error(diff)
	}
}
