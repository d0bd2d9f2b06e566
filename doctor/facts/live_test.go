package facts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// table are series by row, each the values of its labels and the value.
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

// TestHistory: increases reach ten minutes back, over resets, and include a counter that is new.
func TestHistory(t *testing.T) {
	const row = "netdev_carrier_changes_total"
	start := time.Unix(1e9, 0)
	var h History
	for _, tt := range []struct {
		minute int
		values []float64
		want   float64 // of rail 0
		over   time.Duration
	}{
		{0, []float64{100}, 0, 0},
		{1, []float64{100}, 0, time.Minute},
		{2, []float64{104}, 4, 2 * time.Minute},
		{3, []float64{2}, 6, 3 * time.Minute}, // the interface was created again
		{4, []float64{3}, 7, 4 * time.Minute},
		{12, []float64{3}, 3, 10 * time.Minute}, // 2 since the reset in minute 3, and 1
		{30, []float64{50}, 0, 0},               // nothing is known of the last ten minutes
		{31, []float64{50, 8}, 0, time.Minute},
	} {
		l := h.Live(counters(row, tt.values...), map[string]string{"rdma": "x"}, start.Add(time.Duration(tt.minute)*time.Minute))
		if got := l.Increased("0", row); got != tt.want || l.Over != tt.over || l.Failed["rdma"] != "x" {
			t.Errorf("minute %d: %v in %v, want %v in %v", tt.minute, got, l.Over, tt.want, tt.over)
		}
	}
	l := h.Live(counters(row, 51, 9, 5), nil, start.Add(32*time.Minute))
	if got := h.Live(table{}, nil, start.Add(33*time.Minute)).Increases; got != nil {
		t.Errorf("of what was not read: %+v", got)
	}
	want := []Increase{{row, []string{"0"}, 1}, {row, []string{"1"}, 9}, {row, []string{"2"}, 5}}
	if diff := cmp.Diff(want, l.Increases); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct{ minute, want int }{{34, 1}, {43, 0}} { // at 43, the oldest reading is the one that failed
		l = h.Live(counters(row, 51, 9, 5), nil, start.Add(time.Duration(tt.minute)*time.Minute))
		if got := l.Increased("0", row); got != float64(tt.want) {
			t.Errorf("minute %d, after a reading that failed: %v, want %d", tt.minute, got, tt.want)
		}
	}
}

// TestLiveNow: what holds now, whatever was before.
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

		"rail_temperature_excess_celsius": series{{[]string{"1", "asic"}, 2}},
	}, nil, time.Now())
	want := &Live{Suspected: []string{"rdma_idle_tcp_busy"}, Sockets: []string{"train"},
		Imbalance: map[string]float64{"transmit": 0.4}, Refused: true, Hot: []Hot{{"1", "asic", 2}}}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
}

// TestLiveXIDs: an XID has the subject of the kernel log, also after its GPU was lost.
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
	if diff := cmp.Diff([]Increase{{rowXIDs, []string{"gpu 0000:1b:00.0", "xid_79"}, 1}}, got); diff != "" {
		t.Error(diff)
	}
}
