package testenv

import (
	"os"
	"testing"
)

func TestSetup(t *testing.T) {
	t.Setenv("TMPDIR", "")
	t.Setenv("GORACE", "")
	Setup()
	want := ""
	if usable(memory) {
		want = memory
	}
	if got := os.Getenv("TMPDIR"); got != want {
		t.Errorf("TMPDIR=%q, want %q", got, want)
	}
	if got := os.Getenv("GORACE"); got != "atexit_sleep_ms=0" {
		t.Errorf("GORACE=%q", got)
	}
	t.Setenv("TMPDIR", "/var/tmp")
	t.Setenv("GORACE", "halt_on_error=1")
	Setup()
	if dir, race := os.Getenv("TMPDIR"), os.Getenv("GORACE"); dir != "/var/tmp" || race != "halt_on_error=1" {
		t.Errorf("what was set is TMPDIR=%q GORACE=%q now", dir, race)
	}
}

func TestUsable(t *testing.T) {
	for _, dir := range []string{"/proc", "/no/such/directory", "/dev/null"} {
		if usable(dir) {
			t.Errorf("%s is taken for a tmpfs to write to", dir)
		}
	}
}
