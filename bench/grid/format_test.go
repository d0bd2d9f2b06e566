package grid

import (
	"testing"
	"time"
)

func TestMicros(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.00", 1: "0.00", 5: "0.01", 2134: "2.13", 99_994: "99.99", 99_996: "100.0", 123_456: "123.5",
		999_940: "999.9", 999_960: "1000", time.Second - 1000: "999999", time.Second: "1000000",
	} {
		if got := Microseconds(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestSmallFigures(t *testing.T) {
	for v, want := range map[float64]string{12.5e9: "100.00", 125e6: "1.00", 124.4e6: "1.00", 124e6: "0.9920",
		3.74e6: "0.0299", 0: "0.0000"} {
		if got := Gigabits(v); got != want {
			t.Errorf("%v B/s: %s Gb/s, want %s", v, got, want)
		}
	}
}
