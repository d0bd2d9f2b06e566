package sampler

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCapturedFile: of a captured tree the file that the name means is read, and
// Opens changes with the device, not with each file that takes another's place.
func TestCapturedFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "counters")
	path := filepath.Join(dir, "port_rcv_data")
	write(t, "1\n", path)
	f := newCapturedFile(path)
	defer f.Close()
	buf := make([]byte, 64)
	for _, step := range []struct {
		name    string
		do      func() error
		content string // none where it cannot be read
		another bool   // device than before
	}{
		{"at first", func() error { return nil }, "1\n", true},
		{"written", func() error { return os.WriteFile(path, []byte("2\n"), 0o644) }, "2\n", false},
		{"replaced", func() error { return replace(path, "3\n") }, "3\n", false},
		{"replaced again", func() error { return replace(path, "4\n") }, "4\n", false},
		{"gone", func() error { return os.Remove(path) }, "", false},
		{"back", func() error { return os.WriteFile(path, []byte("5\n"), 0o644) }, "5\n", true},
		{"another directory", func() error {
			if err := os.Rename(dir, dir+".was"); err != nil {
				return err
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(path, []byte("6\n"), 0o644)
		}, "6\n", true},
		{"no directory", func() error { return os.RemoveAll(dir) }, "", false},
	} {
		time.Sleep(12 * time.Millisecond) // longer than the granularity of a file system's clock
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		opens := f.Opens()
		b, err := f.Read(buf)
		if string(b) != step.content || (err == nil) != (step.content != "") {
			t.Errorf("%s: %q, %v, want %q", step.name, b, err, step.content)
		}
		if got := f.Opens() != opens; got != step.another {
			t.Errorf("%s: another device: %v, want %v", step.name, got, step.another)
		}
	}
}

// replace puts another file in the place of one.
func replace(path, content string) error {
	if err := os.WriteFile(path+".new", []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
