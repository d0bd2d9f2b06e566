package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane/lanetest"
)

// reports collects the reports of a store.
type reports struct {
	mu    sync.Mutex // protects lines
	lines []string
}

func (r *reports) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(err))
}

func (r *reports) expect(t *testing.T, parts ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) != len(parts) {
		t.Fatalf("reported %q, want %d reports", r.lines, len(parts))
	}
	for i, part := range parts {
		if !strings.Contains(r.lines[i], part) {
			t.Errorf("reported %q, want %q in it", r.lines[i], part)
		}
	}
}

func write(t *testing.T, dir, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func closed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestSections: the next process reads the sections, and unknown ones are kept.
func TestSections(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	var r reports
	s := Open(dir, r.report)
	s.Set("rails", []int{1, 2})
	closed(t, s)
	write(t, dir, strings.Replace(read(t, dir, fileName), "{", `{"later": {"kept": [true, 1e3]},`, 1))
	s = Open(dir, r.report)
	var rails []int
	if found, err := s.Get("rails", &rails); !found || err != nil || !cmp.Equal(rails, []int{1, 2}) {
		t.Error(found, err, rails)
	}
	if found, err := s.Get("none", &rails); found || err != nil {
		t.Error(found, err)
	}
	s.Set("rails", []int{3})
	closed(t, s)
	want := "{\n  \"later\": {\n    \"kept\": [\n      true,\n      1e3\n    ]\n  },\n  \"rails\": [\n    3\n  ],\n" +
		"  \"version\": 1\n}\n"
	if diff := cmp.Diff(want, read(t, dir, fileName)); diff != "" {
		t.Error(diff)
	}
	var names []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode() != 0o600 {
			t.Error(e.Name(), info.Mode(), err)
		}
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{fileName, lockName}, names); diff != "" {
		t.Error(diff)
	}
	r.expect(t)
}

// TestSetAside: a file that this version did not write is kept under another name and reported, and the store
// works.
func TestSetAside(t *testing.T) {
	for name, tt := range map[string]struct {
		make    func(t *testing.T, path string)
		content string
		said    string
	}{
		"not JSON":   {content: "{\"version\": 1", said: "unexpected end of JSON"},
		"empty":      {content: "", said: "unexpected end of JSON"},
		"null":       {content: "null", said: "no version"},
		"no version": {content: "{\"rails\": []}", said: "no version"},
		"version 0":  {content: "{\"version\": 0}", said: "no version"},
		"newer": {content: "{\"version\": 7, \"rails\": {}}",
			said: "version 7; this railscope supports version 1"},
		"more than one": {content: "{\"version\": 1}{}", said: "invalid character"},
		"too large": {content: "{\"version\": 1, \"a\": \"" + strings.Repeat("a", maxSize) + "\"}",
			said: "more than 1048576 bytes"},
		"link": {make: func(t *testing.T, path string) {
			fatal(t, os.Symlink("/etc/passwd", path))
		}, said: "symbolic link"},
		"pipe": {make: func(t *testing.T, path string) {
			fatal(t, unix.Mkfifo(path, 0o600))
		}, said: "not a regular file"},
		"directory": {make: func(t *testing.T, path string) {
			fatal(t, os.Mkdir(path, 0o700))
		}, said: "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.make != nil {
				tt.make(t, filepath.Join(dir, fileName))
			} else {
				write(t, dir, tt.content)
			}
			var reader reports
			if found, err := OpenReadOnly(dir, reader.report).Get("rails", new(any)); found || err != nil {
				t.Error(found, err)
			}
			reader.expect(t, tt.said)
			if _, err := os.Lstat(filepath.Join(dir, fileName+backupSuffix)); err == nil {
				t.Error("a reader has moved the file")
			}
			var r reports
			s := Open(dir, r.report)
			r.expect(t, tt.said)
			if _, err := os.Lstat(filepath.Join(dir, fileName+backupSuffix)); err != nil {
				t.Error(err)
			}
			s.Set("rails", 1)
			closed(t, s)
			if got := read(t, dir, fileName); got != "{\n  \"rails\": 1,\n  \"version\": 1\n}\n" {
				t.Error(got)
			}
			r.expect(t, tt.said, "<nil>")
		})
	}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReject: a copy of the file is kept if a section is rejected.
func TestReject(t *testing.T) {
	dir := t.TempDir()
	const before = "{\"version\": 1, \"rails\": 5, \"later\": 6}"
	write(t, dir, before)
	var r reports
	s := Open(dir, r.report)
	var list []int
	_, err := s.Get("rails", &list)
	if err == nil {
		t.Fatal("5 is a list")
	}
	s.Reject("rails", err)
	s.Set("rails", []int{})
	closed(t, s)
	if got := read(t, dir, fileName+backupSuffix); got != before {
		t.Error(got)
	}
	if got := read(t, dir, fileName); got != "{\n  \"later\": 6,\n  \"rails\": [],\n  \"version\": 1\n}\n" {
		t.Error(got)
	}
	r.expect(t, "kept as state.json.bak", "<nil>")
}

// TestSetAsideByUser: the whole file of another node is kept under another name, and none of it is used. A process
// that only reads leaves it in place.
func TestSetAsideByUser(t *testing.T) {
	dir := t.TempDir()
	const before = "{\"version\": 1, \"rails\": 5, \"later\": 6}"
	write(t, dir, before)
	var r reports
	reader := OpenReadOnly(dir, r.report)
	reader.SetAside(errors.New("not ours"))
	var n int
	if found, err := reader.Get("rails", &n); found || err != nil || read(t, dir, fileName) != before {
		t.Error(found, err)
	}
	r.expect(t, "is ignored: not ours")
	s := Open(dir, r.report)
	s.SetAside(errors.New("not ours"))
	if found, err := s.Get("later", &n); found || err != nil {
		t.Error(found, err)
	}
	s.Set("rails", 7)
	closed(t, s)
	if got := read(t, dir, fileName+backupSuffix); got != before {
		t.Error(got)
	}
	if got := read(t, dir, fileName); got != "{\n  \"rails\": 7,\n  \"version\": 1\n}\n" {
		t.Error(got)
	}
	r.expect(t, "is ignored: not ours", "not ours; kept as state.json.bak", "<nil>")
}

// TestSecondProcess: while one process owns the directory, another one reads. After the first has ended, the other
// one writes and keeps its sections.
func TestSecondProcess(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first := Open(dir, nil)
		first.Set("rails", "first")
		var r reports
		second := Open(dir, r.report)
		if !errors.Is(second.Err(), ErrLocked) {
			t.Error(second.Err())
		}
		second.Set("expected", "second")
		time.Sleep(time.Second) // its write has failed
		first.Set("kmsg", "first")
		closed(t, first)
		if got := read(t, dir, fileName); strings.Contains(got, "second") || !strings.Contains(got, "kmsg") {
			t.Error(got)
		}
		second.Set("expected", "second, again")
		closed(t, second)
		var got map[string]any
		if err := json.Unmarshal([]byte(read(t, dir, fileName)), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"version": 1., "rails": "first", "kmsg": "first", "expected": "second, again"},
			got); diff != "" {
			t.Error(diff)
		}
		r.expect(t, "another railscope uses it", "<nil>")
	})
}

// TestOtherProcessEnds: a process that found the directory locked takes it over when the other one has ended, also
// without a change.
func TestOtherProcessEnds(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first := Open(dir, nil)
		first.Set("rails", "first")
		var r reports
		second := Open(dir, r.report)
		time.Sleep(3 * retryEvery)
		closed(t, first)
		time.Sleep(retryEvery + time.Second)
		if err := second.Err(); err != nil {
			t.Error(err)
		}
		third := Open(dir, nil)
		if !errors.Is(third.Err(), ErrLocked) {
			t.Errorf("the directory is not locked: %v", third.Err())
		}
		if got := read(t, dir, fileName); !strings.Contains(got, "first") {
			t.Error(got)
		}
		r.expect(t, "another railscope uses it", "<nil>")
		closed(t, second)
		if err := third.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOwnerStays: files that root writes belong to the owner of the directory, who must read them: rails are
// forgotten as root, and served as another user. A link to another user's file in place of the new file is not
// followed.
func TestOwnerStays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root writes for others")
	}
	const user, group = 65532, 65533
	parent := t.TempDir()
	dir, others := filepath.Join(parent, "state"), filepath.Join(parent, "others")
	fatal(t, os.WriteFile(others, []byte("theirs"), 0o600))
	fatal(t, os.Mkdir(dir, 0o700))
	fatal(t, os.Link(others, filepath.Join(dir, fileName+".new")))
	fatal(t, os.Chown(dir, user, group))
	s := Open(dir, nil)
	s.Set("rails", 1)
	closed(t, s)
	for name, want := range map[string][2]uint32{filepath.Join(dir, fileName): {user, group},
		filepath.Join(dir, lockName): {user, group}, others: {0, 0}} {
		var st unix.Stat_t
		fatal(t, unix.Lstat(name, &st))
		if got := [2]uint32{st.Uid, st.Gid}; got != want || st.Mode&0o777 != 0o600 {
			t.Errorf("%s belongs to %d, mode %#o, want %d", name, got, st.Mode, want)
		}
	}
	if got := read(t, parent, "others"); got != "theirs" {
		t.Errorf("a file of others is overwritten: %q", got)
	}
}

// TestUnusable: a directory that cannot be used is reported once, and changes are kept in memory.
func TestUnusable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	fatal(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "below"), filepath.Join(t.TempDir(), "no", "parent")} {
		var r reports
		s := Open(dir, r.report)
		for i := range 3 {
			s.Set("rails", i)
		}
		var got int
		if found, err := s.Get("rails", &got); !found || err != nil || got != 2 {
			t.Error(dir, found, err, got)
		}
		if err := s.Close(); err == nil || !strings.Contains(err.Error(), "kept in memory") {
			t.Error(dir, err)
		}
		r.expect(t, "kept in memory")
	}
}

// TestUnreadable: a file that cannot be read is not replaced.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads every file")
	}
	dir := t.TempDir()
	write(t, dir, "{\"version\": 1, \"rails\": 1}")
	fatal(t, os.Chmod(filepath.Join(dir, fileName), 0))
	s := Open(dir, nil)
	s.Set("rails", 2)
	if err := s.Close(); !errors.Is(err, os.ErrPermission) {
		t.Error(err)
	}
	fatal(t, os.Chmod(filepath.Join(dir, fileName), 0o600))
	if got := read(t, dir, fileName); !strings.Contains(got, ": 1}") {
		t.Error(got)
	}
}

// TestRetry: a failed write is retried.
func TestRetry(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "state")
		var r reports
		s := Open(dir, r.report)
		fatal(t, os.Rename(dir, dir+".away"))
		s.Set("rails", 1)
		time.Sleep(time.Second)
		fatal(t, os.Rename(dir+".away", dir))
		time.Sleep(retryEvery)
		if got := read(t, dir, fileName); !strings.Contains(got, "rails") {
			t.Error(got)
		}
		r.expect(t, "no such file or directory", "<nil>")
		closed(t, s)
	})
}

// TestHangs: a file system that does not answer delays the start briefly. It is not written when it answers again,
// because its content is unknown.
func TestHangs(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "{\"version\": 1, \"rails\": 1}")
		var r reports
		s := newStore(dir, r.report)
		release := make(chan struct{})
		start := time.Now()
		s.lanes.Run(time.Millisecond, []string{dir}, func(string) error { <-release; return nil })
		s.open()
		for range 3 {
			s.Set("rails", 2)
			time.Sleep(retryEvery)
		}
		if took := time.Since(start); took > 4*retryEvery {
			t.Errorf("took %v", took)
		}
		close(release)
		time.Sleep(2 * retryEvery)
		_ = s.Close()
		if got := read(t, dir, fileName); !strings.Contains(got, ": 1}") {
			t.Error(got)
		}
		r.expect(t, "does not answer")
	})
}

// TestTooMuch: a file that would be too large to be read is not written.
func TestTooMuch(t *testing.T) {
	dir := t.TempDir()
	s := Open(dir, nil)
	s.Set("rails", 1)
	closed(t, s)
	s = Open(dir, nil)
	s.Set("more", strings.Repeat("x", maxSize))
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Error(err)
	}
	if got := read(t, dir, fileName); !strings.Contains(got, "rails") {
		t.Error("the file that was there is gone")
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "{}", "null", "{\"version\":1}", "{\"version\":1,\"rails\":[{}]}",
		"{\"version\":2}", "{\"version\":1e0}", "[1]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sections, err := parse(data)
		if err != nil && !errors.As(err, &unusable{}) {
			t.Error(err)
		}
		for name, raw := range sections {
			if !json.Valid(raw) || name == "version" {
				t.Errorf("section %q: %q", name, raw)
			}
		}
	})
}
