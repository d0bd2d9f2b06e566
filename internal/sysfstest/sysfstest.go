// Package sysfstest unpacks machine captures: one txtar file per machine, in testdata/, whose members are the files
// below sys/ and proc/.
package sysfstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// Root is an unpacked capture.
type Root struct{ Dir string }

// Sys returns the path of the capture's /sys joined with elem.
func (r Root) Sys(elem ...string) string {
	return filepath.Join(append([]string{r.Dir, "sys"}, elem...)...)
}

// Proc returns the path of the capture's /proc joined with elem.
func (r Root) Proc(elem ...string) string {
	return filepath.Join(append([]string{r.Dir, "proc"}, elem...)...)
}

// Unpack writes the capture to a temporary directory. A member whose content is the line "-> target" becomes a
// symbolic link, which sysfs has many of; one whose name ends in a slash becomes an empty directory.
func Unpack(tb testing.TB, file string) Root {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return Write(tb, tb.TempDir(), data)
}

// Write unpacks a capture given as text into dir.
func Write(tb testing.TB, dir string, data []byte) Root {
	tb.Helper()
	for _, f := range txtar.Parse(data).Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if strings.HasSuffix(f.Name, "/") {
			must(tb, os.MkdirAll(path, 0o755))
			continue
		}
		must(tb, os.MkdirAll(filepath.Dir(path), 0o755))
		target, ok := strings.CutPrefix(strings.TrimSpace(string(f.Data)), "-> ")
		if ok && !strings.Contains(target, "\n") {
			must(tb, os.Symlink(target, path))
			continue
		}
		must(tb, os.WriteFile(path, f.Data, 0o644))
	}
	return Root{Dir: dir}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
