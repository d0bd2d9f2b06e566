package collector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/railscope/railscope/internal/sysfs"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{
		"400 Gb/sec (4X NDR)":   50e9,
		"2.5 Gb/sec (1X SDR)":   312.5e6,
		"10 Gb/sec (1X FDR10)":  1.25e9,
		"100 Gb/sec":            12.5e9,
		"0 Gb/sec (0X)":         0, // 0 stands for an error
		"-1 Gb/sec":             0,
		"NaN Gb/sec":            0,
		"Inf Gb/sec":            0,
		"1e300 Gb/sec":          0,
		"400 GB/sec":            0,
		"400":                   0,
		"":                      0,
		"Gb/sec":                0,
		"4X NDR 400 Gb/sec (4X": 0,
	} {
		got, err := parseRate(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestParseID(t *testing.T) {
	for text, want := range map[string]string{
		"4: ACTIVE\n": "4 ", "1: DOWN": "1 ", "5:LinkUp": "5 ", " 4 : ACTIVE": "4 ", "0: <unknown>": "0 ",
		"ACTIVE": "0 invalid", "4": "0 invalid", "256: X": "0 invalid", "-1: X": "0 invalid", ": ACTIVE": "0 empty", "": "0 empty",
		"99999999999999999999: X": "0 out_of_range",
	} {
		id, err := parseID([]byte(text))
		reason := ""
		if err != nil {
			reason = sysfs.Reason(err)
		}
		if got := fmt.Sprintf("%d %s", id, reason); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// FuzzSmallFiles: whatever a file holds, a parser gives a number that the text
// can mean or an error with a reason, and never both.
func FuzzSmallFiles(f *testing.F) {
	for _, seed := range []string{"4: ACTIVE\n", "400 Gb/sec (4X NDR)\n", "RxErr 0\nBadTLP 2\nTOTAL_ERR_COR 3\n", "N/A (no PMA)\n", "", "\xff:", "TOTAL_ERR_COR -1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := parseID([]byte(text))
		check(t, text, id == 0 || strings.Contains(text, fmt.Sprint(id)), id != 0, err)
		rate, err := parseRate(text)
		check(t, text, rate >= 0 && rate <= 125e12, rate != 0, err)
		total, err := parseAERTotal([]byte(text), "TOTAL_ERR_COR")
		check(t, text, total == 0 || strings.Contains(text, fmt.Sprint(total)), total != 0, err)
	})
}

func check(t *testing.T, text string, possible, given bool, err error) {
	t.Helper()
	switch {
	case err != nil && given:
		t.Errorf("%q: a number and an error: %v", text, err)
	case err == nil && !possible:
		t.Errorf("%q: a number that it does not hold", text)
	case err != nil && sysfs.Reason(err) == sysfs.ReasonIO:
		t.Errorf("%q: an error without a reason: %v", text, err)
	}
}
