package kernellog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// log returns a read function that returns the elements of list, a message or an errno each, and then EAGAIN.
func log(list ...any) func([]byte) (int, error) {
	return func(b []byte) (int, error) {
		if len(list) == 0 {
			return -1, unix.EAGAIN
		}
		first := list[0]
		list = list[1:]
		if errno, ok := first.(unix.Errno); ok {
			return -1, errno
		}
		return copy(b, first.(string)), nil
	}
}

func line(i int, text string) string { return fmt.Sprintf("4,%d,%d,-;%s\n", i, i*1000000, text) }

func all(Record) bool { return true }

func texts(list []Record) (out []string) {
	for _, r := range list {
		out = append(out, r.Text)
	}
	return out
}

func TestRead(t *testing.T) {
	var many []any
	for i := range 10 {
		many = append(many, line(i, fmt.Sprint(i)))
	}
	for _, tc := range []struct {
		name string
		log  []any
		want string
		err  error
	}{
		{"the last of many", many, "[7 8 9]", nil},
		{"user space", []any{line(1, "a"), "12,2,2,-;not the kernel\n", line(3, "b")}, "[a b]", nil},
		{"lost and too large ones", []any{line(1, "a"), unix.EPIPE, unix.EINVAL, unix.EINTR, line(9, "b")}, "[a b]", nil},
		{"what is no message", []any{"nonsense", line(1, "a")}, "[a]", nil},
		{"an error after the first", []any{line(1, "a"), unix.EIO, line(2, "b")}, "[a]", unix.EIO},
		{"a file of several", []any{line(1, "a") + " DEVICE=+pci:0000:18:00.0\n" + line(2, "b")}, "[a b]", nil},
	} {
		list, err := read(log(tc.log...), 3, all)
		if got := fmt.Sprint(texts(list)); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %s, %v, want %s, %v", tc.name, got, err, tc.want, tc.err)
		}
	}
}

// TestFile: a regular file can replace the log. A missing file is an error with its path.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(path, []byte(line(1, "a")+" DEVICE=+pci:0000:18:00.0\n"+line(2, "b")), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := Read(path, 10, func(r Record) bool { return r.PCI != "" })
	if err != nil || len(list) != 1 || list[0].At != time.Second || list[0].PCI != "0000:18:00.0" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := Read(path+"2", 10, all); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path+"2") {
		t.Error(err)
	}
}

// TestDriver: a driver's name is the first word of a message. The kernel's command line, which may hold secrets,
// never matches.
func TestDriver(t *testing.T) {
	for text, want := range map[string]bool{
		"mlx5_core 0000:18:00.0: lag map: port 1:1 port 2:2":        true,
		"mlx5_core 0000:18:00.0 enp24s0np0: Link down":              true,
		"infiniband mlx5_0: ib_query_port failed":                   true,
		"bond0: (slave enp24s0np0): link status definitely down":    true,
		"bonding: bond0 is being created":                           true,
		"NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off": true,
		"pcieport 0000:17:01.0: AER: Correctable error":             true,
		"rdma_rxe: loaded": true,
		"Command line: mlx5_core.x=1 password=swordfish":                false,
		"Kernel command line: root=/dev/sda token=swordfish mlx5_core ": false,
		"audit: type=1400 comm=\"mlx5_core\"":                           false,
		"usb 1-1: Product: mlx5_core ":                                  false,
	} {
		if got := (Record{Text: text}).Driver(); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("4,1001,5000001,-;mlx5_core 0000:18:00.0: text\n SUBSYSTEM=pci\n DEVICE=+pci:0000:18:00.0\n"))
	f.Add([]byte("4,1,-5,-;x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		joined := 0
		for one := range records(b) {
			joined += len(one)
		}
		if joined != len(b) {
			t.Errorf("%q: %d of %d bytes", b, joined, len(b))
		}
		if r, ok := Parse(b); ok && (r.At < 0 || strings.Contains(r.Text, "\n") || r.Facility < 0) {
			t.Errorf("%q: %+v", b, r)
		}
	})
}
