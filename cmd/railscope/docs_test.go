package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/config"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

// TestDocs: docs/configuration.md equals the command line, the table of keys, and the endpoints and exit codes that
// other tests here verify.
func TestDocs(t *testing.T) {
	const path, example = "../../docs/configuration.md", "../../docs/railscope.yml"
	yaml, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(page)
	for name, text := range map[string]string{
		"flags": flagsText(t), "keys": keysText(), "example": "```yaml\n" + string(yaml) + "```\n",
		"web": endpointsText(webEndpoints()), "control": endpointsText(controlEndpoints()), "exits": exitsText(),
	} {
		begin, end := "<!-- generated: "+name+" -->\n", "<!-- end of "+name+" -->\n"
		before, rest, ok := strings.Cut(got, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no %q and %q", path, begin, end)
		}
		got = before + begin + text + end + after
	}
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(string(page), got); diff != "" {
		t.Errorf("%s (-want +got; make docs writes it anew):\n%s", path, diff)
	}
}

// model returns the command line, with the environment variables that parsing gives its flags.
func commandModel(t *testing.T) *kingpin.ApplicationModel {
	t.Helper()
	app, _ := application()
	if _, err := app.ParseContext(nil); err != nil {
		t.Fatal(err)
	}
	return app.Model()
}

// flagsText lists the flags of all commands, then those of each.
func flagsText(t *testing.T) string {
	app := commandModel(t)
	var b strings.Builder
	b.WriteString("### Of every command\n\n")
	flagsTable(&b, app.Flags)
	for _, c := range app.FlattenedCommands() {
		if c.Name == "help" {
			continue
		}
		fmt.Fprintf(&b, "\n### railscope %s\n\n%s\n\n", c.FullCommand, c.Help)
		for _, a := range c.Args {
			fmt.Fprintf(&b, "`%s`: %s\n\n", strings.ToUpper(a.Name), a.Help)
		}
		flagsTable(&b, c.Flags)
	}
	return b.String()
}

// flagsTable omits flags that only ask for help.
func flagsTable(b *strings.Builder, flags []*kingpin.FlagModel) {
	b.WriteString("| flag | variable | default | |\n|---|---|---|---|\n")
	for _, f := range flags {
		if strings.HasPrefix(f.Name, "help") || strings.HasPrefix(f.Name, "completion") || f.Hidden {
			continue
		}
		name, def := "--"+f.Name, strings.Join(f.Default, " ")
		if f.IsBoolFlag() {
			name = "--[no-]" + f.Name
			if f.Name == "version" {
				name = "--version"
			}
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, code(f.Envar), code(def), cell(f.Help))
	}
}

// keysText returns a table for each part of the configuration.
func keysText() string {
	var b strings.Builder
	section := ""
	for _, k := range config.Keys() {
		at := strings.LastIndex(k.Name, ".")
		if s := k.Name[:max(at, 0)]; s != section || b.Len() == 0 {
			section = s
			fmt.Fprintf(&b, "\n### %s\n\n| key | write | default | bounds | |\n|---|---|---|---|---|\n",
				cmp.Or(section, "Top level"))
		}
		def := k.Default
		if !strings.ContainsAny(def, "` ") {
			def = code(def)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name[at+1:], cell(k.Form), cell(def), cell(k.Bounds),
			cell(k.About))
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// TestPagesNameFlags: flags and variables of railscope that pages mention exist.
func TestPagesNameFlags(t *testing.T) {
	app := commandModel(t)
	known := map[string]bool{"RAILSCOPE_LIBIBVERBS": true, "RAILSCOPE_LIBCUDA": true, "RAILSCOPE_LIBHSA": true,
		"RAILSCOPE_REQUIRE_FUSE": true,
		// The last flag is one of Prometheus.
		"--source.NAME": true, "--no-source.NAME": true, "--web.enable-otlp-receiver": true}
	all := &kingpin.CmdModel{FlagGroupModel: app.FlagGroupModel}
	for _, group := range append([]*kingpin.CmdModel{all}, app.FlattenedCommands()...) {
		for _, f := range group.Flags {
			known["--"+f.Name], known["--no-"+f.Name], known[f.Envar] = true, f.IsBoolFlag(), true
		}
	}
	pages, err := filepath.Glob("../../docs/*.md")
	runbooks, err2 := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil || err2 != nil || len(pages)+len(runbooks) < 40 {
		t.Fatal(err, err2, len(pages)+len(runbooks))
	}
	// Only flags that no other program has, and flags on a command line of railscope, are checked.
	ours := regexp.MustCompile(`\bRAILSCOPE_[A-Z_]+|--(?:no-)?(?:source|path|web|log|sample|nccl|config)\.[A-Za-z._-]*[A-Za-z]`)
	line := regexp.MustCompile("(?:^|`|[ /])railscope (?:serve|rails|bench|doctor|metrics|bundle|demo)[^`#]*")
	for _, page := range slices.Concat(pages, runbooks, []string{"../../README.md"}) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		names := ours.FindAllString(string(text), -1)
		for l := range strings.Lines(string(text)) {
			for _, command := range line.FindAllString(l, -1) {
				names = append(names, regexp.MustCompile(`--[a-z][a-z.-]+`).FindAllString(command, -1)...)
			}
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s: railscope has no %s", page, name)
			}
		}
	}
}

func endpointsText(list []endpoint) string {
	var b strings.Builder
	b.WriteString("| request | answer |\n|---|---|\n")
	for _, e := range list {
		fmt.Fprintf(&b, "| `%s %s` | %s |\n", e.method, e.path, cell(e.answers))
	}
	return b.String()
}

func exitsText() string {
	var b strings.Builder
	b.WriteString("| command | code | when |\n|---|---|---|\n")
	list := slices.SortedStableFunc(slices.Values(exits()), func(a, b exit) int {
		return cmp.Compare(order(a.command), order(b.command))
	})
	for _, e := range list {
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", e.command, e.code, cell(e.when))
	}
	return b.String()
}

// order returns the position of a command in the reference.
func order(command string) int {
	return slices.Index([]string{"serve", "rails", "expect", "check", "bench", "read", "nixlbench", "run", "storage", "rules",
		"doctor", "fleet blame", "fleet drift", "fleet gate", "fleet why",
		"metrics", "bundle", "demo"}, command)
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
