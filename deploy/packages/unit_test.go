package packages

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// TestUnitBounds: the service cannot take memory or threads from jobs, may open files for 64 ports, and has more time
// to stop than it needs.
func TestUnitBounds(t *testing.T) {
	unit := read(t, "../systemd/railscope.service")
	for _, tc := range []struct {
		key, unit   string
		least, most int
	}{
		{"MemoryMax", "M", 192, 1024},
		{"TasksMax", "", 256, 1024},
		{"LimitNOFILE", "", 100 * 64, 1 << 20},
		{"TimeoutStopSec", "s", 16, 60},
	} {
		m := regexp.MustCompile(`(?m)^` + tc.key + `=(\d+)` + tc.unit + `$`).FindStringSubmatch(unit)
		if m == nil {
			t.Errorf("no %s", tc.key)
			continue
		}
		if n, err := strconv.Atoi(m[1]); err != nil || n < tc.least || n > tc.most {
			t.Errorf("%s=%s%s, want %d to %d", tc.key, m[1], tc.unit, tc.least, tc.most)
		}
	}
}

// TestUnitFilter checks the system calls that the unit allows, in the order of systemd.exec(5): the first list is the
// default, later ones change it.
func TestUnitFilter(t *testing.T) {
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^SystemCallFilter=(.*)$`).FindAllStringSubmatch(
		read(t, "../systemd/railscope.service"), -1) {
		got = append(got, m[1])
	}
	// sched_setaffinity is one of @resources. Without it the probe polls from any socket.
	if want := []string{"@system-service", "~@privileged @resources", "sched_setaffinity"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBaseImagePinned: the base image is pinned by digest, since a tag can move.
func TestBaseImagePinned(t *testing.T) {
	if base := regexp.MustCompile(`(?m)^ARG BASE=(.*)$`).FindStringSubmatch(read(t,
		"../container/Dockerfile")); base == nil ||
		!regexp.MustCompile(`^debian:13[.0-9]*-slim@sha256:[0-9a-f]{64}$`).MatchString(base[1]) {
		t.Errorf("the base image is %q", base)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
