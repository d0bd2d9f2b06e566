package rail

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/railscope/railscope/internal/sysfs"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{
		"400 Gb/sec (4X NDR)":   50e9,
		"2.5 Gb/sec (1X SDR)":   312.5e6,
		"10 Gb/sec (1X FDR10)":  1.25e9,
		"100 Gb/sec":            12.5e9,
		"0 Gb/sec (0X)":         0, // 0 means an error
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
		got, err := ParseRate(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestPortState: a state is a number, a colon and a word; other content is an error with a reason.
func TestPortState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "class/infiniband/mlx5_0/ports/1/state")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	p := NewPort(t.TempDir(), Rail{Dir: filepath.Join(path, "../../.."), Port: 1}, nil)
	defer p.Close()
	for text, want := range map[string]string{
		"4: ACTIVE\n": "4 ", "1: DOWN": "1 ", "5:LinkUp": "5 ", " 4 : ACTIVE": "4 ", "0: <unknown>": "0 ",
		"ACTIVE": "0 invalid", "4": "0 invalid", "256: X": "0 invalid", "-1: X": "0 invalid", ": ACTIVE": "0 empty",
		"": "0 empty", "99999999999999999999: X": "0 out_of_range",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		state, err := p.State()
		reason := ""
		if err != nil {
			reason = sysfs.Reason(err)
		}
		if got := fmt.Sprintf("%d %s", state, reason); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// FuzzRate: any content is a plausible rate or an error.
func FuzzRate(f *testing.F) {
	for _, seed := range []string{"400 Gb/sec (4X NDR)\n", "N/A (no PMA)\n", "", "\xff:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if rate, err := ParseRate(text); rate < 0 || rate > 125e12 || rate != 0 == (err != nil) {
			t.Errorf("%q: %v, %v", text, rate, err)
		}
	})
}
