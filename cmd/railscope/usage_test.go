package main

import (
	"strings"
	"testing"
)

// TestHelp: the help of a command lists its own flags first. Without a command it lists all commands.
func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		args        []string
		first       string
		in, notHere []string
	}{
		{[]string{"demo", "--help"}, "usage: railscope demo [<flags>]",
			[]string{"\nFlags:\n  --web.listen-address", "--degrade", "Global flags:\n", "--log.level"},
			[]string{"--nccl.log", "--peer", "Commands:"}},
		{[]string{"help", "bench"}, "usage: railscope bench [<flags>] <peer>",
			[]string{"Args:\n  <peer>", "--latency-samples"}, []string{"--degrade"}},
		{[]string{"serve", "-h"}, "usage: railscope serve [<flags>]", []string{"--nccl.log"},
			[]string{"--degrade", "--peer"}},
		{[]string{"--help"}, "usage: railscope [<flags>] <command> [<args> ...]",
			[]string{"Flags:\n  -h, --", "Commands:\nhelp [<command>...]\n", "\ndemo [<flags>]\n", "--degrade",
				"--nccl.log"}, nil},
	} {
		var out strings.Builder
		app, _ := application()
		app.UsageWriter(&out).Terminate(func(int) {})
		_, _ = app.Parse(tt.args) // only the output matters; nothing ended the parser here
		if got, _, _ := strings.Cut(out.String(), "\n"); got != tt.first {
			t.Errorf("%q: the first line is %q, want %q", tt.args, got, tt.first)
		}
		for _, want := range tt.in {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: not in it: %q\n%s", tt.args, want, &out)
			}
		}
		for _, other := range tt.notHere {
			if strings.Contains(out.String(), other) {
				t.Errorf("%q: in it: %q", tt.args, other)
			}
		}
	}
}
