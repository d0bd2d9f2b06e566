package nccl

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func seeds(f *testing.F) (all [][]byte) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.log")
	if err != nil || len(files) == 0 {
		f.Fatal("no transcripts", err)
	}
	for _, path := range files {
		log, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, log)
	}
	return all
}

// FuzzParse: for any line, labels are short and printable, and kinds and statuses are known.
func FuzzParse(f *testing.F) {
	for _, log := range seeds(f) {
		for line := range bytes.Lines(log) {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		parse(line, func(e event) {
			if !utf8.Valid(e.name) || len(e.name) > maxName || bytes.ContainsAny(e.name, "\n\x00\x1b\"{}") {
				t.Errorf("%q puts %q into a label", line, e.name)
			}
			if e.kind == network && len(e.name) == 0 || e.kind == 0 || e.kind > forced {
				t.Errorf("%q is %+v", line, e)
			}
			if e.kind == warned != slices.ContainsFunc(warnRules(),
				func(r warnRule) bool { return r.kind == e.warning }) ||
				e.status != "" && !slices.Contains(statusNames(), e.status) {
				t.Errorf("%q is %+v", line, e)
			}
			if e.count < 0 || e.count > 999999 {
				t.Errorf("%q has %d nodes", line, e.count)
			}
		})
	})
}

// FuzzPieces: a log yields the same series whether it is written at once or in pieces.
func FuzzPieces(f *testing.F) {
	for _, log := range seeds(f) {
		f.Add(log, uint(len(log)/3), uint(len(log)/2))
	}
	f.Add(append(bytes.Repeat([]byte("x"), 3*bufferSize), "\nh NCCL INFO Using network IB\n"...), uint(bufferSize),
		uint(2*bufferSize+1))
	f.Fuzz(func(t *testing.T, log []byte, a, b uint) {
		n := uint(len(log))
		a, b = min(a, n), min(b, n)
		pieces := [][]byte{log[:min(a, b)], log[min(a, b):max(a, b)], append(bytes.Clone(log[max(a, b):]), '\n')}
		path := filepath.Join(t.TempDir(), "j.log")
		follow := func(pieces ...[]byte) []string {
			jobs := newJobs(newTable())
			g, err := newGlob(path)
			if err != nil {
				t.Fatal(err)
			}
			fo := newTailer([]glob{g}, jobs)
			defer fo.close()
			_ = os.Remove(path)
			for i, p := range pieces {
				file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := file.Write(p); err != nil {
					t.Fatal(err)
				}
				file.Close()
				if i == 0 {
					fo.before = map[fileID]int64{} // treat all lines as new
					fo.list()
				}
				if _, err := fo.pass(); err != nil {
					t.Fatal(err)
				}
			}
			return series(jobs.emit)
		}
		if diff := cmp.Diff(follow(bytes.Join(pieces, nil)), follow(pieces...)); diff != "" {
			t.Errorf("%q (-at once +in pieces)\n%s", pieces, diff)
		}
	})
}
