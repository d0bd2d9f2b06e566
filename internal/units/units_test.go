package units

import "testing"

func TestUnits(t *testing.T) {
	for want, got := range map[string]string{
		"200 Gb/s":   Gigabits(25e9),
		"0.03 Gb/s":  Gigabits(3.75e6),
		"98.77 Gb/s": Gigabits(12.34625e9),
		"0.5 MiB":    Mebibytes(512 << 10),
		"1024.0 MiB": Mebibytes(1 << 30),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
