// Package bundle makes an archive of texts for another person to read. All texts are collected in memory first, so
// that the manifest can be shown before anything is written.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/railscope/railscope/internal/terminal"
)

// Mode is the mode of an archive: only its owner may read what a node reports about itself.
const Mode = 0o600

// Bundle is an archive in memory. Not safe for concurrent use.
type Bundle struct {
	dir   string // directory of all files within the archive
	at    time.Time
	left  int // remaining bytes
	files []file
	notes []string
}

type file struct {
	name, holds string
	text        []byte
}

// New returns an empty bundle of at most limit bytes. Its files are in dir and have the modification time at.
func New(dir string, at time.Time, limit int) *Bundle { return &Bundle{dir: dir, at: at, left: limit} }

// Add adds the text that write writes, cleaned; holds describes its content in the manifest. If write fails or exceeds
// the limit, the part before that is kept, with a note. An empty file is omitted.
func (b *Bundle) Add(name, holds string, write func(io.Writer) error) {
	w := &limited{left: b.left}
	err := write(w)
	if w.cut {
		err = fmt.Errorf("cut after %s: the limit of the archive is reached", size(len(w.text)))
	}
	if err != nil {
		b.Note("%s: %v", name, err)
	}
	if len(w.text) > 0 {
		text := []byte(terminal.PlainLines(string(w.text)))
		b.left = max(b.left-len(text), 0)
		b.files = append(b.files, file{name, holds, text})
	}
}

// Note adds a line to the manifest: what is missing or incomplete, and why.
func (b *Bundle) Note(format string, args ...any) {
	b.notes = append(b.notes, terminal.Plain(fmt.Sprintf(format, args...)))
}

// Manifest returns the list of files, with their sizes and contents, and the notes.
func (b *Bundle) Manifest() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FILE\tSIZE\tHOLDS")
	for _, f := range b.files {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.name, size(len(f.text)), f.holds)
	}
	_ = w.Flush() // a Builder never fails
	if len(b.notes) > 0 {
		fmt.Fprintf(&out, "\nNot complete:\n  %s\n", strings.Join(b.notes, "\n  "))
	}
	return out.String()
}

// size formats a number of bytes for people.
func size(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// ErrExists is returned if the file exists. It is never overwritten.
var ErrExists = errors.New("the file exists and is not overwritten")

// Create writes the archive, with the manifest as its first file, to a new file at path. An incomplete file is
// removed.
func (b *Bundle) Create(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, Mode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("create %s: %w", path, ErrExists)
	case err != nil:
		return err
	}
	// Undo the umask and a default ACL.
	if err = errors.Join(f.Chmod(Mode), b.write(f), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return nil
}

func (b *Bundle) write(w io.Writer) error {
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	manifest := file{name: "manifest.txt", text: []byte(b.Manifest())}
	for _, f := range append([]file{manifest}, b.files...) {
		h := &tar.Header{Name: b.dir + "/" + f.name, Mode: Mode, Size: int64(len(f.text)), ModTime: b.at,
			Format: tar.FormatPAX}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(f.text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}

// limited keeps written data up to a limit.
type limited struct {
	text []byte
	left int
	cut  bool
}

// Write never fails, so that the writer needs no handling of the limit.
func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.text, l.left = append(l.text, b[:n]...), l.left-n
	l.cut = l.cut || n < len(b)
	return len(b), nil
}
