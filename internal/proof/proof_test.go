package proof

import (
	"testing"
	"time"
)

// TestTraffic: traffic proves a rail if it reached the expected part of what is expected.
func TestTraffic(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, tc := range []struct {
		peak, expected, part float64
		proved               bool
	}{{70, 100, 0.7, true}, {69, 100, 0.7, false}, {120, 100, 0.7, true}, {70, 0, 0.7, false}, {70, 100, 0, false},
		{0, 100, 0.7, false}} {
		p := Traffic(tc.peak, at, tc.expected, tc.part)
		if (p != nil) != tc.proved || p != nil && *p != (Proof{ByTraffic, tc.peak, at}) {
			t.Errorf("%v: %+v", tc, p)
		}
	}
}

func TestLater(t *testing.T) {
	early, late := &Proof{ByBurst, 1, time.Unix(1, 0)}, &Proof{ByTraffic, 2, time.Unix(2, 0)}
	for _, tc := range []struct{ a, b, want *Proof }{{nil, nil, nil}, {early, nil, early}, {nil, early, early},
		{early, late, late}, {late, early, late}} {
		if got := Later(tc.a, tc.b); got != tc.want {
			t.Errorf("%v and %v: %v", tc.a, tc.b, got)
		}
	}
}

func TestText(t *testing.T) {
	p := &Proof{ByTraffic, 46.4e9, time.Unix(1000, 0)}
	for seconds, want := range map[int64]string{1059: "371.2 Gb/s by traffic, less than 1 min ago",
		900: "371.2 Gb/s by traffic, less than 1 min ago", 1060: "371.2 Gb/s by traffic, 1 min ago",
		1000 + 7500: "371.2 Gb/s by traffic, 2 h 5 min ago"} {
		if got := p.Text(time.Unix(seconds, 0)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (*Proof)(nil).Text(time.Now()); got != "" {
		t.Error(got)
	}
}
