package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/config"
)

// regexps compares regular expressions by their text.
var regexps = cmp.Transformer("text", func(re *regexp.Regexp) string {
	if re == nil {
		return "(none)"
	}
	return re.String()
})

// written ignores names and roles as they were written: Ports and RoleRules have them in parsed form.
var written = cmp.FilterPath(func(p cmp.Path) bool {
	return p.String() == "Rails.Names" || p.String() == "Rails.Roles"
}, cmp.Ignore())

func TestParse(t *testing.T) {
	type names = map[string]string
	for _, tt := range []struct {
		name, in string
		want     config.Rails
	}{
		{"empty", "", config.Rails{}},
		{"only a comment", "# nothing yet\n", config.Rails{}},
		{"an empty document", "---\n", config.Rails{}},
		{"empty on purpose", "{}\n", config.Rails{}},
		{"rails without anything", "rails:\n", config.Rails{}},
		{"names without anything", "rails: {names: }\n", config.Rails{}},
		{"no names", "rails: {names: {}}\n", config.Rails{Ports: names{}}},
		{"include", "rails:\n  include: \"^(mlx5|rocep|rxe)\"\n",
			config.Rails{Include: regexp.MustCompile("^(mlx5|rocep|rxe)")}},
		{
			"names, and include after them",
			"rails:\n  names: {east: rocep1s0f0/1, west_2.a-b: roceP2p1s0f1/12}\n  include: ^roce\n",
			config.Rails{Include: regexp.MustCompile("^roce"),
				Ports: names{"rocep1s0f0/1": "east", "roceP2p1s0f1/12": "west_2.a-b"}},
		},
		{"alias", "rails: {include: &p \"a|b/1\", names: {east: *p}}\n",
			config.Rails{Include: regexp.MustCompile("a|b/1"), Ports: names{"a|b/1": "east"}}},
		{"JSON", `{"rails": {"names": {"east": "mlx5_0/1"}}}`, config.Rails{Ports: names{"mlx5_0/1": "east"}}},
		{"PCI addresses", "rails: {names: {rail0: 0000:18:00.0, rail1: 0002:AB:00.1/2, 7: mlx5_7/1, " +
			strings.Repeat("n", 32) + ": mlx5_8/1}}\n",
			config.Rails{Ports: names{"0000:18:00.0/1": "rail0", "0002:ab:00.1/2": "rail1", "mlx5_7/1": "7",
				"mlx5_8/1": strings.Repeat("n", 32)}}},
		{"a device", "rails: {names: {a: mlx5_0, b: mlx5_0/2}}\n", config.Rails{Ports: names{"mlx5_0/1": "a",
			"mlx5_0/2": "b"}}},
		{"a port that a pattern with a slash includes", "rails: {include: ^mlx5_0/2$, names: {a: mlx5_0/2}}\n",
			config.Rails{Include: regexp.MustCompile("^mlx5_0/2$"), Ports: names{"mlx5_0/2": "a"}}},
		{"a PCI address beside include", "rails: {include: ^rxe, names: {a: 0000:18:00.0}}\n",
			config.Rails{Include: regexp.MustCompile("^rxe"), Ports: names{"0000:18:00.0/1": "a"}}},
		{"the document's end marked", "rails: {include: x}\n...\n", config.Rails{Include: regexp.MustCompile("x")}},
		{"exclude", "rails: {include: ^mlx5_, exclude: _bond_, names: {a: mlx5_0/1}}\n",
			config.Rails{Include: regexp.MustCompile("^mlx5_"), Exclude: regexp.MustCompile("_bond_"),
				Ports: names{"mlx5_0/1": "a"}}},
		{"roles without anything", "rails: {roles: }\n", config.Rails{}},
		{"roles in the order of the file", "rails:\n  roles:\n    storage: ^mlx5_bond\n    b: &b \"1$\"\n    a: *b\n",
			config.Rails{RoleRules: []config.RoleRule{{Role: "storage", Devices: regexp.MustCompile("^mlx5_bond")},
				{Role: "b", Devices: regexp.MustCompile("1$")}, {Role: "a", Devices: regexp.MustCompile("1$")}}}},
		{"virtual functions", "rails: {virtual_functions: report}\n", config.Rails{VirtualFunctions: "report"}},
		{"no virtual functions", "rails: {virtual_functions: ignore}\n", config.Rails{VirtualFunctions: "ignore"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := config.Parse("railscope.yml", []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			empty := !strings.ContainsAny(tt.in, "{:") // the file has only comments
			if diff := cmp.Diff(&config.Config{Empty: empty, Rails: tt.want}, got, regexps, written); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	const notPort = "must be a device, device/port or PCI address, such as mlx5_0, mlx5_0/1 or 0000:18:00.0, not "
	for _, tt := range []struct{ name, in, want string }{
		// Keys.
		{"a relative path", "maintenance: run/x\n", `f.yml:1: maintenance must be the absolute path of a file, ` +
			`such as /run/railscope/maintenance, not "run/x"`},
		{"no path", "maintenance: ''\n", `f.yml:1: maintenance must be the absolute path of a file, ` +
			`such as /run/railscope/maintenance, not ""`},
		{"a key misspelt", "rials: {}\n", `f.yml:1: unknown key "rials" in the configuration; did you mean "rails"?`},
		{"a key misspelt, below", "rails:\n  # devices\n  inclde: x\n",
			`f.yml:3: unknown key "inclde" in rails; did you mean "include"?`},
		{"an unknown key", "rails: {}\nzzz: 1\n",
			`f.yml:2: unknown key "zzz" in the configuration; known keys: expect, findings, maintenance, probe, rails`},
		{"an unknown key below", "rails: {zzzzz: 1}\n",
			`f.yml:1: unknown key "zzzzz" in rails; known keys: exclude, include, leaf, names, roles, virtual_functions`},
		{"a very long key", strings.Repeat("z", 200) + ": 1\n", `f.yml:1: unknown key "` + strings.Repeat("z",
			200) + `" in the configuration; known keys: expect, findings, maintenance, probe, rails`},
		{"a key twice", "rails: {}\n\nrails: {}\n",
			`f.yml:3: duplicate key "rails" in the configuration; the first is in line 1`},
		{"a key twice, below", "rails:\n  include: a\n  include: a\n",
			`f.yml:3: duplicate key "include" in rails; the first is in line 2`},
		{"a list as key", "? [a]\n: 1\n",
			`f.yml:1: unknown key "" in the configuration; known keys: expect, findings, maintenance, probe, rails`},
		{"merge", "rails: {<<: {include: x}}\n",
			`f.yml:1: unknown key "<<" in rails; known keys: exclude, include, leaf, names, roles, virtual_functions`},
		// Types.
		{"a word", "railscope\n", `f.yml:1: the configuration must be keys with values, not "railscope"`},
		{"a list", "- rails\n", `f.yml:1: the configuration must be keys with values, not a list`},
		{"rails is a number", "rails: 5\n", `f.yml:1: rails must be keys with values, not "5"`},
		{"rails is a list", "rails:\n  - mlx5_0\n", `f.yml:2: rails must be keys with values, not a list`},
		{"names is a list", "rails: {names: [mlx5_0/1]}\n",
			`f.yml:1: rails.names must be names with their ports, such as {rail0: mlx5_0/1}, not a list`},
		{"names is a word", "rails: {names: east}\n",
			`f.yml:1: rails.names must be names with their ports, such as {rail0: mlx5_0/1}, not "east"`},
		// include.
		{"include is a list", "rails: {include: [a]}\n",
			`f.yml:1: rails.include must be a regular expression for device names, such as ^mlx5_, not a list`},
		{"include is empty", "rails:\n  include:\n",
			`f.yml:2: rails.include must be a regular expression for device names, such as ^mlx5_, not ""`},
		{"include is null", "rails: {include: null}\n",
			`f.yml:1: rails.include must be a regular expression for device names, such as ^mlx5_, not "null"`},
		{"include is null by its sign", "rails: {include: ~}\n",
			`f.yml:1: rails.include must be a regular expression for device names, such as ^mlx5_, not "~"`},
		{"include does not compile", "rails:\n  include: mlx5_(\n",
			`f.yml:2: rails.include must be a regular expression for device names, such as ^mlx5_, not "mlx5_(": ` +
				`missing closing ) in "mlx5_("`},
		{"include does not compile, in two lines", "rails: {include: \"(\\n\"}\n",
			`f.yml:1: rails.include must be a regular expression for device names, such as ^mlx5_, not "(\n": ` +
				`missing closing ) in "(\n"`},
		// names.
		{"an empty name", "rails: {names: {\"\": mlx5_0/1}}\n",
			`f.yml:1: invalid rail name "": use letters, digits, _ . -, 32 at most`},
		{"a name with a blank", "rails: {names: {\"a b\": mlx5_0/1}}\n",
			`f.yml:1: invalid rail name "a b": use letters, digits, _ . -, 32 at most`},
		{"a name too long", "rails: {names: {" + strings.Repeat("n", 33) + ": mlx5_0/1}}\n",
			`f.yml:1: invalid rail name "` + strings.Repeat("n", 33) + `": use letters, digits, _ . -, 32 at most`},
		{"a name twice", "rails:\n  names:\n    a: mlx5_0/1\n    a: mlx5_1/1\n",
			`f.yml:4: duplicate key "a" in rails.names; the first is in line 3`},
		{"a port twice", "rails:\n  names:\n    a: mlx5_0/1\n    b: mlx5_0/1\n",
			`f.yml:4: mlx5_0/1 already has the name a`},
		{"a function twice", "rails:\n  names:\n    a: 0000:AB:00.0\n    b: 0000:ab:00.0/1\n",
			`f.yml:4: 0000:ab:00.0/1 already has the name a`},
		{"no PCI address", "rails: {names: {a: 0000:18:00.9/1}}\n",
			`f.yml:1: rails.names.a ` + notPort + `"0000:18:00.9/1"`},
		{"port 0 of a function", "rails: {names: {a: \"0000:18:00.0/0\"}}\n",
			`f.yml:1: rails.names.a ` + notPort + `"0000:18:00.0/0"`},
		{"half an address", "rails: {names: {a: 18:00.0}}\n", `f.yml:1: rails.names.a ` + notPort + `"18:00.0"`},
		{"port 0", "rails: {names: {a: mlx5_0/0}}\n", `f.yml:1: rails.names.a ` + notPort + `"mlx5_0/0"`},
		{"port 01", "rails: {names: {a: mlx5_0/01}}\n", `f.yml:1: rails.names.a ` + notPort + `"mlx5_0/01"`},
		{"port 1000", "rails: {names: {a: mlx5_0/1000}}\n", `f.yml:1: rails.names.a ` + notPort + `"mlx5_0/1000"`},
		{"a path for a port", "rails: {names: {a: a/b/1}}\n", `f.yml:1: rails.names.a ` + notPort + `"a/b/1"`},
		{"nothing for a port", "rails: {names: {a: }}\n", `f.yml:1: rails.names.a ` + notPort + `""`},
		{"a list for a port", "rails: {names: {a: [mlx5_0/1]}}\n", `f.yml:1: rails.names.a ` + notPort + `a list`},
		{"excluded", "rails:\n  names: {a: mlx5_0/1}\n  include: ^rxe\n",
			`f.yml:2: rails.names.a is mlx5_0/1, which rails.include "^rxe" excludes`},
		{"excluded by its own key", "rails:\n  names: {a: mlx5_0/1}\n  exclude: ^mlx5\n",
			`f.yml:2: rails.names.a is mlx5_0/1, which rails.exclude "^mlx5" excludes`},
		{"exclude is empty", "rails: {exclude: ''}\n",
			`f.yml:1: rails.exclude must be a regular expression for device names, such as ^mlx5_bond, not ""`},
		// leaves, roles and virtual functions.
		{"leaves are a list", "rails: {leaf: [leaf-a]}\n", `f.yml:1: rails.leaf must be rails with the names of their ` +
			`switches, such as {0: leaf-a, 1: leaf-b}, not a list`},
		{"a leaf of a rail with a blank", "rails: {leaf: {'a b': leaf-a}}\n",
			`f.yml:1: invalid rail name "a b": use letters, digits, _ . -, 32 at most`},
		{"a leaf with a quote", `rails: {leaf: {0: "a\"b"}}` + "\n",
			`f.yml:1: rails.leaf.0 must be the name of a switch, such as leaf-a, not "a\"b"`},
		{"roles is a list", "rails: {roles: [storage]}\n", `f.yml:1: rails.roles must be roles with regular ` +
			`expressions for device names, such as {storage: ^mlx5_bond}, not a list`},
		{"a role with a blank", "rails:\n  roles:\n    a: x\n    \"b c\": x\n",
			`f.yml:4: invalid role "b c": use letters, digits, _ . -, 32 at most`},
		{"a role without devices", "rails: {roles: {storage: }}\n", `f.yml:1: rails.roles.storage must be a regular ` +
			`expression for device names, such as ^mlx5_bond, not ""`},
		{"a role twice", "rails: {roles: {a: x, a: y}}\n",
			`f.yml:1: duplicate key "a" in rails.roles; the first is in line 1`},
		{"a role that does not compile", "rails: {roles: {a: (}}\n", `f.yml:1: rails.roles.a must be a regular ` +
			`expression for device names, such as ^mlx5_bond, not "(": missing closing ) in "("`},
		{"nine roles", "rails: {roles: {a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x, i: x}}\n",
			`f.yml:1: more than 8 roles`},
		{"virtual functions as rails", "rails: {virtual_functions: rails}\n",
			`f.yml:1: rails.virtual_functions must be ignore or report, not "rails"`},
		// Not YAML, or YAML features that are not allowed.
		{"two documents", "rails: {}\n---\nrails: {}\n", `f.yml: more than one YAML document; write one`},
		{"not closed", "rails: {\n", `f.yml:1: invalid YAML: did not find expected node content`},
		{"a tab", "rails:\n\tinclude: x\n", `f.yml:2: invalid YAML: found character that cannot start any token`},
		{"binary", "\x00\x01", `f.yml: invalid YAML: control characters are not allowed`},
		{"deep", strings.Repeat("[", 20000), `f.yml: invalid YAML: exceeded max depth of 10000`},
		{"an alias of nothing", "rails: *x\n", `f.yml: invalid YAML: unknown anchor 'x' referenced`},
		{"an alias of itself", "rails: &a {names: *a}\n", `f.yml:1: rails.names.names ` + notPort + `keys with values`},
		{"an alias of a wrong thing", "rails: {include: &p ^mlx5_1, names: {a: *p}}\n",
			`f.yml:1: rails.names.a ` + notPort + `"^mlx5_1"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := config.Parse("f.yml", []byte(tt.in))
			if err == nil {
				t.Fatalf("accepted as %+v", c.Rails)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Error(diff)
			}
			if c != nil {
				t.Error("an error and a configuration")
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yml", "rails: {include: ^rxe}\n")
	full := write("full.yml", "rails: {include: ^rxe}\n#"+strings.Repeat("x", 1<<20-24))
	bad := write("bad.yml", "rails:\n  include: (\n")
	huge := write("huge.yml", "#"+strings.Repeat("x", 1<<20))
	absent := filepath.Join(dir, "absent.yml")
	rxe := &config.Config{Rails: config.Rails{Include: regexp.MustCompile("^rxe")}}
	for _, tt := range []struct {
		path    string
		want    *config.Config
		message string
	}{
		{"", &config.Config{}, ""},
		{good, rxe, ""},
		{full, rxe, ""},
		{bad, nil, bad + `:2: rails.include must be a regular expression for device names, such as ^mlx5_, not ` +
			`"(": missing closing ) in "("`},
		{huge, nil, huge + ": larger than 1048576 bytes: not a railscope configuration"},
		{dir, nil, "read configuration: read " + dir +
			": is a directory; --config.file needs a file, such as railscope.yml in it"},
		{absent, nil, "read configuration: open " + absent +
			": no such file or directory; --config.file needs a readable file, and without it the defaults apply"},
	} {
		got, err := config.Load(tt.path)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if diff := cmp.Diff(tt.message, message); diff != "" {
			t.Errorf("%s: %s", tt.path, diff)
		}
		if got != nil {
			got.Digest = "" // see TestDigest
		}
		if diff := cmp.Diff(tt.want, got, regexps); diff != "" {
			t.Errorf("%s: %s", tt.path, diff)
		}
	}
}

// TestLoadPipe: a pipe such as a shell's <(command) is read. A pipe without a writer does not block Load.
func TestLoadPipe(t *testing.T) {
	t.Parallel()
	const content = "rails: {include: ^rxe}\n"
	for _, tt := range []struct {
		name    string
		writer  bool
		content string
		message string
	}{
		{"written", true, content, ""},
		{"nobody", false, "", "read %s: a pipe into which nobody writes"},
		{"silent", true, "", "read %s: a pipe into which nobody writes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			loaded := make(chan error, 1)
			go func() {
				_, err := config.Load(path)
				loaded <- err
			}()
			var w *os.File
			if tt.writer {
				var err error
				w, err = os.OpenFile(path, os.O_WRONLY, 0)
				if err != nil { // waits for the reader
					t.Fatal(err)
				}
				defer w.Close()
			}
			if tt.content != "" {
				_, _ = w.WriteString(tt.content)
				w.Close()
			}
			err := <-loaded
			switch {
			case tt.message == "" && err != nil:
				t.Error(err)
			case tt.message != "" && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf(tt.message, path))):
				t.Errorf("%v, want %s", err, tt.message)
			}
			if !tt.writer { // ends the read
				if w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
					w.Close()
				}
			}
		})
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"source.pcie", "source.rdma", "log.level", "path.sysfs"}
	for _, tt := range []struct{ word, want string }{
		{"log.levle", `; did you mean "log.level"?`},
		{"sorce.rdma", `; did you mean "source.rdma"?`},
		{"source.pci", `; did you mean "source.pcie"?`},
		{"loglevel", `; did you mean "log.level"?`},
		// most letters differ from path.sysfs
		{"nonsense", "; known keys: source.pcie, source.rdma, log.level, path.sysfs"},
		{"x", "; known keys: source.pcie, source.rdma, log.level, path.sysfs"},
		{"", "; known keys: source.pcie, source.rdma, log.level, path.sysfs"},
		{strings.Repeat("log.level", 40), "; known keys: source.pcie, source.rdma, log.level, path.sysfs"},
	} {
		if got := config.Suggest(tt.word, known); got != tt.want {
			t.Errorf("Suggest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "rails: {}", "rails: {include: ^mlx5_, names: {east: mlx5_0/1}}", "rails: &a {names: *a}",
		"rails: {include: \"(\\n\"}",
		"a: &a [*a]", "- \t", "? [a]\n: b", "%YAML 1.1\n---\n", "rails: {names: {\"a\\nb\": \"c\\nd/1\"}}",
		"a: !!binary |\n x",
		"probe: {peers: [a, '[fd00::1]:5'], interval: 10s, burst: 5ms, budget: 1GiB/d, " +
			"busy_above: 0.5}",
		"probe: {listen: ':10092', insecure: true, name: x, traffic_class: 104, memory: host, depth: 2, timeout: 1s}",
		"probe: {token_file: /dev/zero}", "probe: {peers: [\"a\\nb\", *a]}", "--- |\n a\n--- >\n b", "\xfe\xff\x00a",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("f.yml", data)
		if (c == nil) == (err == nil) {
			t.Fatalf("%+v and %v", c, err)
		}
		if err != nil {
			if text := err.Error(); strings.ContainsAny(text, "\n\r") || !strings.HasPrefix(text, "f.yml:") {
				t.Fatalf("not one line about the file: %q", text)
			}
			return
		}
		if c.Probe != nil {
			if err := acceptable(c.Probe); err != nil {
				t.Fatal(err)
			}
		}
		named := map[string]bool{}
		for port, name := range c.Rails.Ports {
			device, number, ok := strings.Cut(port, "/")
			if !ok || number == "" || named[name] || c.Rails.Include != nil && !c.Rails.Include.MatchString(device) {
				t.Fatalf("accepted %q for %q", name, port)
			}
			named[name] = true
		}
	})
}
