package nodelist

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// finder knows the names a and a.example, and the job 7.
func finder(t *testing.T, stdin string) *Finder {
	return &Finder{Port: "10092", Stdin: strings.NewReader(stdin),
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			switch host {
			case "gpu.example", "gpu.example.":
				return []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("::ffff:10.0.0.3"),
					netip.MustParseAddr("fd00::2")}, nil
			case "a", "a.example":
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
			}
			return nil, errors.New("no such host")
		},
		Command: func(_ context.Context, name string, args ...string) ([]byte, error) {
			switch line := name + " " + strings.Join(args, " "); line {
			case "squeue --noheader --format=%N --jobs=7":
				return []byte("gpu-[1-2]\n"), nil
			case "squeue --noheader --format=%N --jobs=8":
				return []byte("(null)\n"), nil
			case "squeue --noheader --format=%N --jobs=9_1":
				return nil, errors.New("squeue: exit status 1: Invalid job id specified")
			case "scontrol show hostnames gpu-[1-2]":
				return []byte("gpu-1\ngpu-2\n"), nil
			default:
				t.Errorf("%s", line)
				return nil, errors.New("no such command")
			}
		}}
}

func TestFind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	text := "# nodes of the job\nA.example:5 # first\n\n  10.0.0.9 slots=8\n10.0.0.9\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		from, stdin string
		want        []Node
		err         string
	}{
		{file, "", []Node{{Addresses: []string{"10.0.0.9:10092"}},
			{Addresses: []string{"A.example:5", "a.example:5", "A:5"}}}, ""},
		{"-", "a\n", []Node{{Addresses: []string{"a:10092", "10.0.0.1:10092"}}}, ""},
		{"dns+gpu.example", "", []Node{{[]string{"10.0.0.2:10092"}, "gpu.example"},
			{[]string{"10.0.0.3:10092"}, "gpu.example"}}, ""},
		{"dns+gpu.example.:5", "", []Node{{[]string{"10.0.0.2:5"}, "gpu.example"}, {[]string{"10.0.0.3:5"},
			"gpu.example"}}, ""},
		{"slurm:7", "", []Node{{Addresses: []string{"gpu-1:10092"}}, {Addresses: []string{"gpu-2:10092"}}}, ""},
		{"", "", nil, "want the name of a file"},
		{"-", "\n# none\n", nil, "no nodes"},
		{"-", "a b\nc:x\n", nil, "-, line 2: want host or host:port, not \"c:x\""},
		{"-", strings.Repeat("a", maxFile+1), nil, "more than 4 MiB"},
		{file + "x", "", nil, "no such file"},
		{"dns+x", "", nil, "no such host"},
		{"dns+", "", nil, "want dns+NAME"},
		{"slurm:8", "", nil, "job 8 has no nodes: it waits, or has ended"},
		{"slurm:9_1", "", nil, "Invalid job id"},
		{"slurm:$(x)", "", nil, "want the ID of a Slurm job"},
		{"slurm:", "", nil, "want the ID of a Slurm job"},
	} {
		got, err := finder(t, tc.stdin).Find(t.Context(), tc.from)
		if !reflect.DeepEqual(got, tc.want) || (err == nil) != (tc.err == "") ||
			err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v", tc.from, got, err)
		}
	}
	var many strings.Builder
	for i := range MaxNodes + 1 {
		fmt.Fprintf(&many, "gpu-%d\n", i)
	}
	if _, err := finder(t, many.String()).Find(t.Context(), "-"); err == nil || !strings.Contains(err.Error(), "16385") {
		t.Errorf("%v", err)
	}
}

// TestCommand: what a program says when it fails is part of the error.
func TestCommand(t *testing.T) {
	out, err := command(t.Context(), "sh", "-c", "echo a; echo b >&2")
	if string(out) != "a\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	_, err = command(t.Context(), "sh", "-c", "echo Invalid job >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "sh: exit status 3: Invalid job") {
		t.Errorf("%v", err)
	}
	_, err = command(t.Context(), "railscope-no-such-program")
	if err == nil {
		t.Error("it ran")
	}
}
