package storage

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var small = Options{Size: 1<<20 + 5, Part: 256 << 10, Streams: 2, Timeout: time.Minute, Root: "/nonexistent"}

// roomy returns a target on a file system of 1 GiB, half of it free.
func roomy(path string) *Directory {
	d := NewDirectory(path)
	d.statfs = func(path string, st *unix.Statfs_t) error {
		err := unix.Statfs(path, st)
		st.Bsize, st.Blocks, st.Bavail = 4096, 1<<18, 1<<17
		return err
	}
	return d
}

// corrupting changes a byte of the last part, and cancels if requested.
type corrupting struct {
	*Directory
	cancel context.CancelFunc
}

func (c corrupting) Finish(ctx context.Context) error {
	if c.cancel != nil {
		c.cancel()
		return ctx.Err()
	}
	return os.WriteFile(c.part(4), []byte("wrong"), 0o600)
}

func TestDirectory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		name, failure string
		ctx           context.Context
		target        func(dir string) Target
		size          int64
	}{
		{name: "whole", target: func(d string) Target { return roomy(d) }},
		{name: "no space", failure: "20 %", size: 1 << 60, target: func(d string) Target { return roomy(d) }},
		{name: "missing", failure: "no such file", target: func(d string) Target { return roomy(d + "/x") }},
		{name: "corrupt", failure: "not what was written", target: func(d string) Target { return corrupting{roomy(d), nil} }},
		{name: "interrupted", failure: "canceled", ctx: ctx,
			target: func(d string) Target { return corrupting{roomy(d), cancel} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, o := t.TempDir(), small
			if c.size > 0 {
				o.Size, o.Part = c.size, 1<<20
			}
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			r := Measure(c.ctx, dir, c.target(dir), o)
			if c.failure == "" && (r.Failure != "" || r.Bytes != o.Size || r.SaveSeconds <= 0 || r.LoadSeconds <= 0) ||
				!strings.Contains(r.Failure, c.failure) {
				t.Errorf("%+v, want failure %q", r, c.failure)
			}
			if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// TestPattern: every changed byte is found, even in a block too short for a stamp, and so is a misplaced part.
func TestPattern(t *testing.T) {
	for _, size := range []int{1, 15, 16, 4096, 4100, 3*4096 + 17} {
		p := newPattern(int64(3*4096 + 17))
		data := p.buffer()[:size]
		p.stamp(data, 7)
		if err := p.verify(data, 7); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if size >= stampSize && p.verify(data, 8) == nil {
			t.Errorf("%d bytes: another part passes", size)
		}
		for i := range data {
			data[i]++
			if p.verify(data, 7) == nil {
				t.Errorf("%d bytes: a changed byte %d passes", size, i)
			}
			data[i]--
		}
	}
}
