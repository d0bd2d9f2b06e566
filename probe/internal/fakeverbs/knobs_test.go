package fakeverbs

import (
	"testing"
	"time"
)

// Every fault of a write has its status, the next write is flushed, and the
// queue pair is in error.
func TestWriteFaults(t *testing.T) {
	for _, tc := range []struct {
		name  string
		knobs Knobs
		bytes int
		want  string // of three writes
	}{
		{"none", Knobs{}, 4096, "0:0/0 1:0/0 2:0/0"},
		{"nothing to write", Knobs{}, 0, "0:0/0 1:0/0 2:0/0"},
		{"down", Knobs{Down: true}, 8, "0:12/129 1:5/249 2:5/249"},
		{"blocked", Knobs{Blocked: true}, 8, "0:12/129 1:5/249 2:5/249"},
		{"dropped after so much", Knobs{DropAfter: 8192}, 4096, "0:0/0 1:0/0 2:12/129"},
		{"too large", Knobs{DropLarger: 1024}, 1025, "0:12/129 1:5/249 2:5/249"},
		{"not too large", Knobs{DropLarger: 1024}, 1024, "0:0/0 1:0/0 2:0/0"},
		{"every second", Knobs{FailEvery: 2, FailStatus: 11, FailVendor: 3}, 8, "0:0/0 1:11/3 2:5/249"},
		{"every third, as it is by itself", Knobs{FailEvery: 3}, 8, "0:0/0 1:0/0 2:12/0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, a, b := pair(t, Knobs{})
			f.Set("A", "mlx5_0", func(k *Knobs) { *k = tc.knobs })
			if got, _ := a.write(b, tc.bytes, 3); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// A write takes as long as the wire needs, and wires may be shared.
func TestTime(t *testing.T) {
	f, a, b := pair(t, Knobs{Rate: 40 << 20})
	compare := func(name string, got, want time.Duration) {
		t.Helper()
		if got < want-10*time.Millisecond || got > want+200*time.Millisecond {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	got, took := a.write(b, size, 4)
	if got != "0:0/0 1:0/0 2:0/0 3:0/0" {
		t.Fatal(got)
	}
	compare("4 MiB at 40 MiB/s", took, 100*time.Millisecond)
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Rate, k.Latency = 0, 50*time.Millisecond })
	_, took = a.write(b, 8, 4)
	compare("latency", took, 50*time.Millisecond)
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Down, k.RetryTimeout = true, 80*time.Millisecond })
	_, took = a.write(b, 8, 1)
	compare("retry", took, 80*time.Millisecond)
}
