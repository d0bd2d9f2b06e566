package nccl

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// chatter holds typical lines of a log.
const chatter = `hgx-07:185302:185302 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 [2] 1/-1/-1->0->-1 [3] 1/-1/-1->0->-1
hgx-07:185302:185302 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f97e1e00400 recvbuff 0x7f97e1e00400 count 1 datatype 7 op 0 root 0 comm 0x557a873708c0 [nranks=16] stream 0x557a912294f0
hgx-07:185302:186000 [0] NCCL INFO NET/IB: IbDev 0 Port 1 qpn 2740 set_ece={supported=1, vendor_id=0x15b3, options=0x0, comp_mask=0x0}
{"step": 1200, "loss": 2.134, "lr": 0.0003, "tokens_per_second": 123456.7, "grad_norm": 0.43}
hgx-07:185302:186000 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
`

// TestParseAllocates: parsing typical lines does not allocate.
func TestParseAllocates(t *testing.T) {
	lines := bytes.Split([]byte(chatter), []byte("\n"))
	r := newJobs(newTable()).open("j")
	if n := testing.AllocsPerRun(100, func() {
		for _, line := range lines {
			r.line(line, true)
		}
	}); n > 0 {
		t.Errorf("%v allocations in %d lines, want none", n, len(lines))
	}
}

func BenchmarkParse(b *testing.B) {
	lines := bytes.Split([]byte(chatter), []byte("\n"))
	r := newJobs(newTable()).open("j")
	b.SetBytes(int64(len(chatter)))
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range lines {
			r.line(line, true)
		}
	}
}

func BenchmarkParseWarning(b *testing.B) {
	line := []byte("[2026-03-03 12:11:40] hgx-07:185303:186751 [1] transport/net_ib.cc:2453 NCCL WARN NET/IB: Got " +
		"completion from peer 10.99.91.63<51161> with status=4 opcode=32614 len=32614 vendor err 81 (Send) hca mlx5_1")
	r := newJobs(newTable()).open("j")
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		r.line(line, true)
	}
}

// many returns a source of a directory with n files.
func many(tb testing.TB, n int) *Source {
	tb.Helper()
	dir := tb.TempDir()
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("gpu-%04d.%d.log", i%16, i)), []byte(usingIB+channelIB),
			0o644); err != nil {
			tb.Fatal(err)
		}
	}
	s, err := New([]string{filepath.Join(dir, "*.log")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.f.close)
	return s
}

// TestManyFiles: among 10,000 files, the allowed number is open, and the others need little memory.
func TestManyFiles(t *testing.T) {
	s := many(t, 10_000)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s.Pass()
	after := heap()
	if held := int64(after) - int64(before); held > 2<<20 {
		t.Errorf("%d KiB are held for 10,000 files, want at most 2 MiB", held>>10)
	} else {
		t.Logf("%d KiB are held", held>>10)
	}
	if n := len(s.f.files); n != s.f.limits.files {
		t.Errorf("%d files are open, want %d", n, s.f.limits.files)
	}
}

// BenchmarkList lists 10,000 files, BenchmarkPass polls 256 that do not grow.
func BenchmarkList(b *testing.B) {
	s := many(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		s.f.list()
	}
}

func BenchmarkPass(b *testing.B) {
	s := many(b, 1000)
	s.Pass()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.f.pass(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFollow reads a log from the page cache.
func BenchmarkFollow(b *testing.B) {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.log"), bytes.Repeat([]byte(chatter), 1<<14), 0o644); err != nil {
		b.Fatal(err)
	}
	g, err := newGlob(filepath.Join(dir, "*.log"))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(chatter)) << 14)
	b.ReportAllocs()
	for b.Loop() {
		f := newTailer([]glob{g}, newJobs(newTable()))
		f.limits.head = 1 << 40
		f.list()
		if _, err := f.pass(); err != nil {
			b.Fatal(err)
		}
		f.close()
	}
}
