package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
)

// TestWithoutEffect: a flag that needs another one is refused without it, and a flag that is replaced is refused
// with the other. A flag with what it needs, on the command line or as a variable, is accepted, and so is any
// variable.
func TestWithoutEffect(t *testing.T) {
	app, _ := application()
	if _, err := app.ParseContext([]string{"rails"}); err != nil { // parsing sets the names of the variables
		t.Fatal(err)
	}
	values := map[string]string{"format": "json", "dtype": "fp8", "compare": "tcp", "selector": "a", "file": "f"}
	flagOf := func(command, name string) *kingpin.FlagClause {
		words := strings.Fields(command)
		cmd := app.GetCommand(words[0])
		for _, word := range words[1:] {
			cmd = cmd.GetCommand(word)
		}
		return cmd.GetFlag(name)
	}
	value := func(command, name string) string {
		f := flagOf(command, name)
		if f == nil {
			t.Fatalf("%s has no flag --%s", command, name)
		}
		if f.Model().IsBoolFlag() {
			return "--" + name
		}
		v := "1"
		if len(f.Model().Default) > 0 {
			v = f.Model().Default[0]
		}
		if other := values[name]; other != "" {
			v = other
		}
		return "--" + name + "=" + v
	}
	arguments := map[string][]string{"bench": {"a"}, "nixlbench": {"a"}, "run": {"true"}}
	for _, d := range dependences() {
		check := func(flags ...string) error {
			own, _ := application()
			return withoutEffect(own, slices.Concat(strings.Fields(d.command), flags, arguments[d.command]))
		}
		one := value(d.command, d.flag)
		var off []string // flags that disable what is on by default
		for _, need := range d.needs {
			if slices.Equal(flagOf(d.command, need).Model().Default, []string{"true"}) {
				off = append(off, "--no-"+need)
			}
		}
		want := "--" + d.flag + " has no effect without --" + strings.Join(d.needs, " or --")
		others := d.needs
		if d.replaced != "" {
			want, others = "--"+d.flag+" has no effect with --"+d.replaced, nil
			off = []string{value(d.command, d.replaced)}
			if err := check(one); err != nil {
				t.Errorf("%s alone: %v", one, err)
			}
		}
		if err := check(append(off, one)...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s %s: %v, want %s", d.command, one, err, want)
		}
		for _, other := range others {
			if err := check(one, value(d.command, other)); err != nil {
				t.Errorf("%s with --%s: %v", one, other, err)
			}
			flag := flagOf(d.command, other).Model()
			t.Setenv(flag.Envar, "true")
			if err := check(one); err != nil {
				t.Errorf("%s with %s: %v", one, flag.Envar, err)
			}
			t.Setenv(flag.Envar, "")
		}
	}
	if _, err := parse([]string{"run", "--repeat=3", "--", "true", "--compare"}); err == nil {
		t.Error("a flag of the command to run counts")
	}
	t.Setenv("RAILSCOPE_STEP_TIME", "1s")
	if err := withoutEffect(app, []string{"bench", "a"}); err != nil {
		t.Errorf("a variable without effect: %v", err)
	}
}

// TestEndpointWithoutBucket: the endpoint of buckets has no effect on directories.
func TestEndpointWithoutBucket(t *testing.T) {
	for target, refused := range map[string]bool{"/tmp": true, "s3://bucket/a": false} {
		s := storageSettings{common: new(common), size: "1MiB", part: "1MiB", streams: 1, timeout: 1, endpoint: "https://a",
			endpointGiven: true, targets: []string{target}}
		if _, err := s.args(); (err != nil) != refused {
			t.Errorf("%s: %v", target, err)
		}
	}
}
