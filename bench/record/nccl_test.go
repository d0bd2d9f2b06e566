package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Lines as NCCL 2.28 prints them (src/transport/net_ib.cc, net_socket.cc, src/init.cc), of two ranks, one of which fell
// back.
const ncclOutput = `step 1: loss 2.3
node-1:100:110 [0] NCCL INFO NCCL version 2.28.3+cuda12.9
node-1:100:110 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
node-1:100:110 [0] NCCL INFO Using network IB
node-1:101:111 [1] NCCL INFO Using network Socket
step 2: network Socket of mine
`

func texts(list []Said) (out []string) {
	for _, s := range list {
		out = append(out, fmt.Sprintf("%s (%s) %d", s.Text, s.Rail, len(s.Marks)))
	}
	return out
}

// TestLines: what NCCL prints among the lines of a command is read as railscope read does, however it is cut into
// writes.
func TestLines(t *testing.T) {
	whole := new(Lines)
	_, _ = whole.Write([]byte(ncclOutput))
	want := texts(whole.Read())
	if networks(whole.Read()) != "IB, Socket" || strings.Contains(strings.Join(want, " "), "mine") {
		t.Fatalf("%q, %s", want, networks(whole.Read()))
	}
	for n := 1; n < 9; n++ {
		cut := new(Lines)
		for text := []byte(ncclOutput); len(text) > 0; text = text[min(n, len(text)):] {
			_, _ = cut.Write(text[:min(n, len(text))])
		}
		if diff := cmp.Diff(want, texts(cut.Read())); diff != "" {
			t.Errorf("writes of %d bytes:\n%s", n, diff)
		}
	}
	if got := new(Lines).Read(); got == nil || len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
	long := new(Lines) // its memory is bounded
	for range 200 {
		_, _ = long.Write([]byte(strings.Repeat("x NCCL ", 1<<16)))
	}
	for range 4000 {
		_, _ = long.Write([]byte("\n" + strings.Repeat("x NCCL ", 1000)))
	}
	if len(long.kept) > maxLog || len(long.line) > 4<<10 {
		t.Errorf("%d and %d bytes are kept", len(long.kept), len(long.line))
	}
}

// TestReadLogs: files of this run alone are read, each thing is said once, and a missing file is an error.
func TestReadLogs(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	for name, age := range map[string]time.Duration{"nccl.a.1.log": 0, "nccl.a.2.log": 0, "nccl.b.1.log": time.Hour} {
		text := ncclOutput
		if age > 0 {
			text = strings.ReplaceAll(text, "network IB", "network old")
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, start.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := ReadLogs(filepath.Join(dir, "nccl.%h.%p.log"), start)
	if err != nil || networks(list) != "IB, Socket" || len(list) != 4 {
		t.Errorf("%q, %v", texts(list), err)
	}
	if rows := (FromNCCL{Log: list}).logRows(); len(rows) != 5 || rows[1][1].Text != "mlx5_0" ||
		rows[3][2].Text != "" || !strings.Contains(rows[4][2].Text, "fallback to sockets") {
		t.Errorf("%v", rows)
	}
	if list, err := ReadLogs(filepath.Join(dir, "none.%p"), start); err == nil || list == nil {
		t.Errorf("without a file: %v, %v", list, err)
	}
}
