package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func sample() *Bundle {
	b := New("railscope-spark-01", time.Unix(1764000000, 0), 3<<20)
	b.Add("doctor.txt", "what is wrong", text("all is well\n"))
	b.Add("empty.txt", "nothing", text(""))
	b.Add("half.txt", "half of it", func(w io.Writer) error {
		_ = text("one half")(w)
		return errors.New("the other is\nlost")
	})
	b.Add("facts.json", "what was read", text(strings.Repeat("x", 1500)))
	b.Add("metrics.txt", "metrics", text(strings.Repeat("y", 4<<20)))
	b.Note("status.json: no --state.dir")
	return b
}

const manifest = `FILE         SIZE     HOLDS
doctor.txt   12 B     what is wrong
half.txt     8 B      half of it
facts.json   1.5 KiB  what was read
metrics.txt  3.0 MiB  metrics

Not complete:
  half.txt: the other is lost
  metrics.txt: cut after 3.0 MiB: the limit of the archive is reached
  status.json: no --state.dir
`

// TestBundle: the archive has the files of its manifest, and only its owner may read it, for any umask.
func TestBundle(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	b := sample()
	if diff := cmp.Diff(manifest, b.Manifest()); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	if err := b.Create(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Error(info.Mode(), err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil || h.Mode != 0o600 || !h.ModTime.Equal(b.at) {
			t.Error(err, h)
		}
		if strings.HasSuffix(h.Name, "manifest.txt") && string(content) != manifest {
			t.Errorf("the manifest within it is %s", content)
		}
		got = append(got, fmt.Sprintf("%s %d", h.Name, len(content)))
	}
	want := []string{fmt.Sprintf("railscope-spark-01/manifest.txt %d", len(manifest)), "railscope-spark-01/doctor.txt 12",
		"railscope-spark-01/half.txt 8", "railscope-spark-01/facts.json 1500",
		fmt.Sprintf("railscope-spark-01/metrics.txt %d", 3<<20-1520)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
}

// TestCreate: an existing file is not overwritten, not even through a link, and an incomplete archive is removed.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a"), filepath.Join(dir, "link")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "new"), link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		if err := sample().Create(p); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), p) {
			t.Error(err)
		}
	}
	if content, _ := os.ReadFile(path); string(content) != "mine" {
		t.Errorf("it was overwritten: %q", content)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("the link was followed")
	}
	if err := sample().Create(filepath.Join(dir, "none", "a")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	bad := sample()
	bad.files[0].name = strings.Repeat("x", 10) + "\x00" // no archive can hold this name
	if err := bad.Create(filepath.Join(dir, "bad")); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(filepath.Join(dir, "bad")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a half of it stays:", err)
	}
}
