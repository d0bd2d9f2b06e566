package sysfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// TestAttr: a file that never existed returns ErrNone, and one that disappeared an error. A value that a driver
// refuses is an error once a minute. A file that is replaced is reopened within a second.
func TestAttr(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counter")
	write := func(text string) func() {
		return func() {
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const none = "none"
	nothing := func() {}
	var a sysfs.Attr
	a.Path = path
	defer a.Close()
	now := time.Now()
	for i, step := range []struct {
		do   func()
		wait time.Duration
		want uint64
		err  string
	}{
		{nothing, 0, 0, none},
		{write("7\n"), sysfs.RefusedFor - time.Second, 0, none}, // not looked for again yet
		{nothing, 1, 7, ""},
		{write("8\n"), 0, 8, ""},
		{write("N/A (no PMA)\n"), 0, 0, sysfs.ReasonUnsupported},
		{write("9\n"), sysfs.RefusedFor - time.Second, 0, none},
		{nothing, 1, 9, ""},
		{write("x\n"), 0, 0, sysfs.ReasonInvalid},
		{nothing, 0, 0, sysfs.ReasonInvalid},
		{func() { os.Remove(path) }, 0, 0, sysfs.ReasonVanished},
		{write("10\n"), 0, 10, ""},
	} {
		step.do()
		now = now.Add(max(step.wait, time.Second))
		got, err := a.Counter(now)
		reason := ""
		if errors.Is(err, sysfs.ErrNone) {
			reason = none
		} else if err != nil {
			reason = sysfs.Reason(err)
		}
		if got != step.want || reason != step.err {
			t.Errorf("step %d: %d, %v; want %d, %q", i, got, err, step.want, step.err)
		}
	}
}
