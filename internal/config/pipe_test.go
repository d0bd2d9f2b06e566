package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPipe: a pipe is read. A pipe without a writer fails one load, and the next load reads the file that replaces
// it.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "railscope.yml")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	var l Loader
	if _, err := l.Load(path); err == nil || !strings.Contains(err.Error(), "nobody writes") {
		t.Errorf("%v", err)
	}
	go func() { _ = os.WriteFile(path, []byte("rails: {include: ^a}\n"), 0o600) }() // waits for the reader
	if c, err := l.Load(path); err != nil || c.Rails.Include.String() != "^a" {
		t.Errorf("%+v, %v", c, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("rails: {include: ^b}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := l.Load(path); err != nil || c.Rails.Include.String() != "^b" {
		t.Errorf("%+v, %v", c, err)
	}
}
